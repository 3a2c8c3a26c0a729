"""DS-FL: sharpening, and a slow twin in NumPy."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given

from fedkd import methods, servers
from helpers import assert_same_bits, row, softmax
from twins import OWN, RATE, Party, assert_alike, made_with, numbers_of, parties

SUBSET = 8
SGD = optax.sgd(RATE)
TURN = {'subset': SUBSET, 'digest_epochs': 2, 'digest_batch': SUBSET, 'epochs': 1, 'batch': 12}
distributions = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(lambda p: np.array(p) / np.sum(p))


@pytest.mark.slow
def test_without_distillation_it_is_private():
  how = {'epochs': 1, 'batch': 12}
  dsfl = made_with(methods.dsfl(SGD, subset=SUBSET, digest_epochs=0, inference='own', **how)).run()[0].client[0]
  private = made_with(methods.private(SGD, steps=None, rows='unshared', **how)).run()[0].client[0]
  assert_same_bits(dsfl.learner, private)


@given(distributions, st.sampled_from([0.05, 0.1, 1.0]))
def test_era_is_the_softmax_of_probabilities_by_the_temperature(p, temperature):
  q = np.asarray(servers.era(jnp.asarray(p, jnp.float32), temperature), float)
  np.testing.assert_allclose(q, softmax(p / temperature), rtol=1e-4, atol=1e-7)
  assert q[p.argmax()] == q.max()
  np.testing.assert_allclose(np.log(q[0] / q[1]), (p[0] - p[1]) / temperature, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('exponent', [0.5, 1.0, 2.0])
def test_a_traced_exponent_sharpens_as_its_value(exponent):
  """Also medians, which do not add up to 1: at an exponent of 1 as at one near it."""
  p = jnp.array([[0.5, 0.3, 0.1], [0.2, 0.2, 0.6]])
  value = servers.power(p, exponent)
  np.testing.assert_allclose(jax.jit(servers.power)(p, exponent), value, rtol=1e-6)
  np.testing.assert_allclose(servers.power(p, exponent + 1e-5), value, rtol=1e-4)
  np.testing.assert_allclose(value.sum(-1), 1, rtol=1e-6)


def test_limits_of_sharpening():
  p, flat = jnp.array([0.2, 0.5, 0.3, 0.0]), jnp.full(4, 0.25)
  np.testing.assert_array_equal(servers.era(p, np.inf), flat)
  np.testing.assert_array_equal(servers.era(p, 1e-3), [0, 1, 0, 0])
  np.testing.assert_allclose(servers.power(p, 1), p, rtol=1e-6)
  np.testing.assert_array_equal(servers.power(p, 0.0), flat)
  np.testing.assert_allclose(servers.power(p, 200.0), [0, 1, 0, 0], atol=1e-7)
  np.testing.assert_allclose(servers.power(p, 2.0), np.array([4, 25, 9, 0]) / 38, rtol=1e-6)
  for sharpen in (lambda q: servers.era(q, 0.1), lambda q: servers.power(q, 3.0)):
    np.testing.assert_allclose(sharpen(flat), flat, rtol=1e-6)
  # Temperature 1 is not the identity.
  np.testing.assert_allclose(servers.era(jnp.eye(10)[3], 1.0).max(), np.e / (np.e + 9), rtol=1e-6)


@pytest.mark.parametrize('aggregation', ['era', pytest.param('mean', marks=pytest.mark.slow)])
def test_three_rounds_are_those_of_the_twin(aggregation):
  made = made_with(methods.dsfl(SGD, aggregation=aggregation, **TURN))
  x, y, clients = parties(made, lambda client: client.learner)
  server = Party(x, made.state.server.learners[0])
  state, public, target, last = made.state, np.asarray(made.data[0].public.index), None, None
  for t in range(3):
    index = np.asarray(state.server.consensus.next_rows)
    assert len(set(index)) == SUBSET
    assert np.isin(index, public).all()
    state, report = made.run(1, state, t, length=1)
    info = {name: np.asarray(values)[0] for name, values in report.info[0].items()}
    for k, party in enumerate(clients):
      distilled = [party.train(last, target) + (target * np.log(target)).sum(-1).mean() for _ in range(2 * (t > 0))]
      np.testing.assert_allclose(info['distill_loss'][k], np.mean(distilled or np.nan), rtol=1e-3, atol=1e-6)
      np.testing.assert_allclose(info['loss'][k], party.train(OWN[k], y[OWN[k]]), rtol=1e-4)
    mean = np.mean([party.probabilities(index) for party in clients], 0)
    target, last = softmax(mean / 0.1) if aggregation == 'era' else mean, index
    np.testing.assert_allclose(state.server.consensus.consensus, target, rtol=1e-3, atol=1e-5)
    loss = np.mean([server.train(last, target) + (target * np.log(target)).sum(-1).mean() for _ in range(2)])
    np.testing.assert_allclose(report.server['server_distill_loss'][0], loss, rtol=1e-3)
  own = row(made.method.variables(state, 0), 0)
  _, used = made.method.deployed(made.groups[0].model, own, state.server, 0)
  np.testing.assert_allclose(numbers_of(used['params']), server.w, rtol=1e-3, atol=1e-5)
  ((name, predict),) = made.method.predictions
  logits = predict(made.groups[0].model, used, state.server, made.data[0].pool.example[:5])
  assert name == 'own'
  np.testing.assert_allclose(softmax(np.asarray(logits)), clients[0].probabilities(np.arange(5)), rtol=1e-3)
  assert_alike(state.client[0].learner, clients)


def test_one_client_hears_its_own_earlier_self():
  made = made_with(methods.dsfl(SGD, aggregation='mean', inference='own', **{**TURN, 'subset': 0}), 1, 1)
  state, _ = made.run()
  learner, index = row(state.client[0], 0).learner, state.server.consensus_rows
  logits = made.groups[0].model.apply({'params': learner.params}, made.data[0].pool.example[index], False)[0]
  np.testing.assert_allclose(state.server.consensus, jax.nn.softmax(logits), rtol=1e-5)
  np.testing.assert_array_equal(np.sort(index), np.sort(made.data[0].public.index))


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'aggregation': 'vote'}, r"aggregation='vote' is unknown; choose one of era, mean, power"),
    ({'inference': 'all'}, r"inference='all' is unknown; choose one of server, own"),
    ({'digest_epochs': 0}, r"digest_epochs=0 leaves the server's models untrained; set inference='own'"),
    ({'temperature': 0.0}, r'temperature=0.0 must be a number above 0'),
  ],
)
def test_refusals(wrong, message):
  with pytest.raises(ValueError, match=message):
    made_with(methods.dsfl(SGD, **{**TURN, **wrong}), 2)
