"""What figures show of a tidy frame: numbers by run, seed, round and client."""

from typing import Any

import numpy as np
import pandas as pd

from fedkd.analysis import statistics
from fedkd.analysis.tidy import ALL, check_frame, check_single
from fedkd.errors import ConfigError, check_known

X = {
  'round': 'round',
  'updates': 'client updates',
  'examples': 'examples trained on',
  'megabytes': 'megabytes sent and received by all clients',
  'seconds': 'seconds of training',
}
REMEDIES = {'accuracy': '; give fedkd.train test=(x, y)', 'violated': '; give a run of fedh2l, which measures it'}
SHARES = ('accuracy', 'validation_accuracy', 'violated')  # metrics that begin so are shown in per cent


def scale(metric: str) -> float:
  """What a metric is multiplied by, to be shown."""
  return 100.0 if metric.startswith(SHARES) else 1.0


def label(metric: str) -> str:
  """Of an axis."""
  return metric.replace('_', ' ') + (' (%)' if metric.startswith(SHARES) else '')


def of_metric(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
  """The lines of one metric in the last phase of every run, those without a value among them.

  Raises:
    ConfigError: if none has a value, or two runs have one name.
  """
  check_frame(frame)
  if frame.empty:
    raise ConfigError('frame is empty; give that of runs or of a history with an evaluation')
  phase = frame.groupby('run')['phase'].transform('max')
  found = frame[(frame['metric'] == metric) & (frame['phase'] == phase)]
  if found['value'].isna().all():
    remedy = next((remedy for begin, remedy in REMEDIES.items() if metric.startswith(begin)), '')
    raise ConfigError(f'metric={metric!r} is not in the frame, which has {", ".join(_metrics(frame))}{remedy}')
  check_single(found)
  return found


def _metrics(frame) -> list:
  return sorted(frame['metric'].unique())


def series(frame: pd.DataFrame, metric: str) -> dict[str, pd.DataFrame]:
  """{run: of all clients together, float[seeds, rounds]}, without rounds in which a seed has no value, and runs without
  any other; where single clients alone have the metric, their mean. Errors as of `of_metric`, and if no run is left."""
  known = {run: table.dropna(axis=1) for run, table in every(frame, metric).items()}
  if not any(table.size for table in known.values()):
    raise ConfigError(f'metric={metric!r} has no round in which every seed of a run has a value; give another metric')
  return {run: table for run, table in known.items() if table.size}


def every(frame: pd.DataFrame, metric: str) -> dict[str, pd.DataFrame]:
  """As `series`, with all runs, and all rounds that were evaluated."""
  by_round = lambda one: means(one.groupby(['seed', 'round'])['value']).unstack()
  together = lambda one: one[one['client'] == ALL] if any(one['client'] == ALL) else one
  return {str(run): by_round(together(one)) for run, one in of_metric(frame, metric).groupby('run', sort=False)}


def means(groups: Any) -> Any:
  """The means of what pandas has grouped; of a group in which a value is missing there is none."""
  return groups.mean().mask(groups.count().lt(groups.size(), axis=0))


def horizontal(frame: pd.DataFrame, x: str) -> dict[str, pd.Series]:
  """{run: x after each round, mean over seeds}.

  Raises:
    ConfigError: for an unknown x, or if the frame has no such metric.
  """
  check_known([x], X, 'x', 'quantity')
  if x == 'round':
    rounds = frame.groupby('run', sort=False)['round'].unique()
    return {run: pd.Series(np.sort(each), np.sort(each), float) for run, each in rounds.items()}
  if x != 'megabytes':
    return {run: table.mean() for run, table in series(frame, {'updates': 'turns'}.get(x, x)).items()}
  up, down = series(frame, 'bytes_up'), series(frame, 'bytes_down')
  return {run: (up[run] + down[run]).mean() / 1e6 for run in up}


def rounds_apart(frame: pd.DataFrame, metric: str) -> dict[str, list]:
  """{run: rounds that were evaluated on more test rows than others}: on all of them, at the end. None for a metric that
  is not of test rows, such as a loss."""
  none: dict[str, list] = {str(run): [] for run in frame['run'].unique()}
  if not metric.startswith('accuracy'):
    return none
  found = of_metric(frame, metric)
  least = found.groupby(['run', 'seed'])['test_rows'].transform('min')
  more = found[found['test_rows'] > least]
  return none | {str(run): sorted(rounds) for run, rounds in more.groupby('run')['round'].unique().items()}


def final(frame: pd.DataFrame, metric: str) -> dict[str, pd.Series]:
  """{run: the value at the last evaluation, float[seeds], by the name of its round; NaN where a seed has none there}.
  Errors as of `of_metric`."""
  return {run: table.iloc[:, -1] for run, table in every(frame, metric).items()}


def final_of_clients(frame: pd.DataFrame, metric: str) -> dict[str, pd.DataFrame]:
  """{run: the value of every client at the last evaluation, float[seeds, clients], NaN where it has none there}.

  Raises:
    ConfigError: if single clients have no such metric.
  """
  found = of_metric(frame, metric)
  found = found[found['client'] != ALL]
  if found.empty:
    raise ConfigError(f'metric={metric!r} is in the frame of all clients together alone; give one of single clients')
  last = found[found['round'] == found.groupby('run')['round'].transform('max')]
  table = lambda one: one.pivot(index='seed', columns='client', values='value')
  return {str(run): table(one) for run, one in last.groupby('run', sort=False)}


def architectures(frame: pd.DataFrame, run: str) -> pd.Series:
  """The architecture of every client of a run, by its number."""
  of_run = frame[(frame['run'] == run) & (frame['client'] != ALL)]
  return of_run.drop_duplicates('client').set_index('client')['architecture']


def unlike(frame: pd.DataFrame, base: str) -> list[str]:
  """The runs in which a client has another architecture than in the run `base`."""
  once = frame.drop_duplicates(['run', 'client'])
  of = {str(run): architectures(once, run) for run in once['run'].unique()}
  return [run for run, names in of.items() if not names.equals(of[base].reindex(names.index))]


def intervals(table: pd.DataFrame) -> np.ndarray:
  """(mean, low, high) of every column, float[3, columns]: the interval over seeds that the tables print."""
  return np.array([statistics.interval(table[column]) for column in table]).reshape(-1, 3).T
