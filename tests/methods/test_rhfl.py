"""RHFL: the symmetric loss, the clients' confidences and what they weigh."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import losses, methods, servers
from fedkd.methods.rhfl import symmetric
from fedkd.servers.confidence_weights import ConfidentState
from fedkd.types import Data, ExampleIndices, Pool
from helpers import assert_close, assert_same_bits, bound, softmax
from lone_servers import KEY
from small_nets import made_with

RANDOM = np.random.default_rng(0)
EVERYBODY, NOBODY = np.ones(3, bool), np.zeros(3, bool)


def test_the_symmetric_loss_is_that_of_a_twin_in_numpy():
  logits, label = RANDOM.normal(size=(5, 4)), np.array([0, 3, 1, 1, 2])
  p, one_hot = softmax(logits), np.eye(4)[label]
  expected = -0.1 * (one_hot * np.log(p)).sum(1) - 0.7 * (p * np.log(np.clip(one_hot, 1e-4, 1))).sum(1)
  np.testing.assert_allclose(symmetric(jnp.asarray(logits), jnp.asarray(label), 0.1, 0.7), expected, rtol=1e-5)


def confidences(now, before, here=EVERYBODY, known=EVERYBODY, beta=0.5):
  given = (jnp.asarray(a, jnp.float32) for a in (now, before))
  return np.asarray(servers.confidences(*given, jnp.asarray(here), jnp.asarray(known), beta))


def test_confidences_are_those_of_a_twin_in_numpy():
  now, before = np.array([1.0, 2.0, 0.5]), np.array([1.5, 2.2, 0.4])
  gain = (before - now) / now
  np.testing.assert_allclose(confidences(now, before), softmax(1 / 2 + 0.5 * gain / gain.sum()), rtol=1e-5)
  there, gain = np.array([True, False, True]), gain[[0, 2]]
  expected = softmax(1 + 0.5 * gain / gain.sum())
  np.testing.assert_allclose(confidences(now, before, there), [expected[0], 0, expected[1]], rtol=1e-5)


def test_without_gains_all_are_alike():
  np.testing.assert_allclose(confidences([1, 2, 3], [9, 9, 9], known=NOBODY), np.full(3, 1 / 2))  # of two others
  for gains in ({'before': [1, 2, 3]}, {'before': [9, 1, 5], 'beta': 0.0}):
    np.testing.assert_allclose(confidences([1, 2, 3], **gains), np.full(3, 1 / 3), rtol=1e-6)
  np.testing.assert_array_equal(confidences([1, 2, 3], [9, 9, 9], NOBODY), np.zeros(3))


ROWS = jnp.arange(4)


def lone(subset):
  public = ExampleIndices(ROWS, jnp.int32(4), jnp.int32(-1))
  return bound(servers.confident(subset, beta=0.5), data=(Data(Pool(ROWS, ROWS), None, public, public=public),))


def confident_state():
  return ConfidentState(
    prediction=jnp.zeros((3, 4, 2)),
    **{name: jnp.zeros(3) for name in ('loss', 'weight')},
    **{name: jnp.zeros(3, bool) for name in ('known', 'participated')},
    **{'has_consensus': jnp.zeros((), bool), 'consensus_rows': ROWS, 'next_rows': ROWS},
  )


def test_a_client_receives_what_the_others_predict_by_their_weights():
  server, state = lone(0), confident_state()
  slots, losses_of = (jnp.array([2, -1, 0, 1]),), np.array([[3.0, 0, 1, 2], [1.0, 0, 0.8, 2]])
  p = RANDOM.dirichlet(np.ones(2), (2, 4, 4))
  assert not np.asarray(server.send(KEY, 0, state, slots)[0].own['consensus'].valid).any()
  for t in range(2):
    uploads = ({'knowledge': jnp.asarray(p[t], jnp.float32), 'loss': jnp.asarray(losses_of[t], jnp.float32)},)
    state, _ = server.receive(KEY, t, state, uploads, slots)
  now, before = losses_of[1][[2, 3, 0]], losses_of[0][[2, 3, 0]]
  weight, of = confidences(now, before), p[1][[2, 3, 0]]
  found = server.send(KEY, 2, state, (jnp.arange(3),))[0].own['consensus']
  assert np.asarray(found.valid).all()
  for i in range(3):
    expected = sum(weight[j] * of[j] for j in range(3) if j != i)
    np.testing.assert_allclose(found.value[i], expected, rtol=1e-5)
  assert_same_bits(server.receive(KEY, 2, state, uploads, (jnp.full(4, -1),))[0], state)


def test_the_spread_is_that_of_who_took_part():
  server = lone(0)
  uploads = ({'knowledge': jnp.ones((3, 4, 2)), 'loss': jnp.ones(3)},)
  info = server.receive(KEY, 0, confident_state(), uploads, (jnp.array([0, -1, 2]),))[1]
  assert info['confidence_spread'] == 0  # both weigh the same


def test_one_cross_entropy_has_the_gradient_of_all_divergences():
  logits, p, weight = jnp.asarray(RANDOM.normal(size=4)), RANDOM.dirichlet(np.ones(4), 3), np.array([0.2, 0.3, 0.1])
  apart = lambda z: sum(w * losses.kl_divergence(jnp.asarray(q), z) for w, q in zip(weight, p, strict=True))
  target = jnp.asarray(weight @ p)
  assert_close(jax.grad(lambda z: optax.softmax_cross_entropy(z, target))(logits), jax.grad(apart)(logits), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['rhfl', 'fccl'])
def test_before_the_first_consensus_it_is_private(name):
  tx, turn = optax.sgd(0.1), {'steps': 2, 'batch': 4}
  plain = {'ce': 1.0, 'rce': 0.0} if name == 'rhfl' else {'inter': 0.0, 'intra': 0.0}
  ours = getattr(methods, name)(tx, subset=4, digest_batch=4, epochs=None, **turn, **plain)
  theirs = methods.private(tx, rows='unshared', keep_optimizer=False, **turn)
  one, other = (method.variables(made_with(method, rounds=1).run()[0], 0) for method in (ours, theirs))
  assert_close(one, other)
