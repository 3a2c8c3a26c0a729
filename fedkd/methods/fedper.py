"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019."""

import optax

from fedkd import aggregate
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.methods.lg_fedavg import lg_fedavg
from fedkd.types import Method


@checked
def fedper(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """The body of the network is averaged, the head stays with its client: `lg_fedavg` the other way round.

  Learned: every client's own head, and the body on the server, both together. Sent: the body's weights and statistics
  both ways, and n_k up. Averaged: those, by `rule`, weighted by n_k (in the codes of FedRep and FedBABU all clients
  count equally on CIFAR). A client is evaluated with its own head on the newest body, even if it was absent.

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
  return lg_fedavg(tx, 'body', epochs, steps, batch, rule, keep_optimizer)
