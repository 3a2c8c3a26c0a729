"""FedAPEN: Qin, Deng, Zhao, Yan, "FedAPEN: Personalized Cross-silo Federated Learning with Adaptability to Statistical
Heterogeneity", KDD 2023, as in the authors' code.

FML, whose clients also train the ensemble of their two models, and learn by how much to trust either.
"""

from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, inference, local, losses, servers
from fedkd.checks import numeric
from fedkd.checks.ranges import Count, Positive, Scale, Share, checked
from fedkd.methods import pair
from fedkd.types import Client, Method, apply_model, of_model

EQUAL = 0.5
BATCH = 64  # held-out examples per step of the weight


class Ensemble(NamedTuple):
  """The state of a client: its own model, the weight of its logits in the ensemble, and what orders its examples."""

  learner: local.Learner
  weight: jax.Array  # float32[]
  seed: jax.Array  # uint32[]


@checked
def fedapen(
  tx: optax.GradientTransformation,
  common: nn.Module,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 64,
  weights: Literal['learned', 'equal'] = 'learned',
  held_out: Share = 0.05,
  passes: Count = 10,
  weight_rate: Scale = 1e-3,
  keep_optimizer: bool = False,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Weights of a small common model as the only message; clients predict with the ensemble of it and their own model.

  Learned: every client's own model, and the common one on the server; both for their labels, for each other's outputs,
  and as an ensemble with logits w f + (1 - w) s; and w, on examples on which neither was trained. Sent: the common
  model's weights and statistics both ways. Averaged: those, by `rule`, clients counting equally. Clients are evaluated
  with their ensemble; `accuracy_own`, `accuracy_common` and `accuracy_equal` are those of the two models and of their
  mean.

  A client learns w with the newest common model before it is evaluated, and keeps what it has learned at its next
  update, with the model that it receives then: the authors' order, for a client that is absent too.

  Args:
    tx: optax optimizer, with a separate state for each model.
    common: as in `fml`.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    weights: 'learned', or 'equal', in which w stays 1/2 (the authors' FedEN).
    held_out: share of the client's examples on which w alone is learned, at least one of two.
    passes: over them, in batches of 64.
    weight_rate: learning rate of plain SGD on w, which is clipped to 0 to 1.
    keep_optimizer: whether the own model's optimizer state persists across rounds; the common model's is always fresh.
    rule: aggregation rule of the common model, in which clients have weight 1.

  Raises:
    ValueError: for an unknown choice, or a number outside its range.
  """
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    return Ensemble(local.start(variables, tx), jnp.float32(EQUAL), jax.random.bits(key))

  def step(key, t, model, state, down, data):
    nets = {'own': model, 'common': pair.common_model(model, common, data.pool.example)}
    state = state._replace(weight=jnp.where(t > 0, adapted(model, state, down.shared, data), state.weight))
    begin = pair.stack_learners(
      own=local.resume(state.learner, tx, keep_optimizer), common=local.start(down.shared, tx)
    )
    trained, _ = apart(state.seed, data.private, held_out if weights == 'learned' else 0.0)
    loss_fn = mutual_loss(nets, data.pool, state.weight)
    both, sums = local.fit(key, begin, pair.per_learner(tx), loss_fn, trained, work, t)
    after = pair.unstack_learners(both)
    message = {**local.variables(after['common']), 'count': jnp.int32(1)}
    return state._replace(learner=after['own']), message, {**local.report(sums), 'weight': state.weight}

  def adapted(model, state, variables, data):
    """w after its `passes` with this common model."""
    if weights == 'equal':
      return state.weight
    _, (index, size) = apart(state.seed, data.private, held_out)
    net = pair.common_model(model, common, data.pool.example)
    own = inference.infer(model, local.variables(state.learner), data.pool.example, index)
    other = inference.infer(net, of_model(variables), data.pool.example, index)
    return learned_weight(state.weight, own, other, data.pool.label[index], size, passes, weight_rate)

  def calibrate(groups, state, data, which):
    clients, newest = list(state.client), servers.variables_of(state.server, 0)
    for g in which:
      private = data[g].private
      one = lambda pair_of, g=g: adapted(groups[g].model, pair_of[0], newest, data[g]._replace(private=pair_of[1]))
      clients[g] = clients[g]._replace(weight=jax.lax.map(one, (clients[g], private)))
    return state._replace(client=tuple(clients))

  def variables(state, g):
    return {**local.variables(state.client[g].learner), 'weight': state.client[g].weight}

  by_common = pair.by_common(common, lambda state: servers.variables_of(state, 0))

  def mixed_by(weight_of):
    def predict(model, variables, server_state, x):
      one, other = (by(model, variables, server_state, x) for by in (apply_model, by_common))
      return mixed(weight_of(variables), one, other)

    return predict

  ways = (('own', apply_model), ('common', by_common), ('equal', mixed_by(lambda variables: EQUAL)))
  server, together = pair.common(common, servers.weights(rule)), mixed_by(lambda variables: variables['weight'])
  return Method(Client(init, step), server, variables, together, calibrate=calibrate, predictions=ways)


def mixed(weight, own: jax.Array, common: jax.Array) -> jax.Array:
  """The ensemble's logits [B, C]."""
  return weight * own + (1 - weight) * common


def mutual_loss(nets: dict, pool, weight: jax.Array) -> local.LossFn:
  """Of each model its cross-entropy, the divergence from the other's outputs, and the ensemble's cross-entropy, to
  which the other's outputs are constants."""

  def loss_fn(params, batch_stats, key, index):
    image, label = pool.example[index], pool.label[index]
    passes = {n: local.forward(net, params[n], batch_stats[n], key, image) for n, net in nets.items()}
    logits, out, batch_stats = ({n: p[i] for n, p in passes.items()} for i in range(3))
    fixed = jax.lax.stop_gradient(logits)
    away = lambda one, other: jnp.mean(jax.vmap(losses.kl_divergence)(jax.nn.softmax(fixed[other]), logits[one]))
    together = {
      'own': mixed(weight, logits['own'], fixed['common']),
      'common': mixed(weight, fixed['own'], logits['common']),
    }

    def of(one, other):
      ce = local.cross_entropy(logits[one], label) + local.cross_entropy(together[one], label)
      return ce + away(one, other) + local.penalty(out[one])

    own, shared = of('own', 'common'), of('common', 'own')
    return own + shared, (batch_stats, local.tally(label, loss=own, common_loss=shared))

  return loss_fn


def apart(seed: jax.Array, private, share: float) -> tuple:
  """((rows, size) to train on, (rows, size) held out) of a client's own, in an order that its `seed` fixes."""
  places, size = private.index.shape[0], private.size
  order = local.shuffle(jax.random.key(seed), places, size)
  most = max(1, int(numeric.share_of(share, places)))
  held = jnp.floor(numeric.share_of(share, size))
  held = jnp.where(size > 1, jnp.clip(held, share > 0, most), 0).astype(jnp.int32)
  at = jnp.clip(size - held + jnp.arange(most), 0, places - 1)
  return (private.index[order], size - held), (private.index[order[at]], held)


def learned_weight(weight, own, common, label, size, passes: int, rate: float) -> jax.Array:
  """The weight after so many passes of SGD over the first `size` of the logits [n, C] and labels [n]."""

  def loss(weight, first):
    rows = first + jnp.arange(BATCH)
    valid = (rows < size).astype(jnp.float32)
    rows = jnp.minimum(rows, len(label) - 1)
    each = optax.softmax_cross_entropy_with_integer_labels(mixed(weight, own[rows], common[rows]), label[rows])
    return jnp.sum(valid * each) / jnp.maximum(jnp.sum(valid), 1)

  def step(weight, first):
    return jnp.clip(weight - rate * jax.grad(loss)(weight, first), 0, 1), None

  return jax.lax.scan(step, weight, jnp.tile(jnp.arange(0, len(label), BATCH), passes))[0]
