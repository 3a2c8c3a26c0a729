"""MOON: Li, He, Song, "Model-Contrastive Federated Learning", 2021."""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.models.base import features_in
from fedkd.types import Client, Method, of_model


@checked
def moon(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  mu: Weight = 1.0,
  temperature: Scale = 0.5,
  rule: aggregate.AnyRule = aggregate.mean,
  server_tx: optax.GradientTransformation | None = None,
) -> Method:
  """FedAvg whose clients keep their features near the global model's and away from those of their own last one.

  Learned, sent and averaged: as in `fedavg`. A client also keeps the model that it uploaded last, whose features z_p of
  a batch are repelled, while those z_g of the received model attract (Eqs. 3 and 4): the mean over the batch of
  -log(exp(cos(z, z_g) / T) / (exp(cos(z, z_g) / T) + exp(cos(z, z_p) / T))). z_g and z_p are constants, by models in
  inference mode that see the same crops and flips. A client's first update has no z_p, and is that of FedAvg. z is the
  model's feature vector; the authors put a projection head of two layers before the classifier, which is a model of its
  own here.

  Args:
    tx: optax optimizer, fresh in every round.
    steps: mini-batches per round; or
    epochs: passes over the client's data per round (the authors' 10, with a batch of 64).
    batch: examples per mini-batch.
    mu: weight of the contrastive term; 0 is FedAvg. May be traced.
    temperature: T.
    rule: aggregation rule, weighted by n_k.
    server_tx: optax optimizer of the server (`servers.weights`).

  Raises:
    ValueError: at init, for clients of several architectures.
  """
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    return {'last': of_model(variables), 'has_last': jnp.asarray(False)}

  def step(key, t, model, state, down, data):
    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      fixed = lambda own: flat(features_in(local.alongside(model, of_model(own), key, image)[1], model))
      apart = contrast(flat(features_in(out, model)), fixed(down.shared), fixed(state['last']), temperature)
      apart = jnp.where(state['has_last'], jnp.mean(apart), 0)
      loss = local.cross_entropy(logits, label) + local.penalty(out)
      return loss + mu * apart, (batch_stats, local.tally(label, loss=loss, contrast=apart))

    learner, sums = local.fit(key, local.start(down.shared, tx), tx, loss_fn, data.private, work, t)
    last = local.variables(learner)
    trained = state['has_last'] | (data.private.size > 0)
    return {'last': last, 'has_last': trained}, {**last, 'count': data.private.size}, local.report(sums)

  server = servers.weights(rule, server_tx)
  return Method(Client(init, step), server, lambda state, g: servers.global_model(state.server, g))


def flat(features: jax.Array) -> jax.Array:
  """Features [B, ...] as [B, d]."""
  return features.reshape(len(features), -1)


def contrast(z: jax.Array, near: jax.Array, far: jax.Array, temperature: float) -> jax.Array:
  """The contrastive term [B] of features [B, d]: -log of the softmax over the two cosines (Eq. 3)."""
  to = lambda other: optax.losses.cosine_similarity(z, other, epsilon=1e-8) / temperature
  return jax.nn.softplus(to(far) - to(near))
