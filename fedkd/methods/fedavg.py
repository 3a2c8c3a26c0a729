"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", 2017, Algorithm 1."""

from fedkd import aggregate, local, servers
from fedkd.types import Client, Method


def averaging(tx, loss, steps, epochs, batch, rule, per_group, keep_optimizer) -> Method:
  """Clients train the global model on `loss(model, data, received variables) -> loss_fn`; the server averages."""

  def init(key, model, data, variables):
    del key, model, data
    return tx.init(variables['params']) if keep_optimizer else ()

  def step(key, t, model, opt, down, data):
    learner = local.start(down.shared, tx)
    if keep_optimizer:
      learner = learner._replace(opt=opt)
    mine = data.private
    loss_fn = loss(model, data, down.shared)
    learner, sums = local.fit(key, learner, tx, loss_fn, mine.index, mine.size, batch, steps, epochs, t)
    up = {**local.variables(learner), 'count': mine.size}
    return (learner.opt if keep_optimizer else ()), up, local.report(sums)

  if per_group:
    return Method(
      Client(init, step), servers.weights_per_group(rule), lambda state, g: servers.as_rows(state.server[g])
    )
  return Method(Client(init, step), servers.weights(rule), lambda state, g: servers.as_rows(state.server))


def fedavg(
  tx,
  steps: int | None = 3,
  epochs: int | None = None,
  batch=50,
  rule=aggregate.mean,
  per_group=False,
  keep_optimizer=False,
) -> Method:
  """Clients train the global model; the server averages what they return, weighted by n_k.

  Learned: the global variables, on the server. Sent: weights, BatchNorm statistics and n_k up, weights and
  statistics down. Averaged: both, by `rule`.

  Args:
    tx: optax optimizer.
    steps: mini-batches per round; or
    epochs: passes over the client's data per round.
    batch: examples per mini-batch.
    rule: aggregation rule (`fedkd.aggregate`), weighted by n_k.
    per_group: average inside each architecture instead of demanding a single one.
    keep_optimizer: clients keep their optimizer state between turns (FedHe's FedAvg baseline); else fresh.
  """
  loss = lambda model, data, received: local.supervised(model, data.pool)
  return averaging(tx, loss, steps, epochs, batch, rule, per_group, keep_optimizer)
