"""Names at the ends of lines, or of points, instead of a legend that is too long to be read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

MOST = 8  # runs in a legend


class End(NamedTuple):
  """Where a line ends, in data coordinates, and its name; a level ends at infinity."""

  name: str
  x: float
  y: float
  colour: str


def spread(wanted: np.ndarray, gap: float) -> np.ndarray:
  """The places nearest to the wanted ones, by squared distance, at least a gap apart and in the same order."""
  from scipy.optimize import isotonic_regression  # takes a moment to import, and few figures have so many runs

  order, gaps = np.argsort(wanted, kind='stable'), gap * np.arange(len(wanted))
  out = np.empty(len(wanted))
  out[order] = isotonic_regression(wanted[order] - gaps).x + gaps
  return out


def label_ends(axes: Axes, ends: Sequence[End], size: float = 8.0) -> None:
  """Writes the names right of the axes, none over another, each with a thin line to its end."""
  figure: Any = axes.get_figure(root=True)
  figure.draw_without_rendering()  # sets limits and the height of the axes
  gap = 1.3 * size / 72 * figure.dpi / axes.get_window_extent().height
  ends = [end._replace(x=min(end.x, axes.get_xlim()[1])) for end in ends]
  at = axes.transData.transform([(end.x, end.y) for end in ends])
  places = spread(axes.transAxes.inverted().transform(at)[:, 1], gap)
  places -= np.clip(places.max() - max(1.0, gap * len(ends)), 0, None)  # not above the top
  for end, place in zip(ends, places, strict=True):
    line: dict[str, Any] = {
      'arrowstyle': '-',
      'color': end.colour,
      'linewidth': 0.6,
      'alpha': 0.6,
      'shrinkA': 0,
      'shrinkB': 2,
      'relpos': (0, 0.5),
    }
    where: dict[str, Any] = {
      'xytext': (1.06, place),
      'textcoords': 'axes fraction',
      'annotation_clip': False,
      'va': 'center',
    }
    axes.annotate(end.name, (end.x, end.y), color=end.colour, fontsize=size, arrowprops=line, **where)


def name_runs(axes: Axes, ends: Sequence[End]) -> None:
  """A legend of what is labelled in the axes; names at the ends of more than `MOST` lines; the title names a single
  one."""
  if len(ends) > MOST:
    label_ends(axes, ends)
  elif len(ends) > 1:
    axes.legend(frameon=False, fontsize='small')
  elif not axes.get_title():
    axes.set_title(ends[0].name)


def name_points(axes: Axes, runs: Sequence[str], points: Sequence[End] = ()) -> None:
  """A legend beside the axes, or the names of more than `MOST` runs of one point each, beside their `points`; the title
  names a single run."""
  if len(points) > MOST:
    label_ends(axes, points)
  elif len(runs) > 1:
    axes.legend(frameon=False, fontsize='small', loc='center left', bbox_to_anchor=(1, 0.5))
  elif not axes.get_title():
    axes.set_title(runs[0])
