"""SCARLET: what is cached, for how long, and what then crosses the wire."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, methods, models, plan
from fedkd.servers.cached_consensus import check_caches
from fedkd.types import Masked
from helpers import CLASSES, assert_same_bits, problem

LINEAR = models.MLP((), classes=CLASSES)
SGD = optax.sgd(0.1)
TURN = {'digest_epochs': 1, 'digest_batch': 6, 'epochs': 1, 'batch': 12}
PARTS = [np.arange(12), np.arange(20, 32), np.arange(40, 46)]  # of which 4, 4 and 3 are public
PUBLIC, ROUNDS = 11, 6


def made_with(method, participants=None):
  rounds = plan.synchronous()([3], ROUNDS) if participants is None else plan.Plan((participants,))
  return problem(method, [LINEAR], [3], rounds, PARTS)


def scarlet(**how):
  return methods.scarlet(SGD, **{'subset': 6, **TURN, **how})


def step_by_step(made, rounds=ROUNDS):
  """[(State, {kind: numbers up [slots]}, {... down})] after each round."""
  state, found = made.state, []
  for t in range(rounds):
    state, report = made.run(1, state, t, length=1)
    numbers = [{kind: np.asarray(n)[0] for kind, (n, _) in way[0].items()} for way in (report.up, report.down)]
    found.append((state, *numbers))
  return found


@pytest.mark.slow
def test_without_duration_it_is_dsfl_with_a_power():
  dsfl = made_with(methods.dsfl(SGD, subset=6, aggregation='power', **TURN)).run()[0]
  cached = made_with(scarlet(duration=0)).run()[0]
  assert_same_bits(cached.client[0].training, dsfl.client[0])
  assert_same_bits(cached.server.learners, dsfl.server.learners)


def test_all_rows_for_ever_are_sent_once():
  for t, (_, up, down) in enumerate(step_by_step(made_with(scarlet(subset=0, duration=ROUNDS + 1)))):
    np.testing.assert_array_equal(up['knowledge'], PUBLIC * CLASSES if t == 0 else 0)
    np.testing.assert_array_equal(down.get('knowledge', 0), PUBLIC * CLASSES if t == 1 else 0)
    np.testing.assert_array_equal(down['indices'], 2 * PUBLIC if t else PUBLIC)  # rows and signals; requests at first


@pytest.mark.parametrize('published', [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_cache_is_that_of_a_twin(published):
  """Row by row: when it is requested, kept, reused, emptied; and what a client then knows."""
  duration = 2
  made = made_with(scarlet(duration=duration, published_off_by_one=published, inference='own'))
  public, cache, copies = np.asarray(made.data[0].public.index), {}, {}
  state, sent, last = made.state, {}, []
  for t in range(ROUNDS):
    index = np.asarray(state.server.next_rows)
    asked = {i for i in index if i not in cache or t - cache[i][1] >= duration}
    new, report = made.run(1, state, t, length=1)
    np.testing.assert_array_equal(report.up[0]['knowledge'][0][0], len(asked) * CLASSES)
    labels, indices = sum(kind == 'label' for kind, _ in sent.values()), 2 * len(last) + len(asked)
    np.testing.assert_array_equal(report.down[0].get('knowledge', ([[0]],))[0][0], labels * CLASSES)
    np.testing.assert_array_equal(report.down[0]['indices'][0][0], indices)
    for i, (_, value) in sent.items():  # what the clients then have
      copies.pop(i, None) if value is None else copies.update({i: value})
    for i in np.flatnonzero(np.asarray(new.client[0].cache['there'][1])):
      np.testing.assert_array_equal(new.client[0].cache['label'][1][i], copies[public[i]])
    assert {public[i] for i in np.flatnonzero(np.asarray(new.client[0].cache['there'][1]))} == set(copies)
    sent, last, labels = {}, index, np.asarray(new.server.consensus)
    for i, label in zip(index, labels, strict=True):
      age = None if i not in cache else t - cache[i][1]
      if age is None:
        cache[i], sent[i] = (label, t), ('label', label)
      elif age >= duration + published:
        del cache[i]
        sent[i] = ('label', None)
      elif i not in asked:
        np.testing.assert_array_equal(label, cache[i][0])
    since = np.asarray(new.server.since)
    assert {public[i]: since[i] for i in np.flatnonzero(since >= 0)} == {i: at for i, (_, at) in cache.items()}
    state = new
  assert any(t < ROUNDS - 1 for _, t in cache.values())  # something was reused


def test_a_client_that_was_away_receives_what_it_lacks():
  participants = np.array([[0, 1, 2], [0, 1, 2], [-1, 1, 2], [-1, 1, 2], [0, 1, 2], [0, 1, 2]], np.int32)
  made = made_with(scarlet(subset=0, duration=50), participants)
  found = step_by_step(made)
  knowledge = np.array([down['knowledge'] for _, _, down in found])
  np.testing.assert_array_equal(knowledge[1], PUBLIC * CLASSES)
  np.testing.assert_array_equal(knowledge[2:], 0)  # everybody was there when all was sent
  late = np.array([[-1, 1, 2], [-1, 1, 2], [-1, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2]], np.int32)
  found = step_by_step(made._replace(plan=plan.Plan((late,))))
  knowledge = np.array([down['knowledge'] for _, _, down in found])
  np.testing.assert_array_equal(knowledge[:, 0], [0, 0, 0, PUBLIC * CLASSES, 0, 0])
  caches = jax.tree.map(np.asarray, found[-1][0].client[0].cache)
  assert caches['there'].all()
  np.testing.assert_array_equal(caches['label'][0], caches['label'][1])


def test_a_rule_sees_no_prediction_that_nobody_sends():
  """Centred clipping looks at whole uploads; of a row that is cached it finds what the server has."""
  method = scarlet(subset=0, duration=3, rule=aggregate.centred_clipping(0.1))

  def step(*args):
    state, upload, info = method.client.step(*args)
    value, valid = upload['knowledge']
    return state, {**upload, 'knowledge': Masked(jnp.where(valid[:, None], value, 50.0), valid)}, info

  loud = method._replace(client=method.client._replace(step=step))
  (quiet, report), (other, _) = (made_with(one).run() for one in (method, loud))
  assert_same_bits(other.server, quiet.server)
  sent = report.up[0]['knowledge'][0][:, 0]
  assert 0 in sent
  assert sent[3] == PUBLIC * CLASSES  # after a round whose cached rows have gone through the rule


def test_caches_beyond_memory_are_refused():
  with pytest.raises(ValueError, match=r'caches of 1,000,000 public rows for 1,000 clients and 10 classes .* lower'):
    check_caches(1000, 10**6, 10)
