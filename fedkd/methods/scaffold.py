"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", 2020."""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, optimizers, servers
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.types import Client, Method, PyTree


@checked
def scaffold(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  rule: aggregate.AnyRule = aggregate.mean,
  equal_weights: bool = False,
  server_tx: optax.GradientTransformation | None = None,
) -> Method:
  """FedAvg whose clients correct every gradient by the difference of the mean gradient and their own (Algorithm 1).

  Learned: the global variables and the mean control variate on the server, and a control variate on every client; all
  variates begin at 0. Sent: weights, statistics, n_k and the change of the client's variate up; weights, statistics
  and the mean variate down. Averaged: weights and statistics by `rule`, variates over all
  clients, also those that are absent.

  A client's new variate is the mean of its uncorrected gradients in this round. Where `tx` is plain SGD without weight
  decay that is the paper's option II, c_k - c + (x - y) / (steps * rate). It stays the mean gradient where `tx` has
  momentum, decay or a schedule; with momentum the paper's formula is off by the factor 1 / (1 - momentum) at most.

  Args:
    tx: optax optimizer, fresh in every round.
    steps: mini-batches per round; or
    epochs: passes over the client's data per round (Flower's baseline: 10, with a batch of 64).
    batch: examples per mini-batch.
    rule: aggregation rule of the weights, weighted by n_k, or equally.
    equal_weights: whether clients count equally, as in the paper; else by their number of examples.
    server_tx: optax optimizer of the server (`servers.weights`); `optax.sgd(rate)` is the paper's global step size.

  Raises:
    ValueError: at init, for clients of several architectures.
  """
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    return jax.tree.map(jnp.zeros_like, variables['params'])

  def step(key, t, model, control, down, data):
    received, mean = down.shared['weights'], down.shared['control']
    corrected = with_correction(tx, optax.tree.sub(mean, control))
    learner = local.start(received, corrected)
    learner, sums = local.fit(key, learner, corrected, local.supervised(model, data.pool), data.private, work, t)
    _, total, count = learner.opt
    mean = lambda summed, old: jnp.where(count > 0, summed / jnp.maximum(count, 1), old).astype(old.dtype)
    seen = jax.tree.map(mean, total, control)
    count = jnp.int32(1) if equal_weights else data.private.size
    weights = {**local.variables(learner), 'count': count}
    change = optax.tree.sub(seen, control)
    return seen, {'weights': weights, 'control': {'change': change}}, local.report(sums)

  server = servers.join(weights=servers.weights(rule, server_tx), control=servers.controls())
  return Method(Client(init, step), server, lambda state, g: servers.global_model(state.server['weights'], g))


def with_correction(tx: optax.GradientTransformation, correction: PyTree) -> optax.GradientTransformationExtraArgs:
  """`tx` along gradients plus `correction`; its state: (that of tx, sum of the gradients without it, their number)."""

  def init(params):
    # Of hundreds of gradients in half precision the later ones would add nothing.
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, jnp.promote_types(a.dtype, jnp.float32)), params)
    return optimizers.init(tx, params), zeros, jnp.float32(0)

  def update(grads, state, params=None, *, round=0, **_):
    inner, total, count = state
    updates, inner = optimizers.update(tx, optax.tree.add(grads, correction), inner, params, round)
    return updates, (inner, optax.tree.add(total, grads), count + 1)

  return optax.GradientTransformationExtraArgs(init, update)
