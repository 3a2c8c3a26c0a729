"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", 2020."""

import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.methods.fedavg import Statistics, averaging, with_statistics
from fedkd.types import Method, PyTree


@checked
def fedprox(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  mu: Weight = 0.01,
  rule: aggregate.AnyRule = aggregate.mean,
  per_group: bool = False,
  keep_optimizer: bool = False,
  server_tx: optax.GradientTransformation | None = None,
  statistics: Statistics = 'averaged',
) -> Method:
  """FedAvg whose clients add mu / 2 * |w - w_global|^2 to their loss (Algorithm 2).

  Learned, sent and averaged: as in `fedavg`. All arguments but one are those of `fedavg`, too.

  Args:
    mu: weight of the proximal term, over the trained parameters; 0 is FedAvg. May be traced.
  """
  loss = lambda model, data, received: proximal(local.supervised(model, data.pool), received['params'], mu)
  server, work = servers.weights(rule, server_tx, per_group=per_group), local.Work(batch, steps, epochs)
  return with_statistics(averaging(tx, loss, work, keep_optimizer, server), statistics)


def proximal(loss: local.LossFn, centre: PyTree, mu: float) -> local.LossFn:
  """A loss plus mu / 2 * |params - centre|^2, which is no part of what is reported."""

  def loss_fn(params, batch_stats, key, index):
    value, aux = loss(params, batch_stats, key, index)
    away = optax.tree.sub(params, centre)
    return value + mu / 2 * optax.tree.vdot(away, away), aux

  return loss_fn
