"""A server that makes images on which the clients' models agree, and trains models on their outputs there.

DENSE (Zhang et al., 2022) and Co-Boosting (Dai et al., 2024): nobody has data for it, and every client uploads once.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import local, losses
from fedkd.models import base
from fedkd.models.generator import ImageGenerator
from fedkd.servers.static import Network, Static
from fedkd.servers.teachers import Teachers, after_uploads, check_statistics, ensemble
from fedkd.types import Download, Server, of_model

Teach = Callable[[jax.Array], jax.Array]  # images [B, ...] between 0 and 1 -> the ensemble's logits [B, C]
# (the ensemble's logits [B, C], those of every student, labels [B], how far the statistics are from those of training)
ImageLoss = Callable[[jax.Array, Sequence[jax.Array], jax.Array, jax.Array], jax.Array]


class SynthesisState(NamedTuple):
  """The state of the server: the first `size` of the images are made, with the labels that they were made for."""

  teachers: Teachers
  image: jax.Array  # uint8[N, H, W, c]
  label: jax.Array  # int32[N]
  size: jax.Array  # int32[]
  learners: tuple[local.Learner, ...]  # a student of every architecture
  networks: tuple[Any, ...]  # `Static`, the `Network` of every group, for the ensemble's predictions


class Making(NamedTuple):
  """How a round makes its images: from noise, by a generator that starts anew and is trained with that noise.

  loss: what both minimise; the images of the step with the smallest are kept.
  statistics: whether the loss looks at BatchNorm statistics.
  """

  loss: ImageLoss
  tx: optax.GradientTransformation
  steps: int
  batch: int  # images of a round
  latent: int  # numbers of the noise
  width: int  # of the generator
  crop: int = 0  # pixels of padding before a random crop, before the models look
  flip: bool = False
  statistics: bool = False


class Lesson(NamedTuple):
  """How students learn from the ensemble on all images that there are, one pass in every round.

  moved: (key, images, teach) -> images, before both look; None: as they are.
  """

  tx: optax.GradientTransformation
  batch: int
  temperature: Any
  crop: int = 0
  flip: bool = False
  moved: Callable[[jax.Array, jax.Array, Teach], jax.Array] | None = None


# (t, weights per group, weights -> logits [B, C], labels [B]) -> weights per group
Reweigh = Callable[[jax.Array, tuple, Callable[[tuple], jax.Array], jax.Array], tuple]


def synthesis(making: Making, lesson: Lesson, capacity: int, reweigh: Reweigh | None = None) -> Server:
  """Keeps the models that clients upload in round 0, and in every round makes images and trains students on all.

  Uploads are {'params', 'batch_stats'} of `types.Masked` leaves, valid in round 0 alone; nothing is sent.

  Args:
    making, lesson: how images are made, and how students learn from them.
    capacity: how many rounds make images and train; later ones change nothing.
    reweigh: changes the weights of the ensemble, which begin equal, on every batch of a pass over the images of earlier
      rounds; None: they stay equal.

  Raises:
    ValueError: at init, for examples that are no images, or a BatchNorm whose statistics cannot be compared.
  """

  def init(key, groups, variables, data):
    example = data[0].pool.example
    if example.ndim != 4:
      raise ValueError(
        f'this method makes images [H, W, channels], but examples have the shape {example.shape[1:]}; give images'
      )
    if making.statistics:
      for group, first in zip(groups, variables, strict=True):
        check_statistics(group, first, example)
      if not jax.tree.leaves([first['batch_stats'] for first in variables]):
        warnings.warn(
          'no model has a BatchNorm, so images are held to no statistics of training rows; choose models with one, or '
          'set bn=0',
          stacklevel=2,
        )
    stacked = lambda v, n: jax.tree.map(lambda a: jnp.broadcast_to(a, (n, *a.shape)), v)
    counts = [len(g.ids) for g in groups]
    kept = tuple(stacked(of_model(v), n) for v, n in zip(variables, counts, strict=True))
    teachers = Teachers(kept, tuple(jnp.zeros(n, bool) for n in counts), tuple(jnp.zeros(n) for n in counts))
    rows = capacity * making.batch
    return SynthesisState(
      teachers,
      jnp.zeros((rows, *example.shape[1:]), jnp.uint8),
      jnp.zeros(rows, jnp.int32),
      jnp.int32(0),
      tuple(local.start(v, lesson.tx) for v in variables),
      tuple(Static(Network(g.model)) for g in groups),
    )

  def receive(key, t, groups, state, uploads, ids, data):
    state = state._replace(teachers=after_uploads(t, groups, state.teachers, uploads, ids))
    nets, unit = [g.model for g in groups], _unit(data[0].pool.example)
    live = jnp.any(jnp.concatenate(state.teachers.present)) & (state.size < len(state.image))
    key_make, key_weigh, key_fit = jax.random.split(key, 3)

    def more(state):
      image, label, loss = _made(key_make, nets, state, making, unit)
      if reweigh is not None:
        state = state._replace(teachers=_reweighed(key_weigh, t, nets, state, reweigh, making.batch, unit))
      put = lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new, state.size, 0)
      after = state._replace(image=put(state.image, image), label=put(state.label, label))
      return after._replace(size=state.size + making.batch), loss

    state, loss = jax.lax.cond(live, more, lambda state: (state, jnp.float32(jnp.nan)), state)
    lesson_loss = _lesson_loss(nets, state.teachers, lesson, state.image, unit)
    rows = jnp.arange(len(state.image)), jnp.where(live, state.size, 0)
    work, learners, taught = local.Work(lesson.batch, epochs=1), [], []
    for net, learner in zip(nets, state.learners, strict=True):  # equal architectures learn alike
      # The optimizer is kept, and counts the steps itself: their number grows with the pool.
      learner, sums = local.fit(key_fit, learner, lesson.tx, lesson_loss(net), rows, work, t, before=0)
      learners.append(learner)
      taught.append(local.report(sums)['loss'])
    info = {'generator_loss': loss, 'server_loss': sum(taught) / len(taught)}
    return state._replace(learners=tuple(learners)), info

  send = lambda key, t, groups, state, ids, data: tuple(Download() for _ in ids)
  return Server(init, receive, send, fresh=True, alone=True)


def by_ensemble(model: nn.Module, variables: dict, server_state: SynthesisState, x: jax.Array) -> jax.Array:
  """A `types.Predict` of the clients' models together."""
  del model, variables
  return ensemble([network.value.module for network in server_state.networks], server_state.teachers, x)[0]


def _unit(example) -> float:
  """What models see as white: images are bytes, or numbers from 0 to 1."""
  return 255.0 if example.dtype == np.uint8 else 1.0


def _decoded(image):
  """Stored images as numbers from 0 to 1."""
  return image.astype(jnp.float32) / 255


class _Best(NamedTuple):
  loss: jax.Array
  image: jax.Array


def _made(key, nets, state: SynthesisState, making: Making, unit):
  """(uint8 images [B, ...], the labels that they were made for, their loss)."""
  generator = ImageGenerator(state.image.shape[1:], making.width)
  key_net, key_noise, key_label, key_view = jax.random.split(key, 4)
  noise = jax.random.normal(key_noise, (making.batch, making.latent))
  label = jax.random.randint(key_label, (making.batch,), 0, nets[0].classes, jnp.int32)
  params = {'net': generator.init(key_net, noise)['params'], 'noise': noise}
  students = [local.variables(learner) for learner in state.learners]

  def loss_fn(params, key):
    image = generator.apply({'params': params['net']}, params['noise'])
    seen = unit * base.augment(key, image, making.crop, making.flip)
    logits, apart = ensemble(nets, state.teachers, seen)
    taught = [net.apply(variables, seen, False)[0] for net, variables in zip(nets, students, strict=True)]
    return making.loss(logits, taught, label, apart), image

  def step(i, carry):
    learner, best = carry
    (loss, image), grads = jax.value_and_grad(loss_fn, has_aux=True)(learner.params, jax.random.fold_in(key_view, i))
    best = jax.tree.map(lambda a, b: jnp.where(loss < best.loss, a, b), _Best(jnp.float32(loss), image), best)
    return local.update(learner, making.tx, grads, {}), best

  first = local.start({'params': params, 'batch_stats': {}}, making.tx)
  best = _Best(jnp.float32(jnp.inf), jnp.zeros((making.batch, *state.image.shape[1:])))
  _, best = jax.lax.fori_loop(0, making.steps, step, (first, best))
  return jnp.round(255 * best.image).astype(jnp.uint8), label, best.loss


def _reweighed(key, t, nets, state: SynthesisState, reweigh: Reweigh, batch, unit) -> Teachers:
  """The teachers after a pass over the images of earlier rounds."""
  order = local.shuffle(key, len(state.image), state.size)

  def step(i, weight):
    rows = order[i * batch + jnp.arange(batch)]
    x = unit * _decoded(state.image[rows])
    logits_of = lambda weight: ensemble(nets, state.teachers._replace(weight=weight), x)[0]
    changed = reweigh(t, weight, logits_of, state.label[rows])
    return tuple(jnp.where(here, w, 0) for here, w in zip(state.teachers.present, changed, strict=True))

  weight = jax.lax.fori_loop(0, state.size // batch, step, state.teachers.weight)
  return state.teachers._replace(weight=weight)


def _lesson_loss(nets, teachers, lesson: Lesson, image, unit):
  """net -> the `loss_fn` of `local.fit` on rows of the images."""
  teach = lambda x: ensemble(nets, teachers, unit * x)[0]

  def of(net):
    plain = base.unaugmented(net)

    def loss_fn(params, batch_stats, key, rows):
      key_view, key_move, key_model = jax.random.split(key, 3)
      x = base.augment(key_view, _decoded(image[rows]), lesson.crop, lesson.flip)
      x = x if lesson.moved is None else lesson.moved(key_move, x, teach)
      target = teach(x)
      logits, out, batch_stats = local.forward(plain, params, batch_stats, key_model, unit * x)
      loss = jnp.mean(jax.vmap(lambda one, other: losses.kl(one, other, lesson.temperature))(logits, target))
      return loss + local.penalty(out), (batch_stats, local.tally(rows, loss=loss))

    return loss_fn

  return of
