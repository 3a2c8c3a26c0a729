"""Selective-FD: which labels the server keeps, and how clients learn from them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods, models, optimizers, plan, servers
from fedkd.methods import selectors
from fedkd.types import Masked
from helpers import CLASSES, assert_same_bits, bound, problem
from lone_servers import KEY, received

LINEAR = models.MLP((), classes=CLASSES)
SGD = optax.sgd(0.1)
TURN = {'subset': 6, 'digest_steps': 2, 'digest_batch': 6, 'steps': 1, 'batch': 8, 'auxiliary': 20}
ROUNDS = 4


# The server.


@pytest.fixture(scope='module')
def consensus():
  """(votes [m, M], predictions [m, M, C], ambiguity) -> (the download, of whole uploads for votes None)."""
  made = problem(methods.private(SGD), [LINEAR], [3], plan.synchronous()([3], 1))

  def run(votes, p, ambiguity=2.0):
    keep = None if votes is None else lambda p: 2 * (1 - jnp.max(p, -1)) < ambiguity
    server = servers.consensus(6, draw=servers.uniform, keep=keep)
    state = server.init(KEY, made.groups, (), made.data)
    up = jnp.asarray(p, jnp.float32)
    up = up if votes is None else Masked(up, jnp.asarray(votes))
    ids = (jnp.arange(len(p)),)
    state = received(server, state, ({'knowledge': up},), ids, groups=made.groups, data=made.data)
    return jax.jit(lambda state: bound(server, made.groups, made.data).send(KEY, 1, state, ids)[0].shared)(state)

  return run


P = np.random.default_rng(0).dirichlet(np.ones(CLASSES), (3, 6)).astype(np.float32)


def test_with_all_votes_it_is_the_plain_mean(consensus):
  voted, plain = consensus(np.ones((3, 6), bool), P), consensus(None, P)
  assert_same_bits(voted['consensus'].value, plain['consensus'].value)
  assert voted['consensus'].valid.all()
  np.testing.assert_array_equal(voted['last']['index'].value, plain['last']['index'].value)


def test_one_voter_is_heard_word_for_word_and_a_row_without_votes_is_dropped(consensus):
  votes = np.zeros((3, 6), bool)
  votes[1, :4] = True
  found = consensus(votes, np.where(votes[..., None], P, np.nan))
  np.testing.assert_array_equal(found['consensus'].valid, votes[1])
  np.testing.assert_array_equal(found['consensus'].value[:4], P[1, :4])
  np.testing.assert_array_equal(found['last']['index'].valid, votes[1])
  (_, target), count = servers.distillation_targets(found)
  assert int(count) == 4
  np.testing.assert_array_equal(target[:4], P[1, :4])


@pytest.mark.parametrize('ambiguity', [0.5, 1.0, 2.0])
def test_labels_that_are_not_clear_are_dropped(consensus, ambiguity):
  found = consensus(np.ones((3, 6), bool), P, ambiguity)['consensus']
  np.testing.assert_array_equal(found.valid, P.mean(0).max(-1) > 1 - ambiguity / 2)


def test_a_round_without_votes_leaves_no_consensus_and_asks_for_other_rows():
  """Three of six public rows at a time, of which somebody votes for those of the first round alone."""
  made = problem(methods.private(SGD), [LINEAR], [3], plan.synchronous()([3], 1))
  server = servers.consensus(3, draw=servers.uniform, keep=lambda p: jnp.ones(len(p), bool))
  state, ids = server.init(KEY, made.groups, (), made.data), (jnp.arange(3),)
  states = [state]
  for t, votes in enumerate((True, False, False, False)):
    up = {'knowledge': Masked(jnp.asarray(P[:, :3]), jnp.full((3, 3), votes))}
    key = jax.random.fold_in(KEY, t)
    states.append(server.receive(key, t, made.groups, states[-1], (up,), ids, made.data)[0])
  first, *others = states[1:]
  assert first.has_consensus.all()
  assert not any(one.has_consensus.any() for one in others)
  assert len({tuple(sorted(one.next_rows.tolist())) for one in states}) > 1
  np.testing.assert_array_equal(others[-1].consensus_rows, others[-2].next_rows)


# Both.


def test_the_ledger_counts_what_is_selected_and_kept():
  made = problem(methods.selective_fd(SGD, **TURN), [LINEAR], [3], plan.synchronous()([3], ROUNDS))
  public, state, kept = np.asarray(made.data[0].public.index), made.state, 0
  selected = np.asarray(state.client[0].selected)
  assert 0 < selected.mean() < 1
  for t in range(ROUNDS):
    index = np.asarray(state.server.next_rows)
    mine = selected[:, [list(public).index(i) for i in index]]
    state, report = made.run(1, state, t, length=1)
    numbers = lambda way: sum(np.asarray(n)[0] for n, _ in way[0].values())
    np.testing.assert_array_equal(numbers(report.up), mine.sum(1) * (CLASSES + 1))
    np.testing.assert_array_equal(numbers(report.down), kept * (CLASSES + 1) + 6)
    kept = mine.any(0).sum()
    assert int(report.server['labelled_rows'][0]) == kept
  assert_same_bits(state.client[0].selected, made.state.client[0].selected)


def test_every_option_of_the_selector_reaches_it(monkeypatch):
  told = {}
  monkeypatch.setattr(selectors, 'resembling', lambda *args, **how: told.update(how) or jnp.zeros(12, bool))
  how = {'known': 0.11, 'auxiliary': 7, 'width': 1.5, 'regulariser': 0.5, 'inputs': 'features'}
  problem(methods.selective_fd(SGD, subset=6, quantile=0.4, **how), [LINEAR], [3], plan.synchronous()([3], 1))
  assert told == {'share': 0.4, **how}


def test_clients_are_evaluated_as_after_the_distillation_of_the_round():
  """Softmax regression in float64, all six public images in every batch."""
  made = problem(methods.selective_fd(SGD, **TURN), [LINEAR], [3], plan.synchronous()([3], 1))
  state, target = made.run()[0], np.random.default_rng(0).dirichlet(np.ones(CLASSES), 6)
  assert_same_bits(made.ready(made.state).client, made.state.client)  # there is no consensus yet
  state = with_consensus(state, target)
  image = np.asarray(made.data[0].pool.example[state.server.consensus_rows], float)
  x = np.concatenate([(image.reshape(6, -1) - 128) / 64, np.ones((6, 1))], 1)
  before, after = (weights_of(one.client[0]) for one in (state, made.ready(state)))
  for w, found in zip(before, after, strict=True):
    for _ in range(TURN['digest_steps']):
      p = np.exp(x @ w) / np.exp(x @ w).sum(1, keepdims=True)
      w = w - 0.1 * x.T @ (p - target) / 6
    np.testing.assert_allclose(found, w, rtol=1e-4, atol=1e-5)
  assert np.abs(after - before).max() > 1e-3


def with_consensus(state, target):
  there = state.server._replace(consensus=jnp.float32(target), has_consensus=jnp.ones(len(target), bool))
  return state._replace(server=there)


def weights_of(client):
  """[n, 1 + inputs, C] of the clients' softmax regressions in float64, the bias last."""
  dense = client.training.learner.params['net']['output']
  return np.concatenate([dense['kernel'], dense['bias'][:, None]], 1).astype(float)


def test_the_next_update_goes_on_from_the_models_that_were_evaluated():
  """Bit for bit, with random batches, and at the learning rate of the round before; no row of its own is trained on."""
  tx = optimizers.scheduled(SGD, lambda t: 1 / (1 + t))
  # No count of steps is 0 but one that no check sees.
  method = methods.selective_fd.__wrapped__(tx, **{**TURN, 'digest_batch': 2, 'steps': jnp.int32(0)})
  made = problem(method, [LINEAR], [3], plan.synchronous()([3], 2))
  state = with_consensus(made.run(1, length=1)[0], np.random.default_rng(0).dirichlet(np.ones(CLASSES), 6))
  ready, after = made.ready(state), made.run(1, state, 1, length=1)[0]
  assert_same_bits(ready.client[0].training, after.client[0].training)
  assert np.abs(weights_of(after.client[0]) - weights_of(state.client[0])).max() > 1e-3


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'inputs': 'words'}, r"inputs='words' is unknown; choose one of pixels, features"),
    ({'ambiguity': 2.5}, r'ambiguity=2.5 must be a number above 0 and at most 2'),
    ({'quantile': 1.5}, r'quantile=1.5 must be a number of at least 0 and at most 1'),
    ({'known': 0.0}, r'known=0.0 must be a number above 0 and at most 1'),
  ],
)
def test_impossible_numbers_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.selective_fd(SGD, **wrong)
