"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", 2017, Algorithm 1."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, optimizers, servers
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.types import Client, Method, Server, State

Statistics = Literal['averaged', 'own']


def averaging(
  tx: optax.GradientTransformation,
  loss: Callable[..., local.LossFn],
  work: local.Work,
  keep_optimizer: bool,
  server: Server,
) -> Method:
  """Clients train the global model on `loss(model, data, received variables) -> loss_fn` for a server of weights."""

  def init(key, model, data, variables):
    del key, model, data
    return optimizers.init(tx, variables['params']) if keep_optimizer else ()

  def step(key, t, model, opt, down, data):
    learner = local.start(down.shared, tx)
    if keep_optimizer:
      learner = learner._replace(opt=opt)
    learner, sums = local.fit(key, learner, tx, loss(model, data, down.shared), data.private, work, t)
    up = {**local.variables(learner), 'count': data.private.size}
    return (learner.opt if keep_optimizer else ()), up, local.report(sums)

  return Method(Client(init, step), server, lambda state, g: servers.global_model(state.server, g))


def with_statistics(method: Method, statistics: Statistics) -> Method:
  """A method of `averaging`, whose BatchNorm statistics are 'averaged' as it does, or a client's 'own', which are
  never sent."""
  if statistics == 'averaged':
    return method

  def init(key, model, data, variables):
    return {'state': method.client.init(key, model, data, variables), 'batch_stats': variables['batch_stats']}

  def step(key, t, model, state, down, data):
    received = down._replace(shared={**down.shared, 'batch_stats': state['batch_stats']})
    after, up, info = method.client.step(key, t, model, state['state'], received, data)
    return {'state': after, 'batch_stats': up['batch_stats']}, {**up, 'batch_stats': {}}, info

  def first(key, groups, variables, data):
    return method.server.init(key, groups, tuple({**v, 'batch_stats': {}} for v in variables), data)

  def variables(state: State, g: int) -> dict:
    own, params = state.client[g]['batch_stats'], method.variables(state, g)['params']
    client_count = (jax.tree.leaves(own) or jax.tree.leaves(params))[0].shape[0]
    return {
      'params': jax.tree.map(lambda a: jnp.broadcast_to(a, (client_count, *a.shape[1:])), params),
      'batch_stats': own,
    }

  return method._replace(client=Client(init, step), server=method.server._replace(init=first), variables=variables)


@checked
def fedavg(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  rule: aggregate.AnyRule = aggregate.mean,
  per_group: bool = False,
  keep_optimizer: bool = False,
  server_tx: optax.GradientTransformation | None = None,
  ensemble: bool = False,
  statistics: Statistics = 'averaged',
) -> Method:
  """Clients train the global model; the server averages the models they return, weighted by n_k.

  Learned: the global variables, on the server. Sent: weights, BatchNorm statistics and n_k up, weights and
  statistics down. Averaged: both, by `rule`.

  With `server_tx` it is FedAvgM (Hsu, Qi, Brown, 2019) or one of FedAdagrad, FedAdam and FedYogi (Reddi et al., 2021):
  `fedavg(optax.sgd(0.1), server_tx=optimizers.fedadam(0.01))`.

  Args:
    tx: optax optimizer.
    steps: mini-batches per round; or
    epochs: passes over the client's data per round.
    batch: examples per mini-batch.
    rule: aggregation rule (`fedkd.aggregate`), weighted by n_k.
    per_group: average within each architecture instead of requiring a single one.
    keep_optimizer: clients keep their optimizer state between updates (FedHe's FedAvg baseline); else fresh.
    server_tx: optax optimizer of the server, which treats the mean change as a gradient (`servers.weights`); None:
      the mean replaces the weights.
    ensemble: whether the clients' models are kept, so that every evaluation also has the accuracy of the sum of their
      logits, `accuracy_ensemble`: FedEnsemble in FedGen's code (Zhu, Hong, Zhou, 2021). An absent client counts with
      the model that the others started from.
    statistics: whether BatchNorm statistics are 'averaged' like the weights, or a client's 'own', as in FedGen's code.

  Raises:
    ValueError: for another `statistics`, or an ensemble with `per_group` or without all statistics.
  """
  if ensemble and per_group:
    raise ValueError('ensemble=True adds up the logits of all clients; set per_group=False')
  if ensemble and statistics == 'own':
    raise ValueError("ensemble=True needs whole models on the server; set statistics='averaged'")
  loss = lambda model, data, received: local.supervised(model, data.pool)
  server, work = servers.weights(rule, server_tx, per_group=per_group), local.Work(batch, steps, epochs)
  if not ensemble:
    return with_statistics(averaging(tx, loss, work, keep_optimizer, server), statistics)
  method = averaging(tx, loss, work, keep_optimizer, servers.with_uploads(server))
  return method._replace(
    variables=lambda state, g: servers.global_model(state.server.server, g), predictions=(('ensemble', _sum_of_logits),)
  )


def _sum_of_logits(model, variables, server_state, x):
  """Predicts with the models that the clients have uploaded."""
  del variables
  return jnp.sum(jax.lax.map(lambda own: model.apply(own, x, False)[0], server_state.uploads), 0)
