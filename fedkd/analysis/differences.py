"""Differences of runs to a reference, paired over seeds, and why some are not compared."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr

from fedkd.analysis import statistics
from fedkd.analysis.tidy import ALL, OWN_NAME, check_frame, check_single
from fedkd.errors import ConfigError

ROUNDING = 1e-12  # relative differences of equal gains
DATA = ('data', 'data_config')  # checksums by which runs on other data are told apart
PARTITION = 'data.partition.'  # fields in which runs on equal examples of equal owners may differ


def summary(frame: pd.DataFrame, reference: str = 'private', metric: str = 'accuracy') -> pd.DataFrame:
  """The last evaluation of every run, and its differences to a reference, paired over seeds.

  Args:
    frame: tidy.
    reference: a run, or a method, of which there is one run.
    metric: of every client.

  Returns:
    A line per run: mean over seeds with the limits of its 95 % interval, the same of the difference, p of a paired t
    test (after Holm, 1979, where several runs are compared); the share of clients that are worse than with the
    reference and by how much on average; the mean over seeds of the worst client, and of the worst tenth of clients.
    `apart` says why a run is not compared.

  Raises:
    ConfigError: if the reference is not one run, nothing is measured, or two trainings have one name.
  """
  check_frame(frame)
  every = frame[(frame['metric'] == metric) & (frame['client'] != ALL)]
  if every.empty:
    raise ConfigError(f'metric={metric!r} is not in the frame for single clients; it has {_names(frame)}')
  check_single(every)
  last = last_evaluation(every)
  _check_ends(last)
  values = lambda one: one.pivot(index='seed', columns='client', values='value')
  of_runs = {run: values(one) for run, one in last.groupby('run', sort=False)}
  base = reference_run(last, reference)
  lines = [_compared(run, values, of_runs[base], why_apart(last, run, base)) for run, values in of_runs.items()]
  out = pd.DataFrame(lines)
  out['p'] = holm(out['p'].to_numpy())
  return out


def last_evaluation(frame: pd.DataFrame) -> pd.DataFrame:
  """The lines of the last round of the last phase of every run and seed; rounds are counted anew in each phase."""
  for column in ('phase', 'round'):
    frame = frame[frame[column] == frame.groupby(['run', 'seed'])[column].transform('max')]
  return frame


def _check_ends(last):
  """Checks that the seeds of every run end in one round, unlike those of two trainings with one name."""
  for run, one in last.groupby('run', sort=False):
    first, *others = one.drop_duplicates(['phase', 'round']).to_dict('records')
    if others:
      at = 'round {round} of phase {phase} for seed {seed}'.format_map
      raise ConfigError(f'run {run!r} ends in {at(first)} and in {at(others[0])}; {OWN_NAME}')


def _names(frame) -> str:
  return ', '.join(sorted(frame.loc[frame['client'] != ALL, 'metric'].unique()))


def reference_run(frame: pd.DataFrame, reference: str) -> str:
  """The one run that is called so, or has this method.

  Raises:
    ConfigError: if there is none, or several.
  """
  known = frame.drop_duplicates('run').set_index('run')['method']
  runs = [reference] if reference in known.index else list(known.index[known == reference])
  if len(runs) != 1:
    raise ConfigError(f'reference={reference!r} is {len(runs)} runs of the frame; give one of {", ".join(known.index)}')
  return runs[0]


def apart(frame: pd.DataFrame, base: str, metric: str = 'accuracy') -> dict[str, str]:
  """{run: why its last evaluation is not compared with that of the run `base`, '' if it is}; a run without any of the
  metric for single clients is left out."""
  last = last_evaluation(frame[(frame['metric'] == metric) & (frame['client'] != ALL)])
  return {run: why_apart(last, run, base) for run in last['run'].unique()}


def why_apart(last: pd.DataFrame, run: str, base: str) -> str:
  """Why two runs are not compared, '' if they are; `last`: of `last_evaluation`."""
  one, other = (last[last['run'] == name] for name in (run, base))
  if _is_of_directory(one) != _is_of_directory(other):
    return 'one is a history and one a run directory, whose data are not known to be the same'
  differ = [c for c in last if c.startswith('data.') and str(one[c].iloc[0]) != str(other[c].iloc[0])]
  common = set(one['seed']) & set(other['seed'])
  one, other = (of[of['seed'].isin(common)] for of in (one, other))
  if differ := [c for c in differ if not (c.startswith(PARTITION) and _is_split_alike(one, other))]:
    return f'other {", ".join(differ)}'
  if not common:
    return 'no common seed'
  if not _same_data(one, other):
    return 'other data'
  keys = [_known(of, 'key') if 'key' in of else {} for of in (one, other)]
  if differ := [str(seed) for seed in keys[0] if keys[0][seed] != keys[1].get(seed, keys[0][seed])]:
    return f'other keys of seed {", ".join(differ)}'
  for column, what in (('client', 'clients'), ('test_rows', 'test rows')):
    if set(one[column]) != set(other[column]):
      return f'other {what}'
  return ''


def _is_of_directory(run) -> bool:
  """Whether a run is from its directory: it has a config, and its checksum of data is of files and of the rows' owners;
  that of a history is of arrays."""
  return 'data_config' in run and bool(_known(run, 'data_config'))


def _is_split_alike(one, other) -> bool:
  """Whether it is known that all seeds of two runs have equal examples, of equal owners, by whichever partition."""
  known = [_known(run, 'data') if 'data' in run else {} for run in (one, other)]
  return bool(known[0]) and set(known[0]) == set(one['seed']) and known[0] == known[1]


def _same_data(one, other) -> bool:
  """Whether all checksums that both runs have of a seed are equal, of which there is one, unless neither has any."""
  known = [[_known(run, column) for run in (one, other)] for column in DATA if column in one]
  if _is_split_alike(one, other):  # what is behind the dash is of the partition
    known = [[{seed: text.partition('-')[0] for seed, text in of.items()} for of in pair] for pair in known]
  both = [(first[seed], second[seed]) for first, second in known for seed in first if seed in second]
  return all(then == now for then, now in both) and (bool(both) or not any(map(any, known)))


def _known(run, column) -> dict:
  """{seed: checksum}, without those that a run of an older version, or a history, does not have."""
  of_seed = run.drop_duplicates('seed').set_index('seed')[column]
  return {seed: value for seed, value in of_seed.items() if isinstance(value, str) and value}


def _compared(run, values, base, apart) -> dict:
  """A line of `summary`; values [seeds, clients]. Where a client has no value, there is none of all of them."""
  of_all = lambda table: table.mean(axis=1, skipna=False)
  whole = np.sort(values.where(of_all(values).notna()).to_numpy(), 1)
  tail = lambda share: whole[:, : max(1, int(share * values.shape[1]))].mean()
  line: dict[str, Any] = {'run': run, 'seeds': len(values)}
  line |= dict(zip(('mean', 'low', 'high'), statistics.interval(of_all(values)), strict=True))
  line |= {'worst': tail(0), 'worst_tenth': tail(0.1), 'apart': apart}
  common = values.index.intersection(base.index) if not apart else []
  gain = values.loc[common] - base.loc[common]
  limits = statistics.interval(of_all(gain)) if len(gain) else [np.nan] * 3
  line |= dict(zip(('gain', 'gain_low', 'gain_high'), limits, strict=True))
  each = gain.to_numpy().ravel()
  known = each.size and not np.isnan(each).any()
  line['negative_share'] = np.mean(each < 0) if known else np.nan
  line['negative_mean'] = (each[each < 0].mean() if (each < 0).any() else 0.0) if known else np.nan
  return {**line, 'p': p_value(of_all(gain).to_numpy())}


def p_value(gain: ArrayLike) -> float:
  """Of a two-sided t test that the mean of paired differences [seeds] is 0; NaN below three seeds, of which intervals
  are ranges, or without spread."""
  gain = statistics.of_seeds(gain)
  if len(gain) < statistics.FEWEST or np.ptp(gain) <= ROUNDING * abs(gain).max():
    return np.nan
  return float(2 * stdtr(len(gain) - 1, -abs(gain.mean()) / (gain.std(ddof=1) / np.sqrt(len(gain)))))


def holm(p: ArrayLike) -> np.ndarray:
  """p values of several tests, after Holm (1979); NaN is no test."""
  p = np.asarray(p, float)
  order = [i for i in np.argsort(p) if not np.isnan(p[i])]
  out, largest = np.full(len(p), np.nan), 0.0
  for rank, i in enumerate(order):
    largest = max(largest, min(1.0, (len(order) - rank) * p[i]))
    out[i] = largest
  return out
