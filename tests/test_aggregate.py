from functools import partial
from math import floor

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedkd import aggregate, servers
from fedkd.types import Download, Masked
from helpers import assert_same_bits
from lone_servers import KEY, ONE, groups_of, received, uploads_of

trim = partial(aggregate.trimmed_mean, share=0.25)
RULES = {'mean': aggregate.mean, 'median': aggregate.median, 'trimmed_mean': trim}
JITTED = {name: jax.jit(rule) for name, rule in RULES.items()}
every_rule = pytest.mark.parametrize('name', RULES)
SLOTS = 6  # one shape, one compilation


@st.composite
def uploads(draw):
  """(rows [SLOTS, 2, 3], weight [SLOTS]) with at least one present row."""
  rng = np.random.default_rng(draw(st.integers(0, 2**31)))
  weight = np.array(draw(st.lists(st.integers(0, 9), min_size=SLOTS, max_size=SLOTS)), np.float32)
  weight[draw(st.integers(0, SLOTS - 1))] = draw(st.integers(1, 9))
  return rng.normal(size=(SLOTS, 2, 3)).astype(np.float32) * 10, weight


def in_numpy(name, rows, weight):
  present = rows[weight > 0].astype(np.float64)
  if name == 'mean':
    return np.average(present, 0, weight[weight > 0])
  if name == 'median':
    return np.median(present, 0)
  cut = floor(len(present) / 4)
  return np.sort(present, 0)[cut : len(present) - cut].mean(0)


@every_rule
@given(uploads())
def test_rule_equals_numpy(name, upload):
  rows, weight = upload
  np.testing.assert_allclose(JITTED[name](rows, weight), in_numpy(name, rows, weight), rtol=1e-5, atol=1e-5)


@every_rule
@given(uploads(), st.permutations(range(SLOTS)))
def test_rule_ignores_the_order(name, upload, order):
  rows, weight = upload
  order = np.array(order)
  np.testing.assert_allclose(JITTED[name](rows[order], weight[order]), JITTED[name](rows, weight), rtol=1e-5, atol=1e-5)


@every_rule
@pytest.mark.parametrize('hole', [np.nan, np.inf, -np.inf, 1e38])
@given(uploads())
def test_absent_rows_do_not_matter(name, hole, upload):
  rows, weight = upload
  padded = np.where((weight > 0)[:, None, None], rows, np.float32(hole))
  assert_same_bits(JITTED[name](padded, weight), JITTED[name](rows, weight))


@every_rule
@pytest.mark.parametrize('rows', [3, 8, 33])
@pytest.mark.parametrize('empty', [1, 5, 30])
def test_empty_slots_do_not_change_a_bit(name, rows, empty):
  rng = np.random.default_rng(rows * empty)
  slots = np.sort(rng.choice(rows + empty, rows, replace=False))
  value, weight = rng.normal(size=(rows, 10, 10)).astype(np.float32), rng.integers(1, 9, rows).astype(np.float32)
  wide, sparse = np.zeros((rows + empty, 10, 10), np.float32), np.zeros(rows + empty, np.float32)
  wide[slots], sparse[slots] = value, weight
  assert_same_bits(JITTED[name](wide, sparse), JITTED[name](value, weight))


@every_rule
@given(uploads())
def test_identical_rows_stay_what_they_are(name, upload):
  rows, weight = upload
  same = np.broadcast_to(rows[:1], rows.shape)
  np.testing.assert_allclose(JITTED[name](same, weight), rows[0], rtol=1e-6)


@every_rule
@given(uploads(), st.integers(0, SLOTS - 1))
def test_a_single_row_is_the_result(name, upload, slot):
  rows, weight = upload
  alone = np.zeros(SLOTS, np.float32)
  alone[slot] = max(weight[slot], 1)
  assert_same_bits(JITTED[name](rows, alone), jnp.asarray(rows[slot]))
  assert_same_bits(JITTED[name](rows[:1], np.ones(1, np.float32)), jnp.asarray(rows[0]))


@given(uploads())
def test_only_the_mean_weighs(upload):
  rows, weight = upload
  once = (weight > 0).astype(np.float32)
  for name in ('median', 'trimmed_mean'):
    assert_same_bits(JITTED[name](rows, weight), JITTED[name](rows, once))


@pytest.mark.parametrize(('share', 'count'), [(0.1, 10), (0.1, 9), (0.3, 10), (0.29, 100), (0.7, 10), (0.5, 3)])
def test_trimmed_mean_cuts_as_many_as_written(share, count):
  rows = np.random.default_rng(0).normal(size=count).astype(np.float32)
  cut = min(floor(share * count + 1e-9), (count - 1) // 2)
  expected = np.sort(rows)[cut : count - cut].mean()
  np.testing.assert_allclose(aggregate.trimmed_mean(rows, np.ones(count, np.float32), share), expected, rtol=1e-5)


def test_one_liar_moves_the_mean_but_not_the_median_or_the_trimmed_mean():
  rows, weight = np.array([1.0, 2, 3, 4, 1e6], np.float32), np.ones(5, np.float32)
  assert aggregate.mean(rows, weight) > 1e5
  assert aggregate.median(rows, weight) == 3
  assert trim(rows, weight) == 3


# Weights.


def weights(value, m=None):
  value = jnp.asarray(value, jnp.float32)
  return {'params': {'w': value}, 'batch_stats': {'mean': 10 * value}}


@every_rule
def test_per_group_keeps_the_old_without_uploads(name):
  server = servers.weights(RULES[name], per_group=True)
  old = (weights([1.0, 2.0]), weights([3.0]), weights([4.0]))
  state = server.init(KEY, groups_of(2, 2, 1), old, ())
  uploads = (
    {**weights([[5.0, 5.0], [9.0, 9.0]]), 'count': jnp.array([3, 0])},
    {**weights([[7.0], [np.nan]]), 'count': jnp.array([2, 5])},
    {**weights(np.zeros((0, 1))), 'count': jnp.zeros(0, jnp.int32)},
  )
  ids = (jnp.array([-1, -1]), jnp.array([2, -1]), jnp.zeros(0, jnp.int32))
  state = received(server, state, uploads, ids)
  assert_same_bits(state, (old[0], weights([7.0]), old[2]))
  assert_same_bits(server.send(KEY, 0, state, ids), tuple(Download(shared=s) for s in state))


@every_rule
def test_server_pools_all_groups_and_keeps_the_old_without_uploads(name):
  server = servers.weights(RULES[name])
  old = weights([1.0])
  state = server.init(KEY, groups_of(2, 1), (old, old), ())
  uploads = ({**weights([[2.0], [np.nan]]), 'count': jnp.array([3, 3])}, {**weights([[4.0]]), 'count': jnp.array([1])})
  assert_same_bits(received(server, state, uploads, (jnp.array([-1, -1]), jnp.array([-1]))), old)
  new = received(server, state, uploads, (jnp.array([0, -1]), jnp.array([2])))
  assert_same_bits(new, weights([2.5 if name == 'mean' else 3.0]))
  nobody = {**weights(np.zeros((0, 1))), 'count': jnp.zeros(0, jnp.int32)}
  alone = received(server, state, (nobody, uploads[1]), (jnp.zeros(0, jnp.int32), jnp.array([2])))
  assert_same_bits(alone, weights([4.0]))


@pytest.mark.parametrize('other', [weights([1.0, 2.0]), {**weights([1.0]), 'params': {'v': jnp.ones(1)}}])
def test_server_refuses_different_architectures(other):
  with pytest.raises(ValueError, match=r'different architectures \(g0, g1\).*set method.per_group=True'):
    servers.weights(aggregate.mean).init(KEY, groups_of(1, 1), (weights([1.0]), other), ())


def test_join_gives_each_key_its_own_server():
  store, mean = servers.class_means(), servers.weights(per_group=True)
  server = servers.join(classes=store, weights=mean)
  groups, old = groups_of(1, 1), (weights([1.0]), weights([2.0]))
  state = server.init(KEY, groups, old, ())
  ids = (jnp.array([0]), jnp.array([1]))
  knowledge = (uploads_of(np.ones((1, 2, 2))), uploads_of(np.full((1, 2, 2), 3.0)))
  models = tuple({**weights([[v]]), 'count': jnp.array([2])} for v in (5.0, 6.0))
  uploads = tuple({'classes': k, 'weights': w} for k, w in zip(knowledge, models, strict=True))
  state, info = server.receive(KEY, 0, state, uploads, ids)
  assert_same_bits(state['classes'], received(store, store.init(KEY, groups, old, ()), knowledge, ids))
  assert_same_bits(state['weights'], received(mean, old, models, ids))
  assert int(info['known_classes']) == 2
  downs = server.send(KEY, 0, state, ids)
  for g, down in enumerate(downs):
    assert isinstance(down.shared['classes']['knowledge'], Masked)
    assert_same_bits(down.shared['weights'], state['weights'][g])


def test_silent_says_nothing():
  server = servers.silent()
  assert server.init(KEY, groups_of(1, 1), (), ()) == ()
  assert server.receive(KEY, 0, (), ({}, {}), ONE * 2) == ((), {})
  assert server.send(KEY, 0, (), ONE * 2) == (Download(), Download())


@pytest.mark.parametrize('start', [0, 2])
def test_after_is_silence_before_the_start(start):
  store = servers.class_means()
  mean = servers.weights(per_group=True)
  plain = servers.join(classes=store, weights=mean)
  late = servers.after(start, plain)
  old = (weights([1.0]),)
  state = late.init(KEY, groups_of(1), old, ())
  assert_same_bits(state, plain.init(KEY, groups_of(1), old, ()))
  knowledge = uploads_of([[[1.0, 2], [0, 0]]], [[True, False]])
  uploads = ({'classes': knowledge, 'weights': {**weights([[5.0]]), 'count': jnp.ones(1)}},)
  state = received(late, state, uploads)
  assert_same_bits(
    state, received(plain, plain.init(KEY, groups_of(1), old, ()), uploads)
  )  # it hears from the first round
  for t in range(4):
    on = np.array(t >= start)
    expected = plain.send(KEY, t, state, ONE)[0].shared
    (down,) = late.send(KEY, jnp.int32(t), state, ONE)
    assert down.own == {'classes': (), 'weights': ()}
    for name in ('knowledge', 'label'):  # was a `Masked` and stays one
      got, full = down.shared['classes'][name], expected['classes'][name]
      assert_same_bits(got, Masked(full.value, full.valid & on))
    late_weights = jax.tree.map(lambda a, on=on: Masked(a, jnp.asarray(on)), expected['weights'])
    assert_same_bits(down.shared['weights'], late_weights)
