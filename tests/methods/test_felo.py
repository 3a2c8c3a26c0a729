"""Felo: its messages and refusals, the special cases it contains, and slow twins of its server and of whole rounds."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, ledger, local, methods, models, plan
from fedkd.methods.felo import STORES, narrowed
from fedkd.types import Data, Download, ExampleIndices, Group, Masked, Pool
from helpers import (
  CLASSES,
  EXAMPLES,
  assert_close,
  assert_same_bits,
  bound,
  cases,
  pool,
  preprocessed,
  problem,
  row,
  skewed,
  softmax,
)
from lone_servers import KEY

NET = models.MLP((4,), classes=CLASSES)
STEPS, BATCH, RATE = 2, 6, 0.1
SGD = optax.sgd(RATE, momentum=0.9)


def felo(tx=SGD, **how):
  return methods.felo(tx, **{'epochs': None, 'steps': STEPS, 'batch': BATCH, **how})


# What crosses the wire.


def messages(model, side, **how):
  """Shapes of a client's upload and download on images of `side` pixels."""
  method, image = felo(**how), jax.ShapeDtypeStruct((4, side, side, 3), jnp.uint8)

  def turn(image):
    data = Data(Pool(image, jnp.zeros(4, jnp.int32)), ExampleIndices(jnp.arange(4), jnp.int32(4), jnp.int32(0)), None)
    variables = {'batch_stats': {}, **model.init(KEY, image, False)}
    groups = (Group('g', model, np.arange(1)),)
    server = method.server.init(KEY, groups, (variables,), (data,))
    down = bound(method.server, groups, (data,)).send(KEY, 0, server, (jnp.zeros(1, jnp.int32),))[0]
    state = method.client.init(KEY, model, data, variables)
    return method.client.step(KEY, 0, model, state, down, data)[1], down

  return jax.eval_shape(turn, image)


def test_a_resnet18_carries_5230_numbers_more_less_than_half_a_thousandth():
  up, down = map(ledger.capacity, messages(preprocessed(models.ResNet18(classes=10)), 32))
  numbers = lambda counts: {kind: n for kind, (n, _) in counts.items()}
  assert numbers(up) == {'weights': 11_181_642, 'statistics': 9600, 'knowledge': 5220, 'labels': 10 + 1}  # and n_k
  assert numbers(down) == {'weights': 11_181_642, 'statistics': 9600, 'knowledge': 5220, 'labels': 10}
  for way, examples in ((up, 1), (down, 0)):  # the number of examples goes with the weights
    overhead = numbers(way)['knowledge'] + numbers(way)['labels'] - examples
    assert overhead == 5230
    assert 100 * overhead / numbers(way)['weights'] == pytest.approx(0.0468, abs=5e-5)


def test_pool_makes_means_of_four_of_2048_features():
  feature = np.random.default_rng(0).normal(size=(3, 2048)).astype(np.float32)
  expected = np.stack([feature[:, 4 * i : 4 * i + 4].mean(1) for i in range(512)], 1)
  np.testing.assert_allclose(narrowed(jnp.asarray(feature), 512), expected, rtol=1e-5, atol=1e-6)
  assert_same_bits(narrowed(jnp.asarray(feature), 2048), jnp.asarray(feature))


@functools.cache
def turn_of(upload, rate=RATE):
  """(model, data, state, compiled update of a client that has only class 2, from its download)."""
  method, model, images = felo(optax.sgd(rate), upload=upload, epochs=2, steps=None), preprocessed(NET), pool()
  index = np.concatenate([np.flatnonzero(np.asarray(images.label) == 2)[:10], [7, 7, 7]])  # the last three are padding
  data = Data(images, ExampleIndices(jnp.asarray(index, jnp.int32), jnp.int32(10), jnp.int32(0)), None)
  variables = {'batch_stats': {}, **model.init(KEY, images.example[:1], False)}
  step = jax.jit(lambda down: method.client.step(KEY, jnp.int32(0), model, variables, down, data))
  return model, data, variables, step


def download(variables, valid, hole=0.0):
  """A download without weights whose classes `valid` are known, and others `hole`."""
  valid = jnp.asarray(valid)
  rng = np.random.default_rng(0)
  mean = lambda width: Masked(jnp.where(valid[:, None], rng.normal(size=(CLASSES, width)), hole), valid)
  weights = jax.tree.map(lambda a: Masked(jnp.full_like(a, jnp.nan), jnp.zeros((), bool)), variables)
  knowledge = {'features': mean(4), 'logits': mean(CLASSES), 'label': Masked(jnp.arange(CLASSES), valid)}
  return Download({'weights': weights, 'knowledge': knowledge})


def test_a_class_of_which_nothing_is_known_costs_nothing():
  """A client with class 2 only: neither the loss nor any weight notices what is known of others."""
  _, _, variables, step = turn_of('class_mean')
  nothing = step(download(variables, [False] * CLASSES))
  others = step(download(variables, [True, True, False], np.nan))
  assert_same_bits(others, nothing)
  assert float(others[2]['distill_loss']) == 0
  known = step(download(variables, [True] * CLASSES))
  assert float(known[2]['distill_loss']) > 0.1
  with pytest.raises(AssertionError, match='differs'):
    assert_same_bits(known[0], nothing[0])


def test_classes_without_examples_are_not_sent():
  _, _, variables, step = turn_of('class_mean')
  knowledge = step(download(variables, [False] * CLASSES))[1]['knowledge']
  for sent in knowledge.values():
    np.testing.assert_array_equal(sent.valid, [False, False, True])


def test_per_sample_sends_every_example_once():
  """Without learning, a message is what the model makes of the example; three rows of padding are not sent."""
  method, (model, data, variables, _) = (
    felo(optax.sgd(0.0), upload='per_sample', epochs=2, steps=None),
    turn_of('class_mean'),
  )
  up = jax.jit(lambda down: method.client.step(KEY, jnp.int32(0), model, variables, down, data)[1])(
    download(variables, [False] * CLASSES)
  )['knowledge']
  logits, out = model.apply(variables, data.pool.example[data.private.index[:10]], False)
  for sent in up.values():
    np.testing.assert_array_equal(sent.valid, np.arange(13) < 10)
  np.testing.assert_allclose(up['features'].value[:10], out['features'], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(up['logits'].value[:10], logits, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(up['label'].value[:10], 2)
  counts = ledger.count(up)
  assert {kind: int(n) for kind, (n, _) in counts.items()} == {'knowledge': 10 * (4 + CLASSES), 'labels': 10}


@pytest.mark.parametrize('method', cases([methods.felo, methods.velo], slow=[methods.velo]))
def test_the_server_keeps_the_last_examples_of_a_class(method):
  """Without learning, what is said of an example is the same in every round."""
  kept = {'features': 5, 'logits': 9}
  turns = plan.Plan((np.array([[0, 1]] * 3, np.int32), np.array([[0]] * 3, np.int32)))
  training = {'epochs': 1, 'steps': None, 'batch': BATCH, 'initial': 1, 'limits': tuple(kept.values())}
  made = problem(method(optax.sgd(0.0), upload='per_sample', **training), [NET, NET], [2, 1], turns)
  state, _ = made.run()
  said, knowledge = {name: [[] for _ in range(CLASSES)] for name in kept}, state.server['knowledge']
  buffers = {'logits': knowledge['logits'], 'features': knowledge['features']['4']}
  for g in (0, 1):
    variables, (images, private) = made.state.server['weights'][g], made.data[g][:2]
    logits, out = made.groups[g].model.apply(variables, images.example, False)
    for index, size in zip(private.index, private.size, strict=True):
      for i in np.asarray(index[:size]):
        said['logits'][images.label[i]].append(logits[i])
        said['features'][images.label[i]].append(out['features'][i])
  for name, limit in kept.items():
    buffer = buffers[name].get('store', buffers[name])
    assert buffer['value'].shape[:2] == (CLASSES, limit)
    for c in range(CLASSES):
      assert int(buffer['count'][c]) == 3 * len(said[name][c])
      last = np.stack(3 * said[name][c])[-limit:]
      np.testing.assert_allclose(np.sort(buffer['value'][c], 0), np.sort(last, 0), rtol=1e-4, atol=1e-6)


# What it contains.

PLANS = {
  'sampled': plan.Plan((np.array([[0, 1, 2], [2, -1, -1], [0, 1, -1]], np.int32),)),
  'one client': plan.Plan((np.array([[0, -1, -1]] * 3, np.int32),)),
}


@functools.cache
def contained(name):
  """FedAvg, Private, or the Felo without distillation whose clients take the averaged weights in every round."""
  method = {
    'felo': lambda: felo(alpha=0.0, initial=2, load_in_initial=True),
    'fedavg': lambda: methods.fedavg(SGD, steps=STEPS, batch=BATCH, per_group=True),
    'private': lambda: methods.private(SGD, steps=STEPS, batch=BATCH, keep_optimizer=False),
  }[name]()
  return problem(method, [NET], [3], PLANS['sampled'])


@pytest.mark.slow
@pytest.mark.parametrize('slots', PLANS)
def test_without_distillation_it_is_fedavg_inside_each_architecture(slots):
  felo_state, fedavg_state = (contained(n)._replace(plan=PLANS[slots]).run()[0] for n in ('felo', 'fedavg'))
  assert_close(felo_state.server['weights'], fedavg_state.server, rtol=1e-6)


@pytest.mark.slow
def test_one_client_without_distillation_is_local_training():
  (state, report), (alone, alone_report) = (
    contained(n)._replace(plan=PLANS['one client']).run() for n in ('felo', 'private')
  )
  assert_close(state.server['weights'][0], local.variables(row(alone.client[0], 0)), rtol=1e-6)
  np.testing.assert_allclose(report.info[0]['loss'], alone_report.info[0]['loss'], rtol=1e-6)


# A slow twin of the server, which remembers everything that was ever said.

INITIAL = 2
ALIGNED = {'none': (4, 4), 'group': (4, 2, 4), 'pool': (4, 2)}  # widths of the groups


def groups_with(widths, each=2):
  """(groups of `each` clients, variables, data) for models whose features have the widths."""
  images = pool(2)
  nets = [preprocessed(models.MLP((w,), classes=CLASSES)) for w in widths]
  groups = tuple(Group(f'g{g}', net, np.arange(g * each, (g + 1) * each)) for g, net in enumerate(nets))
  variables = tuple({'batch_stats': {}, **net.init(KEY, images.example[:1], False)} for net in nets)
  return groups, variables, tuple(Data(images, None, None) for _ in nets)


def upload(rng, variables, width, slots):
  """Random uploads of the slots of a group; an empty one is zeros, a client uploads some of the classes."""
  valid = (rng.random((len(slots), CLASSES)) < 0.6) & (np.array(slots) >= 0)[:, None]
  valid[:, 2] &= np.array(slots) == 1  # a class that only client 1 has
  normal = lambda *shape: jnp.asarray(rng.normal(size=(len(slots), *shape)), jnp.float32)
  sent = lambda width: Masked(jnp.where(valid[..., None], normal(CLASSES, width), 0), jnp.asarray(valid))
  label = Masked(jnp.tile(jnp.arange(CLASSES), (len(slots), 1)), jnp.asarray(valid))
  weights = {
    **jax.tree.map(lambda a: normal(*a.shape), variables),
    'count': jnp.asarray(rng.integers(1, 9, len(slots))),
  }
  return {'weights': weights, 'knowledge': {'features': sent(width), 'logits': sent(CLASSES), 'label': label}}


def kept(said, store, t):
  """Of all that was said of a class, [(round, client, vector)], what the store averages after round t."""
  if store == 'per_round':
    said = [entry for entry in said if entry[0] == t]
  if store == 'latest_per_client':
    said = {client: (r, client, vector) for r, client, vector in said}.values()
  return [vector for _, _, vector in said]


@pytest.mark.parametrize(
  ('align', 'store'), cases(itertools.product(ALIGNED, (*STORES, 'medians')), fast=[('group', 'cumulative')])
)
def test_the_server_is_its_twin(store, align):
  how, mean, average = {'store': store}, np.mean, np.average
  if store == 'medians':  # by rules, of the weights and of the latest knowledge
    how, mean = {'rule': aggregate.median, 'knowledge_rule': aggregate.median}, np.median
    store, average = 'latest_per_client', lambda a, axis, n: np.median(a, axis)
  widths = ALIGNED[align]
  groups, variables, data = groups_with(widths)
  sent = [min(widths)] * len(widths) if align == 'pool' else widths
  server = felo(**how, feature_align=align, initial=INITIAL).server
  state = server.init(KEY, groups, variables, data)
  server = bound(server, groups, data)
  receive, rng = jax.jit(server.receive), np.random.default_rng(0)
  said, weights = [], list(variables)  # said: (round, group, client, class, feature, logits)
  for t in range(5):
    # Client 0 is never there, in round 1 nobody of the first group.
    ids = [[-1, 1 if t != 1 else -1]] + [[2 * g, 2 * g + 1] for g in range(1, len(widths))]
    uploads = tuple(upload(rng, v, w, slots) for v, w, slots in zip(variables, sent, ids, strict=True))
    before = weights[0]
    for g, (up, slots) in enumerate(zip(uploads, ids, strict=True)):
      knowledge = up['knowledge']
      for m, client in enumerate(slots):
        for c in np.flatnonzero(knowledge['label'].valid[m]):
          said.append((t, g, client, c, knowledge['features'].value[m, c], knowledge['logits'].value[m, c]))
      heard_of = [m for m, client in enumerate(slots) if client >= 0]
      if heard_of:
        n = np.asarray(up['weights']['count'], float)[heard_of]
        trees = {name: row(up['weights'][name], heard_of) for name in ('params', 'batch_stats')}
        weights[g] = jax.tree.map(lambda a, n=n: average(a, 0, n).astype(np.float32), trees)
    state, _ = receive(KEY, t, state, uploads, tuple(jnp.array(slots) for slots in ids))
    if t == 1:
      assert_same_bits(state['weights'][0], jax.tree.map(jnp.asarray, before))
    for g, down in enumerate(server.send(KEY, t + 1, state, tuple(map(jnp.array, ids)))):
      on = t + 1 >= INITIAL
      own, knowledge = down.shared['weights'], down.shared['knowledge']
      assert all(bool(s.valid) == on for s in jax.tree.leaves(own, is_leaf=lambda s: isinstance(s, Masked)))
      values = jax.tree.map(lambda s: s.value, own, is_leaf=lambda s: isinstance(s, Masked))
      assert_close(values, weights[g], rtol=1e-5)
      for c in range(CLASSES):
        of_class = [entry for entry in said if entry[3] == c]
        same = [entry for entry in of_class if sent[entry[1]] == sent[g]]
        logits = kept([(r, k, z) for r, _, k, _, _, z in of_class], store, t)
        features = kept([(r, k, f) for r, _, k, _, f, _ in same], store, t)
        for name, rows in (('logits', logits), ('features', features)):
          assert bool(knowledge[name].valid[c]) == (on and len(rows) > 0)
          if rows:
            np.testing.assert_allclose(knowledge[name].value[c], mean(rows, 0), rtol=1e-5, atol=1e-6)
        assert bool(knowledge['label'].valid[c]) == (on and len(logits) > 0)
  assert {entry[3] for entry in said} == {0, 1, 2}


# A slow twin of whole rounds: a network with one hidden layer, momentum, skewed labels.

FOUR, ALPHA, ROUNDS = 4, 0.7, 5  # nobody has the last of four classes
SLOTS = np.array([[0, 1, -1], [0, 1, 2], [2, -1, -1], [0, 1, 2], [1, 2, -1]], np.int32)  # client 2 is late


def server_to_client(z, target):
  """KL(received || own) and its slope."""
  p, q = softmax(z), softmax(target)
  return np.sum(q * np.log(q / p)), p - q


def client_to_server(z, target):
  """KL(own || received) and its slope."""
  p, q = softmax(z), softmax(target)
  value = np.sum(p * np.log(p / q))
  return value, p * (np.log(p / q) - value)


DIRECTIONS = {'server': server_to_client, 'client': client_to_server}


class Twin:
  """Everything in float64, one example and one class at a time."""

  def __init__(self, made, kl, share, equal_weights):
    self.kl, self.share, self.equal = kl, share, equal_weights
    images, label = made.data[0].pool
    self.x, self.label = (np.asarray(images, float).reshape(EXAMPLES, -1) - 128) / 64, np.asarray(label)
    self.size = np.asarray(made.data[0].private.size)
    net = jax.tree.map(lambda a: np.asarray(a, float), made.state.server['weights'][0]['params']['net'])
    self.weights = [net['layers_0']['kernel'], net['layers_0']['bias'], net['output']['kernel'], net['output']['bias']]
    self.own = [self.weights] * 3
    self.said = {c: ([], []) for c in range(FOUR)}  # features, logits

  def slopes(self, weights, rows, known, seen):
    """(loss, distillation, gradients) of a batch; notes what is seen of a class."""
    w1, b1, w2, b2 = weights
    grads, losses, distance = [np.zeros_like(w) for w in weights], 0.0, 0.0
    for r in rows:
      x, y = self.x[r], self.label[r]
      h = np.maximum(x @ w1 + b1, 0)
      z = h @ w2 + b2
      seen[y][0].append(h)
      seen[y][1].append(z)
      loss, dz, dh, mse, kl = -np.log(softmax(z)[y]), softmax(z) - np.eye(FOUR)[y], 0.0, 0.0, 0.0
      if y in known:
        feature, logits = known[y]
        mse, dh = np.mean((h - feature) ** 2), ALPHA * 2 * (h - feature) / len(h)
        kl, slope = self.kl(z, logits)
        kl, dz = kl * self.share, dz + ALPHA * self.share * slope
      losses, distance = losses + loss + ALPHA * (mse + kl), distance + mse + kl
      dh = (dz @ w2.T + dh) * (h > 0)
      for g, new in zip(grads, (np.outer(x, dh), dh, np.outer(h, dz), dz), strict=True):
        g += new / len(rows)
    return losses / len(rows), distance / len(rows), grads

  def turn(self, weights, known, batches):
    """(weights, mean feature and logits per class seen, [(loss, distillation) per batch])."""
    momentum, seen, log = [0.0] * 4, {c: ([], []) for c in range(FOUR)}, []
    for rows in batches:
      loss, distance, grads = self.slopes(weights, rows, known, seen)
      momentum = [0.9 * m + g for m, g in zip(momentum, grads, strict=True)]
      weights = [w - RATE * m for w, m in zip(weights, momentum, strict=True)]
      log.append((loss, distance))
    return weights, {c: [np.mean(a, 0) for a in seen[c]] for c in seen if seen[c][0]}, log

  def round(self, t, clients, batches):
    """[(loss, distillation) per client]."""
    known = {c: [np.mean(a, 0) for a in self.said[c]] for c in range(FOUR) if self.said[c][0] and t >= INITIAL}
    results = {k: self.turn(self.weights if t >= INITIAL else self.own[k], known, batches(t, k)) for k in clients}
    for k, (weights, means, _) in results.items():
      self.own[k] = weights
      for c, (feature, logits) in means.items():
        self.said[c][0].append(feature)
        self.said[c][1].append(logits)
    n = [1 if self.equal else self.size[k] for k in clients]
    self.weights = [np.average(ws, 0, n) for ws in zip(*(results[k][0] for k in clients), strict=True)]
    return [np.mean(results[k][2], 0) for k in clients]


def batches(made, t, client):
  """The rows of the pool that the round draws for this update."""
  mine = row(made.data[0].private, client)
  key_turn = jax.random.fold_in(jax.random.split(jax.random.fold_in(made.key, t), 3)[1], client)
  for i in range(STEPS):
    key_batch, _ = jax.random.split(jax.random.fold_in(key_turn, i))
    yield np.asarray(mine.index)[local.draw(key_batch, mine.index.shape[0], mine.size, BATCH)]


WAYS = [('server', 'batchmean', False), ('client', 'mean', True)]


@pytest.mark.parametrize(('direction', 'reduction', 'equal_weights'), cases(WAYS, fast=WAYS[:1]))
def test_felo_is_its_twin(direction, reduction, equal_weights):
  images, parts = skewed()
  method = felo(
    alpha=ALPHA, initial=INITIAL, kl_direction=direction, kl_reduction=reduction, equal_weights=equal_weights
  )
  made = problem(method, [models.MLP((4,), classes=FOUR)], [3], plan.Plan((SLOTS,)), parts, images, padding=3)
  twin = Twin(made, DIRECTIONS[direction], 1 / FOUR if reduction == 'mean' else 1, equal_weights)
  state, report = made.run()
  for t, slots in enumerate(SLOTS):
    clients = slots[slots >= 0]
    log = np.array(twin.round(t, clients, lambda t, k: batches(made, t, k)))
    np.testing.assert_allclose(report.info[0]['loss'][t, : len(clients)], log[:, 0], rtol=1e-4)
    np.testing.assert_allclose(report.info[0]['distill_loss'][t, : len(clients)], log[:, 1], rtol=1e-4, atol=1e-6)
    assert (log[:, 1] > 0.1).any() == (t >= INITIAL)
  net = lambda tree: [tree['layers_0'][n] for n in ('kernel', 'bias')] + [tree['output'][n] for n in ('kernel', 'bias')]
  for got, expected in zip(net(state.server['weights'][0]['params']['net']), twin.weights, strict=True):
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
  for client in range(3):
    for got, expected in zip(net(row(state.client[0], client)['params']['net']), twin.own[client], strict=True):
      np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
  means = made.server.send(KEY, ROUNDS, state.server, (jnp.arange(3),))[0].shared['knowledge']
  np.testing.assert_array_equal(means['logits'].valid, [True, True, True, False])
  for c in range(3):
    np.testing.assert_allclose(means['features'].value[c], np.mean(twin.said[c][0], 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(means['logits'].value[c], np.mean(twin.said[c][1], 0), rtol=1e-4, atol=1e-5)


# Refusals.


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'store': 'all'}, r"store='all' is unknown; choose one of cumulative, per_round, latest_per_client"),
    ({'upload': 'all'}, r"upload='all' is unknown; choose one of class_mean, per_sample"),
    ({'upload': 'per_sample', 'store': 'per_round'}, r"store='per_round' needs upload='class_mean'; set store"),
    (
      {'knowledge_rule': aggregate.mean, 'upload': 'per_sample'},
      r"knowledge_rule reduces the latest class means of every client, not upload='per_sample' with store='cumulative'",
    ),
    ({'knowledge_rule': aggregate.mean, 'store': 'per_round'}, r"not upload='class_mean' with store='per_round'; set"),
    ({'feature_align': 'linear'}, r"feature_align='linear' is unknown; choose one of none, pool, group"),
    ({'kl_reduction': 'sum'}, r"kl_reduction='sum' is unknown; choose one of batchmean, mean"),
    ({'kl_direction': 'both'}, r"kl_direction='both' is unknown; choose one of server, client"),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    felo(**wrong)


@pytest.mark.parametrize(
  ('align', 'widths', 'message'),
  [
    (
      'none',
      (4, 2),
      r"feature_align='none' but the widths of features differ \(g0: 4, g1: 2\); set feature_align \(method.feature",
    ),
    (
      'pool',
      (5, 2),
      r"'pool' needs widths that are multiples of the smallest \(g0: 5, g1: 2\); .*in a config\) to 'group'",
    ),
  ],
)
def test_widths_that_do_not_fit_are_refused(align, widths, message):
  with pytest.raises(ValueError, match=message):
    felo(feature_align=align).server.init(KEY, *groups_with(widths))


def test_features_that_are_no_vectors_are_refused():
  _, _, data = groups_with((4,))
  model = preprocessed(models.GKTClient(channels=2, classes=CLASSES))
  shapes = jax.eval_shape(lambda: model.init(KEY, data[0].pool.example[:1], False))
  with pytest.raises(ValueError, match=r'of GKTClient have shape \(2, 2, 2\), not \[width\]; choose another model'):
    felo().server.init(KEY, (Group('g0', model, np.arange(1)),), (shapes,), data)
