"""FedKT: votes of teachers, votes of students, and one upload in all."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import examples, ledger, local, methods, plan
from fedkd.types import Masked
from helpers import assert_same_bits, cases, problem, row, softmax
from small_nets import NARROW, NET, PARTS, made_with

fedkt = importlib.import_module('fedkd.methods.fedkt')  # the module, not the factory
SGD = optax.sgd(0.1)
SHORT = {'teachers': 2, 'epochs': 1, 'student_epochs': 1, 'final_epochs': 1, 'batch': 4}
one_hot = lambda *choices: np.eye(4, dtype=np.float32)[np.array(choices)]


def test_consistent_votes_are_counted_by_hand():
  """Parties with two students each, one public row: (1, 1), (2, 3), (3, 3)."""
  choices = jnp.asarray(one_hot([1, 1], [2, 3], [3, 3])[:, :, None])
  present = jnp.array([True, True, True])
  win = lambda consistent, here: int(fedkt.winners(None, fedkt.votes_of(choices, here, consistent), None)[0])
  np.testing.assert_array_equal(fedkt.votes_of(choices, present, True), [[0, 2, 0, 2]])
  np.testing.assert_array_equal(fedkt.votes_of(choices, present, False), [[0, 2, 1, 3]])
  assert (win(True, present), win(False, present)) == (1, 3)  # a tie goes to the lowest class
  assert win(True, jnp.array([False, True, True])) == 3
  turned = fedkt.votes_of(choices[::-1, ::-1], present, True)
  np.testing.assert_array_equal(turned, fedkt.votes_of(choices, present, True))


def test_noise_hides_a_vote_only_where_it_is_large():
  counts = jnp.array([[0.0, 6.0, 0.0, 0.0]] * 4000)
  key = jax.random.key(0)
  assert (fedkt.winners(key, counts, 20.0) == 1).all()
  drawn = np.bincount(np.asarray(fedkt.winners(key, counts, 1e-6)), minlength=4)
  assert ((drawn - 1000) ** 2 / 1000).sum() < 11.34  # chi-squared, 3 degrees of freedom, 1 %


@pytest.mark.parametrize(('size', 'parts'), [(11, 3), (12, 4), (2, 5)])
def test_teachers_share_the_rows_of_a_party(size, parts):
  rows = jnp.arange(100, 113)
  found = [fedkt.part_of(rows, jnp.int32(size), jnp.int32(j), parts) for j in range(parts)]
  of_each = [np.asarray(some[: int(count)]) for some, count in found]
  np.testing.assert_array_equal(np.sort(np.concatenate(of_each)), np.arange(100, 100 + size))
  assert max(map(len, of_each)) - min(map(len, of_each)) <= 1


def test_one_upload_in_all_and_absent_clients_never_vote():
  made = made_with(methods.fedkt(SGD, partitions=2, **SHORT), rounds=3)
  _, report = made.run()
  every = 36 * 5 + 5 + 5 * 3 + 3
  assert ledger.total(report.up) == {'weights': (3 * 2 * every, 4 * 3 * 2 * every)}
  assert ledger.total(report.down) == {}
  trained = np.asarray(report.info[0]['examples'])
  assert (trained[0] > 0).all()
  assert not trained[1:].any()
  late = made_with(methods.fedkt(SGD, partitions=1, **SHORT), participants=[[-1, -1, -1], [0, 1, 2]])
  nobody, _ = late.run()
  assert not bool(nobody.server.voted)
  assert_same_bits(nobody.server.learners, late.state.server.learners)


@pytest.mark.parametrize('level', cases(['none', 'server', 'parties'], fast=['none']))
def test_a_students_labels_are_those_with_most_votes_of_its_teachers(monkeypatch, level):
  """Clients with 8, 3 and 2 rows of their own and three teachers, each of which has a vote if it has a row; whatever
  wins is what students learn, and noise is added to the votes at the parties or on the server."""
  seen, noises = [], []

  def winners(key, counts, noise):
    noises.append(noise)
    jax.debug.callback(lambda key, counts: seen.append((key.tobytes(), counts)), jax.random.key_data(key), counts)
    return jnp.full(len(counts), 2, jnp.int32)

  monkeypatch.setattr(fedkt, 'winners', winners)
  how = {**SHORT, 'teachers': 3, 'student_epochs': 30}
  made = made_with(methods.fedkt(SGD, partitions=2, level=level, noise=0.5, **how), rounds=1)
  step, (model, data) = made.method.client.step, (made.groups[0].model, made.data[0])
  own = jax.jit(lambda private, shared: data._replace(private=private, shared=shared))
  for k, voters in enumerate((3, 3, 2)):
    seen.clear()
    view = own(row(data.private, k), row(data.shared, k))
    _, up, _ = jax.jit(lambda view: step(jax.random.key(0), jnp.int32(0), model, (), None, view))(view)
    jax.effects_barrier()
    assert len(seen) == 2
    assert seen[0][0] != seen[1][0]  # each student has noise of its own
    for _, counts in seen:
      np.testing.assert_array_equal(counts, np.round(counts))
      np.testing.assert_array_equal(counts.sum(1), voters)
    public = data.pool.example[examples.public(data).index]
    for s in range(2):
      student = jax.tree.map(lambda leaf, s=s: leaf.value[s], up, is_leaf=lambda a: isinstance(a, Masked))
      assert (np.argmax(model.apply(student, public, False)[0], -1) == 2).all()
  assert set(noises) == {0.5 if level == 'parties' else None}
  noises.clear()
  up = jax.tree.map(lambda leaf: leaf[None], up)
  receive = lambda up: made.server.receive(made.key, jnp.int32(0), made.state.server, (up,), (jnp.zeros(1, int),))
  jax.eval_shape(receive, up)
  assert set(noises) == {0.5 if level == 'server' else None}


@pytest.mark.slow
def test_the_losses_that_are_reported_by_hand(monkeypatch):
  """Nets that know nothing have the loss log 3 on every row of every pass; on the server, which has nets of two
  architectures, the mean of theirs on the winners, which are passed 4 at a time."""
  made = problem(
    methods.fedkt(optax.sgd(0.0), partitions=2, **{**SHORT, 'epochs': 3, 'batch': 2}),
    [NET, NARROW],
    [1, 2],
    plan.synchronous()([1, 2], 1),
    PARTS,
  )
  nothing = lambda *given: jax.tree.map(jnp.zeros_like, fresh(*given))
  fresh = fedkt.fresh
  monkeypatch.setattr(fedkt, 'fresh', nothing)
  state, report = made.run()
  info = [{name: np.asarray(of[name])[0] for name in ('loss', 'examples')} for of in report.info]
  for of in info:
    np.testing.assert_allclose(of['loss'], np.log(3), rtol=1e-5)
  # Of 8, 3 and 2 rows two teachers have 4 and 4, 2 and 1, 1 and 1: batches of 2 in three passes, twice.
  np.testing.assert_array_equal(np.concatenate([of['examples'] for of in info]), 6 * 2 * np.array([4, 2, 2]))
  public = made.data[0].pool.example[examples.public(made.data[0]).index]
  label = np.asarray(state.server.label)
  assert not len(label) % 2
  losses = []
  for group, learner in zip(made.groups, made.state.server.learners, strict=True):
    p = softmax(np.asarray(group.model.apply(local.variables(learner), public, False)[0], float))
    losses.append(-np.log(p[np.arange(len(label)), label]).mean())
  assert abs(losses[0] - losses[1]) > 0.01
  np.testing.assert_allclose(np.ravel(report.server['server_loss']), np.mean(losses), rtol=1e-5)


def test_a_plan_without_slots_and_an_empty_slot():
  """Nobody is there, who could vote; and a place for nobody does not matter."""
  method = methods.fedkt(SGD, **SHORT)
  made = made_with(method, participants=np.zeros((1, 0), int))
  assert_same_bits(made.run()[0], made.state)
  one, other = (made_with(method, participants=[slots]).run()[0] for slots in ([0, 1, 2], [0, -1, 1, 2]))
  assert_same_bits(one, other)


def test_the_server_labels_public_rows_by_the_votes_of_those_who_are_there():
  """Three parties with two students each, of which the second is absent; recounted from their logits."""
  made = made_with(methods.fedkt(SGD, partitions=2, consistent=True, **SHORT))
  group, data = made.groups[0], made.data[0]
  public = data.pool.example[examples.public(data).index]
  drawn = [[fedkt.fresh(jax.random.key(2 * k + s), group.model, data) for s in range(2)] for k in range(3)]
  stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
  uploads = jax.tree.map(lambda leaf: Masked(leaf, jnp.bool_(True)), stack([stack(one) for one in drawn]))
  receive = jax.jit(
    lambda ids: (
      made.method.server.receive(
        jax.random.key(0), jnp.int32(0), made.groups, made.state.server, (uploads,), (ids,), made.data
      )[0].label
    )
  )
  choice = np.array([[np.argmax(group.model.apply(v, public, False)[0], -1) for v in one] for one in drawn])
  for ids in ([0, -1, 2], [0, 1, 2], [-1, 1, -1]):
    counts = np.zeros((len(public), group.model.classes))
    for k in range(3):
      for at, (first, second) in enumerate(choice[k].T):
        counts[at, first] += 2 * (ids[k] >= 0 and first == second)
    np.testing.assert_array_equal(receive(jnp.array(ids)), counts.argmax(-1))
  assert len(np.unique(choice)) > 1


def test_the_final_model_learns_the_winners_in_every_round():
  """Of one student of one teacher: its argmax; trained by `local.fit` on them, bit for bit."""
  made = made_with(methods.fedkt(SGD, partitions=1, consistent=True, **{**SHORT, 'teachers': 1}), clients=1, rounds=2)
  first, _ = made.run(1, length=2)
  again, _ = made.run(1, first, 1, length=2)
  np.testing.assert_array_equal(first.server.label, again.server.label)
  leaf = lambda state: np.asarray(jax.tree.leaves(state.server.learners)[1])
  assert (leaf(first) != leaf(again)).any()
  group, data = made.groups[0], made.data[0]
  public, label = examples.public(data), first.server.label
  pool = data.pool._replace(label=data.pool.label.at[public.index].set(label))

  def fit(loss_fn, rows):
    learner = first.server.learners[0]
    work = local.Work(4, epochs=1)
    return jax.jit(lambda: local.fit(jax.random.key(1), learner, SGD, loss_fn, (rows, public.size), work)[0])()

  taught = fit(fedkt.taught(group.model, data.pool), (public.index, label))
  assert_same_bits(taught, fit(local.supervised(group.model, pool), public.index))


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match="noise=0 is noise of infinite scale at level='server'; set it above 0"):
    methods.fedkt(SGD, level='server', noise=0)
  made = made_with(methods.fedkt(SGD, **SHORT))
  data = tuple(d._replace(public=None) for d in made.data)
  with pytest.raises(ValueError, match=r'there are no public rows; give fedkd\.federation public='):
    made.method.server.init(made.key, made.groups, (), data)
