"""The promises of a round: what must not change a bit, and what may change by rounding."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import local, methods, models, plan
from fedkd import round as rounds
from fedkd.types import Client, Download, Method, Server, State
from helpers import assert_close, assert_same_bits, cases, first_variables, pool, problem, row, split

SGD = optax.sgd(0.1)
NET = models.MLP((8,), classes=3)
METHODS = {
  'fedhe': methods.fedhe(SGD, steps=2, batch=6),
  'fedavg': methods.fedavg(SGD, steps=2, batch=6),
}
# A round names no method; every method's idle clients and slots are looked at in `tests/test_methods.py`.
every_method = pytest.mark.parametrize('name', ['fedhe', pytest.param('fedavg', marks=pytest.mark.slow)])


def some(sizes, count=5):
  """A plan with two of four clients a round."""
  return plan.sampled(seed=1, ratio=0.5)(sizes, count)


@cache
def base(name):
  """(problem, (State, Report)): one group of four, five rounds of two."""
  made = problem(METHODS[name], [NET], [4], some([4]))
  return made, made.run()


def together(state):
  """A state with the clients of all groups in one stack."""
  return State(jax.tree.map(lambda *a: np.concatenate(a), *state.client), state.server)


# Bit for bit.


@every_method
def test_idle_clients_do_not_change(name):
  made, _ = base(name)
  for t in range(3):
    state, _ = made.run(1, start=t, length=5)  # one program: the start is traced
    idle = np.setdiff1d(np.arange(4), made.plan.participants[0][t])
    assert len(idle) == 2
    assert_same_bits(row(state.client[0], idle), row(made.state.client[0], idle))
  if name == 'fedhe':
    assert not np.array_equal(
      state.client[0].params['net']['output']['bias'], made.state.client[0].params['net']['output']['bias']
    )


@every_method
@pytest.mark.parametrize('sizes', [pytest.param((2, 2), marks=pytest.mark.slow), (1, 3)])
def test_regrouping(name, sizes):
  _, (expected, _) = base(name)
  state, _ = problem(METHODS[name], [NET] * len(sizes), sizes, some(sizes)).run()
  assert_same_bits(together(state), together(expected))


@every_method
@pytest.mark.parametrize('clients_per_vmap', cases([1, 2], fast=[1]))
def test_empty_slots(name, clients_per_vmap):
  made, _ = base(name)
  expected, report = made.run(clients_per_vmap=clients_per_vmap)
  wide = [np.insert(made.plan.participants[0], [0, 1, 1, 2], -1, axis=1)]
  state, wide_report = made._replace(plan=plan.Plan(tuple(wide))).run(clients_per_vmap=clients_per_vmap)
  assert_same_bits(state, expected)
  taken = lambda tree: jax.tree.map(lambda a: np.asarray(a)[:, [1, 4]], tree)
  for now, then in zip(wide_report[:4], report[:4], strict=True):
    assert_same_bits(taken(now), jax.tree.map(np.asarray, then))
  for leaf in jax.tree.leaves((wide_report.info, wide_report.up, wide_report.down)):
    np.testing.assert_array_equal(np.asarray(leaf)[:, [0, 2, 3, 5]], 0)
  np.testing.assert_array_equal(wide_report.ids[0][:, [0, 2, 3, 5]], -1)


@every_method
def test_a_round_in_which_nobody_speaks(name):
  made, _ = base(name)
  silent = made._replace(plan=plan.Plan((np.full((5, 2), -1, np.int32),)))
  state, _ = silent.run()
  assert_same_bits(state, made.state)


@every_method
def test_padded_rows(name):
  _, (expected, _) = base(name)
  state, _ = problem(METHODS[name], [NET], [4], some([4]), padding=13).run()
  assert_same_bits(state, expected)


@every_method
def test_chunk_of_rounds(name):
  made, (expected, report) = base(name)
  program = made.program(5)
  state, first = program(made.state, 0, 2)
  state, second = program(state, 2, 3)
  assert_same_bits(state, expected)
  assert_same_bits(jax.tree.map(lambda a, b: np.concatenate([a[:2], b[:3]]), first, second), report)
  for leaf in jax.tree.leaves(first._replace(ids=())):
    np.testing.assert_array_equal(leaf[2:], 0)


@every_method
def test_a_longer_plan(name):
  made, (expected, _) = base(name)
  state, _ = made._replace(plan=some([4], 9)).run(5)
  assert_same_bits(state, expected)


@every_method
def test_two_runs(name):
  made, (expected, report) = base(name)
  assert_same_bits(problem(METHODS[name], [NET], [4], some([4])).run(), (expected, report))
  other, _ = made._replace(key=jax.random.key(1)).run()
  with pytest.raises(AssertionError):
    assert_same_bits(other, expected)


@pytest.mark.slow
def test_fedhe_without_its_knowledge_loss_is_private():
  fedhe = methods.fedhe(SGD, steps=2, batch=6, alpha=0.0, cold_start=0.0)
  alone = methods.private(SGD, steps=2, batch=6)
  made, other = (problem(method, [NET], [4], some([4])) for method in (fedhe, alone))
  (state, report), (expected, expected_report) = made.run(), other.run()
  assert np.max(report.info[0]['distill_loss']) > 0
  assert_same_bits(state.client, expected.client)
  for mine, theirs in zip(report.info, expected_report.info, strict=True):
    np.testing.assert_allclose(mine['loss'], theirs['loss'], rtol=1e-6)


# To rounding.


@every_method
@pytest.mark.parametrize('clients_per_vmap', cases([2, 3, 4], fast=[3]))
def test_width_of_the_map(name, clients_per_vmap):
  everyone = plan.synchronous()([4], 3)
  made = problem(METHODS[name], [NET], [4], everyone)
  assert_close(made.run(clients_per_vmap=clients_per_vmap), made.run(clients_per_vmap=1))


def test_compiled_is_the_python_loop():
  made, (_, report) = base('fedhe')
  state = made.state
  for t in range(3):
    participants = tuple(jnp.asarray(w[t]) for w in made.plan.participants)
    state, said = rounds.round(made.key, jnp.int32(t), made.method, made.groups, state, made.data, participants)
    assert_close(said, row(report, t))
  assert_close(state, made.run(3, length=5)[0])


def test_one_client_alone_is_local_training():
  made = problem(methods.private(SGD, steps=2, batch=6), [NET], [1], plan.synchronous()([1], 3))
  state, _ = made.run()
  data, model = made.data[0], made.groups[0].model
  learner = row(made.state.client[0], 0)
  loss_fn = local.supervised(model, data.pool)
  mine = row(data.private, 0)
  train = jax.jit(lambda key, learner: local.fit(key, learner, SGD, loss_fn, mine, local.Work(6, 2))[0])
  for t in range(3):
    key_client = jax.random.split(jax.random.fold_in(made.key, t), 3)[1]
    learner = train(jax.random.fold_in(key_client, 0), learner)
  assert_close(row(state.client[0], 0), learner)


# Programs.


def test_one_trace_serves_every_start_and_count():
  traces = []
  base_method = methods.private(SGD, steps=1, batch=4)

  def step(*args):
    traces.append(1)
    return base_method.client.step(*args)

  method = base_method._replace(client=base_method.client._replace(step=step))
  made = problem(method, [NET], [3], plan.sampled(ratio=0.7)([3], 9))
  program = made.program(4)
  state, _ = program(made.state, 0, 4)
  once = len(traces)
  for start, count in [(4, 2), (6, 3), (0, 0)]:
    state, _ = program(state, start, count)
  assert len(traces) == once <= 2


# A toy that counts: the server publishes how many uploads it has received, a client keeps what it was told.


def counter() -> Method:
  def step(key, t, model, state, down, data):
    told = jnp.stack([down.shared['count'], down.own['count'][0]])
    return {'told': told, 'turns': state['turns'] + 1}, {'id': data.private.id}, {'shared': told[0], 'own': told[1]}

  def receive(key, t, groups, state, uploads, ids, data):
    spoke = sum(jnp.sum(i >= 0, dtype=jnp.int32) for i in ids)
    for up, i in zip(uploads, ids, strict=True):
      state = {**state, 'honest': state['honest'] & jnp.all(up['id'] == jnp.where(i >= 0, i, 0))}
    return {**state, 'heard': state['heard'] + spoke}, {'heard': state['heard'] + spoke}

  def send(key, t, groups, state, ids, data):
    own = lambda i: {'count': jnp.where(i >= 0, 100 * i, -7)[:, None] + state['heard']}
    return tuple(Download({'count': state['heard']}, own(i)) for i in ids)

  client = Client(lambda *args: {'told': jnp.zeros(2, jnp.int32), 'turns': jnp.int32(0)}, step)
  server = Server(lambda *args: {'heard': jnp.int32(0), 'honest': jnp.bool_(True)}, receive, send)
  return Method(client, server, lambda state, g: {})


SEATS = [(0, 0), (1, 1), (0, 0), (0, 0), (1, 0), (0, 1), (1, 1)]  # (group, row), two groups of two


def one_at_a_time(stale):
  participants = np.full((2, len(SEATS), 1), -1, np.int32)
  for t, (g, r) in enumerate(SEATS):
    participants[g, t] = r
  return plan.Plan(tuple(participants), stale)


@pytest.mark.parametrize('clients_per_vmap', [1, 2])
@pytest.mark.parametrize('stale', [False, True])
def test_stale_clients_know_what_was_published_after_their_previous_update(stale, clients_per_vmap):
  made = problem(counter(), [NET, NET], [2, 2], one_at_a_time(stale))
  state, report = made.run(clients_per_vmap=clients_per_vmap)
  previous = {}
  for t, slot in enumerate(SEATS):
    known = previous.get(slot, 0) if stale else t
    g, r = slot
    info = report.info[g]
    assert (info['shared'][t, 0], info['own'][t, 0]) == (known, known + 100 * (2 * g + r))
    assert report.ids[g][t, 0] == 2 * g + r
    previous[slot] = t + 1
  assert bool(state.server['honest'])
  assert int(state.server['heard']) == len(SEATS)
  np.testing.assert_array_equal(np.concatenate([c['turns'] for c in state.client]), [3, 1, 1, 2])
  np.testing.assert_array_equal(report.server['heard'], np.arange(1, len(SEATS) + 1))


@pytest.mark.parametrize(
  ('stale', 'clients_per_vmap'), cases([(s, n) for s in (False, True) for n in (1, 2, 3)], fast=[(False, 3), (True, 2)])
)
def test_every_slot_has_its_own_row(stale, clients_per_vmap):
  made = problem(counter(), [NET, NET], [3, 2], plan.sampled(ratio=0.6)([3, 2], 6)._replace(stale=stale))
  state, report = made.run(clients_per_vmap=clients_per_vmap)
  turns = np.zeros(5, int)
  for ids, info in zip(report.ids, report.info, strict=True):
    for i, shared, own in zip(*map(np.ravel, (ids, info['shared'], info['own'])), strict=True):
      if i >= 0:
        assert own - shared == 100 * i
        turns[i] += 1
      else:
        assert (shared, own) == (0, 0)
  np.testing.assert_array_equal(np.concatenate([c['turns'] for c in state.client]), turns)
  assert bool(state.server['honest'])


def test_reports_carry_the_exact_ledger():
  images = pool(classes=3)
  parts = [np.flatnonzero(np.asarray(images.label) < seen)[:12] for seen in (1, 2, 3)]
  made = problem(
    methods.fedhe(SGD, steps=1, batch=12, cold_start=0.0), [NET], [3], plan.synchronous()([3], 2), parts, images
  )
  _, report = made.run()
  seen = np.array([1, 2, 3])
  for t in range(2):
    np.testing.assert_array_equal(report.up[0]['knowledge'][0][t], 3 * seen)
    np.testing.assert_array_equal(report.up[0]['labels'][1][t], 4 * seen)
  np.testing.assert_array_equal(report.down[0]['knowledge'][0], [[0] * 3, [9] * 3])
  np.testing.assert_array_equal(report.down[0]['labels'][0], [[0] * 3, [3] * 3])


def test_the_sketch_of_parts_is_disjoint():
  parts = split(4)
  assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))


def test_weights_that_a_jit_asked_for_first_serve_everybody():
  """What the helpers keep are arrays: otherwise the order of the tests decides which of them meet a tracer."""
  net = models.MLP((5,), classes=3)
  jax.jit(lambda: jax.tree.leaves(first_variables(net, (2, 2, 1), 7))[0])()
  leaves = jax.tree.leaves(first_variables(net, (2, 2, 1), 7))
  assert not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
