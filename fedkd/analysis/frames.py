"""A run's evaluations as a pandas DataFrame."""

import os
import pathlib

import numpy as np
import pandas as pd

from fedkd import files
from fedkd.analysis import results
from fedkd.errors import ConfigError, check_known


def read(workdir: str | os.PathLike, every_phase: bool = False) -> pd.DataFrame:
  """The evaluations of a run's last phase (or of every one), one line per evaluation and seed; lists over clients and
  groups stay lists.

  Raises:
    ConfigError: if there are none, or a file is damaged or has changed since the run was finished.
  """
  workdir = pathlib.Path(workdir)
  if (workdir / 'summary.json').exists():
    results.summary(workdir)
  rows = results.evaluations(workdir)
  rows = [row for row in rows if every_phase or row['phase'] == rows[-1]['phase']]
  seeds = files.read_sealed(workdir / 'config.json')['seeds']
  if any(isinstance(value, list) and len(value) < len(seeds) for row in rows for value in row.values()):
    raise ConfigError(f'{workdir}: metrics.jsonl has fewer than the {len(seeds)} seeds of the run; run it again')
  pick = lambda value, s: value[s] if isinstance(value, list) else value
  lines = [{'seed': seed, **{k: pick(v, s) for k, v in row.items()}} for row in rows for s, seed in enumerate(seeds)]
  return pd.DataFrame(lines)


def by_seed(frame: pd.DataFrame, column: str) -> np.ndarray:
  """A column of `read` as [seeds, evaluations, ...], the lowest seed first.

  Raises:
    ConfigError: for a column that the frame does not have.
  """
  check_known([column], frame.columns, 'the frame', 'column')
  return np.array([np.stack(f[column].to_numpy()) for _, f in frame.groupby('seed')])
