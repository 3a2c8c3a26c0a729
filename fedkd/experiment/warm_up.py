"""How much of their initial running statistics BatchNorm layers still have when a run is first evaluated."""

import contextlib
from collections.abc import Iterator, Mapping

import flax.linen as nn
import numpy as np

from fedkd.models.layers import BatchNorm

TOO_MUCH = 0.05


@contextlib.contextmanager
def decays() -> Iterator[list]:
  """A list that collects the `momentum` of every BatchNorm layer that is traced inside."""
  found: list[float] = []

  def watch(call, args, kwargs, context):
    if isinstance(context.module, BatchNorm | nn.BatchNorm):
      found.append(context.module.momentum)
    return call(*args, **kwargs)

  with nn.intercept_methods(watch):
    yield found


def initial_share(decay: float, totals: Mapping, rounds: int, clients: int, batch: int) -> float:
  """The share of the initial statistics that is left: `decay` to the number of training steps that a model has seen.

  Where weights are downloaded, statistics travel with them and each round adds the steps of one client; elsewhere a
  client has its own steps alone.

  Args:
    decay: the largest `momentum` of the models.
    totals: `totals` after `rounds` rounds.
    clients: of the run.
    batch: examples per step.
  """
  updates = np.mean(totals['turns'])
  steps = np.mean(totals['examples']) / max(updates, 1) / batch
  return float(decay ** (steps * (rounds if 'statistics' in totals['down'] else updates / clients)))


def warning(share: float) -> str:
  """The sentence about a run that is too short for its nets' statistics; '' for one that is not."""
  if share <= TOO_MUCH:
    return ''
  return (
    f'BatchNorm is evaluated with running statistics of which {100 * share:.0f} % are still the initial ones; train '
    'longer before the first evaluation (eval_every), or set a smaller momentum in groups'
  )
