"""A run's evaluations as a pandas DataFrame."""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from fedkd import files
from fedkd.analysis import results
from fedkd.errors import ConfigError


def read(workdir: str | os.PathLike, every_phase: bool = False) -> pd.DataFrame:
  """The evaluations of a run's last phase (or of every one), one line per evaluation and seed; lists over clients and
  groups stay lists.

  Raises:
    ConfigError: if there are none, or a file is damaged or has changed since the run was finished.
  """
  workdir = pathlib.Path(workdir)
  if (workdir / 'summary.json').exists():
    results.summary(workdir)
  rows = files.read(workdir / 'metrics.jsonl')
  if not rows:
    raise ConfigError(f'{workdir} holds no evaluations (no metrics.jsonl); give the --workdir of a run')
  rows = [row for row in rows if every_phase or row['phase'] == rows[-1]['phase']]
  seeds = files.read_sealed(workdir / 'config.json')['seeds']
  if any(isinstance(value, list) and len(value) < len(seeds) for row in rows for value in row.values()):
    raise ConfigError(f'{workdir}: metrics.jsonl has fewer than the {len(seeds)} seeds of the run; run it again')
  pick = lambda value, s: value[s] if isinstance(value, list) else value
  lines = [{'seed': seed, **{k: pick(v, s) for k, v in row.items()}} for row in rows for s, seed in enumerate(seeds)]
  return pd.DataFrame(lines)


def by_seed(frame: pd.DataFrame, column: str) -> np.ndarray:
  """A column of `read` as [seeds, evaluations, ...]."""
  return np.array([np.stack(f[column].to_numpy()) for _, f in frame.groupby('seed')])


# Columns of a tidy frame; further ones say what differs between its runs.
TIDY = ('run', 'method', 'seed', 'phase', 'round', 'client', 'architecture', 'examples', 'metric', 'value')
ALL = -1  # the client of a metric of all clients together
APART = ('run', 'method', 'seeds', 'phase', 'round', 'time')  # of a row, no metrics


def tidy(rows: Iterable[dict], clients: dict[str, list], **constant: Any) -> pd.DataFrame:
  """Evaluations as one line per seed, evaluation, client and metric, with the columns `TIDY`.

  Args:
    rows: of `metrics.jsonl`, with their 'seeds': metrics are lists over seeds, of lists over clients in those that end
      in _per_client; others are left out.
    clients: what is known of the clients, lists in their order.
    constant: further columns, such as run and method.

  Returns:
    With client -1 (`ALL`) where a metric is of all clients together.
  """
  parts = [_lines(row, field, value) for row in rows for field, value in row.items() if field not in APART]
  parts = [part for part in parts if part is not None]
  columns = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
  frame = pd.DataFrame(columns).assign(**constant) if parts else pd.DataFrame(columns=[*TIDY, *constant])
  for name, values in clients.items():
    known = pd.Series([*values, None])  # ALL is the last
    frame[name] = known.iloc[frame['client']].to_numpy()
  return frame[[name for name in TIDY if name in frame] + [name for name in frame if name not in TIDY]]


def _lines(row, field, value) -> dict | None:
  """Columns of one metric of one row; None where it is none."""
  seeds = row['seeds']
  if not isinstance(value, list) or len(value) != len(seeds) or any(isinstance(v, str | dict) for v in value):
    return None
  per_client = field.endswith('_per_client') and isinstance(value[0], list)
  if not per_client and any(isinstance(v, list) for v in value):
    return None
  array = np.array(value, float).reshape(len(seeds), -1)  # None is NaN
  clients = np.arange(array.shape[1]) if per_client else np.array([ALL])
  fill = lambda constant: np.full(array.size, constant)
  return {
    'seed': np.repeat(seeds, array.shape[1]),
    'phase': fill(row.get('phase', 0)),
    'round': fill(row['round']),
    'client': np.tile(clients, len(seeds)),
    'metric': fill(field.removesuffix('_per_client') if per_client else field),
    'value': array.reshape(-1),
  }


def concatenated(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
  """Tidy frames one below the other, also of histories and of runs."""
  return pd.concat(frames, ignore_index=True)
