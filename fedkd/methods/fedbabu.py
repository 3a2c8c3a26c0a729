"""FedBABU: Oh, Kim, Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", 2022."""

import optax

from fedkd import aggregate
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.methods.fedrep import fedrep
from fedkd.types import Method


@checked
def fedbabu(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 50,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """Clients train the body alone, under a random head that nobody trains, and fine-tune everything at the end.

  Learned: the body, on the server. Sent: its weights and statistics both ways, and n_k up. Averaged: those, by `rule`,
  weighted by n_k (in the authors' code all clients count equally). Heads stay as they begin: equal, unless clients
  start from weights of their own. The fine-tuning is a last phase, such as `private`, which starts from every client's
  model: in a config `config.before = ({'name': 'fedbabu', 'rounds': 100}, )` with the method `private`.

  Args:
    tx: optax optimizer.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    rule: aggregation rule, weighted by n_k.
    keep_optimizer: whether the optimizer's state persists across rounds; else it is fresh in each.

  Raises:
    ValueError: at init, for models without features, or whose bodies have different shapes.
  """
  return fedrep(tx, 0, epochs, steps, None, batch, rule, keep_optimizer)
