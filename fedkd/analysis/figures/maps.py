"""Tables of numbers as maps: labels of clients, accuracy per class, knowledge over rounds."""

from collections.abc import Sequence
from typing import Any

import matplotlib.cm
import matplotlib.colors
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from fedkd.analysis.figures.panels import panel, whole_numbers
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import COLOURS
from fedkd.checks.kinds import check_one_each
from fedkd.errors import ConfigError

WRITTEN = (16, 12)  # columns and rows of a map, up to which its numbers are written in it
TICKS = 20  # of an axis, up to which each is named


@plain
def labels(counts: ArrayLike, axes: Axes | None = None, names: Sequence[str] | None = None) -> Axes:
  """Training examples per client and class as a map, with the counts where they are few.

  Args:
    counts: int[clients, classes].
    axes: to draw in; None: new ones.
    names: of the classes, written where they are few; None: their numbers.

  Raises:
    ConfigError: if counts are no table, or it has another number of classes than there are names.
  """
  table, shown = _labels(counts, names)
  axes = panel(axes, xlabel='client', ylabel='class')
  draw_map(axes, table.T, 'training examples', '{:.0f}', cmap='cividis', vmin=0)
  if len(shown) <= TICKS:
    axes.set_yticks(range(len(shown)), shown)
  return axes


@plain
def label_bars(counts: ArrayLike, axes: Axes | None = None, names: Sequence[str] | None = None) -> Axes:
  """Training examples per client as bars of their classes; arguments and errors as of `labels`."""
  table, shown = _labels(counts, names)
  axes = panel(axes, xlabel='client', ylabel='training examples')
  bottom = np.concatenate([np.zeros((len(table), 1)), table.cumsum(1)], 1)
  classes = table.shape[1]
  width, few = (0.85 if len(table) <= 50 else 1.0), classes <= 2 * len(COLOURS)
  norm = matplotlib.colors.Normalize(-0.5, classes - 0.5)
  shades: Any = matplotlib.cm.ScalarMappable(norm, 'turbo')
  for c in range(classes):
    look = _look(c) if few else {'color': shades.to_rgba(c)}
    axes.bar(np.arange(len(table)), table[:, c], bottom=bottom[:, c], label=shown[c], width=width, **look)
  _ticks(axes.xaxis, len(table))
  if few:
    beside: dict[str, Any] = {'loc': 'center left', 'bbox_to_anchor': (1, 0.5), 'reverse': True}
    axes.legend(title='class', frameon=False, fontsize='small', **beside)
  else:
    axes.figure.colorbar(shades, ax=axes, label='class')
  return axes


@plain
def class_accuracy(accuracy: ArrayLike, names: Sequence[str] | None = None, axes: Axes | None = None) -> Axes:
  """The accuracy of every client on each class as a map, with the numbers in per cent where they are few.

  Args:
    accuracy: float[clients, classes], as `per_class` gives; NaN, of a class without test examples, stays blank. Or
      [seeds, clients, classes], of which the mean over seeds is shown.
    names: of the rows, where they are no clients but runs, for example.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: if accuracy is no such array or no share, or has another number of rows than there are names.
  """
  table = np.asarray(accuracy, float)
  if (outside := table[(table < 0) | (table > 1 + 1e-6)]).size:
    raise ConfigError(f'accuracy has {outside[0]:g}, which is no share; give numbers from 0 to 1, as per_class does')
  table = _table('accuracy', table.mean(0) if table.ndim == 3 else table, 'clients, classes')
  if names is not None:
    check_one_each('names', names, len(table), 'rows of accuracy')
  axes = panel(axes, xlabel='class', ylabel='client' if names is None else '')
  draw_map(axes, 100 * table, 'accuracy (%)', '{:.0f}', cmap='viridis', vmin=0, vmax=100, origin='upper')
  if names is not None:
    axes.set_yticks(range(len(names)), names)
  return axes


@plain
def class_knowledge(
  values: ArrayLike, rounds: ArrayLike | None = None, label: str = '', axes: Axes | None = None
) -> Axes:
  """What is known of each class over rounds as a map: accuracy per class, examples behind the server's class
  knowledge, or its distance from that of the round before.

  Args:
    values: float[rounds, classes].
    rounds: of the rows; None: 0, 1, ...
    label: of the values, such as 'accuracy'; '' is none.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: if values are no table, or there is another number of rounds.
  """
  table = _table('values', values, 'rounds, classes')
  rounds = np.arange(len(table)) if rounds is None else np.asarray(rounds)
  check_one_each('rounds', rounds, len(table), 'rows of values')
  axes = panel(axes, xlabel='round', ylabel='class')
  draw_map(axes, table.T, label, '{:.2g}', cmap='viridis')
  step = -(-len(rounds) // 10)
  axes.set_xticks(range(0, len(rounds), step), [f'{one:g}' for one in rounds[::step]])
  return axes


def _labels(counts, names) -> tuple:
  table = _table('counts', counts, 'clients, classes')
  shown = list(map(str, range(table.shape[1]) if names is None else names))
  check_one_each('names', shown, table.shape[1], 'classes of counts')
  return table, shown


def _table(field, values, of) -> np.ndarray:
  """An array of two axes that are not empty."""
  table = np.asarray(values)
  if table.ndim != 2 or not table.size or not np.issubdtype(table.dtype, np.number):
    raise ConfigError(f'{field} has shape {list(table.shape)}; give an array [{of}]')
  return table


def draw_map(axes: Axes, table: np.ndarray, label: str, text: str, origin: Any = 'lower', **options: Any) -> Axes:
  """A map of [rows, columns] with a colour bar, and its numbers where they can be read."""
  axes.grid(False)
  image = axes.imshow(table, aspect='auto', origin=origin, **options)
  axes.figure.colorbar(image, ax=axes, label=label)
  for axis, count in ((axes.xaxis, table.shape[1]), (axes.yaxis, table.shape[0])):
    _ticks(axis, count)
  if table.shape[1] <= WRITTEN[0] and table.shape[0] <= WRITTEN[1]:
    _write(axes, image, table, text)
  return axes


def _ticks(axis, count):
  if count <= TICKS:
    axis.set_ticks(range(count))
  else:
    whole_numbers(axis)


def _write(axes, image, table, text):
  """The numbers, dark on light and light on dark."""
  luminance = image.cmap(image.norm(table))[..., :3] @ [0.299, 0.587, 0.114]
  for (row, column), value in np.ndenumerate(table):
    if np.isfinite(value):
      colour = 'black' if luminance[row, column] > 0.5 else 'white'
      size = 8 if table.shape[1] <= 10 else 6.5
      axes.text(column, row, text.format(value), ha='center', va='center', color=colour, fontsize=size)


def _look(c) -> dict:
  """Of the bars of a class: a colour, with a hatch where it comes again."""
  hatched = {'hatch': '////'} if c >= len(COLOURS) else {}
  return {'color': COLOURS[c % len(COLOURS)], 'edgecolor': 'white', 'linewidth': 0.3, **hatched}
