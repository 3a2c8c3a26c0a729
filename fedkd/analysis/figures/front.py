"""What accuracy costs."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedkd.analysis.figures import notes, values
from fedkd.analysis.figures.ends import End, name_points
from fedkd.analysis.figures.panels import differ_much, logarithmic, panel
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import styles
from fedkd.errors import ConfigError


def on_front(cost: np.ndarray, gain: np.ndarray) -> np.ndarray:
  """Which points no other one dominates, which costs as little and gains as much, and one of them strictly more,
  bool[points]."""
  cost, gain = np.asarray(cost), np.asarray(gain)
  as_good = (cost[:, None] <= cost) & (gain[:, None] >= gain)
  better = as_good & ((cost[:, None] < cost) | (gain[:, None] > gain))
  return np.logical_not(better.any(0))


@plain
def pareto(
  frame: pd.DataFrame,
  metric: str = 'accuracy',
  colours: Mapping[str, str] | None = None,
  axes: Axes | None = None,
) -> Axes:
  """The last value of every run against all megabytes sent and received, with the Pareto front.

  Runs on the front are filled: no other one sends as little and is as good. Bars are the intervals of the tables.
  A run that sends nothing is a level; one in which a seed has no value at its last evaluation, or of which megabytes
  are not known, is named instead.

  Args:
    frame: tidy, of `runs` or of a history.
    metric: of which more is better, of all clients together.
    colours: of `colours`, to keep those of a larger frame.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: for an empty frame, or a metric that is not in it, or not at the end of any run with megabytes.
  """
  last, sent = values.final(frame, metric), values.horizontal(frame, 'megabytes')
  valued = [run for run in last if last[run].notna().all()]
  known = [run for run in valued if last[run].name in sent.get(run, ())]
  if not valued:
    raise ConfigError(f'metric={metric!r} has no value at the last evaluation of any run; give another metric')
  if not known:
    raise ConfigError(f'frame has no bytes at the last evaluation of {", ".join(valued)}; give runs that count them')
  style = {run: one for run, one in styles(frame, colours).items() if run in known}
  mean = np.array([values.scale(metric) * last[run].mean() for run in style])
  cost = np.array([sent[run][last[run].name] for run in style])
  front = on_front(cost, mean)
  axes = panel(axes, ylabel=values.label(metric))
  for i, run in enumerate(style):
    _point(axes, run, cost[i], values.scale(metric) * last[run].to_numpy(), style[run], front[i])
  _step(axes, cost[front], mean[front])
  if differ_much(cost[cost > 0]):
    logarithmic(axes)
  lacking = (
    notes.about(notes.UNVALUED, [run for run in last if run not in valued]),
    notes.about('no megabytes', [run for run in valued if run not in known]),
  )
  said = notes.note(frame[frame['run'].isin(known)]), 'filled: Pareto front', *lacking
  axes.set_xlabel(notes.below(values.X['megabytes'], *said))
  ends = [End(run, cost[i] or np.inf, mean[i], style[run].color) for i, run in enumerate(style)]
  name_points(axes, list(style), ends)
  return axes


def _point(axes, run, cost, final, style, is_on_front):
  """Mean and interval of [seeds]; without cost a level."""
  mean, low, high = values.statistics.interval(final)
  if cost == 0:
    axes.axhline(mean, color=style.color, linestyle=':', label=f'{run} (sends nothing)')
    return
  error = [[mean - low], [high - mean]] if len(final) > 1 else None
  fill = style.color if is_on_front else 'white'
  options = {'color': style.color, 'marker': style.marker, 'linestyle': 'none', 'capsize': 2}
  axes.errorbar(cost, mean, yerr=error, markerfacecolor=fill, label=run, **options)


def _step(axes, cost, mean):
  """The front as a line of steps below the points."""
  cost, mean = cost[cost > 0], mean[cost > 0]
  order = np.argsort(cost)
  axes.plot(cost[order], mean[order], color='0.6', linewidth=1, drawstyle='steps-post', zorder=1, gid='front')
