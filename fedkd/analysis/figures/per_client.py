"""Clients at the end of a run."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedkd.analysis.figures import notes, values
from fedkd.analysis.figures.panels import panel, whole_numbers
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import COLOURS, MARKERS, Style, styles
from fedkd.errors import ConfigError


@plain
def clients(frame: pd.DataFrame, metric: str = 'accuracy', axes: Axes | None = None) -> Axes:
  """The last value of every client of one run, each architecture in its colour: means over seeds, and the intervals of
  the tables.

  Args:
    frame: tidy, of one run.
    metric: of every client.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: for an empty frame, several runs, or a metric that single clients do not have.
  """
  last = values.final_of_clients(frame, metric)
  if len(last) > 1:
    raise ConfigError(
      f"frame has {len(last)} runs; give one of them, such as frame[frame['run'] == {next(iter(last))!r}]"
    )
  ((run, table),) = last.items()
  axes = panel(axes, xlabel=notes.below('client', notes.note(frame)), ylabel=values.label(metric), title=run)
  architecture = frame.drop_duplicates('client').set_index('client')['architecture'].reindex(table.columns)
  mean, low, high = values.scale(metric) * values.intervals(table)
  for i, name in enumerate(dict.fromkeys(architecture)):
    of = (architecture == name).to_numpy() if name is not None else architecture.isna().to_numpy()
    error = [(mean - low)[of], (high - mean)[of]] if len(table) > 1 else None
    look = Style(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], 'none').look(capsize=2, markersize=5)
    axes.errorbar(table.columns[of], mean[of], yerr=error, label=str(name), **look)
  whole_numbers(axes.xaxis)
  if table.shape[1] <= 20:
    axes.set_xticks(table.columns)
  if architecture.nunique() > 1:
    axes.legend(title='architecture', frameon=False, fontsize='small', loc='center left', bbox_to_anchor=(1, 0.5))
  return axes


@plain
def worst(
  frame: pd.DataFrame,
  metric: str = 'accuracy',
  colours: Mapping[str, str] | None = None,
  axes: Axes | None = None,
) -> Axes:
  """The worst client of every run at its end, beside the mean over clients; the best run by its worst client on top.

  Filled: the worst client of each seed, mean over seeds, with the interval of the tables. Hollow: all clients. A run in
  which a client has no value at the end has neither.

  Args:
    frame: tidy, of `runs` or of a history.
    metric: of every client, of which more is better.
    colours: of `colours`, to keep those of a larger frame.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: for an empty frame, or a metric that single clients do not have.
  """
  last = values.final_of_clients(frame, metric)
  least = {run: table.min(axis=1, skipna=False) for run, table in last.items()}
  order = sorted(last, key=lambda run: np.nan_to_num(least[run].to_numpy().mean(), nan=-np.inf))
  style = styles(frame, colours)
  said = notes.note(frame), 'filled: worst client, hollow: mean over clients'
  axes = panel(axes, xlabel=notes.below(values.label(metric), *said))
  for place, run in enumerate(order):
    every = values.scale(metric) * last[run]
    mean, low, high = values.statistics.interval(values.scale(metric) * least[run])
    look = style[run].look(linestyle='none')
    axes.plot([mean, every.to_numpy().mean()], [place, place], color=look['color'], linewidth=1, alpha=0.5)
    axes.plot(every.to_numpy().mean(), place, markerfacecolor='white', **look)
    error = [[mean - low], [high - mean]] if len(every) > 1 else None
    axes.errorbar(mean, place, xerr=error, capsize=2, **look)
  names = [notes.wrapped(run, notes.LETTERS[0]) for run in order]
  axes.set_yticks(np.arange(len(order)), names)
  if names != order:  # what is below has the width of long names, too
    axes.set_xlabel(axes.get_xlabel(), loc='right')
  axes.set_ylim(-0.6, len(order) - 0.4)
  axes.grid(False, axis='y')
  return axes
