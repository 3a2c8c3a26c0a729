"""FedTGP: Zhang, Liu, Hua, Cao, "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning
for Data and Model Heterogeneity in Federated Learning", 2024.

FedProto with prototypes that are trained on the server, close to what clients upload and far from each other.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.methods.fedproto import Inference, by_prototypes, client_of, predicting
from fedkd.models.prototypes import PrototypeGenerator
from fedkd.servers.class_knowledge import vector_width
from fedkd.servers.trained_table import trained_table
from fedkd.types import Download, Method, Server


@checked
def fedtgp(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  weight: Weight = 10.0,
  tau: Weight = 100.0,
  server_epochs: Count = 100,
  server_batch: Positive = 10,
  server_rate: Scale = 0.01,
  inference: Inference = 'head',
  keep_optimizer: bool = False,
) -> Method:
  """Class-mean features up, trained prototypes down.

  Learned: every client's own model, and a generator of prototypes on the server. Sent: the mean feature vector per own
  class after training, and the class numbers, up; prototypes of all classes, even of those that no client has, down.
  Averaged: nothing. Every evaluation reports the accuracies by the client's own head and by the nearest prototype, of
  all classes, by which the paper predicts; the head decides before there are prototypes.

  Args:
    tx: optax optimizer of the clients.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    weight: lambda, of the mean squared distance of a feature to the prototype of its class: 10 in the authors' scripts,
      0.1 in the paper; 0 is Private. May be traced.
    tau: the largest margin between classes.
    server_epochs, server_batch, server_rate: of the generator: passes over the uploads of a round, uploads per step,
      and learning rate of a fresh SGD; with 0 passes the first prototypes stay.
    inference: what `accuracy` is: by the 'head', as of other methods, or by 'prototypes'.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each.

  Raises:
    ValueError: for an unknown choice; at init, for features that are not vectors of one width.
  """
  client = client_of(tx, local.Work(batch, steps, epochs), weight, keep_optimizer, after=True)
  server = trained_prototypes(tau, local.Work(server_batch, epochs=server_epochs), server_rate)
  return predicting(client, server, {'prototypes': by_prototypes(server)}, inference)


def trained_prototypes(tau: float, work: local.Work, rate: float) -> Server:
  """Prototypes of all classes from a generator, which SGD trains at a `rate`; `tau` as in `fedtgp`."""

  def first(key, groups, variables, data):
    width = vector_width('features', None, groups, data)
    return {'params': PrototypeGenerator(groups[0].model.classes, width).init(key)['params']}

  def generated(params):
    return PrototypeGenerator(*params['Embed_0']['embedding'].shape).apply({'params': params})

  def loss(params, value, label, valid):
    delta = margin(value, label, valid, len(generated(params)), tau)
    return lambda params, value, label: contrast(value, label, generated(params), delta)

  def send(key, t, groups, state, ids, data):
    prototypes = generated(state['params'])
    message = servers.class_message(prototypes, jnp.broadcast_to(state['trained'], prototypes.shape[:1]))
    return tuple(Download(shared=message) for _ in ids)

  return trained_table(first, loss, send, optax.sgd(rate), work)


def distances(one: jax.Array, other: jax.Array) -> jax.Array:
  """Euclidean distances [N, M] of vectors [N, d] and [M, d]; the gradient is 0 where they coincide."""
  square = jnp.sum(jnp.square(one[:, None] - other), -1)
  return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def margin(value: jax.Array, label: jax.Array, valid: jax.Array, classes: int, tau: float) -> jax.Array:
  """The largest distance of a class's centre to the nearest other centre, at most `tau`; `tau` for fewer than two
  classes. The paper's Eq. 9 has the largest distance of any two.

  Args:
    value, label, valid: vectors [N, d] of the classes int[N], and which of them count, bool[N].
  """
  member = jax.nn.one_hot(label, classes) * valid[:, None]
  sums, count = aggregate.total(lambda v, m: (m[:, None] * v, m), jnp.where(valid[:, None], value, 0), member)
  centre, known = sums / jnp.maximum(count, 1)[:, None], count > 0
  pair = known & known[:, None] & ~jnp.eye(classes, dtype=bool)
  gap = jnp.min(jnp.where(pair, distances(centre, centre), jnp.inf), 1)
  return jnp.where(jnp.any(pair), jnp.minimum(jnp.max(jnp.where(jnp.any(pair, 1), gap, 0)), tau), tau)


def contrast(value: jax.Array, label: jax.Array, prototypes: jax.Array, delta: jax.Array | float) -> jax.Array:
  """Cross-entropy of minus the distances of vectors [B, d] to all prototypes [C, d], the distance to the own class
  being increased by `delta`: mean over the batch."""
  own = jax.nn.one_hot(label, prototypes.shape[0])
  return local.cross_entropy(-(distances(value, prototypes) + delta * own), label)
