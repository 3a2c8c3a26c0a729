"""FedRolex and Federated Dropout: sub-networks that are other channels in every round."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import small_nets
from fedkd import methods, models, plan
from fedkd.servers import corners, nested
from helpers import CLASSES, assert_close, assert_same_bits, problem, softmax

TURN = {'epochs': None, 'steps': 2, 'batch': 6}
SGD = optax.sgd(0.1)
WIDE, HALF = models.MLP((8, 6), classes=CLASSES), models.MLP((4, 3), classes=CLASSES)
LAYERS = [('layers_0', 'kernel'), ('layers_0', 'bias'), ('output', 'kernel'), ('output', 'bias')]
NETS, SIZES = [WIDE, HALF], [2, 2]


def made_with(method, nets=NETS, sizes=SIZES, rounds=2, participants=None):
  turns = plan.synchronous()(sizes, rounds) if participants is None else plan.Plan(participants)
  return problem(method, nets, sizes, turns)


def rolled(o):
  return lambda n: (jnp.arange(n) + o) % n


@functools.cache
def rolling():
  return made_with(methods.fedrolex(SGD, **TURN))


@pytest.mark.slow
def test_the_first_round_is_heterofls():
  fixed = made_with(methods.heterofl(SGD, **TURN))
  ours, theirs = (made.run(1)[0].server['params'][0] for made in (rolling(), fixed))
  assert_same_bits(ours, theirs)
  with pytest.raises(AssertionError, match='differs'):
    assert_same_bits(rolling().run(2)[0].server['params'][0], fixed.run(2)[0].server['params'][0])


@pytest.mark.parametrize('net', [WIDE, models.LeNet(classes=CLASSES)])
@pytest.mark.parametrize('o', [pytest.param(1, marks=pytest.mark.slow), 5])
def test_a_network_rolled_as_a_whole_computes_the_same(net, o):
  """In LeNet the inputs behind the flattening are blocks of channels."""
  x = np.random.default_rng(0).normal(size=(4, 28, 28, 1)).astype(np.float32)
  params = jax.jit(lambda: net.init(jax.random.key(0), x, False))()['params']
  lenet = isinstance(net, models.LeNet)
  # A kernel [in, out] of which both are hidden; input and class axes stay.
  fixed = {'layers_0': (0,), 'output': (1,), 'convs_0': (0, 1, 2), 'convs_1': (0, 1)}
  blocks = {('hidden_0', 0): 25} if lenet else {}

  def turn(path, leaf):
    layer, name = path[0].key, path[-1].key
    for axis, n in enumerate(leaf.shape):
      if (name == 'bias' and layer == 'output') or (name == 'kernel' and axis in fixed.get(layer, ())):
        continue
      count = blocks.get((layer, axis), 1) if name == 'kernel' else 1
      folded = leaf.reshape(*leaf.shape[:axis], count, n // count, *leaf.shape[axis + 1 :])
      leaf = jnp.roll(folded, -o, axis + 1).reshape(leaf.shape)
    return leaf

  moved = jax.tree_util.tree_map_with_path(turn, params)
  logits = lambda params: net.apply({'params': params}, x, False)[0]
  assert_close(logits(moved), logits(params), rtol=1e-4, atol=1e-5)


def test_a_window_is_cut_from_the_rolled_array_and_goes_back_where_it_was():
  whole = jnp.arange(48.0).reshape(6, 8)
  cut = corners.Cut({}, rolled(5))
  part = corners.corner(whole, (3, 4), cut)
  np.testing.assert_array_equal(part, np.asarray(whole)[np.ix_([5, 0, 1], [5, 6, 7, 0])])
  back = np.asarray(corners.padded(part, (6, 8), cut))
  kept = np.zeros((6, 8), bool)
  kept[np.ix_([5, 0, 1], [5, 6, 7, 0])] = True
  np.testing.assert_array_equal(back, np.where(kept, whole, 0))
  # Blocks: the input of a dense layer behind the flattening, 2 places of 4 channels each.
  folded = corners.corner(jnp.arange(8.0), (4,), corners.Cut({(8, 4): 2}, rolled(3)))
  np.testing.assert_array_equal(folded, [3, 0, 7, 4])


def test_what_no_participant_has_keeps_its_bits():
  """Only a narrow client takes part, in round 1, whose window begins at channel 1."""
  nobody = np.full((2, 1), -1, np.int32)
  made = made_with(methods.fedrolex(SGD, **TURN), participants=(nobody, np.array([[-1], [0]], np.int32)))
  before, after = (np.asarray(s.server['params'][0]['net']['layers_1']['kernel']) for s in (made.state, made.run()[0]))
  held = np.zeros((8, 6), bool)
  held[np.ix_([1, 2, 3, 4], [1, 2, 3])] = True
  assert (before[~held] == after[~held]).all()
  assert (before[held] != after[held]).any()


@pytest.mark.parametrize(('weighted', 'stride', 'step'), [(False, 0.0, 1), (True, 0.7, 3)])
def test_three_rounds_are_those_of_a_twin_in_numpy(weighted, stride, step):
  """A client with the whole network of four hidden units, and two with half of them, of whom one is absent in the
  second round. The head's numbers are of the classes that a client has, or means are by examples and no loss is masked.
  """
  rate, parts = 0.1, small_nets.PARTS  # of all classes; of 0 and 2; of 1
  slots = [[0, 1, 2], [0, 2], [0, 1, 2]]
  places = (np.zeros((3, 1), np.int32), np.array([[0, 1], [-1, 1], [1, 0]], np.int32))
  nets = [models.MLP((4,), classes=CLASSES), models.MLP((2,), classes=CLASSES)]
  how = {'epochs': None, 'steps': 2, 'batch': 12, 'masked': not weighted, 'weighted': weighted, 'stride': stride}
  method = methods.fedrolex(optax.sgd(rate), **how)
  made = problem(method, nets, [1, 2], plan.Plan(places), parts)
  pixels, label = small_nets.in_vectors(made)
  layers = lambda params: [np.asarray(params['net'][at][name], float) for at, name in LAYERS]
  whole = layers(made.state.server['params'][0])
  for t, present in enumerate(slots):
    sums, holders = [np.zeros_like(a) for a in whole], [np.zeros_like(a) for a in whole]
    for k in present:
      unit = np.arange(4) if k == 0 else (step * t + np.arange(2)) % 4
      own = np.isin(range(CLASSES), label[parts[k]]) if not weighted else np.ones(CLASSES, bool)
      x, true = pixels[parts[k]], np.eye(CLASSES)[label[parts[k]]]
      w, b, v, c = whole[0][:, unit], whole[1][unit], whole[2][unit], whole[3]
      for _ in range(2):
        z = np.maximum(x @ w + b, 0)
        error = (softmax(np.where(own, z @ v + c, 0)) - true) * own / len(x)
        back = error @ v.T * (z > 0)
        w, b, v, c = w - rate * x.T @ back, b - rate * back.sum(0), v - rate * z.T @ error, c - rate * error.sum(0)
      at = np.ix_(range(x.shape[1]), unit), unit, np.ix_(unit, np.flatnonzero(own)), own
      for i, found in enumerate((w, b, v[:, own], c[own])):
        sums[i][at[i]] += (len(x) if weighted else 1) * found
        holders[i][at[i]] += len(x) if weighted else 1
    whole = [np.where(h > 0, s / np.maximum(h, 1), old) for s, h, old in zip(sums, holders, whole, strict=True)]
  for ours, theirs in zip(layers(made.run()[0].server['params'][0]), whole, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_every_channel_is_in_the_window_equally_often():
  of = lambda t: np.asarray((jnp.arange(8) + t) % 8)[:4]
  assert (np.bincount(np.concatenate([of(t) for t in range(8)])) == 4).all()
  made = rolling()
  state = made.run(1)[0]
  windows = nested.sub_networks(state.server, 1, lambda t, g, n: (jnp.arange(n) + t) % n)
  whole = np.asarray(state.server['params'][0]['net']['layers_0']['kernel'])
  np.testing.assert_array_equal(windows[1]['net']['layers_0']['kernel'], whole[:, of(1)])
  assert_same_bits(made.method.variables(state, 1)['params'], jax.tree.map(lambda a: a[None], windows[1]))


@pytest.mark.parametrize('make', [methods.fedrolex, pytest.param(methods.federated_dropout, marks=pytest.mark.slow)])
def test_with_whole_networks_alone_it_is_fedavg_without_counts(make):
  sizes = [2]
  ours = made_with(make(SGD, masked=False, **TURN), [WIDE], sizes)
  parts = [np.arange(12), np.arange(12, 24)]  # of equal size
  ours = problem(make(SGD, masked=False, **TURN), [WIDE], sizes, ours.plan, parts)
  theirs = problem(methods.fedavg(SGD, steps=2, batch=6), [WIDE], sizes, ours.plan, parts)
  assert_close(ours.run()[0].server['params'][0], theirs.run()[0].server['params'], rtol=1e-5)


def test_clients_are_evaluated_with_the_whole_network_or_with_their_window():
  whole, window = (made_with(methods.fedrolex(SGD, inference=way, **TURN), rounds=12) for way in ('network', 'window'))
  state = whole.run()[0]
  assert_same_bits(state.server['params'], window.run()[0].server['params'])
  accuracy = whole.accuracy(state)
  assert len(set(accuracy.tolist())) == 1
  assert len(set(window.accuracy(window.run()[0]).tolist())) == 2


def test_random_channels_are_others_in_every_round_and_group():
  made = made_with(methods.federated_dropout(SGD, **TURN), [WIDE, HALF, HALF], [1, 1, 1])
  method = made.method
  sent = [
    method.server.send(made.key, t, made.groups, made.state.server, made.plan.participants, made.data) for t in (0, 1)
  ]
  whole = np.asarray(made.state.server['params'][0]['net']['layers_0']['kernel'])
  seen = []
  for downs in sent:
    for down in downs[1:]:
      kernel = np.asarray(down.shared['params']['net']['layers_0']['kernel'])
      columns = [int(np.flatnonzero((whole == column[:, None]).all(0))[0]) for column in kernel.T]
      assert len(set(columns)) == 4
      seen.append(tuple(columns))
  assert len(set(seen)) == 4


def test_the_window_that_was_trained_last_is_that_of_the_round_before():
  """After two rounds window 1; before the first round window 0, as no other has been trained."""
  made = made_with(methods.fedrolex(SGD, inference='trained', **TURN))
  after = made.run(2)[0]
  for state, o in ((made.state, 0), (after, 1)):
    whole = np.asarray(state.server['params'][0]['net']['layers_0']['kernel'])
    window = made.method.variables(state, 1)['params']['net']['layers_0']['kernel'][0]
    np.testing.assert_array_equal(window, whole[:, o : o + 4])


@pytest.mark.parametrize('make', [methods.heterofl, methods.fedrolex])
def test_weighted_means_are_by_examples_over_all_holders(make):
  """With whole networks alone, and clients of unequal size and different classes, FedAvg's."""
  parts = [np.arange(8), np.arange(8, 24)]
  turns = plan.synchronous()([2], 2)
  ours = problem(make(SGD, masked=False, weighted=True, **TURN), [WIDE], [2], turns, parts)
  theirs = problem(methods.fedavg(SGD, steps=2, batch=6), [WIDE], [2], turns, parts)
  assert_close(ours.run()[0].server['params'][0], theirs.run()[0].server['params'], rtol=1e-5)
