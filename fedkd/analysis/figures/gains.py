"""What clients gain over a reference, paired over seeds."""

import warnings
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedkd.analysis import differences
from fedkd.analysis.figures import notes, values
from fedkd.analysis.figures.ends import name_points
from fedkd.analysis.figures.panels import panel, whole_numbers
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import styles
from fedkd.checks import ranges
from fedkd.errors import ConfigError

By = Literal['client', 'architecture']


@plain
def gain(
  frame: pd.DataFrame,
  reference: str = 'private',
  by: By = 'client',
  metric: str = 'accuracy',
  colours: Mapping[str, str] | None = None,
  axes: Axes | None = None,
) -> Axes:
  """The difference of the last evaluation of every run to that of a reference, of each client or architecture.

  Means over the seeds that both have, of differences within a seed; bars are their intervals, as in the tables. Runs
  on other data, clients or test rows are left out with a warning. Architectures are those of the reference.

  Args:
    frame: tidy, of `runs` or of a history.
    reference: a run, or a method of which there is one run.
    by: 'client', or 'architecture', whose clients are averaged.
    metric: of every client; accuracies are shown in percentage points.
    colours: of `colours`, to keep those of a larger frame.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: for an empty frame, a metric or reference that is not in it, or if no run can be compared.
  """
  ranges.check('by', by, By)
  last = values.final_of_clients(frame, metric)
  base = differences.reference_run(frame[frame['run'].isin(list(last))], reference)
  runs = _comparable(frame, list(last), base, metric)
  names = _names(frame, base, last[base].columns, by)
  style = styles(frame, colours)
  labels = list(dict.fromkeys(names))
  places = np.array(labels) if _has_own_places(labels, by) else np.arange(len(labels))
  note = notes.note_of(len(last[run].index.intersection(last[base].index)) for run in runs)
  has_others = by == 'architecture' and set(values.unlike(frame, base)) & set(runs)
  axes = panel(axes, xlabel=notes.below(f'{by} with {base}' if has_others else by, note), ylabel=_label(metric, base))
  axes.axhline(0, color=style[base].color, linewidth=1)
  for i, run in enumerate(runs):
    common = last[run].index.intersection(last[base].index)
    gained = values.scale(metric) * (last[run].loc[common] - last[base].loc[common])
    groups = pd.Index(names)  # of a list pandas makes columns, where all of it are some
    table = values.means(gained.T.groupby(groups, sort=False)).T
    offset = 0.6 * ((i + 0.5) / len(runs) - 0.5)
    _bars(axes, places + offset, table, run, style[run])
  _ticks(axes, labels, by)
  name_points(axes, runs)
  return axes


def _comparable(frame, runs, base, metric) -> list:
  """Runs other than the reference that may be compared with it; the others are told."""
  why = {run: reason for run, reason in differences.apart(frame, base, metric).items() if run in runs and run != base}
  told = '; '.join(f'{run}: {reason}' for run, reason in why.items() if reason)
  kept = [run for run, reason in why.items() if not reason]
  if not kept:
    raise ConfigError(f'no run can be compared with {base} ({told or "it is alone"}); give one on the same data')
  if told:
    warnings.warn(f'not compared with {base}: {told}', stacklevel=4)
  return kept


def _names(frame, base, clients, by) -> list:
  """Of every client: itself, or its architecture."""
  if by == 'client':
    return list(clients)
  of = values.architectures(frame, base)
  return [str(of[client]) for client in clients]


def _label(metric, base) -> str:
  unit = ' (points)' if values.scale(metric) == 100 else ''
  return f'{metric.replace("_", " ")}, difference to {base}{unit}'


def _bars(axes, x, table, run, style):
  mean, low, high = values.intervals(table)
  error = [mean - low, high - mean] if len(table) > 1 else None
  look = style.look(linestyle='none', markersize=5, capsize=2)
  axes.errorbar(x, mean, yerr=error, label=run, **look)


def _has_own_places(names, by) -> bool:
  """Whether clients are so many that each stands at its number, without a tick of its own."""
  return by == 'client' and len(names) > 20


def _ticks(axes, names, by):
  if _has_own_places(names, by):
    whole_numbers(axes.xaxis)
    return
  turned = {'rotation': 20, 'ha': 'right'} if by == 'architecture' and len(names) > 3 else {}
  axes.set_xticks(range(len(names)), [str(name) for name in names], **turned)
