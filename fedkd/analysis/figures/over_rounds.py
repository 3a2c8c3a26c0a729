"""Metrics while clients train."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedkd.analysis.figures import notes, values
from fedkd.analysis.figures.ends import MOST, End, name_runs
from fedkd.analysis.figures.panels import differ_much, logarithmic, panel, whole_numbers, within_per_cent
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import styles
from fedkd.errors import ConfigError


@plain
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
  that sends nothing is a level over megabytes, or is named if a seed has no value at its last evaluation; so is a run
  in which a seed never has one, one without x, and one whose line lacks rounds in which some seeds have no value.
  Megabytes that differ much between runs are on a logarithm, from the first message on.

  Args:
    frame: tidy, of `runs` or of a history.
    x: 'round' or 'updates' (of clients), both counted anew in the last phase; 'examples', 'megabytes' or 'seconds' (of
      training, of all seeds together, without evaluations and compilation), from the start of the run.
    metric: of all clients together; accuracies are shown in per cent.
    colours: of `colours`, to keep those of a larger frame.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: for an empty frame, an unknown x, a metric that is not in the frame, or no run that has both.
  """
  drawn, at, apart = values.series(frame, metric), values.horizontal(frame, x), values.rounds_apart(frame, metric)
  known = [run for run in drawn if run in at]
  level = _levels(at, known) if x == 'megabytes' else set()
  is_log = x == 'megabytes' and differ_much([at[run].max() for run in known if run not in level])
  # What was before the first message has no place on a logarithm; a line from there would begin at the left edge.
  has_place = lambda run, r: r in at[run] and (at[run][r] > 0 or not is_log or run in level)
  placed = {run: [r for r in drawn[run] if has_place(run, r)] for run in known}
  style = {run: one for run, one in styles(frame, colours).items() if placed.get(run)}
  if not style:
    raise ConfigError(f'x={x!r} and metric={metric!r} are not known of any run in one round; give another x')
  axes, has_band = panel(axes, ylabel=values.label(metric)), len(style) <= MOST
  last = values.final(frame, metric)
  never = [run for run in last if run not in drawn]
  lost = [run for run in style if run in level and last[run].isna().any()]
  style = {run: one for run, one in style.items() if run not in lost}
  is_known = {run: table.notna() for run, table in values.every(frame, metric).items()}
  short = [run for run in style if run not in level and any(is_known[run].any() & ~is_known[run].all())]
  ends = []
  for run, one in style.items():
    table = values.scale(metric) * drawn[run][placed[run]]
    if run in level:
      ends.append(_level(axes, f'{run} (sends nothing)', float(values.scale(metric) * last[run].mean()), one))
    else:
      ends.append(_line(axes, run, at[run], table, apart[run], one, has_band))
  if is_log:
    logarithmic(axes)
  elif x in ('round', 'updates'):
    whole_numbers(axes.xaxis)
  if values.scale(metric) == 100:
    within_per_cent(axes)
  note = notes.note(frame[frame['run'].isin(list(style))]) if has_band else 'means over seeds'
  point = 'points: all test rows' if any(apart[run] for run in style) else ''
  lacking = (
    notes.about(notes.UNVALUED, [*never, *lost]),
    notes.about(f'no {x}', [run for run in drawn if not placed.get(run)]),
    notes.about('no line where a seed has no value', short),
  )
  axes.set_xlabel(notes.below(values.X[x], notes.anew(frame, x), note, point, *lacking))
  name_runs(axes, ends)
  return axes


def _levels(at, runs) -> set:
  """Runs that send nothing, beside some that do."""
  silent = {run for run in runs if at[run].max() == 0}
  return silent if len(silent) < len(runs) else set()


def _line(axes, name, at, table, apart, style, has_band) -> End:
  """A run's line and band, and its evaluations on more test rows as points."""
  on_line, apart = ([r for r in table if (r in apart) is is_apart] for is_apart in (False, True))
  if on_line:
    mean, low, high = values.intervals(table[on_line])
    every = max(1, len(on_line) // 10)
    axes.plot(at[on_line], mean, markersize=4, markevery=every, label=name, **style.look())
    if has_band and len(table) > 1:
      axes.fill_between(at[on_line], low, high, color=style.color, alpha=0.2, linewidth=0)
  if apart:
    mean, low, high = values.intervals(table[apart])
    error = np.stack([mean - low, high - mean]) if has_band and len(table) > 1 else None
    options = style.look(linestyle='none', markersize=8, capsize=3)
    axes.errorbar(at[apart], mean, yerr=error, label=None if on_line else name, **options)
  last = [*on_line, *apart][-1]
  return End(name, float(at[last]), float(table[last].mean()), style.color)


def _level(axes, name, mean, style) -> End:
  """The last value of a run as a level."""
  axes.axhline(mean, color=style.color, linestyle=':', label=name)
  return End(name, np.inf, mean, style.color)


@plain
def violations(
  frame: pd.DataFrame, x: str = 'round', colours: Mapping[str, str] | None = None, axes: Axes | None = None
) -> Axes:
  """How often what a node learns from its peers conflicts with its own data (FedH2L, Li et al., 2021, Eq. 9): client
  updates since the last evaluation whose global gradient has a negative inner product with the local one, in per cent.

  Arguments as of `curves`.

  Raises:
    ConfigError: if no run of the frame measures it.
  """
  axes = curves(frame, x, 'violated', colours, axes)
  axes.set(ylabel='conflicting global gradients (%)', ylim=(-3, 103))
  return axes
