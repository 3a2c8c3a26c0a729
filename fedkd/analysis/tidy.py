"""Tidy frames: runs and histories as one line per run, seed, evaluation, client and metric."""

import glob
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from ml_collections import ConfigDict
from scipy.special import stdtr

from fedkd import files
from fedkd.analysis import results, statistics
from fedkd.analysis.compare import labelled
from fedkd.config import groups as config_groups
from fedkd.config.trees import flatten
from fedkd.errors import ConfigError
from fedkd.inference import evaluated_of

COLUMNS: tuple[str, ...] = (
  'run',
  'method',
  'seed',
  'phase',
  'round',
  'client',
  'architecture',
  'domain',
  'examples',
  'test_rows',
)
COLUMNS += ('metric', 'value')
ALL = -1  # the client of a metric of all clients together
APART = ('run', 'method', 'seeds', 'clients', 'phase', 'round', 'time', 'test_rows')  # of a row, no metrics
OF_RUN = ('method', 'data', 'finished')
UNLIKE = ('seeds', 'name', 'data.dir')  # fields of a config that say nothing about a run


def tidy(rows: Iterable[dict], clients: dict[str, Any], **constant: Any) -> pd.DataFrame:
  """Evaluations as one line per seed, evaluation, client and metric, with the columns `COLUMNS`.

  Args:
    rows: of `metrics.jsonl`, with their 'seeds', and 'clients', the numbers of those evaluated where that is a sample:
      metrics are lists over seeds, of lists over clients in those that end in _per_client, or a number of all seeds
      together, such as seconds; others are left out.
    clients: what is known of the clients, [clients] or [seeds, clients].
    constant: further columns, such as run and method.

  Returns:
    With client -1 (`ALL`) where a metric is of all clients together.
  """
  lines = [_lines(row, field, value) for row in rows for field, value in row.items() if field not in APART]
  parts = [part for part in lines if part is not None]
  if not parts:
    return pd.DataFrame(columns=[*COLUMNS, *(name for name in constant if name not in COLUMNS)])
  columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
  order, client = columns.pop('order'), columns['client']
  for name, values in clients.items():
    known = np.atleast_2d(np.array(values, object))
    known = np.concatenate([known, np.full((len(known), 1), None)], 1)  # ALL is the last
    columns[name] = known[order % len(known), np.minimum(client, known.shape[1] - 1)]
  frame = pd.DataFrame(columns).infer_objects().assign(**constant)
  return frame[[*(name for name in COLUMNS if name in frame), *(name for name in constant if name not in COLUMNS)]]


def _lines(row, field, value) -> dict | None:
  """Columns of one metric of one row; None for what is none."""
  seeds = row['seeds']
  value = [value] * len(seeds) if isinstance(value, int | float) else value  # seconds, of all seeds together
  if not isinstance(value, list) or len(value) != len(seeds) or any(isinstance(one, str | dict) for one in value):
    return None
  per_client = field.endswith('_per_client') and isinstance(value[0], list)
  if not per_client and any(isinstance(one, list) for one in value):
    return None
  array = np.array(value, float).reshape(len(seeds), -1)  # None is NaN
  fill = lambda constant: np.full(array.size, constant)
  return {
    'order': np.repeat(np.arange(len(seeds)), array.shape[1]),
    'seed': np.repeat(seeds, array.shape[1]),
    'phase': fill(row.get('phase', 0)),
    'round': fill(row['round']),
    'test_rows': fill(row.get('test_rows', 0)),
    'client': np.tile(row.get('clients', np.arange(array.shape[1])) if per_client else ALL, len(seeds)),
    'metric': fill(field.removesuffix('_per_client') if per_client else field),
    'value': array.reshape(-1),
  }


def concatenated(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
  """Tidy frames one below the other, of histories and of runs."""
  return pd.concat(frames, ignore_index=True)


def runs(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> pd.DataFrame:
  """Runs as one tidy frame, with a column for every field in which their configs differ.

  Args:
    paths: run directories, or a pattern such as 'runs/**' of directories that hold some.

  Returns:
    The columns `COLUMNS`, `data` (a checksum of the config's, and one of the examples), `finished`, and fields of the
    configs by their dotted names, lists as text. Warns of runs that have no evaluation yet or are damaged, which are
    left out, and of those that are not finished.

  Raises:
    ConfigError: if one of the paths holds no run, or no run is left.
  """
  patterns = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
  directories = [path for pattern in patterns or [''] for path in _directories(pattern)]
  read = {label: _run(path) for label, path in labelled(directories).items()}
  told = {label: why for label, (_, why) in read.items() if why}
  if told:
    warnings.warn('; '.join(f'{label}: {why}' for label, why in told.items()), stacklevel=2)
  kept = {label: run for label, (run, _) in read.items() if run}
  if not kept:
    raise ConfigError('no run has an evaluation that can be read: ' + '; '.join(told.values()))
  configs = {label: flatten(run['config']) for label, run in kept.items()}
  names = dict.fromkeys(name for config in configs.values() for name in config if name not in UNLIKE)
  differ = [name for name in names if len({str(config.get(name)) for config in configs.values()}) > 1]
  text = lambda value: json.dumps(value) if isinstance(value, list) else value  # a list would be taken for a column
  of = lambda label: {name: text(configs[label].get(name)) for name in differ if name not in COLUMNS}
  return concatenated(
    tidy(run['rows'], run['clients'], **{field: run[field] for field in OF_RUN}, run=label, **of(label))
    for label, run in kept.items()
  )


def _directories(path) -> list[str]:
  """The run directories that a path or pattern names."""
  matches = [str(path)] if os.path.exists(path) else sorted(glob.glob(str(path), recursive=True))
  found = [match for match in matches if os.path.exists(os.path.join(match, 'config.json'))]
  if not found:
    raise ConfigError(f'paths={path} holds no run (no config.json); give directories of runs')
  return found


def _run(path) -> tuple[dict | None, str]:
  """(what is read of a run, or None; what is to be told about it)."""
  try:
    config = files.read_sealed(path / 'config.json')
    rows = evaluations(path, config)
    finished = (path / 'summary.json').exists()
    groups = results.summary(path)['groups'] if finished else _groups(config)
    of_clients, examples = _of_split(path, config['seeds'])
    clients = {'architecture': architectures(groups, config), **of_clients}
  except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
    return None, f'damaged ({error})'
  if not rows:
    return None, 'no evaluation yet'
  method = rows[-1].get('method', config['method']['name'])
  told = {name: value for name, value in flatten({'data': config['data']}).items() if name not in UNLIKE}
  data = f'{hashlib.sha256(repr(sorted(told.items())).encode()).hexdigest()[:8]} {examples}'.strip()
  run = {'config': config, 'rows': rows, 'clients': clients, 'method': method, 'finished': finished, 'data': data}
  return run, '' if finished else f'not finished, read up to round {rows[-1]["round"]}'


def evaluations(path: pathlib.Path, config: dict) -> list[dict]:
  """The rows of a run's `metrics.jsonl`, for `tidy`; `config`: its config as JSON."""
  known = {'seeds': config['seeds']}
  if count := config.get('eval_clients'):  # of earlier versions, which evaluated everybody, without this field
    known['clients'] = evaluated_of(config['data']['clients'], count, config['plan']['seed'])
  return [{**row, **known} for row in files.read(path / 'metrics.jsonl')]


def _groups(config: dict) -> list:
  """Those of a run that has no summary yet, from its config as JSON."""
  entries = config_groups.entries(ConfigDict({field: config[field] for field in ('groups', 'data')}))
  names = config_groups.group_names(entries)
  return [{**entry, 'name': name} for entry, name in zip(entries, names, strict=True)]


def architectures(groups: list, config: dict) -> list:
  """Of every client, by number: that of the first group that holds it, in which it is evaluated."""
  names: dict = {}
  start = 0
  for group in groups:
    start = group.get('first', start)
    names = dict.fromkeys(range(start, start + group['clients']), group['name']) | names
    start += group['clients']
  return [names.get(client) for client in range(config['data']['clients'])]


def _of_split(path, seeds) -> tuple[dict, str]:
  """(private training rows, int[seeds, clients], and the names of domains where clients have one; a checksum of the
  examples that the run was given, which a file may have changed since, '' of runs of older versions)."""
  with np.load(path / 'split.npz') as split:
    known = {'examples': np.array([split[f'seed{seed}_private_sizes'] for seed in seeds])}
    known |= {'domain': split['domain']} if 'domain' in split else {}
    return known, str(split['data_sha256'])[:8] if 'data_sha256' in split else ''


def wide(frame: pd.DataFrame) -> pd.DataFrame:
  """A tidy frame with a column per metric, and one line per run, seed, evaluation and client.

  A metric with the name of a column, such as the `examples` that were trained on so far, ends in _so_far.
  """
  index = [name for name in frame if name not in ('metric', 'value')]
  table = frame.pivot(index=index, columns='metric', values='value')
  table = table.rename(columns={name: f'{name}_so_far' for name in index})
  return table.reset_index().rename_axis(columns=None)


def to_xarray(frame: pd.DataFrame) -> Any:
  """A tidy frame as an `xarray.Dataset`, which needs xarray: metrics over run, seed, phase, round and client."""
  index = ['run', 'seed', 'phase', 'round', 'client']
  return frame.pivot(index=index, columns='metric', values='value').to_xarray()


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
    ConfigError: if the reference is not one run, or nothing is measured.
  """
  last = frame[(frame['metric'] == metric) & (frame['client'] != ALL)]
  if last.empty:
    raise ConfigError(f'metric={metric!r} is not in the frame for single clients; it has {_names(frame)}')
  last = last_evaluation(last)
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


def why_apart(frame: pd.DataFrame, run: str, base: str) -> str:
  """Why two runs are not compared; '' if they are."""
  one, other = (frame[frame['run'] == name] for name in (run, base))
  differ = [c for c in frame if c.startswith('data.') and str(one[c].iloc[0]) != str(other[c].iloc[0])]
  if not differ and 'data' in frame and not _same_data(str(one['data'].iloc[0]), str(other['data'].iloc[0])):
    differ = ['data']
  if differ:
    return f'other {", ".join(differ)}'
  for column, what in (('client', 'clients'), ('test_rows', 'test rows')):
    if set(one[column]) != set(other[column]):
      return f'other {what}'
  return '' if set(one['seed']) & set(other['seed']) else 'no common seed'


def _same_data(one: str, other: str) -> bool:
  """Whether all checksums that both runs have are equal."""
  return all(first == second for first, second in zip(one.split(), other.split(), strict=False))


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
  line['negative_mean'] = each[each < 0].mean() if (each < 0).any() else 0.0
  return {**line, 'p': p_value(of_all(gain).to_numpy())}


def p_value(gain: np.ndarray) -> float:
  """Of a two-sided t test that the mean of paired differences [seeds] is 0; NaN below two seeds or without spread."""
  if len(gain) < 2 or not gain.std(ddof=1):
    return np.nan
  return float(2 * stdtr(len(gain) - 1, -abs(gain.mean()) / (gain.std(ddof=1) / np.sqrt(len(gain)))))


def holm(p: np.ndarray) -> np.ndarray:
  """p values of several tests, after Holm (1979); NaN is no test."""
  order = [i for i in np.argsort(p) if not np.isnan(p[i])]
  out, largest = np.full(len(p), np.nan), 0.0
  for rank, i in enumerate(order):
    largest = max(largest, min(1.0, (len(order) - rank) * p[i]))
    out[i] = largest
  return out
