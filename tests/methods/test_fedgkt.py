"""FedGKT: logits come back to the examples they belong to, what crosses the wire, and what a client's model is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, local, losses, methods, models
from fedkd.models.base import Preprocessed
from fedkd.models.gkt import GKTServer
from fedkd.types import Data, Download, ExampleIndices, Group, Masked, Pool
from helpers import CLASSES, assert_close, bound, pool, preprocessed
from lone_servers import KEY, received

CHANNELS, SIDE = 4, 2
PLACES = 3, 4  # per group, rows of a client with padding
SIZES = 3, 2, 4, 1  # rows of each client, two per group
NET = preprocessed(models.GKTClient(channels=CHANNELS, classes=CLASSES))
WIDTH = 0.125
SERVER = GKTServer(blocks=(1,), width=WIDTH, classes=CLASSES)  # compilation is what a server costs here


def fedgkt(tx=None, **how):
  how = {'epochs': None, 'steps': 1, 'server_blocks': (1,), 'server_width': WIDTH, 'server_epochs': 1, **how}
  return methods.fedgkt(tx or optax.sgd(0.1), **how)


def shapes(net, images):
  return jax.eval_shape(lambda: net.init(KEY, images.example[:1], False))


def test_equal_logits_cost_nothing():
  logits = jnp.array([3.0, -1.0, 0.5])
  value, gradient = jax.value_and_grad(losses.kl)(logits, logits, 3.0)
  assert abs(float(value)) < 1e-6
  np.testing.assert_allclose(gradient, 0, atol=1e-6)


# Back to whom it belongs.


@functools.cache
def exchange():
  """(method whose server does not learn, its first state, its compiled `receive`); a batch is all that is received."""
  method, images = fedgkt(optax.sgd(0.0), batch=7), pool(SIDE)
  groups = tuple(Group(f'g{g}', NET, np.array([2 * g, 2 * g + 1])) for g in range(2))
  data = tuple(Data(images, ExampleIndices(jnp.zeros((2, n), jnp.int32), None, None), None) for n in PLACES)
  variables = (shapes(NET, images),) * 2
  state = jax.jit(lambda: method.server.init(KEY, groups, variables, data))()
  return method, state, jax.jit(bound(method.server).receive)


def maps_of(client, t):
  return np.random.default_rng([client, t]).normal(size=(SIZES[client], SIDE, SIDE, CHANNELS)).astype(np.float32)


def upload(t, slots, places):
  """The messages of the clients `slots`; an empty slot and padding are junk that nobody sent."""
  maps = np.full((len(slots), places, SIDE, SIDE, CHANNELS), 1e3, np.float32)
  valid = np.zeros((len(slots), places), bool)
  for m, client in enumerate(slots):
    if client >= 0:
      maps[m, : SIZES[client]], valid[m, : SIZES[client]] = maps_of(client, t), True
  sent = lambda value: Masked(jnp.asarray(value), jnp.asarray(valid))
  return {
    'map': sent(maps),
    'logits': sent(np.zeros((len(slots), places, CLASSES), np.float32)),
    'label': sent(np.zeros((len(slots), places), np.int32)),
  }


def after(t, state, *ids):
  receive, uploads = exchange()[2], tuple(upload(t, slots, n) for slots, n in zip(ids, PLACES, strict=True))
  return receive(jax.random.key(t), jnp.int32(t), state, uploads, tuple(jnp.array(slots) for slots in ids))[0]


def answers(t, clients):
  """{client: the server's logits for its maps}, from one pass over the maps of all together."""
  net = {'params': exchange()[1]['learner'].params, 'batch_stats': exchange()[1]['learner'].batch_stats}
  maps = jnp.concatenate([maps_of(client, t) for client in clients])
  logits = jax.jit(lambda maps: SERVER.apply(net, maps, True, mutable=['batch_stats'])[0][0])(maps)
  ends = np.cumsum([SIZES[client] for client in clients])
  return dict(zip(clients, np.split(np.asarray(logits), ends[:-1]), strict=True))


def assert_known(state, expected):
  """Every client gets the logits of its own examples, in order, and knows of no others."""
  server = exchange()[0].server
  for g, down in enumerate(bound(server).send(KEY, 0, state, (jnp.array([1, 0, -1]), jnp.array([3, 2, -1])))):
    assert down.shared == ()
    for client, value, known in zip([2 * g + 1, 2 * g], down.own.value, down.own.valid, strict=False):
      size = SIZES[client] if client in expected else 0
      np.testing.assert_array_equal(known, np.arange(PLACES[g]) < size)
      if size:
        np.testing.assert_allclose(value[:size], expected[client], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_logits_come_back_to_the_client_and_the_example():
  _, blank, _ = exchange()
  assert_known(blank, {})
  first = answers(0, [1, 3, 2])
  assert_known(after(0, blank, [1, -1], [3, 2]), first)
  state = after(0, blank, [-1, 1], [2, 3])  # the same clients in other slots
  assert_known(state, first)
  state = after(1, state, [0, -1], [-1, 2])  # the others keep what they received
  assert_known(state, {**first, **answers(1, [0, 2])})


def test_two_passes_of_the_server_are_those_of_its_slow_twin():
  """Batches of 4 of the 6 examples that arrived; the second of a pass is filled from its beginning."""
  rate, alpha, temperature, batch, rng = 0.5, 0.7, 2.0, 4, np.random.default_rng(0)
  how = {'batch': batch, 'server_epochs': 2, 'server_alpha': alpha, 'temperature': temperature}
  server, state, ids = fedgkt(optax.sgd(rate), **how).server, exchange()[1], ([1, 0], [3, -1])

  def with_knowledge(up):
    value = lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    label = jnp.asarray(rng.integers(0, CLASSES, up['label'].value.shape), jnp.int32)
    logits = up['logits']._replace(value=value(up['logits'].value.shape))
    return {**up, 'logits': logits, 'label': up['label']._replace(value=label)}

  uploads = tuple(with_knowledge(upload(0, slots, n)) for slots, n in zip(ids, PLACES, strict=True))
  new = jax.jit(lambda state, uploads: received(server, state, uploads, tuple(map(jnp.array, ids))))(state, uploads)

  flat = lambda arrays: np.concatenate([np.asarray(a).reshape(-1, *a.shape[2:]) for a in arrays])
  maps, theirs, label = (flat([up[name].value for up in uploads]) for name in ('map', 'logits', 'label'))
  valid = flat([up['map'].valid for up in uploads])
  rows, params, stats = np.flatnonzero(valid), state['learner'].params, state['learner'].batch_stats

  @jax.jit
  def learn(params, stats, maps, theirs, label):
    def loss_fn(params):
      (logits, _), now = SERVER.apply({'params': params, 'batch_stats': stats}, maps, True, mutable=['batch_stats'])
      p, q = (jax.nn.softmax(z / temperature) for z in (theirs, logits))
      distance = temperature**2 * jnp.sum(p * jnp.log(p / q), -1)
      ce = -jnp.log(jax.nn.softmax(logits))[jnp.arange(batch), label]
      return jnp.mean(ce + alpha * distance), (now['batch_stats'], logits)

    grads, (stats, logits) = jax.grad(loss_fn, has_aux=True)(params)
    return jax.tree.map(lambda w, g: w - rate * g, params, grads), stats, logits

  for e in range(2):
    said, count = np.zeros(theirs.shape), np.zeros(len(valid))
    key_order, _ = jax.random.split(jax.random.fold_in(KEY, e))
    order = rows[np.asarray(local.shuffle(key_order, len(valid), len(rows)))[: len(rows)]]
    for i in range(2):
      at = order[(i * batch + np.arange(batch)) % len(rows)]
      params, stats, logits = learn(params, stats, maps[at], theirs[at], label[at])
      np.add.at(said, at, np.asarray(logits))
      np.add.at(count, at, 1)
  assert_close(new['learner'].params, params, rtol=1e-3, atol=1e-4)
  assert_close(new['learner'].batch_stats, stats, rtol=1e-3, atol=1e-4)
  told = {
    k: said[rows][begin:end] / count[rows][begin:end, None] for k, begin, end in ((1, 0, 2), (0, 2, 5), (3, 5, 6))
  }
  assert_known(new, told)


def test_a_client_is_evaluated_as_its_map_and_the_server_behind_it():
  method, state, _ = exchange()
  image = pool(SIDE).example[:5]
  own = jax.jit(lambda: NET.init(jax.random.key(3), image, False))()

  @jax.jit
  def both(state):
    learner = state['learner']
    learner = learner._replace(batch_stats=jax.tree.map(lambda a: a + 0.5, learner.batch_stats))
    features = NET.apply(own, image, False)[1]['features']
    behind = SERVER.apply(local.variables(learner), features, False)[0]
    server = {**state, 'learner': learner}
    return method.predict(*method.deployed(NET, own, server, 0), server, image), behind

  predicted, behind = both(state)
  assert predicted.shape == (5, CLASSES)
  np.testing.assert_allclose(predicted, behind, rtol=1e-5, atol=1e-6)


# The client update.


def test_a_turn_learns_from_known_logits_and_sends_every_example_in_order():
  """One step on all eight rows; of the ten places two are padding, and for three rows there are logits of the
  server."""
  temperature, alpha = 3.0, 0.5
  method, images = fedgkt(batch=8, temperature=temperature, alpha=alpha), pool(4)
  index = jnp.array([*range(20, 28), 7, 7], jnp.int32)
  data = Data(images, ExampleIndices(index, jnp.int32(8), jnp.int32(0)), None)
  target = np.random.default_rng(0).normal(size=(10, CLASSES)).astype(np.float32)
  known = jnp.arange(10) < 3

  @jax.jit
  def turn():
    learner = method.client.init(KEY, NET, data, NET.init(KEY, images.example[:1], False))
    before = local.forward(NET, learner.params, learner.batch_stats, KEY, images.example[index[:8]])[0]
    after, up, info = method.client.step(KEY, 0, NET, learner, Download(own=Masked(jnp.asarray(target), known)), data)
    logits, out = NET.apply(local.variables(after), images.example[index[:8]], False)
    return before, up, info, logits, out['features']

  before, up, info, logits, maps = turn()
  p, q = (np.asarray(jax.nn.softmax(z / temperature)) for z in (target[:3], before[:3]))
  distance = temperature**2 * (p * np.log(p / q)).sum(-1)
  np.testing.assert_allclose(info['distill_loss'], distance.sum() / 8, rtol=1e-4)
  ce = -np.mean(np.asarray(jax.nn.log_softmax(before))[np.arange(8), np.asarray(images.label)[20:28]])
  np.testing.assert_allclose(info['loss'], ce + alpha * distance.sum() / 8, rtol=1e-4)
  for name, expected in {'logits': logits, 'map': maps, 'label': images.label[20:28]}.items():
    np.testing.assert_array_equal(up[name].valid, np.arange(10) < 8)
    np.testing.assert_allclose(up[name].value[:8], expected, rtol=1e-4, atol=1e-5)
  assert maps.shape == (8, 4, 4, CHANNELS)


def test_2500_examples_are_41_million_numbers_up_and_25000_down():
  method, model, rows = fedgkt(batch=256), preprocessed(models.GKTClient(classes=10)), 2500

  def turn(image):
    data = Data(
      Pool(image, jnp.zeros(4, jnp.int32)),
      ExampleIndices(jnp.zeros(rows, jnp.int32), jnp.int32(rows), jnp.int32(0)),
      None,
    )
    server = {'logits': (jnp.zeros((1, rows, 10)),), 'known': (jnp.zeros((1, rows), bool),)}
    down = bound(method.server).send(KEY, 0, server, (jnp.zeros(1, jnp.int32),))[0]
    down = down._replace(own=jax.tree.map(lambda a: a[0], down.own))
    learner = method.client.init(KEY, model, data, model.init(KEY, image, False))
    return method.client.step(KEY, 0, model, learner, down, data)[1], down

  up, down = jax.eval_shape(turn, jax.ShapeDtypeStruct((4, 32, 32, 3), jnp.uint8))
  numbers = lambda message: sum(n for n, _ in ledger.capacity(message).values())
  assert numbers(up) == rows * (16_384 + 10 + 1) == 40_987_500
  assert ledger.capacity(up)['labels'][0] == rows
  assert numbers(down) == 25_000


# Refusals.


@pytest.mark.parametrize('augmented', [{'crop': 4}, {'flip': True}])
def test_augmented_images_are_refused(augmented):
  model = Preprocessed(NET.net, NET.mean, NET.scale, **augmented)
  with pytest.raises(
    ValueError,
    match=r'crops and flips would make maps and logits differ; in a config set data.crop=0 and data.flip=False',
  ):
    fedgkt().client.init(KEY, model, None, None)


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'server_epochs': 0}, r'server_epochs=0 must be a whole number of at least 1'),
    ({'temperature': 0.0}, r'temperature=0.0 must be a number above 0'),
  ],
)
def test_a_server_that_never_learns_and_no_temperature_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    fedgkt(**wrong)


@pytest.mark.parametrize(
  ('nets', 'message'),
  [
    ((models.MLP((4,), classes=CLASSES),), r'g0 has no feature map that fedgkt could send; use GKTClient'),
    (
      (NET.net, models.GKTClient(channels=8, classes=CLASSES)),
      r'maps of fedgkt differ in shape \(\(2, 2, 4\), \(2, 2, 8\)\)',
    ),
  ],
)
def test_models_without_a_common_map_are_refused(nets, message):
  images, nets = pool(SIDE), [preprocessed(net) for net in nets]
  groups = tuple(Group(f'g{g}', net, np.array([g])) for g, net in enumerate(nets))
  with pytest.raises(ValueError, match=message):
    fedgkt().server.init(KEY, groups, [shapes(net, images) for net in nets], [Data(images, None, None)] * len(nets))
