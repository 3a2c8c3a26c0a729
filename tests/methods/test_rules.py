"""Every method whose server averages takes a rule; what it then sends is NumPy's result on the uploads."""

import inspect
import pathlib
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, methods, plan, servers
from fedkd.config import choices
from fedkd.servers.low_rank import compress, expand, updates
from fedkd.types import Masked
from helpers import CLASSES, assert_close, assert_same_bits, bound, problem, softmax
from lone_servers import KEY, groups_of, received, uploads_of
from small_nets import NARROW, NET, PARTS

SGD = optax.sgd(0.1)
WITHOUT = {
  'agg': 'one model on all examples',
  'private': 'nothing is sent',
  'public': 'nothing is sent',
  'fedgh': 'a head is trained on the uploads',
  'fedkt': 'clients vote',
  'dense': 'outputs are averaged',
  'coboosting': 'outputs are averaged',
  'fedre': 'a head is trained on the uploads',
  'fedtgp': 'prototypes are trained on the uploads',
  'fedgkt': 'a network is trained on the uploads',
  'fedh2l': 'every client averages the losses towards its teachers',
  'ktpfl': 'a mixture for every client, with coefficients that are learned',
  'rhfl': 'a mixture for every client, by confidences that need not add up to 1',
}
WITH = sorted(set(methods.__all__) - set(WITHOUT))
PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'guides' / 'rules.md'


def test_every_method_takes_a_rule_or_has_a_reason():
  takes = {name for name in methods.__all__ if 'rule' in inspect.signature(getattr(methods, name)).parameters}
  assert takes == set(WITH)
  assert set(WITHOUT) < set(methods.__all__)


def test_the_page_has_every_method():
  """Those with a rule in its table, the others in the list below."""
  page = PAGE.read_text()
  table = [line.split('|')[1] for line in page.splitlines() if line.startswith('| `')]
  assert sorted(re.findall(r'`(\w+)`', ' '.join(table))) == WITH
  assert set(re.findall(r'`(\w+)`', page[page.index('\nThe others take no rule') :].partition('\n## ')[0])) == set(
    WITHOUT
  )


@pytest.mark.parametrize('name', WITH)
def test_a_config_names_the_rule(name):
  lacking = {'common': {'model': 'MLP', 'hidden': (4,)}} if name in ('fml', 'fedapen', 'fedmrl', 'fedkd') else {}
  block = choices.method(name, **lacking)
  assert block.rule == ('mean' if inspect.signature(getattr(methods, name)).parameters['rule'].default else None)
  block.rule = 'median'
  choices.build('method', block, SGD)
  block.rule = 'no_such_rule'
  with pytest.raises(ValueError, match=r"method\.rule='no_such_rule'"):
    choices.build('method', block, SGD)


# Three clients of one architecture, without a run.

IDS = (jnp.arange(3),)
NOBODY = (jnp.full(3, -1),)
COUNT = np.array([1, 5, 2])
RANDOM = np.random.default_rng(0)


@cache
def parties():
  """(groups, variables, data) of the three."""
  made = problem(methods.private(SGD), [NET], [3], plan.synchronous()([3], 1), PARTS)
  return made.groups, (jax.tree.map(lambda a: a[0], made.method.variables(made.state, 0)),), made.data


def started(server):
  groups, variables, data = parties()
  return jax.jit(lambda key: server.init(key, groups, variables, data))(KEY)


def sent(server, state):
  groups, _, data = parties()
  return jax.jit(bound(server, groups, data).send)(KEY, 1, state, IDS)[0]


def reduced(server, state, uploads, ids, t=0):
  groups, _, data = parties()
  return received(server, state, uploads, ids, t, groups, data)


FAR = aggregate.centred_clipping(1e6)
RULES = {
  'median': (aggregate.median, lambda rows, weight: np.median(rows, 0)),
  'memory': (FAR, lambda rows, weight: np.average(rows, 0, weight)),
}
every_rule = pytest.mark.parametrize(('rule', 'expected'), RULES.values(), ids=RULES)

# method -> (its arguments, where its weights are in a message, what else there is in an upload)
SEEN = servers.class_message(jnp.zeros((CLASSES, CLASSES)), jnp.zeros(CLASSES, bool))
OF_WEIGHTS = {
  'fml': ({'common': NARROW}, None, {}),
  'fedapen': ({'common': NARROW}, None, {}),
  'fedmrl': ({'common': NARROW}, None, {}),
  'feddf': ({'server_steps': 0}, None, {}),
  'fedgen': ({'server_steps': 1, 'hidden': 4}, 'weights', {'label': jnp.ones(CLASSES, jnp.int32)}),
  'fd': ({'share_weights': True, 'others_only': False}, 'weights', {'knowledge': SEEN}),
}
PLACES = [
  pytest.param(name, rule, marks=[pytest.mark.slow] if rule == 'memory' else [])
  for name in OF_WEIGHTS
  for rule in RULES
]


@pytest.mark.parametrize(('name', 'which'), PLACES)
def test_weights_are_what_the_rule_makes_of_them(name, which):
  (how, place, others), (rule, expected) = OF_WEIGHTS[name], RULES[which]
  server = getattr(methods, name)(SGD, rule=rule, **how).server
  state, of = started(server), lambda message: message if place is None else message[place]
  first = of(sent(server, state).shared)
  rows = jax.tree.map(lambda a: RANDOM.normal(size=(3, *a.shape)).astype(np.float32), first)
  up = {**rows, 'count': COUNT}
  up = up if place is None else {place: up, **jax.tree.map(lambda a: jnp.stack([a] * 3), others)}
  after = reduced(server, state, (up,), IDS)
  assert_close(of(sent(server, after).shared), jax.tree.map(lambda a: expected(a, COUNT), rows), atol=1e-5)
  assert_same_bits(of(sent(server, reduced(server, state, (up,), NOBODY)).shared), first)


@pytest.mark.parametrize('start', ['average', pytest.param('previous', marks=pytest.mark.slow)])
def test_an_average_by_a_rule_with_memory_learns_from_the_ensemble(start):
  """FedDF's server: the student is not what the rule remembers."""
  how = {'server_steps': 2, 'server_batch': 4, 'server_tx': SGD, 'start': start}
  _, variables, _ = parties()
  rows = jax.tree.map(lambda a: RANDOM.normal(size=(3, *a.shape)).astype(np.float32), variables[0])
  found = {}
  for name, rule in (('mean', aggregate.mean), ('memory', FAR)):
    server = methods.feddf(SGD, rule=rule, **how).server
    state = reduced(server, started(server), ({**rows, 'count': COUNT},), IDS)
    found[name] = sent(server, state).shared
  assert_close(found['memory'], found['mean'], rtol=1e-4, atol=1e-5)
  mean = jax.tree.map(lambda a: np.average(a, 0, COUNT), rows)
  assert_close(state['weights'][0].rule, mean, atol=1e-5)
  far = jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(initial=0), found['memory'], mean))
  assert max(far) > 1e-3


# Predictions of public rows.

SUBSET = 4
P = RANDOM.dirichlet(np.ones(CLASSES), (3, SUBSET)).astype(np.float32)
PUBLIC = {
  'fccl': ({}, lambda p: p),
  'dsfl': ({'inference': 'own', 'temperature': 0.2}, lambda p: softmax(p / 0.2)),
  'scarlet': ({'inference': 'own', 'exponent': 3.0}, lambda p: p**3 / (p**3).sum(-1, keepdims=True)),
}


@pytest.mark.parametrize('name', PUBLIC)
def test_predictions_are_reduced_before_they_are_sharpened(name):
  how, sharpened = PUBLIC[name]
  server = getattr(methods, name)(SGD, subset=SUBSET, rule=aggregate.median, **how).server
  up = ({'knowledge': Masked(jnp.asarray(P), jnp.ones((3, SUBSET), bool)) if name == 'scarlet' else jnp.asarray(P)},)
  down = sent(server, reduced(server, started(server), up, IDS))
  found = down.own['consensus'] if name == 'scarlet' else down.shared['consensus']
  assert np.asarray(found.valid).all()
  np.testing.assert_allclose(found.value, np.broadcast_to(sharpened(np.median(P, 0)), found.value.shape), rtol=1e-5)


@every_rule
def test_selective_predictions_are_reduced_row_by_row(rule, expected):
  """Of a row that nobody sent, neither NaN nor infinity reaches a client."""
  server = methods.selective_fd(SGD, subset=SUBSET, rule=rule).server
  votes = np.array([[True, True, False, False], [True, False, False, True], [True, True, False, True]])
  up = {'knowledge': Masked(jnp.where(votes[..., None], P, jnp.nan), jnp.asarray(votes))}
  found = sent(server, reduced(server, started(server), (up,), IDS)).shared['consensus']
  np.testing.assert_array_equal(found.valid, votes.any(0))
  for i in range(SUBSET):
    rows = P[votes[:, i], i]
    wanted = expected(rows, np.ones(len(rows))) if len(rows) else np.zeros(CLASSES)
    np.testing.assert_allclose(found.value[i], wanted, rtol=1e-5)


def test_a_median_of_nothing_but_zeros_stays_finite():
  """One-hot predictions of three clients that all disagree."""
  zeros = jnp.zeros((2, 3))
  assert_same_bits(servers.power(zeros, 2.0), zeros)
  np.testing.assert_allclose(servers.era(zeros), 1 / 3, rtol=1e-6)


# Knowledge per class.

VALID = np.array([[True, True, False], [True, False, False], [True, True, False]])


def knowledge(value, valid=VALID, count=None):
  return (uploads_of(np.where(valid[..., None], value, np.nan), valid, count),)


@every_rule
def test_everybody_receives_what_the_rule_makes_of_the_others(rule, expected):
  server = methods.fd(SGD, rule=rule).server
  state = server.init(KEY, groups_of(3, classes=CLASSES), (), ())
  value = RANDOM.normal(size=(3, CLASSES, CLASSES)).astype(np.float32)
  state = reduced(server, state, knowledge(value), IDS)
  for _ in range(2):
    found = sent(server, state).own['knowledge']
    for k in range(3):
      for c in range(CLASSES):
        others = [value[j, c] for j in range(3) if j != k and VALID[j, c]]
        assert bool(found.valid[k, c]) == bool(others)
        wanted = expected(others, np.ones(len(others))) if others else np.zeros(CLASSES)
        np.testing.assert_allclose(found.value[k, c], wanted, rtol=1e-5, atol=1e-6)
    state = reduced(server, state, knowledge(value), NOBODY)  # changes nothing


KEEPERS = {
  'fd round': (methods.fd, {'others_only': False}),
  'fedproto round': (methods.fedproto, {}),
  'fedproto counts': (methods.fedproto, {'average': 'counts'}),
  'fedproto latest': (methods.fedproto, {'memory': 'latest'}),
}


@pytest.mark.parametrize('name', KEEPERS)
def test_classes_are_reduced_by_the_rule(name):
  """Twice; in the second round without client 2, whose upload of the first counts only where all do. By a rule that
  depends on the weights, since the median does not."""
  (make, how), seen = KEEPERS[name], []

  def heaviest(rows, weight):
    return jnp.sum(jnp.where(weight[:, None] > 0, rows, 0), 0) * jnp.max(weight)

  server = make(SGD, rule=heaviest, **how).server
  width = NET.hidden[0] if make is methods.fedproto else CLASSES
  state = started(server)
  counts = np.array([[3, 1, 9], [2, 9, 9], [7, 4, 9]])
  for t, who in enumerate(([0, 1, 2], [0, 1])):
    value, amount = RANDOM.normal(size=(3, CLASSES, width)).astype(np.float32), counts + 10 * t
    ids = (jnp.array([k if k in who else -1 for k in range(3)]),)
    valid = VALID & np.isin(np.arange(3), who)[:, None]
    state = reduced(server, state, knowledge(value, valid, amount if 'counts' in name else None), ids, t)
    seen = seen if name == 'fedproto latest' else []
    seen = [one for one in seen if one[0] not in who or not valid[one[:2]]]
    seen += [(k, c, value[k, c], amount[k, c]) for k in who for c in range(CLASSES) if valid[k, c]]
    found = sent(server, state).shared['knowledge']
    for c in range(CLASSES):
      rows = [(v, n if 'counts' in name else 1) for _, at, v, n in seen if at == c]
      assert bool(found.valid[c]) == bool(rows)
      wanted = sum(v for v, _ in rows) * max(n for _, n in rows) if rows else np.zeros(width)
      np.testing.assert_allclose(found.value[c], wanted, rtol=1e-5, atol=1e-5)
  nothing = knowledge(np.zeros_like(value), np.zeros_like(VALID), amount if 'counts' in name else None)
  assert_same_bits(sent(server, reduced(server, state, nothing, NOBODY, 2)).shared['knowledge'], found)


@pytest.mark.parametrize('name', ['fd others', 'fd round', 'fedproto round', 'fedproto counts'])
def test_the_mean_as_a_rule_is_the_default_to_rounding(name):
  """Of one round's uploads; the default divides a sum, the rule sums shares."""
  make, how = KEEPERS.get(name, (methods.fd, {}))
  width = NET.hidden[0] if make is methods.fedproto else CLASSES
  value, counts = RANDOM.normal(size=(2, 3, CLASSES, width)), np.array([[3, 1, 9], [2, 9, 9], [7, 4, 9]])
  found = []
  for rule in (None, aggregate.mean):
    server = make(SGD, rule=rule, **how).server
    state = started(server)
    for t in range(2):
      state = reduced(server, state, knowledge(value[t], VALID, counts if 'counts' in name else None), IDS, t)
    found.append(sent(server, state))
  assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


# Changes of weights.


@every_rule
@pytest.mark.parametrize('threshold', [None, 0.9])
def test_changes_are_reduced_by_the_rule_and_squeezed_again(rule, expected, threshold):
  """FedKD's server, on changes as they are and truncated ones."""
  squeeze = lambda tree, t: tree if threshold is None else compress(tree, threshold)
  server, first = updates(squeeze, rule), {'params': jnp.asarray(RANDOM.normal(size=(6, 5)), jnp.float32)}
  state = server.init(KEY, groups_of(3), (first,), ())
  changes = {'params': jnp.asarray(RANDOM.normal(size=(3, 6, 5)), jnp.float32)}
  message = jax.jit(jax.vmap(lambda tree: squeeze(tree, 0)))(changes)
  arrived = jax.vmap(expand)(message)['params']
  up = {'update': message, 'count': COUNT, 'index': jnp.zeros(3, jnp.int32)}
  after = reduced(server, state, (up,), IDS)
  change = expand(squeeze({'params': jnp.asarray(expected(arrived, COUNT))}, 0))['params']
  np.testing.assert_allclose(after.variables['params'], first['params'] + change, atol=1e-5)
  assert_same_bits(reduced(server, after, (up,), NOBODY), after)


def test_fedkd_passes_its_rule_on():
  server = methods.fedkd(SGD, NARROW, compress=False, rule=aggregate.median).server
  state = started(server)
  rows = jax.tree.map(lambda a: RANDOM.normal(size=(3, *a.shape)).astype(np.float32), state.variables)
  up = {'update': rows, 'count': COUNT, 'index': jnp.zeros(3, jnp.int32)}
  after = reduced(server, state, (up,), IDS)
  expected = jax.tree.map(lambda old, a: old + np.median(a, 0), state.variables, rows)
  assert_close(after.variables, expected, atol=1e-5)
