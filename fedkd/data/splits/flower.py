"""Partitions by the partitioners of Flower's library `flwr-datasets`."""

import inspect
import json
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedkd.checks.ranges import checked
from fedkd.errors import ConfigError, in_a_sentence, is_it, reason_of

__all__ = ['flower']  # what a config may name


@checked
def flower(
  labels: np.ndarray,
  clients: int,
  seed: int,
  origin: np.ndarray | None = None,
  partitioner: str = 'IidPartitioner',
  arguments: str = '{}',
) -> list[np.ndarray]:
  """The partition of one of `flwr_datasets.partitioner`, which gets the columns `label` and, where there are owners,
  `origin`.

  Args:
    labels: int[N].
    clients: number of parts, its `num_partitions`.
    seed: its `seed`.
    origin: int[N] or None.
    partitioner: its class, such as 'DirichletPartitioner'.
    arguments: its other arguments as a JSON object, such as '{"alpha": 0.5}'; `partition_by` is 'label' without them.

  Raises:
    ConfigError: without flwr-datasets, or for a class or arguments that it does not have.
  """
  what = f'data.partition.partitioner={partitioner!r}'
  try:
    from flwr_datasets import partitioner as module
  except ImportError as error:
    raise ConfigError(f"{what} needs flwr-datasets; install it with pip install 'fedkd[flower-datasets]'") from error
  if partitioner not in module.__all__ or partitioner == 'Partitioner':
    known = [name for name in module.__all__ if name != 'Partitioner']
    raise ConfigError(f'{what} is unknown; choose one of {", ".join(known)}{is_it(partitioner, known)}')
  make = getattr(module, partitioner)
  usual = {'num_partitions': clients, 'partition_by': 'label', 'seed': seed}
  taken = {key: value for key, value in usual.items() if key in inspect.signature(make).parameters}
  with in_a_sentence(lambda error: f'{what}: {reason_of(error)}; mend data.partition.arguments={arguments!r}'):
    parts = from_partitioner(make(**{**taken, **json.loads(arguments)}), labels, origin)
  if len(parts) != clients:
    raise ConfigError(f'{what} made {len(parts)} parts, and data.clients={clients}; make them equal')
  return parts


def from_partitioner(partitioner: Any, labels: ArrayLike, origin: ArrayLike | None = None) -> list[np.ndarray]:
  """Who owns which rows, per client int64[n_k] in ascending order, by a partitioner of flwr-datasets.

  Rows that it leaves out, as its shards do where their number does not divide N, have no owner.

  Args:
    partitioner: instance without a data set, which partitions by the columns `label` or `origin`.
    labels: [N].
    origin: [N] or None, the natural owner of each row.

  Raises:
    Exception: of the partitioner, of any type.
  """
  import datasets

  datasets.disable_progress_bars()
  rows = {'row': np.arange(len(np.asarray(labels))), 'label': np.asarray(labels)}
  partitioner.dataset = datasets.Dataset.from_dict(rows if origin is None else {**rows, 'origin': np.asarray(origin)})
  count = partitioner.num_partitions
  return [np.sort(np.asarray(partitioner.load_partition(k)['row'], np.int64)) for k in range(count)]
