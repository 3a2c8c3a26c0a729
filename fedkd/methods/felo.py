"""Felo: Chan and Ngai, "Exploiting Features and Logits in Heterogeneous Federated Learning", 2022, Algorithm 1.

Clients of any architecture exchange the mean features and mean logits of each class, and, within an architecture,
weights.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.losses import Direction, class_sums, masked_kl, masked_squared_error
from fedkd.models.base import features_in
from fedkd.servers import features_and_logits
from fedkd.servers.features_and_logits import Alignment
from fedkd.types import Client, Masked, Method, Server, is_masked, values_of

Upload = Literal['class_mean', 'per_sample']
Reduction = Literal['batchmean', 'mean']
STORES: dict[str, Callable[..., Server]] = {
  'cumulative': servers.class_means,
  'per_round': functools.partial(servers.class_means, per_round=True),
  'latest_per_client': functools.partial(servers.latest_class_knowledge, aggregate.mean),
}


@checked
def felo(
  tx: optax.GradientTransformation,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 10,
  alpha: Weight = 0.5,
  initial: Count = 5,
  load_in_initial: bool = False,
  store: Literal['cumulative', 'per_round', 'latest_per_client'] = 'cumulative',
  upload: Upload = 'class_mean',
  limits: tuple[Positive, Positive] = (5000, 50000),
  feature_align: Alignment = 'none',
  equal_weights: bool = False,
  kl_reduction: Reduction = 'batchmean',
  kl_direction: Direction = 'server',
  rule: aggregate.AnyRule = aggregate.mean,
  knowledge_rule: aggregate.AnyRule | None = None,
  keep_optimizer: bool = False,
) -> Method:
  """Class means of features and logits for all clients, weights within each architecture.

  Learned: one set of weights per architecture, on the server. Sent: weights, BatchNorm statistics, and per class the
  mean feature and mean logits, both ways. Averaged: weights within each architecture, features and logits over all.

  Args:
    tx: optax optimizer of the clients.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    alpha: weight of the knowledge loss MSE + KL (Eq. 1). May be traced.
    initial: rounds of initial training, in which no knowledge is received and the loss is cross-entropy alone; clients
      then continue from their own weights, which they keep between updates.
    load_in_initial: whether they start from the averaged weights in those rounds too, as in all later ones.
    store: what the server averages: 'cumulative' (everything, as in the paper), 'per_round', or 'latest_per_client'.
    upload: 'class_mean' (the paper), or 'per_sample' (the 2022 code: a feature and logits for every example).
    limits: features and logits kept per class with 'per_sample', first in, first out.
    feature_align: where widths of features differ: 'pool' averages neighbours to the smallest width for the exchange
      and the MSE; 'group' exchanges features among equal widths only. 'none' raises an error.
    equal_weights: whether clients of an architecture count equally; else by their number of examples.
    kl_reduction: 'batchmean', the definition; 'mean' divides by the number of classes too (the code's default).
    kl_direction: 'server', KL(received || own) as in the code, or 'client', as Eq. 1 is written.
    rule: aggregation rule of the weights within each architecture.
    knowledge_rule: None for the means of `store`; an aggregation rule instead reduces the clients' latest features and
      logits, class by class ('latest_per_client' is `aggregate.mean`).
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each.

  Raises:
    ValueError: for an unknown choice, 'per_sample' with a store other than 'cumulative', or a `knowledge_rule` with
      'per_sample' or 'per_round'.
  """
  if upload == 'per_sample' and store != 'cumulative':
    raise ValueError(f"store={store!r} needs upload='class_mean'; set store to 'cumulative'")
  if knowledge_rule is not None and (upload == 'per_sample' or store == 'per_round'):
    raise ValueError(
      f'knowledge_rule reduces the latest class means of every client, not upload={upload!r} with store={store!r}; set '
      "upload='class_mean' and store='latest_per_client'"
    )
  logits: Callable[..., Server]
  features: Callable[..., Server]
  if knowledge_rule is not None:
    logits = features = functools.partial(servers.latest_class_knowledge, knowledge_rule)
  elif upload == 'per_sample':
    logits, features = (functools.partial(servers.buffered_class_means, limit) for limit in reversed(limits))
  else:
    logits = features = STORES[store]
  start: dict[str, Any] = {'initial': initial, 'load_in_initial': load_in_initial, 'feature_align': feature_align}
  loss: dict[str, Any] = {'alpha': alpha, 'kl_reduction': kl_reduction, 'kl_direction': kl_direction}
  means: dict[str, Any] = {'upload': upload, 'equal_weights': equal_weights, 'rule': rule}
  work = local.Work(batch, steps, epochs)
  return exchanging(tx, logits, features, work, **start, **loss, **means, keep_optimizer=keep_optimizer)


def narrowed(feature: jax.Array, width: int) -> jax.Array:
  """Features [B, d] as means of neighbours [B, width] ('pool'); themselves where the widths agree already."""
  return feature.reshape(feature.shape[0], width, -1).mean(-1)


def exchanging(
  tx: optax.GradientTransformation,
  logits: Callable[..., Server],
  features: Callable[..., Server],
  work: local.Work,
  *,
  alpha: Weight,
  initial: Count,
  load_in_initial: bool,
  upload: Upload,
  equal_weights: bool,
  kl_reduction: Reduction,
  kl_direction: Direction,
  feature_align: Alignment,
  rule: aggregate.AnyRule,
  keep_optimizer: bool,
) -> Method:
  """Felo or Velo, by the servers of `logits` and `features` (`features_and_logits`); other arguments as in `felo`."""
  keeps = initial > 0 and not load_in_initial  # weights between updates
  kept = (('params', 'batch_stats') if keeps else ()) + (('opt',) if keep_optimizer else ())

  def remembered(learner):
    return {name: getattr(learner, name) for name in kept} if kept else ()

  def init(key, model, data, variables):
    del key, model, data
    return remembered(local.start(variables, tx))

  def step(key, t, model, state, down, data):
    weights, means = down.shared['weights'], down.shared['knowledge']
    feature, received = means['features'], means['logits']  # Masked, values [C, d] and [C, C]
    values = values_of(weights)
    own = {name: state[name] for name in weights} if keeps else values
    begin = jax.tree.map(lambda s, own: jnp.where(s.valid, s.value, own), weights, own, is_leaf=is_masked)
    learner = local.start(begin, tx)
    learner = learner._replace(opt=state['opt']) if keep_optimizer else learner
    private, (classes, width) = data.private, feature.value.shape
    places = private.index.shape[0]

    def loss_fn(params, batch_stats, key, rows):
      index, place = rows
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      f = narrowed(features_in(out, model), width)
      ce = local.cross_entropy(logits, label) + local.penalty(out)
      mse = jax.vmap(masked_squared_error)(f, feature.value[label], feature.valid[label])
      kl = jax.vmap(functools.partial(masked_kl, direction=kl_direction))
      kl = kl(logits, received.value[label], received.valid[label]) / (classes if kl_reduction == 'mean' else 1)
      distill = jnp.mean(mse + kl)
      loss = ce + alpha * distill
      # Outputs are averaged per class, or (per_sample) per example.
      of = jax.nn.one_hot(label, classes) if upload == 'class_mean' else jax.nn.one_hot(place, places)
      outputs = jax.lax.stop_gradient({'features': of.T @ f, 'logits': class_sums(of, logits)})
      sums = {**outputs, 'count': jnp.sum(of, 0)}
      return loss, (batch_stats, {**sums, **local.tally(label, loss=loss, distill_loss=distill)})

    own_examples = (private.index, jnp.arange(places)), private.size
    trained, sums = local.fit(key, learner, tx, loss_fn, own_examples, work, t)
    # Means over the forward passes of training; classes (or examples) not drawn are not sent.
    seen = sums['count'] > 0
    mean = lambda name: Masked(sums[name] / jnp.maximum(sums['count'], 1)[:, None], seen)
    label = jnp.arange(classes) if upload == 'class_mean' else data.pool.label[private.index]
    knowledge = {'features': mean('features'), 'logits': mean('logits'), 'label': Masked(label.astype(jnp.int32), seen)}
    up = {
      'weights': {**local.variables(trained), 'count': jnp.int32(1) if equal_weights else private.size},
      'knowledge': knowledge,
    }
    return remembered(trained), up, local.report(sums)

  server = features_and_logits(
    logits, features, feature_align=feature_align, initial=initial, load_in_initial=load_in_initial, rule=rule
  )
  return Method(Client(init, step), server, lambda state, g: servers.global_model(state.server['weights'], g))
