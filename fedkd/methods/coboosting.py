"""Co-Boosting: Dai, Zhang, Li, Liu, Yang, Han, "Enhancing One-Shot Federated Learning Through Data and Ensemble
Co-Boosting", 2024.

As DENSE, but images on which the ensemble errs count more, the ensemble learns which clients to believe, and the
server's model learns from images that are moved to where the ensemble's answers differ most.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import local, losses, optimizers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.methods.dense import BETAS, once
from fedkd.servers.synthesis import Lesson, Making, synthesis
from fedkd.types import Method

CLIP = 10.0  # of the norms of all gradients
SOFT = 3.0  # the temperature at which the generator sees the student
MOVED_AT = 4.0  # and that at which images are moved


@checked
def coboosting(
  tx: optax.GradientTransformation,
  epochs: Count = 100,
  batch: Positive = 128,
  server_rounds: Positive = 200,
  generator_steps: Positive = 30,
  generator_rate: Weight = 1e-3,
  latent: Positive = 256,
  width: Positive = 64,
  adversarial: Weight = 1.0,
  onehot: Weight = 1.0,
  hardness: Weight = 1.0,
  weight_step: Weight = 0.01,
  weight_decay: Weight = 0.99,
  perturbation: Weight = 8 / 255,
  temperature: Scale = 4.0,
  server_batch: Positive = 128,
  server_rate: Weight = 0.01,
  crop: Count = 0,
  flip: bool = True,
  server_tx: optax.GradientTransformation | None = None,
) -> Method:
  """DENSE whose images and ensemble improve each other.

  Learned: clients' models, in round 0; then on the server a generator, anew in every round, the weights of the clients
  in the ensemble, and a model of every architecture. Sent: weights and BatchNorm statistics in round 0, nothing down.
  Averaged: the logits of the clients' models, by weights that need not add up to 1. A client that is absent in round 0
  never teaches. Clients predict with the server's model of their architecture; 'ensemble' is what their models together
  predict.

  Args:
    tx: optax optimizer of the clients (the authors clip the norm of their gradients to 10).
    epochs, batch, server_rounds: as in `methods.dense`.
    generator_steps: of the generator and its noise; the norm of the generator's gradient is clipped to 10.
    generator_rate, latent, width: as in `methods.dense`.
    adversarial: weight of the divergence from the server's model, at temperature 3, over all images.
    onehot: weight of the cross-entropy with the labels that images are made for.
    hardness: power of 1 minus the probability of that label, by which an image counts there; 0: all count alike.
    weight_step: by how much every weight moves against the sign of its gradient of the cross-entropy, in each batch of
      a pass over the images of earlier rounds; 0: the weights stay equal. They are kept between 0 and 1.
    weight_decay: factor of that step from one round to the next.
    perturbation: by how much every number of an image, between 0 and 1, is moved before the distillation. The authors
      move normalised images by 8 / 255, which for their MNIST, of numbers from -1 to 1, is 4 / 255 here.
    temperature: of the distillation.
    server_batch: images of a round, and per step of the distillation and of the weights.
    server_rate: of the distillation's SGD with momentum 0.9, weight decay 1e-4, gradients clipped to norm 10 and a
      cosine to 0 over `server_rounds`.
    crop, flip: random crops and flips of the distillation's images, as in `methods.dense` (in the authors' code 4 and
      True for CIFAR, neither for MNIST; the weights learn from such images, too, but here from those as they are).
    server_tx: optimizer of the distillation in place of that.

  Raises:
    ValueError: for examples that are no images.
  """

  def loss(logits, students, label, apart):
    del apart
    wrong = sum(softened(one, logits) for one in students) / len(students)
    return onehot * hard_cross_entropy(logits, label, hardness) - adversarial * wrong

  def reweigh(t, weight, logits_of, label):
    return reweighed(weight, logits_of, label, weight_step * weight_decay**t)

  making = Making(loss, clipped_adam(generator_rate), generator_steps, server_batch, latent, width)
  moved = lambda key, x, teach: x + perturbation * direction(key, x, teach)
  lesson = Lesson(server_tx or _sgd(server_rate, server_rounds), server_batch, temperature, crop, flip, moved)
  return once(tx, local.Work(batch, epochs=epochs), synthesis(making, lesson, server_rounds, reweigh))


def softened(student: jax.Array, teacher: jax.Array) -> jax.Array:
  """The mean over a batch of T^2 KL(teacher || student), logits [B, C] at the temperature T = 3, with a gradient into
  both: the images that are made change both."""
  divergence = jax.vmap(lambda one, other: losses.divergence(jax.nn.softmax(other / SOFT), one / SOFT))
  return jnp.mean(SOFT**2 * divergence(student, teacher))


def hard_cross_entropy(logits: jax.Array, label: jax.Array, hardness) -> jax.Array:
  """The mean over a batch [B, C] of the cross-entropy times (1 - the probability of the label) ** `hardness`, which is
  a constant."""
  ce = optax.softmax_cross_entropy_with_integer_labels(logits, label)
  missing = jax.lax.stop_gradient(-jnp.expm1(-ce))
  return jnp.mean(missing**hardness * ce)


def reweighed(weight: tuple, logits_of, label: jax.Array, by) -> tuple:
  """Weights in the ensemble, each moved by `by` against the sign of its gradient of the cross-entropy of
  `logits_of(weight)` [B, C]."""
  gradient = jax.grad(lambda w: local.cross_entropy(logits_of(w), label))(weight)
  return jax.tree.map(lambda w, g: jnp.clip(w - by * jnp.sign(g), 0, 1), weight, gradient)


def direction(key: jax.Array, x: jax.Array, teach) -> jax.Array:
  """Signs [B, ...] of the gradient in the images of a random combination of the ensemble's softened probabilities."""

  def combined(x):
    logits = teach(x)
    mix = jax.random.uniform(key, logits.shape, minval=-1, maxval=1)
    return jnp.sum(mix * jax.nn.softmax(logits / MOVED_AT))

  return jnp.sign(jax.grad(combined)(x))


def clipped_adam(rate) -> optax.GradientTransformation:
  """Adam for the generator and its noise, of which the generator's gradient alone is clipped."""
  clip = optax.masked(optax.clip_by_global_norm(CLIP), {'net': True, 'noise': False})
  return optax.chain(clip, optax.adam(rate, *BETAS))


def _sgd(rate, rounds):
  steps = optax.chain(optax.clip_by_global_norm(CLIP), optax.add_decayed_weights(1e-4), optax.sgd(rate, momentum=0.9))
  return optimizers.scheduled(steps, optax.cosine_decay_schedule(1.0, rounds))
