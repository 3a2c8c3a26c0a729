"""KT-pFL: the coefficients and what they mix, and a slow twin in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods
from fedkd.methods.ktpfl import _passes
from fedkd.servers.mixtures import learn, mixing_loss, shares
from helpers import CLASSES, assert_close, softmax
from twins import OWN, RATE, assert_alike, made_with, parties

SUBSET, TEMPERATURE = 6, 2.0
SGD = optax.sgd(RATE)
TURN = {'subset': SUBSET, 'digest_batch': SUBSET, 'epochs': 2, 'batch': 12, 'temperature': TEMPERATURE}
K, M = 4, 5
P = np.random.default_rng(0).dirichlet(np.ones(CLASSES), (K, M))
HERE = np.ones(K, bool)
HOW = {'rho': 0.7, 'sharpen': 5.0, 'loss': 'mse', 'rate': None}


def learned(i, c, p=P, here=HERE, **how):
  args = (jnp.asarray(a, jnp.float32) for a in (c, p[i], p))
  return np.asarray(learn(*args, jnp.asarray(here), **{**HOW, **how}), float)


def in_numpy(i, c, p=P, rho=0.7, sharpen=5.0, rate=None):
  """A row after its step, everybody there; the gradient written out."""
  slope = np.array([2 * ((c @ p.reshape(len(p), -1) - p[i].ravel()) * p[j].ravel()).mean() for j in range(len(p))])
  slope += 2 * rho * (c - 1 / len(p)) / len(p)
  s = 1.0 if rate is None else rate
  for _ in range(5 if rate is None else 0):
    s = s / 5 if np.abs(s * slope).mean() > 0.01 else s
  for _ in range(5 if rate is None else 0):
    s = s * 5 if np.abs(s * slope).mean() < 0.01 else s
  return softmax(sharpen * (c - s * slope)), np.abs(s * slope).mean()


@pytest.mark.parametrize('rate', [None, 0.3])
def test_a_row_takes_the_step_of_the_twin(rate):
  c = np.array([0.4, 0.1, 0.3, 0.2])
  for i in range(K):
    expected, step = in_numpy(i, c, rate=rate)
    np.testing.assert_allclose(learned(i, c, rate=rate), expected, rtol=1e-4)
    assert rate is not None or 0.01 <= step < 0.05 + 1e-9


def test_the_gradient_of_two_clients_from_equal_shares():
  p = P[:2]
  slope = jax.grad(mixing_loss)(jnp.array([0.5, 0.5]), jnp.asarray(p[0]), jnp.asarray(p), jnp.ones(2, bool), 0.0, 'mse')
  away = (p[1] - p[0]) / 2
  np.testing.assert_allclose(slope, [2 * (away * p[j]).sum() / (M * CLASSES) for j in range(2)], rtol=1e-4)


@pytest.mark.parametrize('count', [K, 3])
def test_the_divergence_in_numpy_and_its_slope(count):
  """Who is not here adds nothing, and does not count."""
  c, here = np.array([0.4, 0.1, 0.3, 0.2]) * (np.arange(K) < count), np.arange(K) < count
  mixed = np.tensordot(c, P, 1)
  uneven = here * (c - 1 / count)
  args = (jnp.asarray(a, jnp.float32) for a in (c, P[0], P))
  loss, slope = jax.value_and_grad(mixing_loss)(*args, jnp.asarray(here), 0.7, 'kl')
  away = (P[0] * np.log(P[0] / mixed)).sum(-1).mean()
  np.testing.assert_allclose(loss, away + 0.7 * (uneven**2).sum(), rtol=1e-5)
  expected = -(P[0] * P / mixed).sum(-1).mean(-1) + 2 * 0.7 * uneven
  np.testing.assert_allclose(slope, expected, rtol=1e-5)


@pytest.mark.parametrize('loss', ['mse', 'kl'])
def test_identical_clients_and_no_step_keep_the_coefficients_equal(loss):
  flat, same = np.full(K, 1 / K), np.stack([P[0]] * K)
  np.testing.assert_allclose(learned(0, flat, same, loss=loss), flat, atol=1e-4)
  np.testing.assert_allclose(learned(0, flat, rate=0.0, loss=loss), flat, rtol=1e-6)


def test_a_client_comes_to_mix_those_that_predict_alike():
  groups = np.stack([P[0], P[0], P[1], P[1]])
  for loss in ('mse', 'kl'):
    found = learned(0, np.full(K, 1 / K), groups, loss=loss, rho=0.0)
    assert found[:2].min() > found[2:].max()


def test_rows_stay_positive_and_sum_to_one_and_absent_clients_keep_their_shares():
  c, here = np.array([0.4, 0.1, 0.3, 0.2]), np.array([True, False, True, True])
  found = learned(0, c, here=here)
  assert found.min() > 0
  np.testing.assert_allclose(found.sum(), 1, rtol=1e-6)
  np.testing.assert_allclose(found[1], c[1], rtol=1e-6)
  alone, mass = shares(jnp.asarray(c, jnp.float32), jnp.asarray(here))
  np.testing.assert_allclose(alone, np.array([4, 0, 3, 2]) / 9, rtol=1e-6)
  np.testing.assert_allclose(mass, 0.9, rtol=1e-6)


def test_every_option_of_the_coefficients_reaches_them():
  made = made_with(methods.ktpfl(SGD, rho=0.9, sharpen=3.0, rate=0.4, **TURN), rounds=1)
  p = np.random.default_rng(1).dirichlet(np.ones(CLASSES), (3, SUBSET))
  c = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.2, 0.4]])
  state, uploads = made.state.server._replace(coefficient=jnp.float32(c)), ({'knowledge': jnp.float32(p)},)
  state, _ = jax.jit(made.server.receive)(made.key, 0, state, uploads, (jnp.arange(3),))
  expected = [in_numpy(i, c[i], p, rho=0.9, sharpen=3.0, rate=0.4)[0] for i in range(3)]
  np.testing.assert_allclose(state.coefficient, expected, rtol=1e-4)


@pytest.mark.parametrize('order', ['before', pytest.param('after', marks=pytest.mark.slow)])
def test_four_rounds_are_those_of_the_twin(order):
  made = made_with(methods.ktpfl(SGD, order=order, **TURN), rounds=4)
  _, y, clients = parties(made, lambda client: client.learner)
  state, c, last, targets = made.state, np.full((3, 3), 1 / 3), None, None
  for t in range(4):
    index = np.asarray(state.server.next_rows)
    state, report = made.run(1, state, t, length=1)
    for k, party in enumerate(clients):
      if t:  # divided by the number of classes, and by the temperature
        party.descend(last, (party.probabilities(last, TEMPERATURE) - targets[k]) / TEMPERATURE / CLASSES)
      for _ in range(min(max(t, 1), 2)):  # one pass, one, two, and no more than two
        party.descend(OWN[k], party.probabilities(OWN[k]) - y[OWN[k]])
    np.testing.assert_array_equal(report.info[0]['examples'][0], SUBSET * (t > 0) + 12 * min(max(t, 1), 2))
    p, old, last = np.stack([party.probabilities(index, TEMPERATURE) for party in clients]), c, index
    c = np.stack([in_numpy(i, c[i], p)[0] for i in range(3)])
    targets = np.einsum('ij,jmc->imc', c if order == 'before' else old, p)
    np.testing.assert_allclose(state.server.prediction, p, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(state.server.coefficient, c, rtol=2e-3)
    sent = made.server.send(made.key, t + 1, state.server, (jnp.arange(3),))[0].own['consensus']
    np.testing.assert_allclose(sent.value, targets, rtol=1e-3, atol=1e-5)
  assert_alike(state.client[0].learner, clients)


@pytest.mark.parametrize('epochs', [1, 2, 5])
def test_passes_rise_by_one_a_round_and_those_before_are_their_sum(epochs):
  each = [max(1, min(t, epochs)) for t in range(9)]
  found = jax.jit(jax.vmap(lambda t: _passes(t, epochs)))(jnp.arange(9))
  np.testing.assert_array_equal(found, [each, np.cumsum([0, *each[:-1]])])


@pytest.mark.slow
@pytest.mark.parametrize('how', [{'steps': 1}, {'steps': 1, 'epochs': 0}, {'steps': 1, 'epochs': None}])
def test_mini_batches_instead_of_passes_are_as_many_in_every_round(how):
  made = made_with(methods.ktpfl(SGD, **{name: value for name, value in TURN.items() if name != 'epochs'}, **how))
  state = made.state
  for t in range(3):
    state, report = made.run(1, state, t, length=1)
    np.testing.assert_array_equal(report.info[0]['examples'][0], SUBSET * (t > 0) + 12)


@pytest.mark.slow
def test_of_rows_of_one_a_client_hears_itself():
  made = made_with(methods.ktpfl(SGD, **TURN), rounds=1)
  state, _ = made.run()
  server = state.server._replace(mixing=jnp.eye(3))
  sent = made.server.send(made.key, 1, server, (jnp.arange(3),))[0].own['consensus']
  np.testing.assert_allclose(sent.value, state.server.prediction, rtol=1e-6)


@pytest.mark.slow
def test_who_was_away_keeps_its_row_and_is_in_nobodys_mixture():
  participants = np.array([[0, 1, 2], [0, 1, -1], [0, 1, 2]], np.int32)
  made = made_with(methods.ktpfl(SGD, **TURN), participants=participants)
  before, _ = made.run(1, length=3)
  state, _ = made.run(1, before, 1, length=3)
  old, new = before.server.coefficient, state.server.coefficient
  np.testing.assert_array_equal(new[2], old[2])
  np.testing.assert_allclose(new[:2, 2], old[:2, 2], rtol=1e-6)
  np.testing.assert_allclose(new.sum(1), 1, rtol=1e-6)
  down = made.server.send(made.key, 2, state.server, (jnp.array([2]),))[0]
  share = new[2, :2] / new[2, :2].sum()
  expected = np.einsum('j,jmc->mc', share, state.server.prediction[:2])
  assert_close(down.own['consensus'].value[0], expected)
  assert bool(down.shared['last']['index'].valid)  # it does not know the rows


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'coefficient_loss': 'l1'}, r"coefficient_loss='l1' is unknown; choose one of mse, kl"),
    ({'order': 'first'}, r"order='first' is unknown; choose one of before, after"),
    ({'reduction': 'sum'}, r"reduction='sum' is unknown; choose one of mean, batchmean"),
    ({'rho': -1.0}, r'rho=-1.0 must be a number of at least 0'),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.ktpfl(SGD, **wrong)
