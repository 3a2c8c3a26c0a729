"""Metrics while clients train."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedkd.analysis.figures import values
from fedkd.analysis.figures.ends import MOST, End, name_runs
from fedkd.analysis.figures.panels import logarithmic, panel, whole_numbers
from fedkd.analysis.figures.style import styles
from fedkd.errors import ConfigError


def curves(
  frame: pd.DataFrame,
  x: str = 'round',
  metric: str = 'accuracy',
  colours: Mapping[str, str] | None = None,
  axes: Axes | None = None,
) -> Axes:
  """A metric of every run in its last phase: the mean over seeds as a line, its interval as a band.

  The band is the interval of the tables: 95 % Student t over seeds, with fewer than three seeds the range; more than
  eight runs have none, and their names at their ends. An
  evaluation on more test rows than the others, such as the last one of a run, is a point apart from the line. A run
  that sends nothing is a level over megabytes.

  Args:
    frame: tidy, of `runs` or of a history.
    x: 'round', 'updates' (of clients), 'examples', 'megabytes' or 'seconds'.
    metric: of all clients together; accuracies are shown in per cent.
    colours: of `colours`, to keep those of a larger frame.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: for an empty frame, an unknown x or a metric that is not in the frame.
  """
  drawn, at, apart = values.series(frame, metric), values.horizontal(frame, x), values.rounds_apart(frame)
  style = {run: one for run, one in styles(frame, colours).items() if run in drawn and run in at}
  axes = panel(axes, ylabel=values.label(metric))
  level = {run for run in style if x == 'megabytes' and at[run].max() == 0}
  level = set() if level == set(style) else level
  ends, has_band = [], len(style) <= MOST
  for run in style:
    name = f'{run} (sends nothing)' if run in level else run
    draw = _level if run in level else _line
    table = values.scale(metric) * drawn[run]
    ends += draw(axes, name, at[run], table, [r for r in apart[run] if r in table], style[run], has_band)
  if x == 'megabytes' and _is_wide([at[run].max() for run in style if run not in level]):
    logarithmic(axes)
  elif x in ('round', 'updates'):
    whole_numbers(axes.xaxis)
  point = 'points at the end: all test rows' if any(set(apart[run]) & set(drawn[run]) for run in style) else ''
  note = values.note(frame[frame['run'].isin(list(style))])
  axes.set_xlabel(values.below(values.X[x], note if has_band else 'means over seeds', point))
  name_runs(axes, ends)
  return axes


def _is_wide(last) -> bool:
  return min(last) > 0 and max(last) > 20 * min(last)


def _line(axes, name, at, table, apart, style, has_band) -> list[End]:
  """A run's line and band, and its evaluations on more test rows as points."""
  on_line = [r for r in table if r not in apart and r in at]
  apart = [r for r in apart if r in at]
  if on_line:
    mean, low, high = values.intervals(table[on_line])
    every = max(1, len(on_line) // 10)
    axes.plot(at[on_line], mean, markersize=4, markevery=every, label=name, **style.look())
    if has_band and len(table) > 1:
      axes.fill_between(at[on_line], low, high, color=style.color, alpha=0.2, linewidth=0)
  if apart:
    mean, low, high = values.intervals(table[apart])
    error = np.stack([mean - low, high - mean]) if has_band and len(table) > 1 else None
    options = style.look(linestyle='none', markersize=8, markeredgecolor='white', capsize=2)
    axes.errorbar(at[apart], mean, yerr=error, label=None if on_line else name, **options)
  last = [*on_line, *apart][-1]
  return [End(name, float(at[last]), float(table[last].mean()), style.color)]


def _level(axes, name, at, table, apart, style, has_band) -> list[End]:
  """The last value of a run as a level."""
  mean = table.iloc[:, -1].mean()
  axes.axhline(mean, color=style.color, linestyle=':', label=name)
  return [End(name, np.inf, float(mean), style.color)]


def violations(
  frame: pd.DataFrame, x: str = 'round', colours: Mapping[str, str] | None = None, axes: Axes | None = None
) -> Axes:
  """How often what a node learns from its peers conflicts with its own data (FedH2L, Li et al., 2021, Eq. 9): client
  updates since the last evaluation whose global gradient has a negative inner product with the local one, in per cent.

  Arguments as of `curves`.

  Raises:
    ConfigError: if no run of the frame measures it.
  """
  if 'violated' not in set(frame.get('metric', ())):
    raise ConfigError('the frame has no metric violated; give a run of fedh2l, which measures it')
  axes = curves(frame, x, 'violated', colours, axes)
  axes.set(ylabel='conflicting global gradients (%)', ylim=(-3, 103))
  return axes
