"""Names at the ends of lines, or of points, instead of a legend that is too long to be read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes

from fedkd.analysis.figures import notes

MOST = 8  # runs in a legend
LEAST = 5.0  # size of a name that can be read, in points


class End(NamedTuple):
  """Where a line ends, in data coordinates, and its name; a level ends at infinity."""

  name: str
  x: float
  y: float
  colour: str


def spread(wanted: np.ndarray, height: float | np.ndarray) -> np.ndarray:
  """The places nearest to the wanted ones, by squared distance, in the same order; what has its middle there is so high
  and overlaps nothing."""
  from scipy.optimize import isotonic_regression  # takes a moment to import, and few figures have so many runs

  order = np.argsort(wanted, kind='stable')
  high = np.broadcast_to(height, len(wanted))[order]
  gaps = np.cumsum([0.0, *(high[1:] + high[:-1]) / 2])
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
    if not columns or at[i, 0] - at[columns[-1][-1], 0] > letter * (
      3 + max(_letters(points[j].name) for j in columns[-1])
    ):
      columns.append([])
    columns[-1].append(int(i))
  for column in columns:
    _column(axes, [points[i] for i in column], at[column, 0].max() + 2 * letter, at[column, 1], size)


def _in_axes(axes, ends) -> tuple[list, np.ndarray]:
  """(ends, levels at the right limit, with names in lines that fit; their places [ends, 2] as fractions of the axes),
  whose limits it sets."""
  axes.get_figure(root=True).draw_without_rendering()
  limit, name = axes.get_xlim()[1], lambda end: notes.wrapped(end.name, notes.LETTERS[0])
  ends = [end._replace(x=min(end.x, limit), name=name(end)) for end in ends]
  at = axes.transData.transform([(end.x, end.y) for end in ends])
  return ends, axes.transAxes.inverted().transform(at)


def _shortened(name, most) -> str:
  """A name of so many lines at most: its begin and its end, by which names differ."""
  lines = name.split('\n')
  if len(lines) <= most:
    return name
  if most == 1:
    return f'{lines[0][: notes.LETTERS[0] // 2]}…{lines[-1][-notes.LETTERS[0] // 2 :]}'
  return '\n'.join([*lines[: most - 1], f'…{lines[-1]}'])


def _letters(name) -> int:
  """Of its longest line."""
  return max(map(len, name.split('\n')))


def _in_pixels(axes, size) -> float:
  return size / 72 * axes.get_figure(root=True).dpi


def _column(axes, ends, x, wanted, size):
  """Names below one another, as near to the wanted heights as they fit; smaller, or shortened, where they would not."""
  letter = _in_pixels(axes, size) / axes.get_window_extent().height
  most = max(1, int(size / LEAST / (1.4 * letter) / len(ends)))  # lines of a name
  ends = [end._replace(name=_shortened(end.name, most)) for end in ends]
  height = letter * np.array([1.3 + 1.4 * end.name.count('\n') for end in ends])
  smaller = np.clip(1 / height.sum(), LEAST / size, 1)
  size, height = smaller * size, smaller * height
  places = spread(wanted, height)
  places -= np.clip(places.max() - max(1.0, height.sum()), 0, None)  # not above the top
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
