import itertools
from functools import partial
from math import floor

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedkd import aggregate
from fedkd.types import Down, Group, Peers, Sent
from helpers import assert_same_bits

trim = partial(aggregate.trimmed_mean, share=0.25)
RULES = {'mean': aggregate.mean, 'median': aggregate.median, 'trimmed_mean': trim}
JITTED = {name: jax.jit(rule) for name, rule in RULES.items()}
every_rule = pytest.mark.parametrize('name', RULES)
SEATS = 6  # one shape, one compilation


@st.composite
def uploads(draw):
  """(rows [SEATS, 2, 3], weight [SEATS]) with at least one present row."""
  rng = np.random.default_rng(draw(st.integers(0, 2**31)))
  weight = np.array(draw(st.lists(st.integers(0, 9), min_size=SEATS, max_size=SEATS)), np.float32)
  weight[draw(st.integers(0, SEATS - 1))] = draw(st.integers(1, 9))
  return rng.normal(size=(SEATS, 2, 3)).astype(np.float32) * 10, weight


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
@given(uploads(), st.permutations(range(SEATS)))
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
def test_empty_seats_do_not_change_a_bit(name, rows, empty):
  rng = np.random.default_rng(rows * empty)
  seats = np.sort(rng.choice(rows + empty, rows, replace=False))
  value, weight = rng.normal(size=(rows, 10, 10)).astype(np.float32), rng.integers(1, 9, rows).astype(np.float32)
  wide, sparse = np.zeros((rows + empty, 10, 10), np.float32), np.zeros(rows + empty, np.float32)
  wide[seats], sparse[seats] = value, weight
  assert_same_bits(JITTED[name](wide, sparse), JITTED[name](value, weight))


@every_rule
@given(uploads())
def test_identical_rows_stay_what_they_are(name, upload):
  rows, weight = upload
  same = np.broadcast_to(rows[:1], rows.shape)
  np.testing.assert_allclose(JITTED[name](same, weight), rows[0], rtol=1e-6)


@every_rule
@given(uploads(), st.integers(0, SEATS - 1))
def test_a_single_row_is_the_result(name, upload, seat):
  rows, weight = upload
  alone = np.zeros(SEATS, np.float32)
  alone[seat] = max(weight[seat], 1)
  assert_same_bits(JITTED[name](rows, alone), jnp.asarray(rows[seat]))
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


# Class-mean stores.


class _Head:
  def __init__(self, classes):
    self.classes = classes


def groups_of(*sizes, classes=2):
  starts = np.cumsum([0, *sizes])
  ids = [np.arange(a, a + n, dtype=np.int32) for a, n in zip(starts, sizes, strict=False)]
  return tuple(Group(f'g{g}', _Head(classes), i) for g, i in enumerate(ids))


def said(value, valid=None):
  """Uploads [m, C] of one group."""
  value = jnp.asarray(value, jnp.float32)
  valid = jnp.ones(value.shape[:2], bool) if valid is None else jnp.asarray(valid)
  return jax.vmap(aggregate.class_message)(value, valid)


KEY = jax.random.key(0)
ONE = (jnp.array([0]),)


def heard(server, state, ups, ids=ONE):
  return server.receive(KEY, 0, state, ups, ids)[0]


def published(server, state):
  message = server.send(KEY, 0, state, ONE)[0].shared
  assert_same_bits(message['knowledge'].valid, message['label'].valid)
  return np.asarray(message['knowledge'].value), np.asarray(message['knowledge'].valid)


STORES = {
  'running mean': aggregate.class_mean_store,
  'latest uploads': partial(aggregate.class_store, aggregate.mean),
}
every_store = pytest.mark.parametrize('make', STORES.values(), ids=STORES)


def test_server_mean_of_the_spec():
  server = aggregate.class_mean_store()
  state = server.init(KEY, groups_of(1), (), ())
  for upload in ([1.5, 0], [0.5, 0]):
    state = heard(server, state, (said([[upload, [0, 0]]], [[True, False]]),))
  value, valid = published(server, state)
  np.testing.assert_array_equal(value[0], [1, 0])
  np.testing.assert_array_equal(valid, [True, False])
  np.testing.assert_array_equal(state['count'], [2, 0])


def test_refresh_keeps_the_mean_and_sets_the_count_to_one():
  server = aggregate.class_mean_store(refresh_every=2)
  state = server.init(KEY, groups_of(2), (), ())  # two clients: every four turns
  for turn in range(1, 9):
    state = heard(server, state, (said([[[turn, 0], [0, 0]]], [[True, False]]),))
    if turn == 4:
      np.testing.assert_array_equal(state['sum'], [[2.5, 0], [0, 0]])
    np.testing.assert_array_equal(state['count'], [{4: 1, 5: 2, 6: 3, 7: 4, 8: 1}.get(turn, turn), 0])
  np.testing.assert_allclose(state['sum'][0, 0], (2.5 + 5 + 6 + 7 + 8) / 5)


def test_without_refresh_the_store_only_grows():
  server = aggregate.class_mean_store()
  state = server.init(KEY, groups_of(1), (), ())
  for _ in range(5):
    state = heard(server, state, (said(np.ones((1, 2, 2))),))
  np.testing.assert_array_equal(state['sum'], 5)
  np.testing.assert_array_equal(state['count'], 5)


@every_store
def test_absent_classes_and_empty_seats_are_not_absorbed(make):
  server = make()
  before = server.init(KEY, groups_of(3), (), ())
  hole = np.full((3, 2, 2), np.nan)
  ids = (jnp.array([0, -1, 2]),)
  after = heard(server, before, (said(hole, np.zeros((3, 2), bool)),), ids)
  assert int(after['turns']) == 2
  assert_same_bits({**after, 'turns': before['turns']}, before)
  hole[2, 1] = [1, 2]
  after = heard(server, before, (said(hole, [[False] * 2, [False] * 2, [False, True]]),), ids)
  value, valid = published(server, after)
  np.testing.assert_array_equal(value[1], [1, 2])
  np.testing.assert_array_equal(valid, [False, True])
  assert np.isfinite(value).all()


@every_store
def test_a_group_without_seats_says_nothing(make):
  server = make()
  before = server.init(KEY, groups_of(1, 2), (), ())
  silence = (said(np.zeros((0, 2, 2))), jnp.zeros(0, jnp.int32))
  speech = (said(np.ones((1, 2, 2))), jnp.array([2]))
  after = heard(server, before, *zip(silence, speech, strict=True))
  assert int(after['turns']) == 1
  value, valid = published(server, after)
  np.testing.assert_array_equal(value, 1)
  assert valid.all()


@every_store
def test_cold_start_publishes_nothing(make):
  server = make(cold_start=1.0)
  state = server.init(KEY, groups_of(2, 1), (), ())  # three clients: three turns
  for turn in range(5):
    assert published(server, state)[1].all() == (turn >= 3)
    assert published(server, state)[1].any() == (turn >= 3)
    ids = (jnp.array([0]), jnp.array([-1]))
    state = heard(server, state, (said(np.ones((1, 2, 2))), said(np.zeros((1, 2, 2)), np.zeros((1, 2), bool))), ids)


@every_store
def test_width_of_a_class(make):
  server = make(width=5)
  state = heard(server, server.init(KEY, groups_of(1), (), ()), (said(np.ones((1, 2, 5))),))
  assert published(server, state)[0].shape == (2, 5)


@every_store
def test_the_store_does_not_depend_on_the_grouping(make):
  value = np.random.default_rng(0).normal(size=(6, 2, 2))
  valid = np.random.default_rng(1).random((6, 2)) < 0.7
  server = make()
  receive = jax.jit(server.receive)

  def after(*sizes):
    cuts = np.cumsum([0, *sizes])
    state = server.init(KEY, groups_of(*sizes), (), ())
    slices = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    for scale in (1.0, 1.7):
      ups = tuple(said(value[s] * scale, valid[s]) for s in slices)
      state, _ = receive(KEY, 0, state, ups, tuple(jnp.arange(s.start, s.stop) for s in slices))
    return state

  for sizes in [(2, 4), (3, 3), (1, 1, 4), (2, 2, 2)]:
    assert_same_bits(after(*sizes), after(6))


def test_class_store_is_the_rule_over_the_latest_uploads():
  for rule in RULES.values():
    server = aggregate.class_store(rule)
    state = server.init(KEY, groups_of(3), (), ())
    latest = {}
    for turn, client in enumerate([0, 1, 0, 2, 1, 1]):
      upload = np.random.default_rng(turn).normal(size=(2, 2)).astype(np.float32)
      valid = [True, client == 1]
      latest |= {(client, c): upload[c] for c in range(2) if valid[c]}
      state = heard(server, state, (said(upload[None], [valid]),), (jnp.array([client]),))
    value, valid = published(server, state)
    assert valid.all()
    for c in range(2):
      rows = np.stack([row for (_, k), row in sorted(latest.items()) if k == c])
      np.testing.assert_allclose(value[c], rule(rows, np.ones(len(rows), np.float32)), rtol=1e-6)


# Weights.


def weights(value, m=None):
  value = jnp.asarray(value, jnp.float32)
  return {'params': {'w': value}, 'batch_stats': {'mean': 10 * value}}


@every_rule
def test_per_group_keeps_the_old_where_nobody_spoke(name):
  server = aggregate.per_group(RULES[name])
  old = (weights([1.0, 2.0]), weights([3.0]), weights([4.0]))
  state = server.init(KEY, groups_of(2, 2, 1), old, ())
  ups = (
    {**weights([[5.0, 5.0], [9.0, 9.0]]), 'count': jnp.array([3, 0])},
    {**weights([[7.0], [np.nan]]), 'count': jnp.array([2, 5])},
    {**weights(np.zeros((0, 1))), 'count': jnp.zeros(0, jnp.int32)},
  )
  ids = (jnp.array([-1, -1]), jnp.array([2, -1]), jnp.zeros(0, jnp.int32))
  state = heard(server, state, ups, ids)
  assert_same_bits(state, (old[0], weights([7.0]), old[2]))
  assert_same_bits(server.send(KEY, 0, state, ids), tuple(Down(shared=s) for s in state))


@every_rule
def test_server_pools_all_groups_and_keeps_the_old_in_silence(name):
  server = aggregate.server(RULES[name])
  old = weights([1.0])
  state = server.init(KEY, groups_of(2, 1), (old, old), ())
  ups = ({**weights([[2.0], [np.nan]]), 'count': jnp.array([3, 3])}, {**weights([[4.0]]), 'count': jnp.array([1])})
  assert_same_bits(heard(server, state, ups, (jnp.array([-1, -1]), jnp.array([-1]))), old)
  new = heard(server, state, ups, (jnp.array([0, -1]), jnp.array([2])))
  assert_same_bits(new, weights([2.5 if name == 'mean' else 3.0]))
  nobody = {**weights(np.zeros((0, 1))), 'count': jnp.zeros(0, jnp.int32)}
  alone = heard(server, state, (nobody, ups[1]), (jnp.zeros(0, jnp.int32), jnp.array([2])))
  assert_same_bits(alone, weights([4.0]))


@pytest.mark.parametrize('other', [weights([1.0, 2.0]), {**weights([1.0]), 'params': {'v': jnp.ones(1)}}])
def test_server_refuses_different_architectures(other):
  with pytest.raises(ValueError, match=r'different architectures \(g0, g1\).*set method.per_group=True'):
    aggregate.server(aggregate.mean).init(KEY, groups_of(1, 1), (weights([1.0]), other), ())


def test_join_gives_each_key_its_own_server():
  store, mean = aggregate.class_mean_store(), aggregate.per_group(aggregate.mean)
  server = aggregate.join(classes=store, weights=mean)
  groups, old = groups_of(1, 1), (weights([1.0]), weights([2.0]))
  state = server.init(KEY, groups, old, ())
  ids = (jnp.array([0]), jnp.array([1]))
  knowledge = (said(np.ones((1, 2, 2))), said(np.full((1, 2, 2), 3.0)))
  models = tuple({**weights([[v]]), 'count': jnp.array([2])} for v in (5.0, 6.0))
  ups = tuple({'classes': k, 'weights': w} for k, w in zip(knowledge, models, strict=True))
  state, info = server.receive(KEY, 0, state, ups, ids)
  assert_same_bits(state['classes'], heard(store, store.init(KEY, groups, old, ()), knowledge, ids))
  assert_same_bits(state['weights'], heard(mean, old, models, ids))
  assert int(info['known_classes']) == 2
  downs = server.send(KEY, 0, state, ids)
  for g, down in enumerate(downs):
    assert isinstance(down.shared['classes']['knowledge'], Sent)
    assert_same_bits(down.shared['weights'], state['weights'][g])


def test_silent_says_nothing():
  server = aggregate.silent()
  assert server.init(KEY, groups_of(1, 1), (), ()) == ()
  assert server.receive(KEY, 0, (), ({}, {}), ONE * 2) == ((), {})
  assert server.send(KEY, 0, (), ONE * 2) == (Down(), Down())


# Peer to peer.

SILENT = jnp.zeros((), bool)
NOTHING = lambda groups: {'word': Sent(jnp.zeros(2), SILENT), 'number': Sent(jnp.zeros(()), SILENT)}


def spoken(ids, valid=None):
  """What the clients `ids` say: their number, twice and once."""
  ids, valid = jnp.asarray(ids), jnp.asarray(ids) >= 0 if valid is None else jnp.asarray(valid)
  value = ids.astype(jnp.float32)
  return {'word': Sent(jnp.stack([value, value], 1), valid), 'number': Sent(value, valid)}


def conversation(server, *seats, sizes=(2, 3)):
  """The server's state after one round in which the clients `seats` of each group spoke."""
  state = server.init(KEY, groups_of(*sizes), (), ())
  ids = tuple(jnp.array(s, jnp.int32) for s in seats)
  return heard(server, state, tuple(spoken(s) for s in ids), ids)


def test_router_tells_everybody_what_everybody_said_last():
  server = aggregate.router(NOTHING)
  state = conversation(server, [1, -1], [4, 2, -1])
  ids = (jnp.array([0]), jnp.array([2, 3]))
  for down in server.send(KEY, 0, state, ids):
    assert down.own == ()
    assert isinstance(down.shared['word'], Peers)
    np.testing.assert_array_equal(down.shared['number'].valid, [False, True, True, False, True])
    np.testing.assert_array_equal(down.shared['word'].valid, down.shared['number'].valid)
    for client in (1, 2, 4):
      np.testing.assert_array_equal(down.shared['word'].value[client], client)
      assert float(down.shared['number'].value[client]) == client
  # The next round, what was not said again is gone.
  state = heard(server, state, (spoken([0]), spoken([3])), (jnp.array([0]), jnp.array([3])))
  np.testing.assert_array_equal(
    server.send(KEY, 1, state, ids)[0].shared['word'].valid, [True, False, False, True, False]
  )


@pytest.mark.parametrize('make', [aggregate.router, aggregate.pairs])
def test_peers_who_say_nothing_are_not_heard(make):
  server, ids = make(NOTHING), (jnp.array([0, 1]), jnp.array([2, 3, 4]))
  state = conversation(server, *ids)
  state = heard(server, state, tuple(spoken(i, i < 0) for i in ids), ids)
  for down in server.send(KEY, 0, state, ids):
    assert not any(leaf.valid.any() for leaf in (down.shared or down.own).values())


@given(st.integers(0, 2**31 - 1), st.sampled_from([(2, 3), (1, 3), (1, 0), (1, 1)]))
def test_pairs_are_a_matching(seed, sizes):
  server, count = aggregate.pairs(NOTHING), sum(sizes)
  ids = (np.arange(sizes[0]), np.arange(sizes[0], count))
  state = conversation(server, *ids, sizes=sizes)
  downs = server.send(jax.random.key(seed), 0, state, tuple(jnp.array(i, jnp.int32) for i in ids))
  partner = np.concatenate([down.own['number'].value for down in downs]).astype(int)
  valid = np.concatenate([down.own['number'].valid for down in downs])
  np.testing.assert_array_equal(partner[partner], np.arange(count))  # an involution
  np.testing.assert_array_equal(valid, partner != np.arange(count))
  assert (~valid).sum() == count % 2  # with an odd number, one hears nobody
  np.testing.assert_array_equal(np.concatenate([down.own['word'].value for down in downs])[:, 1], partner)
  assert all(down.shared == () for down in downs)


def test_pairs_are_random_and_do_not_depend_on_the_seats():
  server = aggregate.pairs(NOTHING)
  state = conversation(server, [0, 1], [2, 3, 4])
  send = jax.jit(lambda key, a, b: server.send(key, 0, state, (a, b)))
  met = np.zeros((5, 5), int)
  everyone = jnp.array([0, 1]), jnp.array([2, 3, 4])
  for seed in range(60):
    downs = send(jax.random.key(seed), *everyone)
    met[np.arange(5), np.concatenate([down.own['number'].value for down in downs]).astype(int)] += 1
  assert (met > 0).all()
  some = server.send(jax.random.key(59), 0, state, (jnp.array([-1, 1]), jnp.array([4])))
  assert_same_bits(some[0].own['word'].value[1], downs[0].own['word'].value[1])
  assert_same_bits(some[1].own['word'].value[0], downs[1].own['word'].value[2])


def test_a_partner_who_did_not_speak_is_not_heard():
  server = aggregate.pairs(NOTHING)
  state = conversation(server, [0], [-1], sizes=(1, 1))
  downs = server.send(KEY, 0, state, (jnp.array([0]), jnp.array([1])))
  assert not downs[0].own['number'].valid[0]
  assert downs[1].own['number'].valid[0]
