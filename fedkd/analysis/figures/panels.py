"""The axes that figures are drawn in, and their files."""

import io
import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import matplotlib.figure
import matplotlib.ticker
from matplotlib.axes import Axes

from fedkd import files
from fedkd.analysis.figures import notes
from fedkd.errors import ConfigError


def blank(width: float = 6.4, height: float = 4.0) -> Axes:
  """Axes of a figure of their own, in inches, which pyplot does not know."""
  return matplotlib.figure.Figure(figsize=(width, height), layout='constrained').add_subplot()


def panel(axes: Axes | None, **labels: Any) -> Axes:
  """The given axes, or new ones, in the look that all figures share; `labels` as of `Axes.set`.

  In a notebook new axes are pyplot's, which shows them below the cell.
  """
  if axes is None and 'ipykernel' in sys.modules:
    import matplotlib.pyplot as plt

    axes = plt.subplots(layout='constrained')[1]
  axes = blank() if axes is None else axes
  axes.set(**labels)
  axes.set_ylabel(notes.wrapped(axes.get_ylabel(), notes.LETTERS[1]))
  axes.set_axisbelow(True)
  axes.grid(alpha=0.3)
  axes.spines[['top', 'right']].set_visible(False)
  return axes


def logarithmic(axes: Axes) -> None:
  """Makes the horizontal axis logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten, as they fit."""
  axes.set_xscale('log')
  low, high = axes.get_xlim()
  axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
  axes.xaxis.set_major_formatter('{x:g}')
  axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def differ_much(values: Iterable[float]) -> bool:
  """Whether positive numbers differ by more than a factor of 20, so that a logarithm shows them better."""
  known = list(values)
  return min(known, default=0) > 0 and max(known) > 20 * min(known)


def within_per_cent(axes: Axes) -> None:
  """Leaves out what an interval has below 0 or above 100."""
  low, high = axes.get_ylim()
  if low < -3 or high > 103:
    axes.set_ylim(max(low, -3), min(high, 103))


def whole_numbers(axis: Any) -> None:
  """Ticks of a count, at whole numbers alone."""
  axis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def save(drawn: Any, path: str | os.PathLike) -> None:
  """Writes the PNG of axes or of a figure, atomically; the folder is made.

  Raises:
    ConfigError: for a name that does not end in .png.
  """
  path = pathlib.Path(path)
  if path.suffix.lower() != '.png':
    raise ConfigError(f'path={path} does not end in .png, the format that is written; give such a name')
  while not hasattr(drawn, 'savefig'):
    drawn = drawn.figure
  path.parent.mkdir(parents=True, exist_ok=True)
  made = io.BytesIO()
  drawn.savefig(made, dpi=150, format='png')
  files.write(path, made.getvalue())
