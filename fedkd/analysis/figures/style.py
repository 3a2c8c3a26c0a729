"""One visual language: a method has its colour in every figure, by its name."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

# Okabe and Ito's colours and a brown, distinguishable with any colour vision; the markers differ too.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#8B4513')
MARKERS = 'osD^vP*X'
LINES = ('-', '--', '-.', ':')

# Methods that learn from one another in a similar way share a colour, and differ in line and marker.
FAMILIES = (
  ('fedhe', 'fd', 'selectivefd', 'fedgkt'),
  ('fedmd', 'dsfl', 'feddf', 'scarlet'),
  ('fedproto', 'fedtgp', 'fedmrl', 'fedkd'),
  ('fedavg', 'fedprox', 'heterofl', 'lgfedavg'),
  ('fedh2l', 'fml', 'rhfl', 'fccl'),
  ('felo', 'ktpfl'),
  ('velo', 'fedgh', 'fedgen'),
)
FIXED = {name: colour for colour, family in zip(COLOURS, FAMILIES, strict=True) for name in family}
FIXED |= {'private': '#000000', 'ind': '#000000', 'agg': '#7F7F7F', 'pooled': '#7F7F7F', 'public': '#B0B0B0'}


def colours(frame: pd.DataFrame | Iterable[str]) -> dict[str, str]:
  """The colour of every run, for all figures of a comparison.

  That of its method, which is the same in every frame; a run that is not the only one of its method, or whose method
  is none of fedkd's, has one of the colours that are free, by its place in the frame.

  Args:
    frame: tidy, or names.
  """
  known = _names(frame)
  out = {run: FIXED[name] for run, name in known.items() if name in FIXED}
  free = itertools.cycle([colour for colour in COLOURS if colour not in out.values()] or COLOURS)
  return {run: out[run] if run in out else next(free) for run in known}


def _names(frame) -> dict[str, str]:
  """{run: its method as a plain name, or the run's own where several have the method}."""
  plain = lambda name: ''.join(letter for letter in str(name).casefold() if letter.isalnum())
  if not isinstance(frame, pd.DataFrame):
    return {name: plain(name) for name in frame}
  method = frame.drop_duplicates('run').set_index('run')['method']
  alone = ~method.duplicated(keep=False)
  return {run: plain(method[run] if alone[run] else run) for run in method.index}


def styles(frame: pd.DataFrame | Iterable[str], given: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
  """Colour, marker and line of every run, no two of them alike; `given`: colours of some runs."""
  seen: dict[str, int] = {}
  out = {}
  for run, colour in {**colours(frame), **(given or {})}.items():
    again = seen[colour] = seen.get(colour, -1) + 1
    place = COLOURS.index(colour) if colour in COLOURS else len(COLOURS)
    marker = MARKERS[(place + again) % len(MARKERS)]
    out[run] = {'color': colour, 'marker': marker, 'linestyle': LINES[again % len(LINES)]}
  return out
