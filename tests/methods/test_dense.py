"""DENSE: images that are made for the ensemble of models that were uploaded once, and what learns from them."""

import importlib
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import evaluation, ledger, local, losses, methods, plan
from fedkd.models.base import Classifier
from fedkd.models.generator import ImageGenerator
from fedkd.servers import synthesis
from fedkd.servers.teachers import Teachers, ensemble
from helpers import assert_close, assert_same_bits, problem, softmax
from small_nets import NARROW, NET, PARTS, Normed, made_with

dense = importlib.import_module('fedkd.methods.dense')  # the module, not the factory
SGD = optax.sgd(0.1)
PLAIN = {'generator_crop': 0, 'flip': False}
SHORT = {'epochs': 2, 'batch': 4, 'server_rounds': 2, 'generator_steps': 3, 'latent': 4, 'width': 2, 'server_batch': 8}


@pytest.fixture(scope='module')
def ended():
  """Three clients with BatchNorm, and their problem, after the two rounds that make images and one more."""
  made = made_with(methods.dense(SGD, crop=1, **{**SHORT, 'generator_crop': 1}), net=Normed(), rounds=3)
  states, reports = [made.state], []
  for t in range(3):
    state, report = made.run(1, states[-1], t, length=1)
    states.append(state)
    reports.append(report)
  return made, states, reports


def test_clients_train_and_upload_once(ended):
  _, states, reports = ended
  size = jax.tree.map(lambda a: a[0].size, states[1].server.teachers.variables[0])
  params, statistics = (sum(jax.tree.leaves(size[kind])) for kind in ('params', 'batch_stats'))
  assert ledger.total(reports[0].up) == {
    'weights': (3 * params, 12 * params),
    'statistics': (3 * statistics, 12 * statistics),
  }
  for report in reports[1:]:
    assert not any(n for n, _ in ledger.total(report.up).values())
    assert not np.asarray(report.info[0]['examples']).any()
  assert not any(n for report in reports for n, _ in ledger.total(report.down).values())
  assert_same_bits(states[1].client, states[3].client)
  assert_same_bits(states[1].server.teachers, states[3].server.teachers)
  kept = states[1].server.teachers.variables[0]
  assert_same_bits(kept, local.variables(states[1].client[0]))


def test_every_round_adds_images_until_all_are_made(ended):
  _, states, reports = ended
  assert [int(s.server.size) for s in states] == [0, 8, 16, 16]
  first, second, third = (s.server for s in states[1:])
  assert_same_bits(first.image[:8], second.image[:8])
  assert not np.asarray(first.image[8:]).any()
  assert np.asarray(second.image[8:]).any()
  assert len(np.unique(second.image)) > 20
  assert_same_bits(second, third)
  losses_of = [np.asarray(r.server['server_loss']) for r in reports]
  assert np.isfinite(losses_of[:2]).all()
  assert np.isnan(losses_of[2]).all()


def test_the_ensemble_is_the_mean_of_logits_and_the_student_is_deployed(ended):
  made, states, _ = ended
  state, x = states[2], made.data[0].pool.example[:7]
  net = made.groups[0].model
  one = lambda k: net.apply(jax.tree.map(lambda a: a[k], local.variables(state.client[0])), x, False)[0]
  expected = np.mean([one(k) for k in range(3)], 0)
  ((name, predict),) = made.method.predictions
  module, variables = evaluation.model_of(made.method, made.groups, state, 1)
  assert name == 'ensemble'
  assert_close(predict(module, variables, state.server, x), expected, 1e-5)
  assert_same_bits(variables, local.variables(state.server.learners[0]))


def test_the_order_of_clients_does_not_matter(ended):
  made, states, _ = ended
  teachers, x = states[2].server.teachers, made.data[0].pool.example[:7]
  nets = [made.groups[0].model]
  turned = jax.tree.map(lambda a: a[::-1], teachers)
  for one, other in zip(ensemble(nets, teachers, x), ensemble(nets, turned, x), strict=True):
    assert_close(one, other, 1e-5)


def test_absent_clients_never_teach_and_the_server_goes_on_alone():
  method = methods.dense(SGD, bn=0, **PLAIN, **SHORT)
  made = made_with(method, participants=[[0, -1, 2], [-1, -1, -1], [0, 1, 2]])
  state, _ = made.run(1, length=1)
  second, _ = made.run(1, state, 1, length=1)
  np.testing.assert_allclose(state.server.teachers.weight[0], [0.5, 0, 0.5])
  np.testing.assert_array_equal(state.server.teachers.present[0], [True, False, True])
  assert int(second.server.size) == 16
  late = made_with(method, participants=[[-1, -1, -1], [0, 1, 2]])._replace(programs=made.programs)
  state, _ = late.run(1, length=1)
  state, _ = late.run(1, state, 1, length=1)
  assert int(state.server.size) == 0
  assert_same_bits(state.server.learners, late.state.server.learners)


def test_a_student_equal_to_the_only_teacher_stays():
  """No disagreement, no divergence, no gradient; with `epochs` 0 the first models are uploaded as they are."""
  method = methods.dense(SGD, bn=0, onehot=0, **PLAIN, **{**SHORT, 'epochs': 0})
  made = made_with(method, clients=1)
  state, _ = made.run()
  assert int(state.server.size) == 16
  assert_close(local.variables(state.server.learners[0]), local.variables(made.state.server.learners[0]), 1e-5)
  assert_close(
    state.server.teachers.variables[0]['params'],
    jax.tree.map(lambda a: a[None], made.state.server.learners[0].params),
    0,
  )


@pytest.mark.slow
def test_a_schedule_of_the_students_counts_their_steps():
  """On 8, 16 and 24 images, 8 at a time."""
  falling = optax.sgd(optax.linear_schedule(0.1, 0.0, 100))
  made = made_with(methods.dense(SGD, bn=0, server_tx=falling, **{**SHORT, 'server_rounds': 3}), clients=1, rounds=4)
  counts = [leaf for leaf in jax.tree.leaves(made.run()[0].server.learners[0].opt) if leaf.dtype == jnp.int32]
  assert list(map(int, counts)) == [1 + 2 + 3]


STUDENT = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
TEACHER = jnp.log(jnp.array([[0.25, 0.6, 0.15], [0.2, 0.7, 0.1]]))
# KL(teacher || student) of the first image; both predict the same class of the second.
APART = 0.25 * np.log(0.25 / 0.5) + 0.6 * np.log(0.6 / 0.25) + 0.15 * np.log(0.15 / 0.25)


def test_only_images_of_other_classes_count_by_hand():
  """Two images, one of another class: half of its divergence."""
  assert dense.disagreement(STUDENT, TEACHER) == pytest.approx(APART / 2, rel=1e-5)


def test_the_loss_of_the_generator_by_hand(monkeypatch):
  """Of two students the second agrees with the ensemble: the mean of both disagreements counts, against the rest."""
  made = []
  monkeypatch.setattr(dense, 'synthesis', lambda making, *rest: made.append(making))
  methods.dense(SGD, bn=2.0, onehot=3.0, adversarial=5.0)
  found = made[0].loss(TEACHER, [STUDENT, TEACHER], jnp.array([0, 1]), jnp.float32(0.7))
  by_hand = 2 * 0.7 - 3 * (np.log(0.25) + np.log(0.7)) / 2 - 5 * (APART / 2 + 0) / 2
  assert found == pytest.approx(by_hand, rel=1e-5)


class Costly(nn.Module):
  """A net with a term of its own."""

  net: nn.Module = NET

  def __call__(self, x, train):
    logits, out = self.net(x, train)
    return logits, {**out, 'penalty': 0.25}


def test_the_loss_of_the_distillation_by_hand():
  """The mean over images of T^2 KL(ensemble || student), both softened; in what is minimised, but not in what is
  reported, the student's own term."""
  image = jax.random.randint(jax.random.key(1), (5, 6, 6, 1), 0, 256).astype(jnp.uint8)
  x = np.float32(image) / 255
  teachers = teachers_of(NET, x)
  student = NET.init(jax.random.key(7), x, False)['params']
  lesson = synthesis.Lesson(SGD, 2, 3.0)
  loss_fn = synthesis._lesson_loss([NET], teachers, lesson, image, 1.0)(Costly())
  rows = jnp.array([0, 2, 3])
  whole, (_, sums) = loss_fn({'net': student}, {}, jax.random.key(0), rows)
  loss = local.report(sums)['loss']
  assert float(whole) == pytest.approx(float(loss) + 0.25, rel=1e-5)
  target, logits = (
    NET.apply({'params': params}, x[rows], False)[0]
    for params in (jax.tree.map(lambda a: a[0], teachers.variables[0]['params']), student)
  )
  p, q = (np.asarray(jax.nn.softmax(of / 3.0), np.float64) for of in (target, logits))
  assert loss == pytest.approx(9 * (p * np.log(p / q)).sum(-1).mean(), rel=1e-3)
  assert loss > 1e-3


@pytest.mark.slow
def test_the_losses_that_are_reported_by_hand():
  """Where nothing moves: of the images that were made, seen as bytes, and of their distillation, by students of two
  architectures."""
  still = {**PLAIN, **SHORT, 'epochs': 40, 'generator_rate': 0.0, 'server_rate': 0.0, 'temperature': 3.0, 'bn': 0.0}
  method = methods.dense(SGD, onehot=2.0, adversarial=3.0, **still)
  made = problem(method, [NET, NARROW], [1, 2], plan.synchronous()([1, 2], 1), PARTS)
  state, report = made.run()
  server, nets = state.server, [group.model for group in made.groups]
  label, image = np.asarray(server.label[:8]), server.image[:8]
  of = lambda net, variables: np.asarray(net.apply(variables, image, False)[0], float)
  row = lambda tree, k: jax.tree.map(lambda a: a[k], tree)
  teachers = [(0, 0), (1, 0), (1, 1)]
  target = np.mean([of(nets[g], row(local.variables(state.client[g]), k)) for g, k in teachers], 0)
  students = [of(net, local.variables(learner)) for net, learner in zip(nets, server.learners, strict=True)]
  apart = lambda student, t: t**2 * (softmax(target / t) * np.log(softmax(target / t) / softmax(student / t))).sum(1)
  taught = np.mean([apart(student, 3.0).mean() for student in students])
  np.testing.assert_allclose(np.ravel(report.server['server_loss']), taught, rtol=1e-3)
  wrong = np.mean([(apart(s, 1.0) * (s.argmax(1) != target.argmax(1))).mean() for s in students])
  made_for = -np.log(softmax(target)[np.arange(8), label]).mean()
  np.testing.assert_allclose(np.ravel(report.server['generator_loss']), 2 * made_for - 3 * wrong, rtol=0.02)
  assert taught > 0.01
  assert wrong > 0.01


def test_the_distillation_at_a_high_temperature_is_towards_the_logits():
  student, teacher = jnp.array([0.5, -0.6, 0.3, 0.1]), jnp.array([-0.4, 0.7, 0.2, 0.3])
  gradient = jax.grad(losses.kl)(student, teacher, 20.0)
  limit = (student - teacher - (student - teacher).mean()) / 4
  np.testing.assert_allclose(gradient, limit, rtol=0.05)


def teachers_of(net, x, copies=1):
  variables = net.init(jax.random.key(0), x, False)
  stacked = jax.tree.map(lambda a: jnp.stack([a] * copies), {'batch_stats': {}, **variables})
  return Teachers((stacked,), (jnp.ones(copies, bool),), (jnp.ones(copies) / copies,))


def test_statistics_are_apart_unless_the_batch_set_them():
  """Of two models twice that of one; 0 without BatchNorm, and with a gradient of 0, not NaN, where they agree."""
  net, x = Normed(), jax.random.normal(jax.random.key(1), (9, 2, 2, 1))
  apart = lambda teachers, x: ensemble([net], teachers, x)[1]
  one = teachers_of(net, x)
  hidden = np.asarray(x).reshape(9, -1) @ np.asarray(one.variables[0]['params']['first']['Dense_0']['kernel'][0])
  hidden = hidden + np.asarray(one.variables[0]['params']['first']['Dense_0']['bias'][0])
  by_hand = np.linalg.norm(hidden.mean(0)) + np.linalg.norm(hidden.var(0) - 1)
  assert apart(one, x) == pytest.approx(by_hand, rel=1e-5)
  assert apart(teachers_of(net, x, 2), x) == pytest.approx(2 * by_hand, rel=1e-5)
  set_by = {'bn': {'mean': jnp.asarray(hidden.mean(0))[None], 'var': jnp.asarray(hidden.var(0))[None]}}
  matched = one._replace(variables=({**one.variables[0], 'batch_stats': set_by},))
  assert apart(matched, x) == pytest.approx(0, abs=1e-5)
  assert apart(matched, x + 1) > 0.1
  absent = one._replace(present=(jnp.zeros(1, bool),))
  assert apart(absent, x) == 0
  assert ensemble([NET], teachers_of(NET, x), x)[1] == 0
  bias = one.variables[0]['params']['first']['Dense_0']['bias']  # what a batch of zeros becomes
  constant = {'bn': {'mean': bias, 'var': jnp.zeros((1, 4))}}
  still = one._replace(variables=({**one.variables[0], 'batch_stats': constant},))
  value, gradient = jax.value_and_grad(lambda x: apart(still, x))(jnp.zeros_like(x))
  assert value == pytest.approx(0, abs=1e-6)
  assert np.isfinite(gradient).all()


def test_the_images_of_the_smallest_loss_are_kept():
  """With steps away from the minimum the first images stay the best; with more steps towards it none is worse."""
  x = jnp.zeros((1, 4, 4, 1))
  teachers = teachers_of(NET, x)
  learner = local.start(jax.tree.map(lambda a: a[0], teachers.variables[0]), SGD)
  state = synthesis.SynthesisState(
    teachers, jnp.zeros((8, 4, 4, 1), jnp.uint8), jnp.zeros(8, jnp.int32), jnp.int32(0), (learner,), ()
  )
  loss = lambda logits, students, label, apart: local.cross_entropy(logits, label)
  making = synthesis.Making(loss, optax.sgd(-0.5), 1, 8, 4, 2)
  make = lambda **fields: synthesis._made(jax.random.key(0), [NET], state, making._replace(**fields), 1.0)
  first, label, before = make()
  away, _, after = make(steps=4)
  assert_same_bits((first, before), (away, after))
  fading = optax.chain(optax.add_decayed_weights(1.0), optax.scale(-0.5))  # moves without any gradient
  same = {'loss': lambda logits, students, label, apart: 0 * logits.sum(), 'tx': fading}
  assert_same_bits(make(**same), make(**same, steps=4))  # of equal ones the first
  towards, _, less = make(steps=30, tx=optax.adam(0.1))
  assert less < before - 0.01
  logits = ensemble([NET], teachers, jnp.float32(towards) / 255)[0]
  assert local.cross_entropy(logits, label) == pytest.approx(float(less), abs=0.01)  # that of the images, as bytes


def test_the_generator_is_the_authors():
  net = ImageGenerator((28, 28, 1))
  shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), jnp.zeros((2, 256))))
  assert sum(a.size for a in jax.tree.leaves(shapes)) == 1_834_305
  odd = ImageGenerator((6, 5, 3), width=2)
  image = odd.apply(odd.init(jax.random.key(0), jnp.zeros((2, 4))), jax.random.normal(jax.random.key(1), (3, 4)))
  assert image.shape == (3, 6, 5, 3)
  assert ((image > 0) & (image < 1)).all()


class Foreign(nn.Module):
  """A norm that is neither Flax's nor fedkd's."""

  @nn.compact
  def __call__(self, x):
    return x - self.variable('batch_stats', 'mean', jnp.zeros, x.shape[-1:]).value


class Strange(Classifier):
  """A network with it."""

  classes: int = 3
  lowering: str = 'auto'

  def setup(self):
    self.norm, self.last = Foreign(), nn.Dense(3)

  def features(self, x, train):
    return self.norm(x.reshape(len(x), -1))

  def head(self, f):
    return self.last(f)


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r'Strange has a BatchNorm that is neither .* or set bn=0'):
    made_with(methods.dense(SGD, **SHORT), net=Strange())
  made_with(methods.dense(SGD, bn=0, **SHORT), net=Strange())
  made = made_with(methods.dense(SGD, **SHORT))
  flat = made.data[0]._replace(pool=made.data[0].pool._replace(example=jnp.zeros((9, 4))))
  with pytest.raises(ValueError, match=r'makes images \[H, W, channels\], but examples have the shape \(4,\)'):
    made.method.server.init(made.key, made.groups, (), (flat,))


def test_models_without_statistics_are_told():
  with pytest.warns(UserWarning, match=r'no model has a BatchNorm, .*; choose models with one, or set bn=0'):
    made_with(methods.dense(SGD, **SHORT), net=NET)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    made_with(methods.dense(SGD, bn=0, **SHORT), net=NET)
    made_with(methods.dense(SGD, **SHORT), net=Normed())
