"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", 2021."""

import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.methods.fedprox import proximal
from fedkd.types import Client, Method, of_model


@checked
def ditto(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  weight: Weight = 1.0,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """FedAvg, and beside it a model of every client's own that is pulled towards the global one (Algorithm 1).

  Learned: every client's own model v_k, and the global one w on the server. Sent: w both ways, and n_k up. Averaged: w,
  by `rule`, weighted by n_k (in the authors' code clients count equally).

  v_k minimises F_k(v) + weight / 2 * |v - w|^2, where w is the model as the client received it; both see the same
  batches. Clients are evaluated with v_k; `accuracy_global` is that of w. Weight decay inside `tx` pulls v_k towards 0.

  Args:
    tx: optax optimizer, with a separate state for each model.
    steps: mini-batches per round, of either model; or
    epochs: passes over the client's data per round (the authors' 1, with a batch of 16).
    batch: examples per mini-batch.
    weight: the paper's lambda; 0 is Private, beside FedAvg. May be traced.
    rule: aggregation rule of w, weighted by n_k.
    keep_optimizer: whether the optimizer's state of v_k persists across rounds; that of w is always fresh.

  Raises:
    ValueError: at init, for clients of several architectures.
  """
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, own, down, data):
    received, private, supervised = down.shared, data.private, local.supervised(model, data.pool)
    own, sums = local.fit(
      key,
      local.resume(own, tx, keep_optimizer),
      tx,
      proximal(supervised, received['params'], weight),
      private,
      work,
      t,
    )
    common, common_sums = local.fit(key, local.start(received, tx), tx, supervised, private, work, t)
    info = {**local.report(sums), 'global_loss': local.report(common_sums)['loss']}
    return own, {**local.variables(common), 'count': private.size}, info

  def by_global(model, variables, server_state, x):
    del variables
    return model.apply(of_model(servers.variables_of(server_state, 0)), x, False)[0]

  server, ways = servers.weights(rule), (('global', by_global),)
  return Method(Client(local.starting(tx), step), server, local.own_models, predictions=ways)
