"""A server that averages weights and trains a generator of features, with the clients' heads as teachers (FedGen)."""

from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import inference, local
from fedkd.aggregate import total
from fedkd.models.generator import NOISE, FeatureGenerator
from fedkd.servers import layer_subset
from fedkd.types import Data, Download, PyTree, Server, of_model

Noise = Literal['uniform', 'normal']
Ensemble = Literal['losses', 'logits']
DRAWS = {'uniform': jax.random.uniform, 'normal': jax.random.normal}


class GeneratorState(NamedTuple):
  """Weights, the generator, and the classes that any client has, bool[C]."""

  weights: PyTree
  generator: dict  # the fields of a `local.Learner`
  known: jax.Array


def generator_of(model: nn.Module, data: Data, hidden: int) -> FeatureGenerator:
  """The generator of a model's features; `hidden`: its width.

  Raises:
    ValueError: for features that are not vectors.
  """
  return FeatureGenerator(inference.feature_width(model, data.pool), model.classes, hidden)


def draw(key: jax.Array, known: jax.Array, count: int) -> jax.Array:
  """`count` classes, int[count], drawn uniformly from those that are known, bool[C]; 0 if none is."""
  return jax.random.categorical(key, jnp.where(known, 0.0, -jnp.inf), shape=(count,))


def ensemble_loss(
  heads: tuple, share: jax.Array, feature: jax.Array, label: jax.Array, ensemble: Ensemble
) -> jax.Array:
  """How far features [B, d] are from their labels for several heads: arrays [M, d, C] and [M, C].

  Args:
    share: [M, C], the share of every head in each class; a head without any is not a teacher.
    ensemble: 'losses', the sum over heads of the cross-entropies, weighted by `share`; or 'logits', the cross-entropy
      of the mean of their logits (Eq. 4).
  """

  def one(head, share):
    teaches = jnp.any(share > 0)
    logits = layer_subset.linear(jax.tree.map(lambda a: jnp.where(teaches, a, 0), head), feature)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, label)
    return jnp.mean(share[label] * ce), logits, teaches.astype(jnp.float32)

  losses, logits, teachers = total(one, heads, share)
  return losses if ensemble == 'losses' else local.cross_entropy(logits / jnp.maximum(teachers, 1), label)


def diversity(noise: jax.Array, feature: jax.Array) -> jax.Array:
  """exp of the mean over all pairs of minus the mean squared distance of their noise times the mean distance of their
  features: 1 where all features [B, d] are alike, less the more they differ."""
  apart = lambda a, of: jnp.mean(of(a[:, None] - a), -1)
  return jnp.exp(jnp.mean(-apart(noise, jnp.square) * apart(feature, jnp.abs)))


def feature_generator(
  shared: Server,
  *,
  tx: optax.GradientTransformation,
  work: local.Work,
  hidden: int,
  noise: Noise,
  ensemble: Ensemble,
  eta: float,
) -> Server:
  """`shared`, a server of weights (`layer_subset.part`), and a generator that is trained on the heads of every round.

  Uploads are {'weights': what `shared` takes, 'label': one more than the examples of each class that a client has seen,
  int[C]}. Downloads are {'weights', 'generator': its variables, 'label': the known classes, bool[C]}.

  Args:
    tx, work: optimizer of the generator, whose state persists, its features per step and steps in every round.
    hidden, noise, ensemble, eta: as in `methods.fedgen`.
  """
  heads_of = lambda groups, data: [layer_subset.linear_head(g.model, d) for g, d in zip(groups, data, strict=True)]
  weighted = lambda counts, slot: jnp.where((slot >= 0)[:, None], counts, 0).astype(jnp.float32)

  def init(key, groups, variables, data):
    key_weights, key_net = jax.random.split(key)
    heads_of(groups, data)
    net = generator_of(groups[0].model, data[0], hidden)
    first = net.init(key_net, jnp.zeros((1, NOISE)), jnp.zeros(1, jnp.int32), False)
    known = jnp.zeros(net.classes, bool)
    own = shared.init(key_weights, groups, variables, data)
    return GeneratorState(own, local.start(first, tx)._asdict(), known)

  def receive(key, t, groups, state, uploads, ids, data):
    weights = tuple(up['weights'] for up in uploads)
    after, info = shared.receive(key, t, groups, state.weights, weights, ids, data)
    of_groups = [
      tuple(up['params'][path] for path in paths) for up, paths in zip(weights, heads_of(groups, data), strict=True)
    ]
    heads = jax.tree.map(lambda *a: jnp.concatenate(a), *of_groups)
    counts = jnp.concatenate([weighted(up['label'], slot) for up, slot in zip(uploads, ids, strict=True)])
    share = counts / jnp.maximum(total(lambda n: n, counts), 1)
    held = jnp.any(counts > 1, 0)
    net = generator_of(groups[0].model, data[0], hidden)

    def loss_fn(params, batch_stats, key, rows):
      key_label, key_noise = jax.random.split(key)
      label, z = draw(key_label, held, len(rows)), DRAWS[noise](key_noise, (len(rows), NOISE))
      at = {'params': params, 'batch_stats': batch_stats}
      feature, new = net.apply(at, z, label, True, mutable=['batch_stats'])
      fit, spread = ensemble_loss(heads, share, feature, label, ensemble), diversity(z, feature)
      sums = local.tally(rows, generator_loss=fit, generator_diversity=spread)
      return fit + eta * spread, (new['batch_stats'], sums)

    drawn = jnp.arange(work.batch), jnp.where(jnp.any(held), work.batch, 0)
    learner, sums = local.fit(key, local.Learner(**state.generator), tx, loss_fn, drawn, work, t)
    metrics = {name: value for name, value in local.report(sums).items() if name != 'examples'}
    return GeneratorState(after, learner._asdict(), state.known | held), {**info, **metrics}

  def send(key, t, groups, state, ids, data):
    downs = shared.send(key, t, groups, state.weights, ids, data)
    also = {'generator': of_model(state.generator), 'label': state.known}
    return tuple(Download(shared={'weights': down.shared, **also}) for down in downs)

  return Server(init, receive, send)
