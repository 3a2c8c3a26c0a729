"""What servers keep per class, against plain Python."""

import collections
import itertools
from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedkd import aggregate, ledger, models, servers, types
from fedkd.types import Masked
from helpers import assert_same_bits, bound, pool, preprocessed
from lone_servers import KEY, ONE, groups_of, received, uploads_of


def published(server, state):
  message = jax.jit(bound(server).send)(KEY, 0, state, ONE)[0].shared
  assert_same_bits(message['knowledge'].valid, message['label'].valid)
  return np.asarray(message['knowledge'].value), np.asarray(message['knowledge'].valid)


KEEPERS = {
  'running mean': servers.class_means,
  'latest uploads': partial(servers.latest_class_knowledge, aggregate.mean),
}
every_keeper = pytest.mark.parametrize('make', KEEPERS.values(), ids=KEEPERS)


def test_server_mean_of_the_spec():
  server = servers.class_means()
  state = server.init(KEY, groups_of(1), (), ())
  for upload in ([1.5, 0], [0.5, 0]):
    state = received(server, state, (uploads_of([[upload, [0, 0]]], [[True, False]]),))
  value, valid = published(server, state)
  np.testing.assert_array_equal(value[0], [1, 0])
  np.testing.assert_array_equal(valid, [True, False])
  np.testing.assert_array_equal(state['count'], [2, 0])


def test_refresh_keeps_the_mean_and_sets_the_count_to_one():
  server = servers.class_means(refresh_every=2)
  state = server.init(KEY, groups_of(2), (), ())  # two clients: every four updates
  for update in range(1, 9):
    state = received(server, state, (uploads_of([[[update, 0], [0, 0]]], [[True, False]]),))
    if update == 4:
      np.testing.assert_array_equal(state['sum'], [[2.5, 0], [0, 0]])
    np.testing.assert_array_equal(state['count'], [{4: 1, 5: 2, 6: 3, 7: 4, 8: 1}.get(update, update), 0])
  np.testing.assert_allclose(state['sum'][0, 0], (2.5 + 5 + 6 + 7 + 8) / 5)


def test_without_refresh_the_sums_only_grow():
  server = servers.class_means()
  state = server.init(KEY, groups_of(1), (), ())
  for _ in range(5):
    state = received(server, state, (uploads_of(np.ones((1, 2, 2))),))
  np.testing.assert_array_equal(state['sum'], 5)
  np.testing.assert_array_equal(state['count'], 5)


@every_keeper
def test_absent_classes_and_empty_slots_are_not_absorbed(make):
  server = make()
  before = server.init(KEY, groups_of(3), (), ())
  hole = np.full((3, 2, 2), np.nan)
  ids = (jnp.array([0, -1, 2]),)
  after = received(server, before, (uploads_of(hole, np.zeros((3, 2), bool)),), ids)
  assert int(after['turns']) == 2
  assert_same_bits({**after, 'turns': before['turns']}, before)
  hole[2, 1] = [1, 2]
  after = received(server, before, (uploads_of(hole, [[False] * 2, [False] * 2, [False, True]]),), ids)
  value, valid = published(server, after)
  np.testing.assert_array_equal(value[1], [1, 2])
  np.testing.assert_array_equal(valid, [False, True])
  assert np.isfinite(value).all()


@every_keeper
def test_a_group_without_slots_uploads_nothing(make):
  server = make()
  before = server.init(KEY, groups_of(1, 2), (), ())
  empty = (uploads_of(np.zeros((0, 2, 2))), jnp.zeros(0, jnp.int32))
  full = (uploads_of(np.ones((1, 2, 2))), jnp.array([2]))
  after = received(server, before, *zip(empty, full, strict=True))
  assert int(after['turns']) == 1
  value, valid = published(server, after)
  np.testing.assert_array_equal(value, 1)
  assert valid.all()


@every_keeper
def test_cold_start_publishes_nothing(make):
  server = make(cold_start=1.0)
  state = server.init(KEY, groups_of(2, 1), (), ())  # three clients: three updates
  for update in range(5):
    assert published(server, state)[1].all() == (update >= 3)
    assert published(server, state)[1].any() == (update >= 3)
    ids = (jnp.array([0]), jnp.array([-1]))
    state = received(
      server, state, (uploads_of(np.ones((1, 2, 2))), uploads_of(np.zeros((1, 2, 2)), np.zeros((1, 2), bool))), ids
    )


@every_keeper
@pytest.mark.parametrize(('share', 'updates'), [(0.29, 29), (0.57, 57), (1.15, 115), (1.0, 100)])
def test_a_cold_start_counts_updates_as_written_traced_or_not(make, share, updates):
  begun = lambda share: make(cold_start=share).init(KEY, groups_of(60, 40), (), ())['cold_start']
  assert begun(share) == updates
  assert jax.jit(begun)(share) == updates


@every_keeper
def test_width_of_a_class(make):
  server = make(width=5)
  state = received(server, server.init(KEY, groups_of(1), (), ()), (uploads_of(np.ones((1, 2, 5))),))
  assert published(server, state)[0].shape == (2, 5)


@every_keeper
def test_knowledge_does_not_depend_on_the_grouping(make):
  value = np.random.default_rng(0).normal(size=(6, 2, 2))
  valid = np.random.default_rng(1).random((6, 2)) < 0.7
  server = make()
  receive = jax.jit(bound(server).receive)

  def after(*sizes):
    cuts = np.cumsum([0, *sizes])
    state = server.init(KEY, groups_of(*sizes), (), ())
    slices = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    for scale in (1.0, 1.7):
      uploads = tuple(uploads_of(value[s] * scale, valid[s]) for s in slices)
      state, _ = receive(KEY, 0, state, uploads, tuple(jnp.arange(s.start, s.stop) for s in slices))
    return state

  for sizes in [(2, 4), (3, 3), (1, 1, 4), (2, 2, 2)]:
    assert_same_bits(after(*sizes), after(6))


def test_latest_class_knowledge_is_the_rule_over_the_latest_uploads():
  for rule in (aggregate.mean, aggregate.median, aggregate.trimmed_mean):
    server = servers.latest_class_knowledge(rule)
    state = server.init(KEY, groups_of(3), (), ())
    latest = {}
    for update, client in enumerate([0, 1, 0, 2, 1, 1]):
      upload = np.random.default_rng(update).normal(size=(2, 2)).astype(np.float32)
      valid = [True, client == 1]
      latest |= {(client, c): upload[c] for c in range(2) if valid[c]}
      state = received(server, state, (uploads_of(upload[None], [valid]),), (jnp.array([client]),))
    value, valid = published(server, state)
    assert valid.all()
    for c in range(2):
      rows = np.stack([row for (_, k), row in sorted(latest.items()) if k == c])
      np.testing.assert_allclose(value[c], rule(rows, np.ones(len(rows), np.float32)), rtol=1e-6)


def test_per_round_forgets_earlier_uploads():
  server = servers.class_means(per_round=True)
  state = server.init(KEY, groups_of(3), (), ())
  ids = (jnp.array([0, 1]),)
  state = received(
    server, state, (uploads_of([[[1, 0], [2, 2]], [[3, 0], [9, 9]]], [[True, True], [True, False]]),), ids
  )
  value, valid = published(server, state)
  np.testing.assert_array_equal(value, [[2, 0], [2, 2]])
  assert valid.all()
  state = received(
    server, state, (uploads_of([[[7, 0], [0, 0]], [[0, 0], [0, 0]]], [[True, False], [False, False]]),), ids
  )
  value, valid = published(server, state)
  np.testing.assert_array_equal(value[0], [7, 0])
  np.testing.assert_array_equal(valid, [True, False])
  assert int(state['turns']) == 4


# The age each server reports, from the rounds in which every client uploaded class 0, and class 1.
AGES = {
  'cumulative': (servers.class_means(), lambda rounds, t: [r for r in rounds if r <= t]),
  'per round': (servers.class_means(per_round=True), lambda rounds, t: [r for r in rounds if r == t]),
  'latest': (servers.latest_class_knowledge(aggregate.mean), lambda rounds, t: [r for r in rounds if r <= t][-1:]),
  'last two': (servers.buffered_class_means(2), lambda rounds, t: [r for r in rounds if r <= t][-2:]),
}


@pytest.mark.parametrize(('server', 'kept'), AGES.values(), ids=AGES)
def test_knowledge_age_is_the_mean_over_what_is_kept_and_then_over_classes(server, kept):
  rounds_of = [0, 1, 4], [1, 3]  # rounds in which the one client uploaded class 0, class 1
  state = server.init(KEY, groups_of(1), (), ())
  receive = jax.jit(bound(server).receive)
  for t in range(6):
    valid = np.array([[t in rounds_of[0], t in rounds_of[1]]])
    state, info = receive(KEY, t, state, (uploads_of(np.ones((1, 2, 2)), valid),), ONE)
    ages = [[t - r for r in kept(rounds, t)] for rounds in rounds_of]
    known = [np.mean(age) for age in ages if age]
    assert float(info['knowledge_age']) == pytest.approx(np.mean(known) if known else np.nan, nan_ok=True)
    assert int(info['known_classes']) == len(known)


def test_a_refresh_keeps_the_age():
  server = servers.class_means(refresh_every=2)
  state = server.init(KEY, groups_of(1), (), ())
  for t, age in enumerate([0, 0.5, 0.75]):  # the two of the first rounds count as one from then on
    state, info = bound(server).receive(KEY, t, state, (uploads_of(np.ones((1, 2, 2))),), ONE)
    assert float(info['knowledge_age']) == pytest.approx(age)


# Buffers.

CLASSES, LIMIT, PER_ROUND = 3, 4, 7  # more may come at once than there is room for
push = jax.jit(lambda buffer, t, a, b: servers.push(buffer, t, (a, b)))


def vectors(label, valid, t):
  """One message per example, of [2 clients, n] examples; the vectors are told apart by their numbers."""
  label, valid = jnp.asarray(label, jnp.int32), jnp.asarray(valid)
  number = 100 * t + np.arange(label.size).reshape(label.shape)
  value = jnp.asarray(np.stack([number, -number], -1), jnp.float32)
  # What is not valid has no meaning.
  value = jnp.where(valid[..., None], value, jnp.nan)
  return {'knowledge': Masked(value, valid), 'label': Masked(label, valid)}


@st.composite
def deliveries(draw):
  """Rounds of (label, valid) [2, PER_ROUND]."""
  rng = np.random.default_rng(draw(st.integers(0, 2**31)))
  share = draw(st.sampled_from([0.1, 0.5, 1.0]))
  most = draw(st.integers(1, CLASSES))  # with one class only, everything goes to one buffer
  rounds = draw(st.integers(1, 6))
  return [(rng.integers(0, most, (2, PER_ROUND)), rng.random((2, PER_ROUND)) < share) for _ in range(rounds)]


@given(deliveries())
def test_a_buffer_is_first_in_first_out(rounds):
  buffer = servers.class_buffer(CLASSES, LIMIT, 2)
  queues = [collections.deque(maxlen=LIMIT) for _ in range(CLASSES)]
  counts = np.zeros(CLASSES, int)
  for t, (label, valid) in enumerate(rounds):
    message = vectors(label, valid, t)
    # The second message holds one client that sends the same again, in another shape.
    again = jax.tree.map(lambda a: a[1:], message)
    buffer = push(buffer, t, message, again)
    for part in (message, again):
      value = np.asarray(part['knowledge'].value).reshape(-1, 2)
      for v, c, ok in zip(value, *(np.ravel(part['label'][i]) for i in (0, 1)), strict=True):
        if ok:
          queues[c].append((t, *v))
          counts[c] += 1
    np.testing.assert_array_equal(buffer['count'], counts)
    held = np.asarray(servers.stored(buffer))
    np.testing.assert_array_equal(held.sum(1), [len(queue) for queue in queues])
    for c, queue in enumerate(queues):
      mine = np.column_stack([buffer['since'][c], buffer['value'][c]])[held[c]]
      assert sorted(map(tuple, mine.tolist())) == sorted(queue)
      # Where the next one goes is where the oldest is.
      if len(queue) == LIMIT:
        oldest = np.asarray(buffer['value'][c])[counts[c] % LIMIT]
        np.testing.assert_array_equal(oldest, queue[0][1:])
    ages = [np.mean([t - since for since, *_ in queue]) for queue in queues if queue]
    np.testing.assert_allclose(servers.buffer_age(t, buffer), np.mean(ages) if ages else np.nan, rtol=1e-5)


def test_of_more_than_fit_at_once_the_last_stay():
  label, valid = np.zeros((2, PER_ROUND), int), np.ones((2, PER_ROUND), bool)
  buffer = servers.push(servers.class_buffer(CLASSES, LIMIT, 2), 0, (vectors(label, valid, 1),))
  assert sorted(np.asarray(buffer['value'][0, :, 0])) == [110, 111, 112, 113]
  np.testing.assert_array_equal(buffer['count'], [2 * PER_ROUND, 0, 0])


def test_buffered_class_means_publishes_the_means_of_what_it_keeps():
  server = servers.buffered_class_means(LIMIT, width=2)
  state = server.init(KEY, groups_of(2, classes=CLASSES), (), ())
  label = np.array([[0, 0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
  valid = np.ones((2, PER_ROUND), bool)
  valid[1, 0] = False
  for t in range(2):
    message = vectors(label, valid, t)
    state = received(server, state, (message,), (jnp.array([0, 1]),), t)
    value, known = published(server, state)
    flat = np.asarray(message['knowledge'].value).reshape(-1, 2)[valid.ravel()]
    for c in range(2):
      np.testing.assert_allclose(value[c], flat[label[valid] == c][-LIMIT:].mean(0))
    np.testing.assert_array_equal(known, [True, True, False])
    assert np.isfinite(value).all()


def test_buffered_class_means_takes_messages_per_class_too():
  server = servers.buffered_class_means(2)
  state = server.init(KEY, groups_of(2), (), ())
  for t in range(3):
    state = received(server, state, (uploads_of(np.full((1, 2, 2), float(t)), [[True, t == 0]]),), ONE, t)
  value, valid = published(server, state)
  np.testing.assert_array_equal(value, [[1.5, 1.5], [0, 0]])
  assert valid.all()


# Means that weigh by examples, and widths that follow from the models.

WEIGHTED = {
  'running mean': servers.class_means(weighted=True),
  'latest uploads': servers.latest_class_knowledge(aggregate.mean, weighted=True),
}


@pytest.mark.parametrize('server', WEIGHTED.values(), ids=WEIGHTED)
def test_a_weighted_mean_counts_every_example_once(server):
  state = server.init(KEY, groups_of(2, 1), (), ())
  rng = np.random.default_rng(0)
  value, count = rng.normal(size=(3, 2, 2)).astype(np.float32), np.array([[5, 0], [1, 2], [3, 7]])
  valid = np.array([[True, False], [True, True], [True, True]])
  holes = np.where(valid[..., None], value, np.nan)
  uploads = tuple(uploads_of(holes[g], valid[g], np.where(valid, count, 99)[g]) for g in (slice(0, 2), slice(2, 3)))
  state = received(server, state, uploads, (jnp.array([0, 1]), jnp.array([2])))
  means, known = published(server, state)
  assert known.all()
  for c in range(2):
    np.testing.assert_allclose(means[c], np.average(value[:, c], 0, count[:, c]), rtol=1e-5)
  # Client 0 once more: the running mean has both of its uploads, the other only the last.
  again = uploads_of(np.full((1, 2, 2), 4.0), [[True, False]], [[10, 0]])
  state = received(
    server,
    state,
    (again, uploads_of(np.zeros((0, 2, 2)), count=np.zeros((0, 2)))),
    (jnp.array([0]), jnp.zeros(0, jnp.int32)),
  )
  total, many = np.sum(value[:, 0] * count[:, :1], 0), count[:, 0].sum()
  if 'latest' in state:
    total, many = total - 5 * value[0, 0], many - 5
  np.testing.assert_allclose(published(server, state)[0][0], (total + 40) / (many + 10), rtol=1e-5)


@pytest.mark.parametrize('server', WEIGHTED.values(), ids=WEIGHTED)
def test_a_weighted_mean_needs_counts(server):
  state = server.init(KEY, groups_of(1), (), ())
  with pytest.raises(
    ValueError, match=r'weighted=True needs a count in every message; send class_message\(value, valid'
  ):
    received(server, state, (uploads_of(np.ones((1, 2, 2))),))


def test_the_ledger_counts_the_counts_of_a_message():
  message = servers.class_message(jnp.ones((4, 3)), jnp.array([True, False, True, True]), jnp.arange(4))
  assert {kind: int(numbers) for kind, (numbers, _) in ledger.count(message).items()} == {'knowledge': 9, 'labels': 6}


def wide_groups(*nets):
  """(groups, variables, data) of one client per network."""
  images = pool(2)
  made = [preprocessed(net) for net in nets]
  groups = tuple(types.Group(f'g{g}', net, np.array([g])) for g, net in enumerate(made))
  shapes = tuple(jax.eval_shape(lambda net=net: net.init(KEY, images.example[:1], False)) for net in made)
  return groups, shapes, tuple(types.Data(images, None, None) for _ in made)


SEVEN, NINE = (models.MLP((5, width), classes=2) for width in (7, 9))
BY_FEATURES = {
  'running mean': (servers.class_means, lambda state: state['sum']),
  'latest uploads': (partial(servers.latest_class_knowledge, aggregate.mean), lambda state: state['latest'][0]),
  'buffer': (partial(servers.buffered_class_means, 3), lambda state: state['value'][:, 0]),
}


@pytest.mark.parametrize(('make', 'vectors'), BY_FEATURES.values(), ids=BY_FEATURES)
def test_the_width_follows_from_the_models(make, vectors):
  width = lambda *args, **how: vectors(make(**how).init(KEY, *args)).shape[-1]
  assert width(*wide_groups(SEVEN, SEVEN), of='features') == 7
  assert width(*wide_groups(SEVEN, NINE)) == 2  # logits
  assert width(*wide_groups(SEVEN, NINE), of='features', width=5) == 5
  with pytest.raises(ValueError, match=r"of='features' but the groups' features differ in width \(g0: 7, g1: 9\)"):
    width(*wide_groups(SEVEN, NINE), of='features')
  with pytest.raises(ValueError, match="of='feature' is unknown; choose one of logits, features"):
    width(*wide_groups(SEVEN, SEVEN), of='feature')


def test_features_that_are_no_vectors_are_refused():
  with pytest.raises(ValueError, match=r'the features of GKTClient have shape \(2, 2, 2\), not \[width\]'):
    servers.class_means(of='features').init(KEY, *wide_groups(models.GKTClient(channels=2, classes=2)))


def test_a_stateful_rule_takes_one_step_per_class_and_round():
  """An exponential moving average of what the plain mean of the latest uploads would be."""

  def update(rows, weight, last):
    new = last / 2 + aggregate.mean(rows, weight) / 2
    return new, new

  server = servers.latest_class_knowledge(aggregate.Rule(lambda like: like, update))
  plain = servers.latest_class_knowledge(aggregate.mean)
  states, expected = [s.init(KEY, groups_of(2), (), ()) for s in (server, plain)], np.zeros((2, 2))
  rng = np.random.default_rng(3)
  for t in range(4):
    valid = [[True, t > 1]]  # class 1 comes later: its memory has not moved before
    upload = (uploads_of(rng.normal(size=(1, 2, 2)), valid),)
    states = [
      received(s, state, upload, (jnp.array([t % 2]),), t) for s, state in zip((server, plain), states, strict=True)
    ]
    (value, known), (means, _) = (published(s, state) for s, state in zip((server, plain), states, strict=True))
    expected = np.where(known[:, None], expected / 2 + means / 2, expected)
    np.testing.assert_allclose(value[known], expected[known], rtol=1e-5)
    np.testing.assert_array_equal(published(server, states[0])[0], value)  # sending twice changes nothing
