"""Co-Boosting: hard images, weights of the ensemble that are learned, and images that are moved."""

import importlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import local, methods, optimizers
from fedkd.servers import synthesis
from fedkd.servers.teachers import Teachers
from helpers import assert_close, softmax
from small_nets import made_with

coboosting = importlib.import_module('fedkd.methods.coboosting')  # the module, not the factory
SGD = optax.sgd(0.1)
SHORT = {'epochs': 2, 'batch': 4, 'server_rounds': 3, 'generator_steps': 3, 'latent': 4, 'width': 2, 'server_batch': 8}
ALIKE = {'adversarial': 0, 'temperature': 4.0, 'flip': False, 'server_tx': optax.sgd(0.05, momentum=0.9)}


@pytest.mark.slow
def test_without_its_three_parts_it_is_dense():
  """Also without the divergence from the student, of which DENSE counts only images of other classes."""
  off = {'hardness': 0, 'weight_step': 0, 'perturbation': 0}
  one, _ = made_with(methods.coboosting(SGD, **off, **ALIKE, **SHORT)).run()
  other, _ = made_with(methods.dense(SGD, bn=0, generator_crop=0, **ALIKE, **SHORT)).run()
  assert_close(one.server.learners, other.server.learners, 1e-5)
  assert (np.asarray(one.server.image) == np.asarray(other.server.image)).mean() > 0.99
  moving, _ = made_with(methods.coboosting(SGD, **ALIKE, **SHORT)).run(3, length=3)
  weight = np.asarray(moving.server.teachers.weight[0])
  first, second = 0.01 * 0.99, 0.01 * 0.99**2  # one batch of earlier images in round 1, two in round 2
  reached = {1 / 3 + a * first + b * second for a in (-1, 1) for b in (-2, 0, 2)}
  assert all(min(abs(w - r) for r in reached) < 1e-6 for w in weight)


def test_weights_by_hand():
  """A client that is right gains in every batch until 1, one that is wrong loses until 0, and can come back; one whose
  logits are 0 stays; equal clients move alike."""
  label = jnp.array([0, 1])
  right = 5 * jax.nn.one_hot(label, 3)
  outputs = jnp.stack([right, -right, 0 * right, right])
  logits_of = lambda weight: jnp.einsum('k,kbc->bc', weight[0], outputs)
  move = lambda weight, by: coboosting.reweighed((jnp.array(weight),), logits_of, label, by)[0]
  np.testing.assert_allclose(move([0.25] * 4, 0.01), [0.26, 0.24, 0.25, 0.26], rtol=1e-6)
  np.testing.assert_allclose(move([0.995, 0.005, 0.0, 0.995], 0.01), [1, 0, 0, 1], rtol=1e-6)
  again = coboosting.reweighed(
    (jnp.array([0.0, 0.5]),), lambda w: jnp.einsum('k,kbc->bc', w[0], outputs[:2]), label, 0.01
  )
  np.testing.assert_allclose(again[0], [0.01, 0.49], rtol=1e-6)


class Looking(nn.Module):
  """A net whose logits are its images' first three numbers."""

  classes: int = 3

  def __call__(self, x, train):
    return x.reshape(len(x), -1)[:, :3], {}


@pytest.mark.parametrize('unit', [1.0, 255.0])
def test_a_pass_sees_every_earlier_image_once_with_its_label(unit):
  """Of 30 places 18 are filled, image i with the number i; batches of 6, and weights that go from one to the next."""
  image = jnp.broadcast_to(jnp.arange(30, dtype=jnp.uint8)[:, None, None, None], (30, 2, 2, 1))
  teachers = Teachers(({},), (jnp.array([True, True, False]),), (jnp.array([0.25, 0.5, 0.0]),))
  nothing = {'params': {'a': jnp.zeros(3)}, 'batch_stats': {}}
  teachers = teachers._replace(variables=(nothing,))
  state = synthesis.SynthesisState(teachers, image, 100 + jnp.arange(30), jnp.int32(18), (), ())
  seen = []

  def reweigh(t, weight, logits_of, label):
    note = lambda *found: seen.append(jax.tree.map(np.asarray, found))
    jax.debug.callback(note, t, weight[0], logits_of((jnp.array([1.0, 0, 0]),)), label)
    return (weight[0] + 0.125,)

  again = jax.jit(lambda key: synthesis._reweighed(key, jnp.int32(7), [Looking()], state, reweigh, 6, unit))
  orders = []
  for key in map(jax.random.key, (0, 1)):
    seen.clear()
    after = again(key)
    jax.effects_barrier()
    seen.sort(key=lambda found: found[1][0])  # callbacks need not come in order
    assert [int(t) for t, *_ in seen] == [7, 7, 7]
    weights = np.stack([weight for _, weight, *_ in seen])
    np.testing.assert_allclose(weights, [[0.25 + 0.125 * i, 0.5 + 0.125 * i, 0] for i in range(3)])
    np.testing.assert_allclose(after.weight[0], [0.625, 0.875, 0])
    for _, _, logits, label in seen:
      np.testing.assert_allclose(logits, np.repeat(unit / 255 * (label[:, None] - 100), 3, 1), rtol=1e-5)
    orders.append(np.concatenate([label for *_, label in seen]))
    assert sorted(orders[-1]) == list(range(100, 118))
  assert (orders[0] != orders[1]).any()


def test_hard_images_count_more_by_hand():
  logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
  label = jnp.array([0, 1])
  by_hand = lambda h: np.mean([0.5**h * -np.log(0.5), 0.2**h * -np.log(0.8)])
  for hardness in (0.0, 1.0, 2.0):
    assert coboosting.hard_cross_entropy(logits, label, hardness) == pytest.approx(by_hand(hardness), rel=1e-4)
  slope = jax.grad(coboosting.hard_cross_entropy)(logits, label, 1.0)
  plain = jax.grad(
    lambda one: jnp.mean(jnp.array([0.5, 0.2]) * optax.softmax_cross_entropy_with_integer_labels(one, label))
  )
  assert_close(slope, plain(logits), 1e-5)
  certain = jax.value_and_grad(coboosting.hard_cross_entropy)(jnp.array([[200.0, 0, 0]]), label[:1], 1.0)
  assert all(np.isfinite(a).all() for a in certain)


def test_images_move_away_from_the_student_by_hand():
  """Nine times KL(teacher || student) at the temperature 3, with the gradients of both: 3 (q - p) of the student, and
  of the teacher that of its entropy too."""
  student, teacher = jnp.array([[0.0, 3.0, -3.0], [1.0, 1.0, 1.0]]), jnp.array([[3.0, 0.0, 0.0], [0.0, 6.0, 0.0]])
  q, p = (np.exp(a / 3) / np.exp(a / 3).sum(-1, keepdims=True) for a in map(np.asarray, (student, teacher)))
  apart = (p * np.log(p / q)).sum(-1, keepdims=True)
  value, slopes = jax.value_and_grad(coboosting.softened, (0, 1))(student, teacher)
  assert value == pytest.approx(9 * apart.mean(), rel=1e-5)
  np.testing.assert_allclose(slopes[0], 3 * (q - p) / 2, atol=1e-5)
  np.testing.assert_allclose(slopes[1], 3 * p * (np.log(p / q) - apart) / 2, atol=1e-5)


def test_images_are_moved_by_signs_along_the_gradient():
  """Of a linear ensemble, whose gradient is known; numbers that it does not look at stay. Its answers are softened: at
  the temperature 1 some signs would be others."""
  kernel = 12 * jnp.array([[1.0, -2, 0.5], [0, 1, 1], [0, 0, 0]])
  x = jax.random.uniform(jax.random.key(0), (9, 3))
  teach = lambda x: x @ kernel
  sign = coboosting.direction(jax.random.key(1), x, teach)
  assert set(np.unique(sign)) <= {-1, 0, 1}
  np.testing.assert_array_equal(sign[:, 2], 0)
  mix = jax.random.uniform(jax.random.key(1), (9, 3), minval=-1, maxval=1)

  def by_hand(temperature):
    p = softmax(np.asarray(teach(x) / temperature, float))
    return np.sign((p * (mix - np.sum(p * mix, -1, keepdims=True))) @ kernel.T)

  np.testing.assert_array_equal(sign, by_hand(4))
  assert (by_hand(1) != by_hand(4)).any()


def test_only_the_generators_gradient_is_clipped():
  tx = coboosting.clipped_adam(0.1)
  params = {'net': jnp.zeros(4), 'noise': jnp.zeros(4)}
  inner = optax.masked(optax.clip_by_global_norm(coboosting.CLIP), {'net': True, 'noise': False})
  clipped, _ = inner.update({'net': jnp.full(4, 10.0), 'noise': jnp.full(4, 10.0)}, inner.init(params))
  np.testing.assert_allclose(clipped['net'], 5)
  np.testing.assert_allclose(clipped['noise'], 10)
  learner = local.update(
    local.start({'params': params, 'batch_stats': {}}, tx), tx, {'net': jnp.ones(4), 'noise': jnp.ones(4)}, {}
  )
  assert_close(learner.params, {'net': jnp.full(4, -0.1), 'noise': jnp.full(4, -0.1)}, 1e-4)


def test_the_distillation_descends_as_in_the_authors_code():
  """Gradients clipped to norm 10, then decay, momentum, and a cosine over the rounds; two steps in each."""
  tx, params, trace = coboosting._sgd(0.5, 4), {'w': jnp.array([3.0, 4.0])}, np.zeros(2)
  w, state = np.array([3.0, 4.0]), optimizers.init(tx, params)
  for i, gradient in enumerate([[6.0, 8.0], [60.0, 80.0], [0.0, 0.0], [3.0, 0.0], [0.0, 20.0], [1.0, 1.0]]):
    clipped = np.array(gradient) * min(1, 10 / max(np.linalg.norm(gradient), 1e-9))
    trace = 0.9 * trace + clipped + 1e-4 * w
    w = w - 0.5 * (1 + np.cos(np.pi * (i // 2) / 4)) / 2 * trace
    updates, state = optimizers.update(tx, {'w': jnp.array(gradient)}, state, params, jnp.int32(i // 2))
    params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params['w'], w, rtol=1e-5, atol=1e-6)


def test_what_the_server_is_given_by_hand(monkeypatch):
  """The loss of the images that are made, and by how much they are moved before they are learned from."""
  made = []
  monkeypatch.setattr(coboosting, 'synthesis', lambda *given: made.extend(given))
  methods.coboosting(SGD, onehot=2.0, adversarial=3.0, hardness=0.5, perturbation=0.25, **SHORT)
  teacher, students = jnp.array([[2.0, 0.0, 0.0]]), [jnp.array([[0.0, 1.0, 0.0]]), jnp.array([[0.0, 0.0, 4.0]])]
  label = jnp.array([1])
  wrong = np.mean([coboosting.softened(one, teacher) for one in students])
  by_hand = 2 * coboosting.hard_cross_entropy(teacher, label, 0.5) - 3 * wrong
  assert float(made[0].loss(teacher, students, label, jnp.float32(7))) == pytest.approx(float(by_hand), rel=1e-5)
  x, teach = jnp.ones((2, 3)), lambda x: x @ jnp.array([[1.0, -2, 0.5], [0, 1, 1], [0, 0, 0]])
  moved = made[1].moved(jax.random.key(1), x, teach)
  np.testing.assert_allclose(moved, x + 0.25 * coboosting.direction(jax.random.key(1), x, teach))
  assert (np.abs(moved - x)[:, :2] == 0.25).all()
