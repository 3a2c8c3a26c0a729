"""Writes who owns which rows of a run, for `data.partition=stored` of another, or for other programs."""

import numpy as np

from fedkd.data.splits import stored
from fedkd.errors import ConfigError


def check(config) -> None:
  """Checks the name in `data.partition_out` before anything is trained.

  Raises:
    ConfigError: for one that several seeds would share, or of another kind of file.
  """
  file = config.data.partition_out
  if file and not file.endswith(('.json', '.npz')):
    raise ConfigError(f'data.partition_out={file!r} is none of .json and .npz; name a file such as parts.json')
  if file and len(config.seeds) > 1 and '{seed}' not in file:
    raise ConfigError(
      f'data.partition_out={file!r} is one file for {len(config.seeds)} seeds; write {{seed}} in its name, as in '
      'parts-{seed}.json'
    )


def write(parts) -> None:
  """Writes `data.partition_out`, a file for each seed; `parts`: of an `Experiment`."""
  config, source = parts.config, parts.source
  for seed, split in zip(config.seeds, parts.splits, strict=True) if config.data.partition_out else ():
    labels = source.train_label[: len(source.train_label) - source.public - source.tested]
    stored.write(config.data.partition_out.replace('{seed}', str(seed)), owned(split, len(labels)), labels)


def owned(split, count: int) -> list[np.ndarray]:
  """Per client the rows below `count` of any use; official test rows, which nobody owns, come after them."""
  every = zip(split.private, split.shared, split.validation, split.test, strict=True)
  return [rows[rows < count] for rows in (np.unique(np.concatenate(uses)) for uses in every)]
