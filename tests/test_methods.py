"""One table of promises over every method. A new method needs a row, and nothing else."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, methods, models, optimizers, plan, schedules
from fedkd.local import Learner
from helpers import CLASSES, assert_close, assert_same_bits, cases, pool, preprocessed, problem, row
from walled import walled

ROUNDS = 30  # of the learnable problem
STILL = 4  # more, at a learning rate of 0
BUSY = 3  # rounds with everyone, before the one with idle clients: some methods need uploads of others
MARGIN = 0.3  # that every method must add to chance there

LARGE, SMALL = models.MLP((8,), classes=CLASSES), models.MLP((6,), classes=CLASSES)
DEEP = models.MLP((6, 8), classes=CLASSES)  # features as wide as those of LARGE
CONV = models.TwoConv((4, 4), classes=CLASSES)  # with BatchNorm and dropout
HALF = models.MLP((4,), classes=CLASSES)
ONE, TWO, ALIKE = ((LARGE, 5),), ((LARGE, 2), (SMALL, 3)), ((LARGE, 2), (DEEP, 3))
TX = optimizers.scheduled(optax.adam(1e-2), schedules.milestones((ROUNDS,), 0.0))
LOCAL = {'tx': TX, 'steps': 2, 'batch': 8}
PEERS = {'tx': TX, 'batch': 8}
ALONE = {'tx': TX, 'epochs': 20, 'batch': 8, 'generator_steps': 10, 'latent': 8, 'width': 4, 'server_batch': 16}
ALONE |= {'server_rounds': ROUNDS + STILL, 'server_tx': TX, 'temperature': 3.0, 'flip': False}
FELO = {**LOCAL, 'epochs': None, 'initial': 2}

# name (and variant) -> arguments of the factory, (architecture, clients) per group
TABLE = {
  'private': (LOCAL, TWO),
  'agg': (LOCAL, TWO),
  'fedavg': (LOCAL, ONE),
  'fedavg per group': ({**LOCAL, 'steps': None, 'epochs': 1, 'per_group': True, 'keep_optimizer': True}, TWO),
  'fedhe': (LOCAL, TWO),
  'fedhe median': ({**LOCAL, 'rule': aggregate.median, 'count_offset': 0.0}, TWO),
  'fd': (LOCAL, TWO),
  'fd plus': ({**LOCAL, 'share_weights': True, 'knowledge': 'logits', 'distance': 'kl'}, ONE),
  'fedproto': ({**LOCAL, 'epochs': None}, ALIKE),
  'lg_fedavg': ({**LOCAL, 'epochs': None}, ALIKE),
  'fml': ({**LOCAL, 'epochs': None, 'common': HALF}, TWO),
  'fedapen': ({**LOCAL, 'epochs': None, 'common': HALF}, TWO),
  'fedmrl': ({**LOCAL, 'epochs': None, 'common': HALF}, TWO),
  'fedkd': ({**LOCAL, 'epochs': None, 'common': HALF, 'rounds': ROUNDS}, TWO),
  'fedtgp': ({**LOCAL, 'epochs': None, 'weight': 1.0, 'server_epochs': 5}, ALIKE),
  'fedgh': ({**LOCAL, 'epochs': None}, ALIKE),
  'fedgen': ({**LOCAL, 'alpha': 1.0, 'beta': 1.0, 'server_steps': 5, 'server_batch': 8, 'hidden': 8}, ONE),
  'public': (LOCAL, ONE),
  'fedprox': ({**LOCAL, 'mu': 0.1}, ONE),
  'scaffold': (LOCAL, ONE),
  'fedper': ({**LOCAL, 'epochs': None}, ONE),
  'fedrep': ({**LOCAL, 'epochs': None, 'head_steps': 2}, ONE),
  'fedbabu': ({**LOCAL, 'epochs': None}, ONE),
  'moon': (LOCAL, ONE),
  'ditto': (LOCAL, ONE),
  'fedmd': ({**LOCAL, 'epochs': None, 'subset': 8, 'digest_batch': 4}, TWO),
  'dsfl': ({**LOCAL, 'epochs': None, 'subset': 8, 'digest_epochs': 1, 'digest_batch': 4}, TWO),
  'scarlet': ({**LOCAL, 'epochs': None, 'subset': 8, 'digest_epochs': 1, 'digest_batch': 4, 'duration': 2}, TWO),
  'feddf': ({**LOCAL, 'epochs': None, 'server_steps': 3, 'server_batch': 4, 'server_tx': TX}, TWO),
  'ktpfl': ({'tx': TX, 'epochs': 2, 'batch': 8, 'subset': 8, 'digest_batch': 4, 'temperature': 2.0}, TWO),
  'rhfl': ({**LOCAL, 'epochs': None, 'subset': 8, 'digest_batch': 4, 'ce': 1.0, 'rce': 0.1}, TWO),
  'fccl': ({**LOCAL, 'epochs': None, 'subset': 8, 'digest_batch': 4, 'inter': 0.1, 'intra': 0.0}, TWO),
  'selective_fd': ({**LOCAL, 'subset': 8, 'digest_steps': 1, 'digest_batch': 4, 'auxiliary': 20}, TWO),
  'fedh2l': (PEERS, TWO),
  'fedh2l pairs': ({**PEERS, 'pairs': True, 'project': 'pcgrad', 'separate_optimizers': True}, TWO),
  'felo': (FELO, ONE),
  'felo group': ({**FELO, 'feature_align': 'group', 'store': 'latest_per_client'}, TWO),
  'velo pool': ({**FELO, 'feature_align': 'pool', 'limits': (20, 20), 'cvae_epochs': 1}, ((LARGE, 2), (HALF, 3))),
  'heterofl': ({**LOCAL, 'epochs': None}, ((LARGE, 2), (HALF, 3))),
  'fedrolex': ({**LOCAL, 'epochs': None}, ((LARGE, 2), (HALF, 3))),
  'federated_dropout': ({**LOCAL, 'epochs': None}, ((LARGE, 2), (HALF, 3))),
  'fiarse': ({**LOCAL, 'capacities': (1.0, 0.5)}, ONE),
  'fedre': (LOCAL, ALIKE),
  'fedkt': ({'tx': TX, 'teachers': 2, 'epochs': 20, 'student_epochs': 20, 'final_epochs': 2, 'batch': 8}, TWO),
  'dense': ({**ALONE, 'bn': 0, 'generator_crop': 0}, TWO),
  'coboosting': (ALONE, TWO),
  'fedgkt': (
    {
      **LOCAL,
      'steps': 6,
      'epochs': None,
      'alpha': 0.1,
      'temperature': 1.0,
      'server_blocks': (1,),
      'server_width': 0.125,
      'server_epochs': 1,
    },
    ((models.GKTClient(channels=4, classes=CLASSES), 5),),
  ),
}
VARIANTS = [name for name in TABLE if name.split()[0] in TABLE and ' ' in name]  # of a method that has a row
# One of each family: weights, class knowledge, logits of public rows, peers, weights and features.
FAMILIES = ('fedavg', 'fedhe', 'fedmd', 'fedh2l', 'felo')
every_method = pytest.mark.parametrize('name', cases(TABLE, fast=FAMILIES))
# Another, long compilation of every method: by default of those that treat statistics in ways of their own.
every_paper = pytest.mark.parametrize('name', cases([name for name in TABLE if name not in VARIANTS], fast=('fedh2l',)))


def test_the_table_is_complete():
  assert set(methods.__all__) == {name.split()[0] for name in TABLE}


# They learn from their clients in round 0 alone, and later rounds are the server's.
ONCE = ('fedkt', 'dense', 'coboosting')


def method_of(name):
  """The method of a row, its server noting whether all that it receives and sends is finite."""
  method = getattr(methods, name.split()[0])(**TABLE[name][0])

  def receive(key, t, groups, state, uploads, ids, data):
    new, info = method.server.receive(key, t, groups, state, uploads, ids, data)
    sent = method.server.send(key, t, groups, new, ids, data)
    messages = [a for a in jax.tree.leaves((uploads, sent)) if a.dtype.kind == 'f']
    return new, {**info, 'finite': jnp.array([jnp.isfinite(a).all() for a in messages]).all()}

  return method._replace(server=method.server._replace(receive=receive))


@cache
def fresh(name):
  """The problem of a method, with everyone in every round."""
  nets, sizes = zip(*TABLE[name][1], strict=True)
  method = method_of(name)
  return problem(method, nets, sizes, plan.synchronous()(sizes, ROUNDS + STILL))


@cache
def trained(name):
  """(State, Report) after the rounds in which the learning rate is above 0."""
  return fresh(name).run(ROUNDS)


def slotted(name, *slots):
  """The problem with the rows `slots` of each group in round `BUSY`; its arrays as wide as the busy plan's."""
  made = fresh(name)
  tables = []
  for g, rows in enumerate(slots[: len(made.groups)]):
    table = np.full(made.plan.participants[g].shape, -1, np.int32)
    table[BUSY, : len(rows)] = rows
    tables.append(table)
  return made._replace(plan=plan.Plan(tuple(tables)))


def finite(tree):
  return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))


def without_keys(tree):
  """Randomness that a state keeps is no number."""
  is_key = lambda leaf: jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)


@every_method
def test_beats_chance_by_the_margin(name):
  made = fresh(name)
  accuracy = made.accuracy(trained(name)[0])
  assert len(accuracy) == 5
  assert accuracy.min() > 1 / CLASSES + MARGIN
  assert accuracy.mean() > made.accuracy(made.state).mean() + MARGIN / 2


@every_method
def test_the_loss_falls(name):
  if name in ONCE:
    pytest.skip('its clients learn once')
  for info in trained(name)[1].info:
    loss = np.asarray(info['loss'])[np.asarray(info['examples']).any(1)]  # [rounds, m]; FedMD begins with a report
    assert loss[-5:].mean() < 0.7 * loss[:3].mean()


@every_method
def test_everything_stays_finite(name):
  state, report = trained(name)
  assert finite(without_keys(state))
  learned = np.argmax(report.server.get('cvae_trained', np.ones(1)))  # before, an autoencoder has no loss
  assert finite({k: v[learned:] if k.startswith('cvae_') else v for k, v in report.server.items()})
  for info in report.info:
    learned_from = np.asarray(info['examples']) > 0  # a mean over no examples is undefined
    assert finite((np.asarray(info['loss'])[learned_from], info['examples']))
    assert learned_from[1:].all() or name in ONCE
    for metric, values in info.items():  # NaN: undefined for this update
      assert np.isfinite(values[0 if name in ONCE else -1]).any(), metric
      assert not np.isinf(values).any(), metric
  assert report.server['finite'].all()  # uploads and downloads


@every_method
def test_the_same_seed_gives_the_same_bits_and_another_does_not(name):
  made = fresh(name)
  once, again = made.run(3, length=ROUNDS), made.run(3, length=ROUNDS)
  assert_same_bits(without_keys(once), without_keys(again))
  other, _ = made._replace(key=jax.random.key(1)).run(3, length=ROUNDS)
  with pytest.raises(AssertionError, match='differs'):
    assert_same_bits(without_keys(other), without_keys(once[0]))


def learned(made, state):
  """The parameters of all learners and of the models that would be used now."""
  is_learner = lambda node: isinstance(node, Learner)
  learners = [node.params for node in jax.tree.leaves(state, is_leaf=is_learner) if is_learner(node)]
  return learners, [made.method.variables(state, g)['params'] for g in range(len(made.groups))]


@every_method
def test_a_learning_rate_of_zero_stops_all_learning(name):
  if name in ('fedgh', 'fedre'):  # what clients begin with is learned on the server, at a rate of its own
    pytest.skip('its server has a learning rate of its own')
  made = fresh(name)
  # One round later: what somebody learned last may not have become a model yet.
  before, _ = made.run(1, trained(name)[0], ROUNDS, length=ROUNDS)
  after, _ = made.run(STILL - 1, before, ROUNDS + 1, length=ROUNDS)
  if name in ('fedrolex', 'federated_dropout'):  # what clients have of the network moves on
    assert_close(after.server['params'], before.server['params'])
  else:
    assert_close(learned(made, after), learned(made, before))


@every_method
def test_idle_clients_do_not_change(name):
  made = slotted(name, [1], [0, 2])
  before, _ = fresh(name).run(BUSY, length=ROUNDS)
  state, report = made.run(1, before, BUSY, length=ROUNDS)
  for g, idle in enumerate([[0, *range(2, len(made.groups[0].ids))], [1]][: len(made.groups)]):
    assert_same_bits(without_keys(row(state.client[g], idle)), without_keys(row(before.client[g], idle)))
    if name not in ONCE:
      learned_from = report.info[g]['examples'][0] > 0
      np.testing.assert_array_equal(learned_from, np.asarray(made.plan.participants[g][BUSY]) >= 0)


@every_method
def test_a_round_with_nobody_leaves_everything_as_it_was(name):
  if name in ONCE:
    pytest.skip('its server goes on alone')
  if name == 'velo pool':  # its server trains on what it has kept, in every so many rounds
    pytest.skip('its server trains by the number of the round')
  made = slotted(name, [], [])
  before, _ = fresh(name).run(BUSY, length=ROUNDS)
  after, _ = made.run(1, before, BUSY, length=ROUNDS)
  assert_same_bits(without_keys(after), without_keys(before))


@pytest.mark.parametrize('name', cases([name for name in TABLE if name != 'agg'], fast=('fedhe',)))
def test_nothing_but_what_is_sent_or_public_reaches_anybody(name):
  """Bit for bit; not even a zero times it. AGG is no federated method."""
  (nets, sizes), images = zip(*TABLE[name][1], strict=True), pool()
  images = images._replace(example=images.example.astype(jnp.float32))
  tables = [table.copy() for table in plan.synchronous()(sizes, 4).participants]
  for table in tables:
    table[1, 0] = table[2, -1] = -1
  method = method_of(name)
  open_, closed = (problem(m, nets, sizes, plan.Plan(tuple(tables)), images=images) for m in (method, walled(method)))
  assert_same_bits(without_keys(closed.run()[0]), without_keys(open_.run()[0]))


IN_ORDER = ('velo pool', 'fedgkt', 'fedtgp', 'fedgh', 'fedre')  # their servers train on the uploads


@pytest.mark.parametrize('name', cases([name for name in TABLE if name not in (*VARIANTS, *IN_ORDER)], fast=FAMILIES))
def test_the_order_of_the_slots_does_not_matter(name):
  """But for rounding: what a client does depends on who it is, and what the server does on who uploaded."""
  before, _ = fresh(name).run(BUSY, length=ROUNDS)
  states = []
  for turned in (1, -1):
    slots = [range(len(group.ids))[::turned] for group in fresh(name).groups]
    made = slotted(name, *map(list, slots))
    state, _ = made.run(1, before, BUSY, length=ROUNDS)
    states.append(without_keys(state))
  assert_close(*states)


@pytest.mark.parametrize('name', cases([name for name in TABLE if len(TABLE[name][1]) > 1], fast=('fedhe', 'fedh2l')))
def test_a_group_without_slots(name):
  made = fresh(name)
  participants = [np.zeros((2, 0), np.int32)] * len(made.groups)
  participants[-1] = np.zeros((2, 1), np.int32)
  alone = made._replace(plan=plan.Plan(tuple(participants)), programs={})
  state, report = alone.run()
  assert finite(without_keys(state))
  assert [ids.shape for ids in report.ids] == [(2, w.shape[1]) for w in participants]
  for g in range(len(participants) - 1):
    assert_same_bits(without_keys(state.client[g]), without_keys(made.state.client[g]))


@every_method
def test_variables_are_those_of_the_architectures(name):
  made = fresh(name)
  for g, group in enumerate(made.groups):
    variables = made.method.variables(made.state, g)
    assert set(variables) >= {'params', 'batch_stats'}
    rows = {leaf.shape[0] for leaf in jax.tree.leaves(variables)}
    assert rows in ({1}, {len(group.ids)})
    expected = jax.eval_shape(lambda group=group: group.model.init(made.key, made.data[0].pool.example[:1], False))
    assert jax.tree.map(lambda a: a.shape[1:], variables['params']) == jax.tree.map(
      lambda a: a.shape, expected['params']
    )


def keeping(name):
  """Whether a method lets its clients keep their optimizer."""
  return 'keep_optimizer' in inspect.signature(getattr(methods, name)).parameters


@pytest.mark.parametrize('keep', [True, False])
@pytest.mark.parametrize('name', cases([name for name in methods.__all__ if keeping(name)], fast=('felo',)))
def test_an_optimizer_that_is_kept_goes_on_counting(name, keep):
  given, nets = TABLE[name if name in TABLE else f'{name} pool']
  nets, sizes = zip(*nets, strict=True)
  method = getattr(methods, name)(**{**given, 'tx': optax.adam(0.01), 'keep_optimizer': keep})
  made = problem(method, nets, sizes, plan.synchronous()(sizes, 4))

  def steps(state):
    is_count = lambda node: isinstance(node, optax.ScaleByAdamState)
    return [node.count.max() for node in jax.tree.leaves(state.client, is_leaf=is_count) if is_count(node)]

  before, _ = made.run(3, length=4)  # in which those that learn more and more have come to their end
  after, _ = made.run(1, before, 3, length=4)
  three, four = (max(steps(state), default=0) for state in (before, after))
  assert four > three > 0 if keep else four == three


def with_batch_norm(name):
  """The row's own first architecture where it has BatchNorm, else a CNN."""
  net = TABLE[name][1][0][0]
  shapes = jax.eval_shape(lambda: preprocessed(net).init(jax.random.key(0), pool(12).example[:1], False))
  return net if 'batch_stats' in shapes else CONV


@every_paper
def test_one_turn_with_batch_norm_dropout_and_a_stale_inbox(name):
  """But for methods that no stale plan suits."""
  method = method_of(name)
  turns = plan.Plan((np.array([[0], [1], [0]], np.int32),), not method.server.asks)
  made = problem(method, [with_batch_norm(name)], [2], turns, images=pool(12))
  state, report = made.run()
  assert finite(without_keys(state))
  before, after = (method.variables(made.ready(s), 0)['batch_stats'] for s in (made.state, state))
  for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
    assert (np.asarray(old) != np.asarray(new)).any()
  examples = np.asarray(report.info[0]['examples'])
  assert (examples[2:] > 0).all() or name in ONCE  # after both have downloaded something that was uploaded
  assert (examples[:2] > 0).all() == (name not in ('fedmd', *ONCE))
