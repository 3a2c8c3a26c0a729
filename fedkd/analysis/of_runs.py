"""Run directories as tidy frames, finished or not."""

import functools
import glob
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd
from ml_collections import ConfigDict

from fedkd import files
from fedkd.analysis import results
from fedkd.analysis.compare import labelled
from fedkd.analysis.differences import PARTITION
from fedkd.analysis.tidy import COLUMNS, concatenated, tidy
from fedkd.config import default, label, migrate
from fedkd.config import groups as config_groups
from fedkd.config.checks import AS_ONE
from fedkd.config.trees import flatten, to_json
from fedkd.errors import ConfigError
from fedkd.evaluation import evaluated_of

OF_RUN = ('method', 'data_config', 'finished')
OF_DATA = ('private', 'test')  # rows of a split that every version has stored
DIGITS = 8  # of a checksum
# Fields of a config that say nothing about a run.
UNLIKE = ('seeds', 'name', 'data.dir', 'data.limit', 'data.partition_out')


def runs(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> pd.DataFrame:
  """Runs as one tidy frame, with a column for every field in which their configs differ.

  Args:
    paths: run directories, or a pattern such as 'runs/**' of directories that hold some.

  Returns:
    The columns `COLUMNS`; `data`, a checksum of the examples and of who trains and is tested on which in the seed, ''
    of runs of older versions; `data_config`, of the fields `data` of the config, those of the partition apart;
    `finished`; and fields of the configs by their dotted names, lists as text; one that was added after a run has its
    default. Warns of runs that have no evaluation yet or are damaged, which are left out, and of those that are not
    finished.

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
  return concatenated(_frame(run, run=label, **of(label)) for label, run in kept.items())


def _frame(known, **constant) -> pd.DataFrame:
  """What `_run` has read, as a tidy frame."""
  frame = tidy(known['rows'], known['clients'], **{field: known[field] for field in OF_RUN}, **constant)
  return frame.assign(data=frame['seed'].map(known['data']))


def _directories(path) -> list[str]:
  """The run directories that a path or pattern names."""
  matches = [str(path)] if os.path.exists(path) else sorted(glob.glob(str(path), recursive=True))
  found = [match for match in matches if not files.why_no_run(match)]
  if not found:
    raise ConfigError(f'paths={path} holds no run ({files.why_no_run([*matches, path][0])}); give directories of runs')
  return found


def _run(path) -> tuple[dict | None, str]:
  """(what is read of a run, or None; what is to be told about it)."""
  try:
    config = _completed(files.read_sealed(path / 'config.json'))
    rows = evaluations(path, config)
    finished = (path / 'summary.json').exists()
    groups = results.summary(path)['groups'] if finished else _groups(config)
    of_clients, tested, data = _of_split(path, config['seeds'])
    rows = [_by_seed(row, tested, config) for row in rows]
    clients = {'architecture': architectures(groups, config), **of_clients}
  except (ConfigError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
    return None, f'damaged ({error})'
  if not rows:
    return None, 'no evaluation yet'
  told = {name: value for name, value in flatten({'data': config['data']}).items() if name not in UNLIKE}
  run = {'config': config, 'rows': rows, 'clients': clients, 'finished': finished, 'data': data}
  run['method'] = label(config['method'])  # of the last phase, even if that has not begun
  apart = {name: told.pop(name) for name in list(told) if name.startswith(PARTITION)}
  run['data_config'] = '-'.join(_checksum(repr(sorted(fields.items()))) for fields in (told, apart))
  return run, '' if finished else f'not finished, read up to round {rows[-1]["round"]}{_phase(rows[-1], config)}'


def _checksum(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _phase(row, config) -> str:
  """The phase of an evaluation, in words, where a run has several."""
  method = f', {row["method"]}' if 'method' in row else ''
  return f' of phase {row["phase"]}{method}' if config['before'] else ''


def _completed(config: dict) -> dict:
  """A config as JSON as this version would have written it: fields that have been added since have their defaults."""
  config = migrate({**_defaults(), **config, 'data': {**_defaults()['data'], **config['data']}})
  if config['data']['normalise'] in AS_ONE['data.normalise']:
    config['data']['normalise'] = 'auto'
  return config


@functools.cache
def _defaults() -> dict:
  return to_json(default())


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


def _by_seed(row, tested, config) -> dict:
  """An evaluation with the test rows of every seed where clients have their own, `tested`: it knows the most of a
  seed. Where that does not tell whether it is of all rows, it is if it is the last one of its phase."""
  if not tested.any() or 'test_rows' not in row:
    return row
  phases, limit = [*config.get('before', ()), config], config.get('eval_rows')
  whole, some = tested.sum(1), np.minimum(tested, limit or tested.max()).sum(1)
  is_last = row['round'] == phases[row.get('phase', 0)].get('rounds', 1)
  is_whole = row['test_rows'] == whole.max() if whole.max() != some.max() else is_last
  return {**row, 'test_rows': whole if is_whole else some}


def _of_split(path, seeds) -> tuple[dict, np.ndarray, dict]:
  """(private training rows, int[seeds, clients], and the names of domains where clients have one; test rows of their
  own, int[seeds, clients]; {seed: a checksum of the examples that the run was given, which a file may have changed
  since, and of whose they are, '' of runs of older versions})."""
  with np.load(path / 'split.npz') as split:
    known = {'examples': np.array([split[f'seed{seed}_private_sizes'] for seed in seeds])}
    known |= {'domain': split['domain']} if 'domain' in split else {}
    tested = np.array([split[f'seed{seed}_test_sizes'] for seed in seeds])
    return known, tested, {seed: _data(split, seed) if 'data_sha256' in split else '' for seed in seeds}


def _data(split, seed) -> str:
  made = hashlib.sha256(str(split['data_sha256']).encode())
  for name in OF_DATA:
    for rows in (split[f'seed{seed}_{name}'], split[f'seed{seed}_{name}_sizes']):
      made.update(np.asarray(rows, np.int64).tobytes())
  return made.hexdigest()[:DIGITS]
