"""FedMD: the consensus and its rows, the digest, and a slow twin in NumPy."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given

from fedkd import aggregate, inference, local, losses, methods, models, plan
from fedkd.servers import stratified
from fedkd.types import Data
from helpers import CLASSES, assert_close, assert_same_bits, cases, problem, row, softmax
from twins import PARTS, Party, examples_of, numbers_of

LINEAR = models.MLP((), classes=CLASSES)
SUBSET = 8
WIDTH = 60  # of the labels of the property tests: one shape, one compilation


# The rows of a round.

choose = jax.jit(stratified, static_argnums=3)


@given(
  st.integers(0, 2**31 - 1),
  st.lists(st.integers(0, 4), min_size=20, max_size=WIDTH),
  st.sampled_from([1, 7, 10, 20]),
)
def test_rows_are_distinct_below_size_and_in_proportion(seed, labels, many):
  labels = np.array(labels)
  padded = np.pad(labels, (0, WIDTH - len(labels)), constant_values=3)
  chosen = np.asarray(choose(jax.random.key(seed), jnp.array(padded), jnp.int32(len(labels)), many))
  assert chosen.shape == (many,)
  assert len(set(chosen.tolist())) == many
  assert ((chosen >= 0) & (chosen < len(labels))).all()
  share = np.bincount(labels, minlength=5) * many / len(labels)
  assert np.abs(np.bincount(labels[chosen], minlength=5) - share).max() < 1 + 1e-6


def test_rare_labels_do_not_crowd_out_a_common_one():
  labels = jnp.array([0] * 91 + [*range(1, 10)])
  for seed in range(200):
    counts = np.bincount(labels[choose(jax.random.key(seed), labels, jnp.int32(100), 10)], minlength=10)
    assert counts[0] in (9, 10)


def test_a_label_that_is_owed_half_a_row_gets_one_as_often_as_none():
  labels = jnp.array([0] * 5 + [1] * 5)
  keys = jax.random.split(jax.random.key(0), 400)
  rows = jax.jit(jax.vmap(lambda key: stratified(key, labels, jnp.int32(10), 1)))(keys)
  assert abs(np.mean(np.asarray(rows) < 5) - 0.5) < 0.1  # four standard deviations


def test_cifar_10_gives_500_of_each():
  labels = jnp.array(np.random.default_rng(0).permutation(np.arange(50_000) % 10))
  chosen = choose(jax.random.key(0), labels, jnp.int32(50_000), 5000)
  assert len(set(chosen.tolist())) == 5000
  np.testing.assert_array_equal(np.bincount(labels[chosen]), 500)


def test_rows_are_uniform_in_random_order_and_all_of_them_if_wanted():
  labels = jnp.array([0, 0, 0, 0, 1, 1])
  chosen = np.stack([choose(jax.random.key(seed), labels, jnp.int32(6), 3) for seed in range(400)])
  for column in chosen.T:
    np.testing.assert_allclose(np.bincount(column, minlength=6), 400 / 6, atol=4.5 * np.sqrt(400 / 6))
  every = np.asarray(choose(jax.random.key(0), labels, jnp.int32(6), 6))
  np.testing.assert_array_equal(np.sort(every), np.arange(6))


# The digest.


def fedmd(tx=None, **how):
  how = {'subset': SUBSET, 'digest_batch': SUBSET, 'epochs': 1, 'batch': 16, **how}
  return methods.fedmd(tx or optax.sgd(0.1), **how)


def made_with(method, sizes=(2, 1), rounds=4, **how):
  return problem(method, [LINEAR] * len(sizes), sizes, plan.synchronous()(sizes, rounds), **how)


@pytest.mark.parametrize('loss', ['kl', *(pytest.param(name, marks=pytest.mark.slow) for name in ('mse', 'mae'))])
def test_identical_parties_are_a_fixed_point(loss, monkeypatch):
  """Without revisits: the consensus is everyone's own logits, and digesting it changes nothing."""
  fit = local.fit
  size = lambda rows, size, *_: size if isinstance(rows, tuple) else 0  # a revisit has rows alone
  digest = lambda examples: (examples[0], size(*examples))
  monkeypatch.setattr(local, 'fit', lambda *args: fit(*args[:4], digest(args[4]), *args[5:]))
  made = made_with(fedmd(digest_loss=loss), [2])
  state, report = made.run()
  one = row(made.state.client[0], 0).learner
  logits = inference.infer(
    made.groups[0].model, local.variables(one), made.data[0].pool.example, state.server.consensus_rows
  )
  np.testing.assert_allclose(state.server.consensus, logits, rtol=1e-4, atol=1e-4)
  assert np.abs(report.info[0]['distill_loss'][1:]).max() < 1e-5  # nothing is digested in the first round
  if loss != 'mae':  # whose gradient jumps where rounding decides the sign
    assert_close(state.client[0].learner.params, made.state.client[0].learner.params, atol=1e-4)


@pytest.mark.slow
def test_one_party_hears_its_own_logits_and_the_gradient_is_zero():
  made = made_with(fedmd(subset=0), [1], rounds=1)  # which ends before a revisit
  state, _ = made.run()
  learner = row(state.client[0], 0).learner
  consensus, index = state.server.consensus, state.server.consensus_rows
  model, image = made.groups[0].model, made.data[0].pool.example
  logits = inference.infer(model, local.variables(learner), image, index)
  np.testing.assert_allclose(consensus, logits, rtol=1e-5, atol=1e-5)
  digest = lambda params: jnp.mean(
    jax.vmap(losses.mae)(model.apply({'params': params}, image[index], False)[0], logits)
  )
  for leaf in jax.tree.leaves(jax.grad(digest)(learner.params)):
    np.testing.assert_array_equal(leaf, 0)


# A slow twin.


RATE, MOMENTUM, TEMPERATURE = 0.05, 0.9, 2.0
DIGESTS = {
  'mae': lambda z, target: (np.abs(z - target).mean(), np.sign(z - target) / CLASSES),
  'mse': lambda z, target: (((z - target) ** 2).mean(), 2 * (z - target) / CLASSES),
  'kl': lambda z, target: (
    TEMPERATURE**2
    * (softmax(target / TEMPERATURE) * np.log(softmax(target / TEMPERATURE) / softmax(z / TEMPERATURE))).sum(-1).mean(),
    TEMPERATURE * (softmax(z / TEMPERATURE) - softmax(target / TEMPERATURE)),
  ),
}


class Student(Party):
  """With two momenta: one for digesting, one for revisiting; batches of 16 hold every row as often."""

  def __init__(self, x, y, learner):
    super().__init__(x, learner)
    self.y, self.momenta = y, {'digest': 0.0, 'revisit': 0.0}

  def step(self, which, rows, slope):
    self.momenta[which] = MOMENTUM * self.momenta[which] + self.x[rows].T @ slope / len(rows)
    self.w = self.w - RATE * self.momenta[which]

  def digest(self, rows, target, loss):
    value, slope = DIGESTS[loss](self.logits(rows), target)
    self.step('digest', rows, slope)
    return value

  def revisit(self, rows):
    p, true = softmax(self.logits(rows)), self.y[rows]
    self.step('revisit', rows, p - true)
    return -np.log(p[true > 0]).mean()


def apart(made):
  """The problem with parties that do not begin alike."""

  def shift(learner, g):
    noise = lambda a: jax.random.normal(jax.random.key(a.size + g), a.shape) / 4
    return learner._replace(params=jax.tree.map(lambda a: a + noise(a), learner.params))

  client = tuple(c._replace(learner=shift(c.learner, g)) for g, c in enumerate(made.state.client))
  return made._replace(state=made.state._replace(client=client))


LOSSES = [('mae', ()), ('mse', (1.0, 0.5, 0.5)), ('kl', (0.0, 3.0, 1.0))]


@pytest.mark.parametrize(('loss', 'weights'), cases(LOSSES, fast=LOSSES[:1]))
def test_three_rounds_are_those_of_the_twin(loss, weights):
  tx = optax.sgd(RATE, momentum=MOMENTUM)
  made = made_with(
    fedmd(tx, digest_loss=loss, temperature=TEMPERATURE, weights=weights, epochs=2), parts=PARTS, padding=2
  )
  made = apart(made)
  x, y = examples_of(made)
  parties = [Student(x, y, row(made.state.client[g].learner, r)) for g, r in ((0, 0), (0, 1), (1, 0))]
  trust = np.array(weights or (1, 1, 1)) / np.sum(weights or (1, 1, 1))
  public = np.asarray(made.data[0].public.index)

  state, last, consensus = made.state, None, None
  for t in range(4):  # the first only reports
    index = np.asarray(state.server.next_rows)
    assert len(set(index)) == SUBSET
    assert np.isin(index, public).all()
    assert last is None or (index != last).any()
    state, report = made.run(1, state, t, length=1)
    info = {name: np.concatenate([np.asarray(i[name])[0] for i in report.info]) for name in report.info[0]}
    if t:
      digested = [party.digest(last, consensus, loss) for party in parties]
      revisited = [np.mean([party.revisit(rows) for _ in range(2)]) for party, rows in zip(parties, PARTS, strict=True)]
      np.testing.assert_allclose(info['distill_loss'], digested, rtol=1e-4)
      np.testing.assert_allclose(info['loss'], revisited, rtol=1e-4)
    np.testing.assert_array_equal(info['examples'], (SUBSET + 2 * 16) * (t > 0))
    last, consensus = index, np.einsum('k,knc->nc', trust, [party.logits(index) for party in parties])
    np.testing.assert_array_equal(state.server.consensus_rows, last)
    np.testing.assert_allclose(state.server.consensus, consensus, rtol=1e-4, atol=1e-4)
  learners = [row(state.client[g].learner, r) for g, r in ((0, 0), (0, 1), (1, 0))]
  for learner, party in zip(learners, parties, strict=True):
    np.testing.assert_allclose(numbers_of(learner.params), party.w, rtol=1e-4, atol=1e-5)


def test_the_revisit_continues_with_the_optimizer_of_the_phase_before_and_the_digest_does_not():
  tx = optax.adam(1e-2)
  client, key = fedmd(tx).client, jax.random.key(0)
  params = {'w': jnp.ones(3)}
  used = tx.update({'w': jnp.arange(3.0)}, tx.init(params), params)[1]
  state = client.init(key, None, None, {'params': params, 'batch_stats': {}, 'opt': used})
  assert_same_bits(state.learner.opt, used)
  assert_same_bits(state.digest_opt, tx.init(params))
  fresh = client.init(key, None, None, {'params': params, 'batch_stats': {}})
  assert_same_bits((fresh.learner.opt, fresh.digest_opt), (tx.init(params), tx.init(params)))


# Who speaks, and what it costs.


def numbers(counts):
  """{kind: numbers [rounds, slots]} of the first group."""
  return {kind: np.asarray(n) for kind, (n, _) in counts[0].items()}


def test_the_ledger_counts_logits_and_rows_of_those_who_missed_them():
  participants = np.array([[0, 1], [0, 1], [-1, 1], [-1, 1], [0, 1], [0, -1]], np.int32)
  _, report = problem(fedmd(), [LINEAR], [2], plan.Plan((participants,))).run()
  here = participants >= 0
  assert set(numbers(report.up)) == {'knowledge'}
  np.testing.assert_array_equal(numbers(report.up)['knowledge'], here * SUBSET * CLASSES)
  on, missed = np.arange(6) > 0, np.array([0, 0, 0, 0, 1, 0])  # client 0 was not there in round 3
  down = numbers(report.down)
  np.testing.assert_array_equal(down['knowledge'], here * on[:, None] * SUBSET * CLASSES)
  np.testing.assert_array_equal(down['indices'], here * SUBSET * (1 + missed[:, None]))


def test_absent_parties_and_silent_rounds_do_not_count():
  participants = np.array([[0, 1], [-1, 1], [-1, -1], [0, -1]], np.int32)
  made = problem(fedmd(epochs=None, steps=1, weights=(0.0, 1.0)), [LINEAR], [2], plan.Plan((participants,)))
  logits = lambda state, client: inference.infer(
    made.groups[0].model,
    local.variables(row(state.client[0], client).learner),
    made.data[0].pool.example,
    state.server.consensus_rows,
  )
  first, _ = made.run(2, length=4)
  np.testing.assert_allclose(first.server.consensus, logits(first, 1), rtol=1e-4, atol=1e-4)
  second, _ = made.run(1, first, 2, length=4)
  assert_same_bits(second.server, first.server)
  # Who has no weight speaks alone: there is nothing to agree on, and the consensus stays.
  third, _ = made.run(1, second, 3, length=4)
  assert_same_bits(third.server, second.server)


def test_a_rule_reduces_the_logits_of_the_clients_with_weight():
  made = made_with(fedmd(rule=aggregate.median, weights=(1.0, 2.0, 1.0, 0.0)), [4], rounds=1)
  logits = np.random.default_rng(0).normal(size=(4, SUBSET, CLASSES)).astype(np.float32)
  logits[3] = np.nan  # has no weight
  receive = jax.jit(made.server.receive)
  state, _ = receive(made.key, 0, made.state.server, ({'knowledge': jnp.asarray(logits)},), (jnp.arange(4),))
  np.testing.assert_allclose(state.consensus, np.median(logits[:3], 0), rtol=1e-6)


# Refusals.


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'digest_loss': 'huber'}, r"digest_loss='huber' is unknown; choose one of mae, mse, kl"),
    ({'digest_batch': 0}, r'digest_batch=0 must be a whole number of at least 1'),
    ({'digest_epochs': 0}, r'digest_epochs=0 must be a whole number of at least 1'),
    ({'batch': 0}, r'batch=0 must be a whole number of at least 1'),
    ({'subset': -1}, r'subset=-1 must be a whole number of at least 0'),
    ({'weights': (1.0, 2.0)}, r'weights has 2 entries for 3 clients; give one each, or \(\)'),
  ],
)
def test_refusals(wrong, message):
  with pytest.raises(ValueError, match=message):
    made_with(fedmd(**wrong))


def test_a_subset_of_more_than_all_public_rows_is_all_of_them():
  with pytest.warns(UserWarning, match=r'subset=13 of 12 public rows: every round uses all of them; set subset=0'):
    more = made_with(fedmd(subset=13))
  assert_same_bits(more.state, made_with(fedmd(subset=0)).state)


def test_no_public_rows_are_refused():
  made = made_with(fedmd(), rounds=1)
  bare = tuple(Data(d.pool, d.private, d.everyone) for d in made.data)
  with pytest.raises(ValueError, match='no public rows'):
    made.method.server.init(jax.random.key(0), made.groups, (), bare)


def test_subset_0_is_all_rows():
  made = made_with(fedmd(subset=0), rounds=1)
  np.testing.assert_array_equal(np.sort(made.state.server.next_rows), np.sort(made.data[0].public.index))
