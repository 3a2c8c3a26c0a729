import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from fedkd.methods.moon import contrast
from helpers import CLASSES, assert_same_bits, problem, row, softmax
from twins import PARTS, RATE, examples_of

HOW = {'steps': 3, 'batch': 16}  # of 16, 8 and 4 rows every one as often
SGD = optax.sgd(RATE)


def made_with(method, rounds=3, participants=None):
  turns = plan.synchronous()([3], rounds) if participants is None else plan.Plan((participants,))
  return problem(method, [models.MLP((4,), classes=CLASSES)], [3], turns, PARTS)


def test_without_the_term_and_in_the_first_round_it_is_fedavg():
  average = made_with(methods.fedavg(SGD, **HOW))
  same = functools.partial(chex.assert_trees_all_close, rtol=1e-5, atol=1e-7)  # two programs: in bits on the CPU alone
  same(made_with(methods.moon(SGD, **HOW, mu=0.0)).run()[0].server, average.run()[0].server)
  pulled = made_with(methods.moon(SGD, **HOW, mu=5.0))
  same(pulled.run(1)[0].server, average.run(1)[0].server)
  with pytest.raises(AssertionError, match=r'not almost equal|Not equal'):
    same(pulled.run(2)[0].server, average.run(2)[0].server)


def test_an_absent_client_keeps_the_model_that_it_uploaded():
  turns = np.array([[0, 1, 2], [0, -1, -1]], np.int32)
  made = made_with(methods.moon(SGD, **HOW), 2, turns)
  first, _ = made.run(1)
  state, _ = made.run()
  assert_same_bits(row(state.client[0], np.array([1, 2])), row(first.client[0], np.array([1, 2])))
  assert state.client[0]['has_last'].all()
  assert not made.state.client[0]['has_last'].any()


def test_a_client_without_examples_has_no_last_model():
  made = made_with(methods.moon(SGD, **HOW), 1)
  nobody = made.data[0].private._replace(size=jnp.zeros(3, jnp.int32))
  state, _ = made._replace(data=(made.data[0]._replace(private=nobody),), programs={}).run()
  assert not state.client[0]['has_last'].any()
  assert_same_bits(state.server, made.state.server)


def test_it_begins_after_a_phase_that_leaves_optimizers():
  made = made_with(methods.moon(SGD, **HOW))
  given = {**row(made.method.variables(made.state, 0), 0), 'opt': SGD.init(())}
  state = made.method.client.init(made.key, made.groups[0].model, made.data[0], given)
  chex.assert_trees_all_equal(state, row(made.state.client[0], 0))


def test_the_term_on_vectors_worked_out_by_hand():
  rng = np.random.default_rng(0)
  z, near, far = (jnp.asarray(rng.normal(size=(5, 3)), jnp.float32) for _ in range(3))
  cos = lambda a, b: (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
  expected = -np.log(softmax(np.stack([cos(z, near), cos(z, far)], 1) / 0.5)[:, 0])
  np.testing.assert_allclose(contrast(z, near, far, 0.5), expected, rtol=1e-5)
  np.testing.assert_allclose(contrast(7 * z, near, far, 0.5), expected, rtol=1e-5)  # whatever the length
  np.testing.assert_allclose(contrast(z, z, -z, 0.5), np.log(1 + np.exp(-4.0)), rtol=1e-5)
  equal = lambda z: contrast(z, near, near, 0.5).sum()
  assert float(equal(z)) == pytest.approx(5 * np.log(2))
  np.testing.assert_allclose(jax.grad(equal)(z), 0, atol=1e-7)
  nothing = jax.value_and_grad(lambda z: contrast(z, near, far, 0.5).sum())(jnp.zeros((5, 3)))
  assert all(np.isfinite(a).all() for a in nothing)


def test_two_rounds_are_those_of_a_twin_in_numpy():
  """A network without hidden layers has its images as features, so that the term has no gradient; with a layer, by the
  derivatives of a linear feature map."""
  net = models.MLP((4,), classes=CLASSES)
  made = problem(methods.moon(SGD, **HOW, mu=2.0), [net], [3], plan.synchronous()([3], 2), PARTS)
  x, true = examples_of(made)
  w, last, told = layers_in_numpy(made.state.server['params']), [None] * 3, []
  for _ in range(2):
    moved = []
    for k, rows in enumerate(PARTS):
      y, losses = w, []
      for _ in range(HOW['steps']):
        losses.append(losses_of(y, w, last[k], x[rows], true[rows]))
        y = descended(y, w, last[k], x[rows], true[rows])
      moved.append(y)
      last[k] = y
      told.append(np.mean(losses, 0))
    w = [np.average([m[i] for m in moved], 0, [len(rows) for rows in PARTS]) for i in range(2)]
  state, report = made.run()
  for ours, theirs in zip(layers_in_numpy(state.server['params']), w, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
  reported = np.stack([report.info[0][name].ravel() for name in ('loss', 'contrast')], 1)
  np.testing.assert_allclose(reported, told, rtol=1e-4, atol=1e-6)


def test_all_three_models_see_an_image_flipped_alike():
  """One row and one step from the received model, whose features are then those that attract: their cosine is 1."""
  net, method = models.MLP((4,), classes=CLASSES), methods.moon(SGD, steps=1, batch=1)
  made = problem(method, [net], [1], plan.synchronous()([1], 1), [np.array([5])])
  down = made.server.send(made.key, 0, made.state.server, (jnp.arange(1),))[0]
  last = jax.tree.map(lambda a: a[::-1], made.state.server)  # of another model
  state, data = {'last': last, 'has_last': jnp.asarray(True)}, row_of(made)
  model = made.groups[0].model.clone(flip=True)
  step = jax.jit(lambda key: method.client.step(key, jnp.int32(1), model, state, down, data)[2]['contrast'])
  found = np.array([step(jax.random.key(i)) for i in range(12)])
  image = (np.asarray(data.pool.example[5], float) - 128) / 64
  views = [np.append(view.ravel(), 1.0)[None] for view in (image, image[:, ::-1])]
  first, other = (layers_in_numpy(variables['params'])[0] for variables in (made.state.server, last))
  cos = [cosine(np.maximum(x @ first, 0), np.maximum(x @ other, 0))[1][0] for x in views]
  expected = np.log1p(np.exp((np.array(cos) - 1) / 0.5))
  which = np.abs(found[:, None] - expected).argmin(1)
  np.testing.assert_allclose(found, expected[which], rtol=1e-4)
  assert set(which) == {0, 1}
  assert np.ptp(expected) > 1e-3


def row_of(made):
  """What its only client sees."""
  return made.data[0]._replace(private=row(made.data[0].private, 0), shared=row(made.data[0].shared, 0))


def layers_in_numpy(params):
  return [np.vstack([p['kernel'], p['bias'][None]]).astype(float) for p in layers_of(params)]


def layers_of(params):
  return params['net']['layers_0'], params['net']['output']


def hidden(x, w):
  return np.maximum(x @ w[0], 0)


def descended(y, w, last, x, true, mu=2.0, temperature=0.5):
  """One step of SGD on cross-entropy and the contrastive term, with derivatives by hand."""
  z = hidden(x, y)
  outputs = np.hstack([z, np.ones((len(z), 1))])
  error = (softmax(outputs @ y[1]) - true) / len(x)
  slope = error @ y[1][:-1].T
  if last is not None:
    (near, cos_near), (far, cos_far) = (cosine(z, hidden(x, other)) for other in (w, last))
    away = 1 / (1 + np.exp((cos_near - cos_far) / temperature))  # the probability of the wrong one
    slope = slope + mu / len(x) / temperature * away[:, None] * (far - near)
  return [y[0] - RATE * x.T @ (slope * (z > 0)), y[1] - RATE * outputs.T @ error]


def losses_of(y, w, last, x, true, temperature=0.5):
  """The cross-entropy, and the contrastive term without its weight, before a step."""
  z = hidden(x, y)
  p = softmax(np.hstack([z, np.ones((len(z), 1))]) @ y[1])
  cos = lambda other: np.exp(cosine(z, hidden(x, other))[1] / temperature)
  apart = 0 if last is None else -np.log(cos(w) / (cos(w) + cos(last))).mean()
  return -(true * np.log(p)).sum(1).mean(), apart


def cosine(z, other):
  """(its derivative by z [B, d], the cosine [B]) of two vectors; vectors of 0 have none."""
  size, length = (np.sqrt(np.maximum((a**2).sum(1, keepdims=True), 1e-8)) for a in (z, other))
  unit, direction = z / size, other / length
  cos = (unit * direction).sum(1)
  return (direction - cos[:, None] * unit) / size, cos
