"""Names at the ends of lines, or of points, instead of a legend that is too long to be read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes

from fedkd.analysis.figures import notes

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
  ends, at = _in_axes(axes, ends)
  _column(axes, ends, 1.06, at[:, 1], size)


def label_points(axes: Axes, points: Sequence[End], size: float = 8.0) -> None:
  """Writes names right of their points, none over another: points too near for names between them share a column."""
  points, at = _in_axes(axes, points)
  letter = 0.65 * _in_pixels(axes, size) / axes.get_window_extent().width
  columns: list[list[int]] = []
  for i in np.argsort(at[:, 0], kind='stable'):
    if not columns or at[i, 0] - at[columns[-1][-1], 0] > letter * (3 + max(len(points[j].name) for j in columns[-1])):
      columns.append([])
    columns[-1].append(int(i))
  for column in columns:
    _column(axes, [points[i] for i in column], at[column, 0].max() + 2 * letter, at[column, 1], size)


def _in_axes(axes, ends) -> tuple[list, np.ndarray]:
  """(ends, levels at the right limit; their places [ends, 2] as fractions of the axes), whose limits it sets."""
  axes.get_figure(root=True).draw_without_rendering()
  ends = [end._replace(x=min(end.x, axes.get_xlim()[1])) for end in ends]
  at = axes.transData.transform([(end.x, end.y) for end in ends])
  return ends, axes.transAxes.inverted().transform(at)


def _in_pixels(axes, size) -> float:
  return size / 72 * axes.get_figure(root=True).dpi


def _column(axes, ends, x, wanted, size):
  """Names below one another, as near to the wanted heights as they fit."""
  gap = 1.3 * _in_pixels(axes, size) / axes.get_window_extent().height
  places = spread(wanted, gap)
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
      'xytext': (x, place),
      'textcoords': 'axes fraction',
      'annotation_clip': False,
      'va': 'center',
    }
    halo = [patheffects.withStroke(linewidth=2, foreground='white')]  # lines below do not cross out a name
    axes.annotate(
      end.name, (end.x, end.y), color=end.colour, fontsize=size, arrowprops=line, path_effects=halo, **where
    )


def name_runs(axes: Axes, ends: Sequence[End]) -> None:
  """A legend of what is labelled in the axes; names at the ends of more than `MOST` lines; the title names a single
  one."""
  if len(ends) > MOST:
    label_ends(axes, ends)
  elif len(ends) > 1:
    _legend(axes)
  elif not axes.get_title():
    axes.set_title(ends[0].name)


def name_points(axes: Axes, runs: Sequence[str], points: Sequence[End] = ()) -> None:
  """A legend beside the axes, or the names of more than `MOST` runs of one point each, beside their `points`; the title
  names a single run."""
  if len(points) > MOST:
    label_points(axes, points)
  elif len(runs) > 1:
    _legend(axes, loc='center left', bbox_to_anchor=(1, 0.5))
  elif not axes.get_title():
    axes.set_title(runs[0])


def _legend(axes, **where):
  handles, names = axes.get_legend_handles_labels()
  lines = [notes.wrapped(name, notes.LETTERS[0]) for name in names]
  axes.legend(handles, lines, frameon=False, fontsize='small', **where)
