"""FML: a client's own model and the common one learn from each other; only the common one is averaged."""

from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import evaluation, ledger, methods, models, plan
from fedkd.methods.fml import _away
from helpers import CLASSES, assert_close, assert_same_bits, preprocessed, problem, softmax
from small_nets import NARROW, NET, Normed, made_with
from twins import PARTS, RATE, Party, assert_alike, numbers_of, parties

SGD = optax.sgd(0.1)
MOMENTUM = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, momentum=0.9))
TURN = {'epochs': 1, 'batch': 4}


@pytest.mark.slow
def test_with_alpha_1_the_own_model_is_private():
  """Also under an optimizer that clips the norm of all gradients: each model's by itself."""
  both = methods.fml(MOMENTUM, NARROW, alpha=1.0, **TURN), methods.private(MOMENTUM, steps=None, **TURN)
  one, other = (made_with(method).run()[0].client for method in both)
  assert_same_bits(one, other)


@pytest.mark.slow
def test_with_beta_1_the_common_model_is_fedavg():
  """With BatchNorm, whose statistics travel."""
  made, plain = (
    made_with(methods.fml(SGD, Normed(), beta=1.0, **TURN)),
    made_with(methods.fedavg(SGD, steps=None, **TURN), net=Normed()),
  )
  state, report = made.run()
  assert_same_bits(state.server, plain.run(state=plain.state._replace(server=made.state.server))[0].server)
  weights, statistics = 36 * 4 + 4 + 8 + 4 * 3 + 3, 8
  up = {'labels': (6, 24), 'statistics': (6 * statistics, 24 * statistics), 'weights': (6 * weights, 24 * weights)}
  assert ledger.total(report.up) == up
  assert ledger.total(report.down) == {kind: up[kind] for kind in ('statistics', 'weights')}


@pytest.mark.slow
def test_equal_pairs_stay_equal():
  """One client, both models alike, no memory of the optimizers: what either learns from the other is nothing."""
  made = made_with(methods.fml(SGD, NET, keep_optimizer=False, **TURN), clients=1)
  own = jax.tree.map(lambda a: a[0], made.state.client[0])
  start = made.state._replace(server={'params': own.params, 'batch_stats': {}})
  state, report = made.run(state=start)
  assert_close(state.server['params'], jax.tree.map(lambda a: a[0], state.client[0].params))
  assert_close(report.info[0]['loss'], report.info[0]['common_loss'])


def test_a_round_is_that_of_a_twin_in_numpy():
  """Whole batches; what a client learns of its own labels weighs differently in its two models."""
  alpha, beta, steps, net = 0.7, 0.2, 2, models.MLP((), classes=CLASSES)
  method = methods.fml(optax.sgd(RATE), net, alpha=alpha, beta=beta, epochs=None, steps=steps, batch=16)
  made = problem(method, [net], [3], plan.synchronous()([3], 1), PARTS)
  x, y, found = parties(made)
  first, sums, expected = numbers_of(made.state.server['params']), 0.0, []
  for party, rows in zip(found, PARTS, strict=True):
    common, lost = Party(x, SimpleNamespace(params=made.state.server['params'])), np.zeros(2)
    for _ in range(steps):
      p, q = party.probabilities(rows), common.probabilities(rows)
      for i, (a, b, weight) in enumerate([(p, q, alpha), (q, p, beta)]):
        lost[i] -= weight * np.log(a[y[rows] > 0]).mean() - (1 - weight) * (b * np.log(b / a)).sum(1).mean()
      party.descend(rows, alpha * (p - y[rows]) + (1 - alpha) * (p - q))
      common.descend(rows, beta * (q - y[rows]) + (1 - beta) * (q - p))
    sums = sums + len(rows) * common.w
    expected.append(lost / steps)
  state, report = made.run()
  assert_alike(state.client[0], found)
  whole = numbers_of(state.server['params'])
  np.testing.assert_allclose(whole, sums / sum(map(len, PARTS)), rtol=1e-4, atol=1e-5)
  assert np.abs(whole - first).max() > 1e-2
  losses = [report.info[0][name][0] for name in ('loss', 'common_loss')]
  np.testing.assert_allclose(losses, np.transpose(expected), rtol=1e-4)


def test_the_distance_is_a_divergence_from_a_constant():
  random = np.random.default_rng(0)
  f, m = random.normal(size=(4, 3)), random.normal(size=(4, 3))
  (value, both) = jax.value_and_grad(_away, (0, 1))(jnp.asarray(f), jnp.asarray(m), 'paper')
  expected = (softmax(m) * np.log(softmax(m) / softmax(f))).sum(-1).mean()
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  np.testing.assert_allclose(both[0], (softmax(f) - softmax(m)) / 4, rtol=1e-4, atol=1e-6)  # of CE to softmax(m), too
  assert not np.asarray(both[1]).any()
  value, both = jax.value_and_grad(_away, (0, 1))(jnp.asarray(f), jnp.asarray(m), 'htfllib')
  np.testing.assert_allclose(value, expected / 3, rtol=1e-5)
  assert np.abs(both[1]).max() > 1e-3
  value, both = jax.value_and_grad(_away, (0, 1))(jnp.asarray(f), jnp.asarray(f), 'paper')
  np.testing.assert_allclose([value, *map(np.max, map(np.abs, both))], 0, atol=1e-7)


def test_the_common_model_has_the_clients_classes_and_preprocessing_and_is_evaluated():
  made = made_with(methods.fml(SGD, models.MLP((4,), classes=10), **TURN), rounds=1)
  state, _ = made.run()
  ways = evaluation.predictions(made.method)
  found = evaluation.correct_predictions(made.method, made.groups, state, *made.data[0].pool, [range(3)], predict=ways)
  image, label = made.data[0].pool
  logits = preprocessed(NARROW).apply(state.server, image, False)[0]
  np.testing.assert_array_equal(found[0]['common'], np.broadcast_to(logits.argmax(-1) == label, (3, len(label))))
  assert (found[0][''] != found[0]['common']).any()


@pytest.mark.slow
def test_clients_may_count_alike():
  for equal, expected in ((False, [12, 6, 3]), (True, [1, 1, 1])):
    made = made_with(methods.fml(SGD, NARROW, equal_weights=equal, **TURN), rounds=1)
    one = jax.tree.map(lambda a: a[2], (made.state.client[0], made.data[0].private))
    data = made.data[0]._replace(private=one[1], shared=None)
    down = made.server.send(made.key, 0, made.state.server, (jnp.arange(3),))[0]
    step = made.method.client.step
    up = jax.jit(
      lambda down=down, data=data, one=one, step=step, made=made: step(
        made.key, jnp.int32(0), made.groups[0].model, one[0], down, data
      )[1]
    )()
    assert int(up['count']) == expected[2]


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'mutual': 'code'}, r"mutual='code' is unknown; choose one of paper, htfllib"),
    ({'alpha': 1.5}, r'alpha=1.5 must be .*at most 1'),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.fml(SGD, NARROW, **wrong)


class Single(nn.Module):
  """One output, which would be broadcast over all classes."""

  @nn.compact
  def __call__(self, x, train=False):
    return nn.Dense(1)(x.reshape(x.shape[0], -1)), {}


def test_a_common_model_with_another_number_of_classes_is_refused():
  with pytest.raises(
    ValueError, match=r'common=Single returns logits \[1, 1\] for one example of 3 classes; give it as'
  ):
    made_with(methods.fml(SGD, Single(), **TURN))
