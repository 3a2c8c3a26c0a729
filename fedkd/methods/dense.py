"""DENSE: Zhang, Chen, Li, Lyu, Wu, Ding, Shen, Wu, "DENSE: Data-Free One-Shot Federated Learning", 2022, Algorithm 1.

One upload in all. The server makes images on which the clients' models together are sure and its own model is wrong,
and its model learns from them there.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import local, losses, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.servers.synthesis import Lesson, Making, by_ensemble, synthesis
from fedkd.types import Client, Masked, Method, Server

BETAS = 0.5, 0.999  # of the generator's Adam


@checked
def dense(
  tx: optax.GradientTransformation,
  epochs: Count = 200,
  batch: Positive = 128,
  server_rounds: Positive = 200,
  generator_steps: Positive = 30,
  generator_rate: Weight = 1e-3,
  latent: Positive = 256,
  width: Positive = 64,
  bn: Weight = 1.0,
  adversarial: Weight = 1.0,
  onehot: Weight = 1.0,
  temperature: Scale = 20.0,
  server_batch: Positive = 256,
  server_rate: Weight = 0.005,
  generator_crop: Count = 4,
  crop: Count = 0,
  flip: bool = True,
  server_tx: optax.GradientTransformation | None = None,
) -> Method:
  """Models that learn from the ensemble of all clients' models on images that were made for it.

  Learned: clients' models, in round 0; then on the server a generator, anew in every round, and a model of every
  architecture. Sent: weights and BatchNorm statistics in round 0, nothing down. Averaged: the logits of the clients'
  models. A client that is absent in round 0 never teaches; later rounds give only the server time: clients neither
  train nor send, and the server goes on even if nobody takes part. Clients predict with the server's model of their
  architecture; 'ensemble' is what their models together predict.

  Images must be bytes, or numbers from 0 to 1. With several architectures the images are hard for all of their models,
  on average.

  Args:
    tx: optax optimizer of the clients.
    epochs: passes over a client's rows; 0: models of an earlier phase are uploaded as they are.
    batch: examples per mini-batch of a client.
    server_rounds: rounds that make images and train; later ones change nothing.
    generator_steps: steps of the generator and its noise, with Adam, for the images of one round.
    generator_rate: its learning rate.
    latent: numbers of the noise.
    width: channels of the generator.
    bn: weight of the distance between the images' BatchNorm statistics and those of training, summed over all layers of
      all models.
    adversarial: weight of the divergence from the server's model, over images that it classifies otherwise.
    onehot: weight of the cross-entropy with the labels that images are made for.
    temperature: of the distillation.
    server_batch: images of a round, and per step of the distillation, which goes over all images that there are.
    server_rate: of its SGD with momentum 0.9.
    generator_crop: pixels of padding of the random crops in which the generator's images are seen; 0: no crops.
    crop: the same of the distillation (4 in the authors' code for CIFAR, 0 for others).
    flip: whether both flip images at random.
    server_tx: optimizer of the distillation in place of SGD.

  Raises:
    ValueError: for examples that are no images, or a BatchNorm whose statistics cannot be compared.
  """

  def loss(logits, students, label, apart):
    wrong = sum(disagreement(one, logits) for one in students) / len(students)
    return bn * apart + onehot * local.cross_entropy(logits, label) - adversarial * wrong

  compares = not isinstance(bn, int | float) or bn > 0
  making = Making(
    loss,
    optax.adam(generator_rate, *BETAS),
    generator_steps,
    server_batch,
    latent,
    width,
    generator_crop,
    flip,
    statistics=compares,
  )
  lesson = Lesson(server_tx or optax.sgd(server_rate, momentum=0.9), server_batch, temperature, crop, flip)
  return once(tx, local.Work(batch, epochs=epochs), synthesis(making, lesson, server_rounds))


def disagreement(student: jax.Array, teacher: jax.Array) -> jax.Array:
  """The mean over a batch of KL(teacher || student), logits [B, C], counted where they predict different classes."""
  away = jnp.argmax(student, -1) != jnp.argmax(teacher, -1)
  divergence = jax.vmap(lambda one, other: losses.divergence(jax.nn.softmax(other), one))
  return jnp.mean(jnp.where(away, divergence(student, teacher), 0))


def once(tx: optax.GradientTransformation, work: local.Work, server: Server) -> Method:
  """Clients that train and upload their models in round 0, and a server of `synthesis` that goes on alone."""

  def step(key, t, model, learner, down, data):
    info = {'examples': jnp.float32(0), 'loss': jnp.float32(jnp.nan)}
    if local.given(work.epochs):
      rows = data.private.index, jnp.where(t == 0, data.private.size, 0)
      learner, sums = local.fit(key, learner, tx, local.supervised(model, data.pool), rows, work, t)
      info = local.report(sums)
    up = jax.tree.map(lambda leaf: Masked(leaf, t == 0), local.variables(learner))
    return learner, up, info

  def student(state, g):
    return servers.as_rows(local.variables(state.server.learners[g]))

  client = Client(local.starting(tx), step)
  return Method(client, server, student, predictions=(('ensemble', by_ensemble),))
