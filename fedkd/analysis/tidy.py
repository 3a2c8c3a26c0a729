"""Tidy frames: evaluations as one line per run, seed, evaluation, client and metric."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedkd.checks import kinds
from fedkd.errors import ConfigError

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
NEEDED = ('run', 'method', 'seed', 'phase', 'round', 'client', 'test_rows', 'metric', 'value')
OWN_NAME = "give every training a name of its own, with frame.assign(run='...')"
ALL = -1  # the client of a metric of all clients together
APART = ('run', 'method', 'seeds', 'clients', 'phase', 'round', 'time', 'test_rows')  # of a row, no metrics


def tidy(rows: Iterable[dict], clients: dict[str, Any], **constant: Any) -> pd.DataFrame:
  """Evaluations as one line per seed, evaluation, client and metric, with the columns `COLUMNS`.

  Args:
    rows: of `metrics.jsonl`, with their 'seeds', 'test_rows' of all or of each, and 'clients', the numbers of those
      evaluated where that is a sample: metrics are lists over seeds, of lists over clients in those that end in
      _per_client, or a number of all seeds together, such as seconds; others are left out.
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
    'test_rows': np.repeat(np.broadcast_to(row.get('test_rows', 0), len(seeds)), array.shape[1]),
    'client': np.tile(row.get('clients', np.arange(array.shape[1])) if per_client else ALL, len(seeds)),
    'metric': fill(field.removesuffix('_per_client') if per_client else field),
    'value': array.reshape(-1),
  }


def concatenated(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
  """Tidy frames one below the other, of histories or of run directories.

  Of one of each, which have other checksums of their data, curves are drawn, but differences are not taken. Of none it
  is a frame without lines.
  """
  return pd.concat(list(frames) or [tidy((), {})], ignore_index=True)


def wide(frame: pd.DataFrame) -> pd.DataFrame:
  """A tidy frame with a column per metric, and one line per run, seed, evaluation and client.

  A metric with the name of a column, such as the `examples` that were trained on so far, ends in _so_far.
  """
  check_frame(frame)
  index = [name for name in frame if name not in ('metric', 'value')]
  check_single(frame, [*index, 'metric'])
  table = frame.pivot(index=index, columns='metric', values='value')
  table = table.rename(columns={name: f'{name}_so_far' for name in index})
  return table.reset_index().rename_axis(columns=None)


def to_xarray(frame: pd.DataFrame) -> Any:
  """A tidy frame as an `xarray.Dataset`, which needs xarray: metrics over run, seed, phase, round and client."""
  check_frame(frame)
  check_single(frame)
  index = ['run', 'seed', 'phase', 'round', 'client']
  return frame.pivot(index=index, columns='metric', values='value').to_xarray()


def check_frame(frame: Any) -> None:
  """Checks that a frame is tidy.

  Raises:
    ConfigError: if it is not.
  """
  kinds.check_is('frame', frame, pd.DataFrame, 'one of fedkd.analysis.runs or of a history')
  if lacking := [name for name in NEEDED if name not in frame]:
    raise ConfigError(f'frame has no column {lacking[0]!r}; give one of fedkd.analysis.runs or of a history')


def check_single(
  frame: pd.DataFrame, by: Sequence[str] = ('run', 'seed', 'phase', 'round', 'client', 'metric')
) -> None:
  """Checks that no metric of a seed of a run has two values, such as of two trainings with one name.

  Raises:
    ConfigError: if one has.
  """
  twice = frame[frame.duplicated(list(by))]
  if len(twice):
    run, seed, round, metric = twice.iloc[0][['run', 'seed', 'round', 'metric']]
    raise ConfigError(f'run {run!r} has two values of {metric} for seed {seed} in round {round}; {OWN_NAME}')
