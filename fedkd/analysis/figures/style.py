"""One visual language: a method has its colour in every figure, by its name."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import matplotlib.colors
import numpy as np
import pandas as pd

# Okabe and Ito's colours and a brown, distinguishable with any colour vision; the markers differ too.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#A0522D')
MARKERS = 'osD^vP*X'
LINES = ('-', '--', '-.', ':', (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))

# Methods that learn from one another in a similar way share a colour in several shades; their lines and markers differ.
FAMILIES = (
  ('fedhe', 'fd', 'selectivefd', 'fedgkt'),
  ('fedmd', 'dsfl', 'feddf', 'scarlet', 'fedkt', 'fiarse'),
  ('fedproto', 'fedtgp', 'fedmrl', 'fedkd', 'dense'),
  ('fedavg', 'fedprox', 'heterofl', 'lgfedavg', 'scaffold', 'moon'),
  ('fedh2l', 'fml', 'fedapen', 'rhfl', 'fccl', 'coboosting'),
  ('felo', 'ktpfl', 'ditto', 'fedper', 'fedrep', 'fedbabu'),
  ('velo', 'fedgh', 'fedgen', 'fedrolex', 'federateddropout', 'fedre'),
)
BASELINES = {'private': '#000000', 'ind': '#000000', 'agg': '#7F7F7F', 'pooled': '#7F7F7F', 'public': '#B0B0B0'}
SHADES = (1.0, 0.62, 1.45, 0.42, 1.22, 0.8)  # below 1 darker, above lighter


class Style(NamedTuple):
  """How a run is drawn."""

  color: str
  marker: str
  linestyle: str | tuple = '-'

  def look(self, **further: Any) -> dict[str, Any]:
    """Matplotlib's arguments, with further ones or others."""
    return {**self._asdict(), **further}


def shade(colour: str, times: float) -> str:
  """A colour times a number below 1, or as much nearer to white."""
  rgb = np.array(matplotlib.colors.to_rgb(colour))
  made = rgb * times if times <= 1 else rgb + (1 - rgb) * (times - 1)
  return matplotlib.colors.to_hex(tuple(made.tolist())).upper()


FIXED = {name: Style(colour, 'X') for name, colour in BASELINES.items()} | {
  name: Style(shade(colour, SHADES[j]), MARKERS[(i + j) % len(MARKERS)], LINES[j])
  for i, (colour, family) in enumerate(zip(COLOURS, FAMILIES, strict=True))
  for j, name in enumerate(family)
}


def colours(frame: pd.DataFrame | Iterable[str]) -> dict[str, str]:
  """The colour of every run, for all figures of a comparison.

  That of its method, which is the same in every frame; a run that is not the only one of its method, or whose method
  is none of fedkd's, has one of the colours that are free, by its place in the frame.

  Args:
    frame: tidy, or names.
  """
  return {run: style.color for run, style in styles(frame).items()}


def styles(frame: pd.DataFrame | Iterable[str], given: Mapping[str, str] | None = None) -> dict[str, Style]:
  """How every run is drawn; `given`: colours of some runs, as of `colours`."""
  known = _names(frame)
  first: dict[str, str] = {}
  for run, name in sorted(known.items(), key=lambda item: item[0] != item[1]):  # fedhe before fedhe+
    first.setdefault(name, run)
  out = {run: FIXED[name] for name, run in first.items() if name in FIXED}
  taken = [style.color for style in out.values()]
  free = [i for i, colour in enumerate(COLOURS) if colour not in taken] or list(range(len(COLOURS)))
  for place, run in enumerate(run for run in known if run not in out):
    i, again = free[place % len(free)], place // len(free)
    out[run] = Style(COLOURS[i], MARKERS[(i + again) % len(MARKERS)], LINES[again % len(LINES)])
  return {run: out[run]._replace(color=(given or {}).get(run, out[run].color)) for run in known}


def _names(frame) -> dict[str, str]:
  """{run: its method as a plain name, or the run's own where several have the method}."""
  plain = lambda name: ''.join(letter for letter in str(name).casefold() if letter.isalnum())
  if not isinstance(frame, pd.DataFrame):
    return {name: plain(name) for name in frame}
  method = frame.drop_duplicates('run').set_index('run')['method']
  alone = ~method.duplicated(keep=False)
  return {run: plain(method[run] if alone[run] else run) for run in method.index}
