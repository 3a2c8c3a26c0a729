"""FedAPEN: two models, their ensemble, and the weight by which a client trusts either."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import evaluation, methods, models, plan
from fedkd.methods.fedapen import apart, learned_weight
from fedkd.types import ExampleIndices
from helpers import CLASSES, assert_same_bits, problem, softmax
from twins import PARTS, RATE, Party, assert_alike, numbers_of, parties

NET = models.MLP((), classes=CLASSES)


def made_with(held_out=0.25, rounds=1, passes=3, **more):
  """Three linear clients; 4, 2 and 1 examples are held out, and batches of 12 hold the others equally often."""
  more = {'epochs': None, 'steps': 2, 'batch': 12, **more}
  method = methods.fedapen(optax.sgd(RATE), NET, held_out=held_out, passes=passes, weight_rate=0.5, **more)
  return problem(method, [NET], [3], plan.synchronous()([3], rounds), PARTS)


def taught(made, state, k):
  """(rows that train, rows held out) of a client, as the method splits them."""
  row = lambda tree: jax.tree.map(lambda a: np.asarray(a)[k], tree)
  private, seed = row(made.data[0].private), row(state.client[0].seed)
  (rows, size), (held, many) = apart(seed, ExampleIndices(*map(jnp.asarray, private)), 0.25)
  return np.asarray(rows)[:size], np.asarray(held)[:many]


def ce(z, y):
  return -(y * np.log(softmax(z))).sum(1).mean()


def test_two_rounds_are_those_of_a_twin_in_numpy():
  made = made_with(rounds=2, weights='learned')
  x, y, found = parties(made, lambda client: client.learner)
  whole, weights, expected = numbers_of(made.state.server['params']), np.full(3, 0.5), []
  told = np.zeros((2, 2, 3))  # the mean losses of own and common models, by round and client
  splits = [taught(made, made.state, k) for k in range(3)]
  for t in range(2):
    sums = []
    for k, (party, (rows, held)) in enumerate(zip(found, splits, strict=True)):
      if t:
        weights[k] = in_numpy(weights[k], x[held] @ party.w, x[held] @ whole, y[held], 3)
      common = Party(x, SimpleNamespace(params=made.state.server['params']))
      common.w, w = whole, weights[k]
      for _ in range(2):
        p, q = party.probabilities(rows), common.probabilities(rows)
        mix = softmax(w * party.logits(rows) + (1 - w) * common.logits(rows))
        for i, (one, other) in enumerate(((p, q), (q, p))):
          told[i, t, k] -= (y[rows] * np.log(one * mix) + other * np.log(one / other)).sum(1).mean() / 2
        party.descend(rows, (p - y[rows]) + (p - q) + w * (mix - y[rows]))
        common.descend(rows, (q - y[rows]) + (q - p) + (1 - w) * (mix - y[rows]))
      sums.append(common.w)
    whole = np.mean(sums, 0)
    expected = [
      in_numpy(weights[k], x[h] @ p.w, x[h] @ whole, y[h], 3)
      for k, (p, (_, h)) in enumerate(zip(found, splits, strict=True))
    ]
  state, report = made.run()
  assert_alike(state.client[0].learner, found)
  np.testing.assert_allclose(numbers_of(state.server['params']), whole, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(report.info[0]['weight'][1], weights, rtol=1e-4)
  np.testing.assert_allclose([report.info[0][name] for name in ('loss', 'common_loss')], told, rtol=1e-4)
  ready = made.method.calibrate(made.groups, state, made.data, (0,))
  np.testing.assert_allclose(ready.client[0].weight, expected, rtol=1e-4)
  assert np.ptp([*weights, *expected]) > 1e-3


def in_numpy(weight, own, common, y, passes):
  for _ in range(passes):
    p = softmax(weight * own + (1 - weight) * common)
    weight = np.clip(weight - 0.5 * ((p - y) * (own - common)).sum(1).mean(), 0, 1)
  return weight


def test_held_out_examples_never_train():
  made = made_with()
  for k, (part, many) in enumerate(zip(PARTS, (4, 2, 1), strict=True)):
    rows, held = taught(made, made.state, k)
    assert len(held) == many
    assert sorted([*rows, *held]) == sorted(np.asarray(made.data[0].private.index)[k][: len(part)])
  one = ExampleIndices(jnp.int32([7, 0]), jnp.int32(1), jnp.int32(0))
  (_, size), (_, held) = apart(jnp.uint32(3), one, 0.05)
  assert (int(size), int(held)) == (1, 0)
  two = one._replace(size=jnp.int32(2))
  assert int(apart(jnp.uint32(3), two, 0.05)[1][1]) == 1


@pytest.mark.parametrize('share', [0.05, 0.29, 0.57, 0.58])
def test_every_example_trains_or_is_held_out(share):
  """Whatever the rounding: 0.29 of 100 is 28.999999999999996 in double precision."""
  of = ExampleIndices(jnp.arange(100, 200), jnp.int32(100), jnp.int32(0))
  (rows, size), (held, many) = apart(jnp.uint32(3), of, share)
  assert sorted([*np.asarray(rows)[: int(size)], *np.asarray(held)[: int(many)]]) == list(range(100, 200))
  assert int(many) == round(100 * share)


def test_the_weight_grows_to_1_where_the_own_model_is_right_and_the_other_knows_nothing():
  label = jnp.arange(150) % 3
  right, flat = 9.0 * jax.nn.one_hot(label, 3), jnp.zeros((150, 3))
  weights = [float(learned_weight(jnp.float32(0.5), right, flat, label, 150, n, 0.5)) for n in (0, 1, 2, 40)]
  assert weights[0] == 0.5
  assert weights == sorted(weights)
  assert weights[-1] <= 1.0
  assert float(learned_weight(jnp.float32(0.99), right, flat, label, 150, 9, 1e6)) == 1.0
  assert float(learned_weight(jnp.float32(0.5), right, right, label, 150, 9, 0.5)) == 0.5
  assert float(learned_weight(jnp.float32(0.5), right, flat, label, 0, 9, 0.5)) == 0.5


def test_a_pass_takes_examples_64_at_a_time():
  rng = np.random.default_rng(0)
  own, common, label = rng.normal(size=(100, 3)), rng.normal(size=(100, 3)), rng.integers(0, 3, 100)
  weight = 0.5
  for rows in (slice(0, 64), slice(64, 90)):
    weight = in_numpy(weight, own[rows], common[rows], np.eye(3)[label[rows]], 1)
  found = learned_weight(jnp.float32(0.5), jnp.float32(own), jnp.float32(common), jnp.asarray(label), 90, 1, 0.5)
  np.testing.assert_allclose(found, weight, rtol=1e-5)


def test_ensembles_with_equal_weights_learn_none():
  made = made_with(weights='equal')
  state = made.method.calibrate(made.groups, made.run()[0], made.data, (0,))
  np.testing.assert_array_equal(state.client[0].weight, 0.5)
  rows, size = apart(jnp.uint32(0), jax.tree.map(lambda a: a[0], made.data[0].private), 0.0)[0]
  assert (len(rows), int(size)) == (16, 16)


@pytest.mark.parametrize(('weight', 'name'), [(1.0, 'own'), (0.0, 'common')])
def test_the_ensemble_of_one_is_that_one(weight, name):
  made = made_with()
  ways, model = evaluation.predictions(made.method), made.groups[0].model
  variables = jax.tree.map(lambda a: a[0], made.method.variables(made.state, 0))
  x = made.data[0].pool.example[:5]
  by = lambda way, w: ways[way](model, {**variables, 'weight': jnp.float32(w)}, made.state.server, x)
  assert_same_bits(by('', weight), by(name, 0.3))
  np.testing.assert_allclose(by('equal', 0.9), (by('own', 0.9) + by('common', 0.9)) / 2, rtol=1e-5)
