"""HeteroFL: corners of one network, their mean by a slow twin, masked classes, static BatchNorm."""

import functools
import itertools

import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
from fedkd import aggregate, methods, models, plan
from fedkd.models.base import Classifier
from fedkd.types import Data, Download, ExampleIndices, Group, Masked, State
from helpers import CLASSES, assert_close, assert_same_bits, bound, cases, pool, preprocessed, problem
from lone_servers import KEY, received

SGD, STEPS, BATCH = optax.sgd(0.1, momentum=0.9), 2, 6
WIDTHS = (8, 4, 3)


def heterofl(**how):
  return methods.heterofl(SGD, **{'epochs': None, 'steps': STEPS, 'batch': BATCH, **how})


@functools.cache
def corners(widths=WIDTHS, rule=None):
  """(server, its first state, groups) of perceptrons of the widths, two clients each."""
  images = pool(2)
  nets = [preprocessed(models.MLP((w,), classes=CLASSES)) for w in widths]
  groups = tuple(Group(f'g{g}', net, np.arange(2 * g, 2 * g + 2)) for g, net in enumerate(nets))
  variables = tuple(
    {'batch_stats': {}, **net.init(jax.random.key(g), images.example[:1], False)} for g, net in enumerate(nets)
  )
  data = tuple(Data(images, None, None) for _ in nets)
  server = heterofl(rule=rule).server
  return server, jax.jit(lambda: server.init(KEY, groups, variables, data))(), variables


def assert_corners(parts):
  """Every group's parameters are the corner of the first group's."""
  for part in parts:
    assert_same_bits(jax.tree.map(lambda whole, a: whole[tuple(map(slice, a.shape))], parts[0], part), part)


def test_groups_begin_with_corners_of_the_widest_wherever_it_stands():
  server, state, variables = corners()
  assert_same_bits(state['params'][0], variables[0]['params'])
  assert_corners(state['params'])
  backward = corners(WIDTHS[::-1])[1]['params']
  assert_corners(backward[::-1])
  for part, down in zip(state['params'], bound(server).send(KEY, 0, state, ((),) * 3), strict=True):
    assert_same_bits(down.shared, {'params': part})


def test_only_the_last_layer_is_the_head():
  head = corners()[1]['head']['net']
  assert jax.tree.all(head['output'])
  assert not jax.tree.reduce(jnp.logical_or, head['layers_0'])


def uploads_of(rng, parts, ids, absent):
  """Random parameters of the slots, which have all classes but `absent[client]`."""

  def of_group(part, slots):
    normal = lambda a: jnp.asarray(rng.normal(size=(len(slots), *a.shape)), jnp.float32)
    valid = np.array([[k >= 0 and c not in absent.get(k, ()) for c in range(CLASSES)] for k in slots]).reshape(
      -1, CLASSES
    )
    label = Masked(jnp.tile(jnp.arange(CLASSES), (len(slots), 1)), jnp.asarray(valid))
    # An empty slot is zeros.
    here = np.array(slots).reshape(-1) >= 0
    mask = lambda a: jnp.where(here.reshape(-1, *[1] * (a.ndim - 1)), a, 0)
    return {'params': jax.tree.map(lambda a: mask(normal(a)), part), 'label': label}

  return tuple(of_group(part, slots) for part, slots in zip(parts, ids, strict=True))


def twin(whole, uploads, ids, head, mean=np.mean):
  """The aggregation, number by number: the plain mean (or another) over the clients that hold it."""
  new = np.array(whole)
  for at in np.ndindex(*new.shape):
    held = []
    for up, valid, slots in zip(uploads, *ids, strict=True):
      for m, client in enumerate(slots):
        inside = all(i < n for i, n in zip(at, up.shape[1:], strict=True))
        if client >= 0 and inside and (not head or valid[m, at[-1]]):
          held.append(float(up[(m, *at)]))
    if held:
      new[at] = mean(held)
  return new


class OfNnx(nnx.Module):
  """Hidden features as many as classes, so that their last axes are equal."""

  classes = CLASSES

  def __init__(self, *, rngs):
    self.hidden, self.output = nnx.Linear(36, CLASSES, rngs=rngs), nnx.Linear(CLASSES, CLASSES, rngs=rngs)

  def features(self, x, train):
    return jnp.tanh(self.hidden(x.reshape(len(x), -1) / 255))

  def head(self, features):
    return self.output(features)

  def __call__(self, x, train):
    return self.head(self.features(x, train))


def test_of_nnx_modules_only_the_last_layer_is_the_head():
  """All of their parameters are there, whichever method one calls."""
  images = pool()
  federation = fedkd.federation(
    np.asarray(images.example), np.asarray(images.label), [np.arange(9), np.arange(9, 20)], OfNnx
  )
  state = fedkd.simulation(heterofl(), federation).init(jax.random.key(0))
  head = {
    jax.tree_util.keystr(path): bool(of) for path, of in jax.tree_util.tree_leaves_with_path(state.server['head'])
  }
  assert sorted(head.values()) == [False, False, True, True]
  assert all(('output' in path) == of for path, of in head.items())


def test_corners_that_come_back_as_they_were_sent_change_nothing():
  server, state, _ = corners()
  ids = tuple(jnp.array(slots, jnp.int32) for slots in IDS['all there'])
  known = Masked(jnp.tile(jnp.arange(CLASSES), (2, 1)), jnp.ones((2, CLASSES), bool))
  back = lambda down: {'params': jax.tree.map(lambda a: jnp.stack([a, a]), down.shared['params']), 'label': known}
  new = received(server, state, tuple(map(back, bound(server).send(KEY, 0, state, ids))), ids)
  assert_close(new['params'], state['params'], rtol=1e-6)


IDS = {
  'all there': ([0, 1], [2, 3], [4, 5]),
  'an empty slot': ([-1, 1], [2, -1], [4, 5]),
  'nobody with the whole': ([-1, -1], [2, 3], [4, -1]),
  'a group without slots': ([], [2, 3], [4, 5]),
  'nobody': ([-1, -1], [-1, -1], [-1, -1]),
}


RULES = [(None, np.mean), (aggregate.mean, np.mean), (aggregate.median, np.median)]


@pytest.mark.parametrize(('rule', 'mean'), cases(RULES, slow=RULES[1:2]))
@pytest.mark.parametrize('ids', IDS.values(), ids=IDS)
def test_the_mean_is_the_twins(ids, rule, mean):
  server, state, _ = corners(rule=rule)
  # Class 2 is known to client 1 alone; client 4 has but one class.
  absent = {0: (2,), 2: (2,), 3: (2,), 4: (1, 2), 5: (2,)}
  uploads = uploads_of(np.random.default_rng(0), state['params'], ids, absent)
  new = received(server, state, uploads, tuple(jnp.array(slots, jnp.int32) for slots in ids))
  assert_corners(new['params'])
  valid = [np.asarray(up['label'].valid) for up in uploads]
  for layer in ('layers_0', 'output'):
    for name in ('kernel', 'bias'):
      of = lambda tree, layer=layer, name=name: np.asarray(tree['net'][layer][name])
      expected = twin(
        of(state['params'][0]), [of(up['params']) for up in uploads], (valid, ids), layer == 'output', mean
      )
      np.testing.assert_allclose(of(new['params'][0]), expected, rtol=1e-5, atol=1e-6)
  kernel = lambda state: np.asarray(state['params'][0]['net']['output']['kernel'])
  if 1 not in ids[0]:  # the head's column of a class that nobody has stays
    np.testing.assert_array_equal(kernel(new)[:, 2], kernel(state)[:, 2])
  if not any(client >= 0 for client in ids[0]):  # what only the widest holds stays
    np.testing.assert_array_equal(kernel(new)[4:], kernel(state)[4:])


def test_a_rule_with_memory_remembers_every_number_by_itself():
  """Clipped to a tenth of a step per number and round, wherever it is held."""
  server, state, _ = corners(rule=aggregate.centred_clipping(0.1))
  ids = IDS['nobody with the whole']
  for _ in range(2):
    uploads = jax.tree.map(lambda a: a + 1000, uploads_of(np.random.default_rng(0), state['params'], ids, {}))
    uploads = tuple({**up, 'label': known} for up, known in zip(uploads, _labels(ids), strict=True))
    before, state = state, received(server, state, uploads, tuple(jnp.array(slots, jnp.int32) for slots in ids))
    moved = [
      np.asarray(new - old)
      for new, old in zip(*(jax.tree.leaves(s['params'][0]) for s in (state, before)), strict=True)
    ]
    kernel = np.asarray(state['params'][0]['net']['output']['kernel'] - before['params'][0]['net']['output']['kernel'])
    np.testing.assert_allclose(kernel[:4], 0.1, rtol=1e-3)
    np.testing.assert_array_equal(kernel[4:], 0)  # which only the widest holds
    assert max(np.abs(m).max() for m in moved) < 0.101


def _labels(ids):
  """Clients that have every class; an empty slot has none."""
  valid = [np.repeat(np.array(slots)[:, None] >= 0, CLASSES, 1) for slots in ids]
  return [Masked(jnp.tile(jnp.arange(CLASSES), (len(v), 1)), jnp.asarray(v)) for v in valid]


# Rounds.

NET = models.MLP((4,), classes=CLASSES)
PARTS = [np.arange(12), np.arange(30, 42), np.arange(60, 72)]  # all classes everywhere, equal sizes
SLOTS = plan.Plan((np.array([[0, 1, 2], [2, -1, -1], [0, 1, -1]], np.int32),))


@pytest.mark.slow
def test_with_one_width_and_all_classes_it_is_fedavg_with_equal_weights():
  fedavg = methods.fedavg(SGD, steps=STEPS, batch=BATCH)
  (state, report), (expected, expected_report) = (
    problem(method, [NET], [3], SLOTS, PARTS).run() for method in (heterofl(), fedavg)
  )
  assert_close(state.server['params'][0], expected.server['params'], rtol=1e-5)
  np.testing.assert_allclose(report.info[0]['loss'], expected_report.info[0]['loss'], rtol=1e-5)


class Cut(Classifier):
  """Two dense layers, of the first of which a part is there."""

  classes: int = CLASSES
  rate: float = 1.0
  lowering: str = 'auto'

  def setup(self):
    self.first, self.last = nn.Dense(round(4 * self.rate)), nn.Dense(self.classes)

  def features(self, x, train):
    return jax.nn.relu(self.first(x.reshape(len(x), -1)))

  def head(self, f):
    return self.last(f)


@pytest.mark.slow
def test_ordered_dropout_trains_one_of_the_corners():
  """A step is that of the network itself, or of a client with the smaller one; the rest of the network stays."""
  images, index = pool(2), jnp.arange(6)
  data = Data(images, ExampleIndices(index, jnp.int32(6), jnp.int32(0)), None)
  whole, half = (preprocessed(Cut(rate=rate)) for rate in (1.0, 0.5))
  params = whole.init(jax.random.key(0), images.example[:1], False)['params']

  def corner(tree):
    first, last = tree['net']['first'], tree['net']['last']
    return {'net': {'first': jax.tree.map(lambda a: a[..., :2], first), 'last': {**last, 'kernel': last['kernel'][:2]}}}

  def turn(model, params, **how):
    step = heterofl(steps=1, **how).client.step
    return jax.jit(lambda key: step(key, 0, model, (), Download({'params': params}), data)[1]['params'])

  dropping, of_whole, of_half = (
    turn(whole, params, ordered=(0.5, 1.0)),
    turn(whole, params),
    turn(half, corner(params)),
  )
  found = set()
  for seed in range(8):
    key = jax.random.key(seed)
    after = dropping(key)
    if bool((after['net']['first']['kernel'][:, 2:] != params['net']['first']['kernel'][:, 2:]).any()):
      assert_close(after, of_whole(key))
      found.add(1.0)
    else:
      assert_close(corner(after), of_half(key))
      assert_same_bits(after['net']['last']['kernel'][2:], params['net']['last']['kernel'][2:])
      found.add(0.5)
  assert found == {0.5, 1.0}
  with pytest.raises(ValueError, match=r'ordered=\(0.5,\) needs models with a rate, which MLP does not have'):
    turn(preprocessed(models.MLP((4,), classes=CLASSES)), params, ordered=(0.5,))(jax.random.key(0))


@pytest.mark.parametrize('masked', [True, False])
def test_absent_classes_get_no_gradient_where_they_are_masked(masked):
  images = pool()
  parts = [np.flatnonzero(np.asarray(images.label) < 2)[:12]]
  made = problem(heterofl(masked=masked), [NET], [1], plan.synchronous()([1], 1), parts)
  model, data = made.groups[0].model, jax.tree.map(lambda a: a, made.data[0])
  mine = jax.tree.map(lambda a: a[0], data.private)
  down = made.server.send(KEY, 0, made.state.server, ((),))[0]
  _, up, _ = jax.jit(lambda: made.method.client.step(KEY, 0, model, (), down, data._replace(private=mine)))()
  np.testing.assert_array_equal(up['label'].valid, [True, True, False])
  before, after = (tree['net']['output'] for tree in (down.shared['params'], up['params']))
  same = [
    (np.asarray(before[name])[..., c] == np.asarray(after[name])[..., c]).all() for name in before for c in (0, 2)
  ]
  assert same == [False, masked] * 2


def test_ordered_dropout_learns_every_class_as_fjord():
  """Flower's FjORD has plain cross-entropy: classes that a client lacks have a gradient. It sends n_k."""
  images, index = pool(2), jnp.arange(12)
  index = index[np.asarray(images.label)[:12] < 2]
  data = Data(images, ExampleIndices(index, jnp.int32(len(index)), jnp.int32(0)), None)
  model = preprocessed(Cut())
  params = model.init(jax.random.key(0), images.example[:1], False)['params']

  def after(**how):
    step = heterofl(steps=1, batch=len(index), **how).client.step
    return jax.jit(lambda: step(KEY, 0, model, (), Download({'params': params}), data)[1])()

  ordered = after(ordered=(1.0,))
  assert_close(ordered['params'], after(masked=False)['params'])
  bias = lambda up: float(up['params']['net']['last']['bias'][2])
  assert bias(ordered) != 0.0 == bias(after())
  assert (set(ordered), int(ordered['count'])) == ({'params', 'count'}, len(index))
  assert bias(after(ordered=(1.0,), masked=True)) == 0.0


def test_all_that_hold_a_number_of_fjord_are_averaged_by_their_examples():
  """In the head, too, whatever their classes."""
  server, state, _ = corners()
  ids, count = IDS['an empty slot'], ([9, 1], [2, 9], [3, 4])
  random = np.random.default_rng(0)
  uploads = [{'params': up['params']} for up in uploads_of(random, state['params'], ids, {})]
  up = tuple({**up, 'count': jnp.array(n)} for up, n in zip(uploads, count, strict=True))
  new = received(server, state, up, tuple(jnp.array(slots) for slots in ids))
  assert_corners(new['params'])
  for layer, name in itertools.product(('layers_0', 'output'), ('kernel', 'bias')):
    of = lambda tree, layer=layer, name=name: np.asarray(tree['net'][layer][name], float)
    expected, rows = of(state['params'][0]), [of(up['params']) for up in uploads]
    for at in np.ndindex(*expected.shape):
      held = [
        (values[(m, *at)], count[g][m])
        for g, values in enumerate(rows)
        for m in range(2)
        if ids[g][m] >= 0 and all(i < n for i, n in zip(at, values.shape[1:], strict=True))
      ]
      if held:
        value, weight = zip(*held, strict=True)
        expected[at] = np.average(value, weights=weight)
    np.testing.assert_allclose(of(new['params'][0]), expected, rtol=1e-5, atol=1e-6)


# Static BatchNorm.


def test_calibrate_finds_the_statistics_of_all_training_images_batch_by_batch():
  """Of the norm after a stem of one convolution, in NumPy: means and biased variances, averaged over two batches."""
  images, size, batch = pool(4), 700, 500
  index = np.random.default_rng(0).integers(0, 90, size)
  model = preprocessed(models.PreActResNet(blocks=(1,), width=4 / 64, rate=0.5, classes=CLASSES))
  padded = jnp.asarray(np.append(index, [100] * 3), jnp.int32)
  data = Data(images, None, ExampleIndices(padded, jnp.int32(size), jnp.int32(-1)))
  variables = jax.jit(lambda: model.init(KEY, images.example[:1], False))()
  before = State((), {name: (variables[name],) for name in ('params', 'batch_stats')})
  group = Group('g', model, np.arange(1))
  after = jax.jit(lambda state: heterofl().calibrate((group,), state, (data,), (0,)))(before)
  assert_same_bits(after.server['params'], before.server['params'])

  kernel = np.asarray(variables['params']['net']['conv1']['kernel'], float)
  moments = []
  for start in (0, batch):
    some = index[np.arange(start, start + batch) % size]  # the last batch is filled from the beginning
    x = np.pad((np.asarray(images.example, float)[some] - 128) / 64, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = sum(x[:, i : i + 4, j : j + 4] @ kernel[i, j] for i in range(3) for j in range(3)) / 0.5  # the scaler
    moments.append((y.mean((0, 1, 2)), y.var((0, 1, 2))))
  first = after.server['batch_stats'][0]['net']['layer1_0']['n1']['bn']
  for name, expected in zip(('mean', 'var'), np.mean(moments, 0), strict=True):
    np.testing.assert_allclose(first[name], expected, rtol=1e-4, atol=1e-5)


# Channels that are not the leading part of an axis.


class Mixed(Classifier):
  """A convolution and what `kind` does with its channels, with or without a dense layer behind."""

  kind: str = 'flat'
  width: int = 6
  rate: float = 1.0
  classes: int = CLASSES
  lowering: str = 'auto'

  def setup(self):
    self.n = round(self.width * self.rate)
    self.first = nn.Conv(self.n * (2 if self.kind == 'gated' else 1), (3, 3), bias_init=nn.initializers.normal(0.1))
    self.second, self.last = nn.Dense(2 * self.n, bias_init=nn.initializers.normal(0.1)), nn.Dense(self.classes)

  def features(self, x, train):
    x = self.first(x)
    if self.kind == 'gated':
      x = x[..., : self.n] * jax.nn.relu(x[..., self.n :])
    x = jnp.tanh(x)[:, ::2, ::2]
    if self.kind == 'channels first':
      x = jnp.moveaxis(x, -1, 1)
    if self.kind == 'reversed':
      x = x[..., ::-1]
    if self.kind in ('pooled', 'gated', 'reversed'):
      x = x.mean((1, 2))
    x = x.reshape(len(x), -1)
    return x if self.kind == 'flat head' else jnp.tanh(self.second(x))

  def head(self, f):
    return self.last(f)


KINDS = ('flat', 'flat head', 'channels first', 'gated', 'pooled')


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('rate', cases([0.5, 1 / 3], slow=[0.5]))
def test_a_sub_network_is_the_network_with_zeros_elsewhere(kind, rate):
  """Zeros wherever an upload of the sub-network alone changes nothing; also the rules by number put it there."""
  images, nets = pool(4), [preprocessed(Mixed(kind, rate=r)) for r in (1.0, rate)]
  groups = tuple(Group(f'g{g}', net, np.array([g])) for g, net in enumerate(nets))
  key, data = jax.random.key(3), tuple(Data(images, None, None) for _ in nets)
  variables = tuple({'batch_stats': {}, **net.init(key, images.example[:1], False)} for net in nets)
  ids = jnp.array([-1]), jnp.array([1])
  for rule in (None, aggregate.median):
    server = heterofl(rule=rule).server
    state = jax.jit(lambda server=server: server.init(KEY, groups, variables, data))()
    known = [Masked(jnp.arange(CLASSES)[None], jnp.full((1, CLASSES), g == 1)) for g in range(2)]
    moved = [
      {'params': jax.tree.map(lambda a: a[None] + 1, p), 'label': k}
      for p, k in zip(state['params'], known, strict=True)
    ]
    after = received(server, state, tuple(moved), ids)
    assert_close(after['params'][1], jax.tree.map(lambda a: a + 1, state['params'][1]))
    inside = jax.tree.map(lambda new, old: jnp.where(new != old, old, 0), after['params'][0], state['params'][0])
    logits = [
      np.asarray(net.apply({'params': p}, images.example[:8], False)[0])
      for net, p in zip(nets, (inside, state['params'][1]), strict=True)
    ]
    assert np.ptp(logits[0]) > 0.1
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-5)


def test_ordered_dropout_cuts_behind_a_flattening():
  """A step of the smaller network moves exactly the weights that are one with the others at zero."""
  images, index = pool(4), jnp.arange(6)
  data = Data(images, ExampleIndices(index, jnp.int32(6), jnp.int32(0)), None)
  whole, half = (preprocessed(Mixed('flat', rate=rate)) for rate in (1.0, 0.5))
  params = whole.init(jax.random.key(0), images.example[:1], False)['params']
  step = heterofl(steps=1, ordered=(0.5, 1.0)).client.step
  turn = jax.jit(lambda key: step(key, 0, whole, (), Download({'params': params}), data)[1]['params'])
  second = lambda tree: tree['net']['second']['kernel']
  moved = next(
    after for after in map(turn, map(jax.random.key, range(20))) if not (second(after) != second(params)).all()
  )
  inside = jax.tree.map(lambda new, old: jnp.where(new != old, new, 0), moved, params)
  places, channels = 4, 6
  rows = np.arange(places * channels).reshape(places, channels)[:, :3].ravel()
  np.testing.assert_array_equal(np.flatnonzero((second(inside) != 0).any(1)), rows)
  narrow = {
    'first': jax.tree.map(lambda a: a[..., :3], moved['net']['first']),
    'second': {'kernel': second(moved)[rows, :6], 'bias': moved['net']['second']['bias'][:6]},
    'last': {**moved['net']['last'], 'kernel': moved['net']['last']['kernel'][:6]},
  }
  logits = (
    whole.apply({'params': inside}, images.example, False)[0],
    half.apply({'params': {'net': narrow}}, images.example, False)[0],
  )
  np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-5)


# Refusals.


def test_channels_in_another_order_are_refused():
  nets = [Mixed('reversed', rate=rate) for rate in (1.0, 0.5)]
  with pytest.raises(
    ValueError, match=r'^groups: the first channels of g0 are no network with the shapes of g1, because'
  ):
    problem(heterofl(), nets, [1, 1], plan.synchronous()([1, 1], 1), images=pool(4))


@pytest.mark.parametrize(
  'nets',
  [
    (models.MLP((8,), classes=CLASSES), models.MLP((6, 4), classes=CLASSES)),  # another depth
    (models.MLP((8, 2), classes=CLASSES), models.MLP((4, 3), classes=CLASSES)),  # wider somewhere
  ],
)
def test_unrelated_architectures_are_refused(nets):
  with pytest.raises(ValueError, match=r'g1 is not a sub-network of g0.*one architecture with several values of rate'):
    problem(heterofl(), nets, [1, 1], plan.synchronous()([1, 1], 1))
