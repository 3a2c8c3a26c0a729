"""Velo: when its autoencoder learns, on what, and what it can draw. Clients are Felo's."""

import functools
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, local, methods, models, servers, types
from fedkd.methods.velo import LOSSES, active_units, code, elbo, generator, scaled
from fedkd.types import Masked
from helpers import assert_close, assert_same_bits, bound, pool, preprocessed
from lone_servers import KEY, groups_of, uploads_of

CLASSES, WIDTH, INITIAL = 3, 4, 2
SLOTS = (jnp.array([0, 1]),)


PLAIN = {'latent': 0, 'loss': elbo, 'variance': 1.0, 'relu': False, 'width': WIDTH}
PLAIN |= {'limit': 50, 'first': 0, 'interval': 1, 'lag': 0, 'tx': optax.adam(1e-2), 'work': local.Work(4, epochs=2)}


@functools.cache
def compiled(interval=1, lag=0):
  """(server, its compiled `receive`)."""
  server = generator(**{**PLAIN, 'first': INITIAL, 'interval': interval, 'lag': lag})
  return server, jax.jit(bound(server).receive)


def uploads(t):
  """What two clients say in round t; nobody has class 2."""
  value = np.random.default_rng(t).normal(size=(2, CLASSES, WIDTH))
  return (uploads_of(value, [[True, True, False], [True, False, False]]),)


@functools.cache
def history(interval=1):
  """[(state, info)] before round 0 and after each of eight rounds; the same randomness in every one."""
  server, receive = compiled(interval)
  rounds = [(server.init(KEY, groups_of(2, classes=CLASSES), (), ()), {})]
  for t in range(8):
    rounds.append(receive(jax.random.key(5), jnp.int32(t), rounds[-1][0], uploads(t), SLOTS))
  return rounds


def features(server, key, state, ids=SLOTS):
  """[Sent] per group."""
  return [down.shared['knowledge'] for down in bound(server).send(key, 0, state, ids)]


def moved(old, new):
  return any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(*map(jax.tree.leaves, (old, new)), strict=True))


@pytest.mark.slow
def test_one_feature_per_class_for_all_clients_of_a_round_and_another_in_the_next():
  server, state = compiled()[0], history()[4][0]
  keys = jax.random.split(KEY)
  first, again, alone = (features(server, keys[0], state, ids) for ids in (SLOTS * 2, SLOTS * 2, (jnp.array([7]),)))
  assert_same_bits(first, again)
  assert_same_bits(first[0], first[1])  # every group
  assert_same_bits(alone[0], first[0])  # whoever listens
  (later,) = features(server, keys[1], state)
  assert (np.asarray(later.value[:2]) != np.asarray(first[0].value[:2])).all()
  np.testing.assert_array_equal(first[0].valid, [True, True, False])  # nobody has class 2
  assert bound(server).send(keys[0], 0, state, SLOTS)[0].own == ()


@pytest.mark.parametrize('interval', [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_autoencoder_learns_before_every_round_that_is_due_and_in_no_other(interval):
  """Algorithm 2 trains at the beginning of round t, here at the end of the one before."""
  rounds = history(interval=interval)
  for t in range(8):
    (old, _), (new, info) = rounds[t : t + 2]
    due = t + 1 >= INITIAL and (t + 1 - INITIAL) % interval == 0
    assert bool(info['cvae_trained']) == due
    assert moved(old['cvae'], new['cvae']) == due
    np.testing.assert_array_equal(new['store']['count'], [2 * (t + 1), t + 1, 0])  # stored in every round
    if t and not due:
      assert float(info['cvae_kl']) == float(rounds[t][1]['cvae_kl'])  # the last training's
    server = compiled(interval=interval)[0]
    assert features(server, KEY, new)[0].valid.any() == (t + 1 >= INITIAL)  # before, there is nothing to draw from


def test_with_a_lag_it_learns_from_the_rounds_before_the_present_one():
  """The lagging one in round t is the prompt one that got round t's uploads only after its training."""
  _, receive = compiled()
  _, lagging = compiled(lag=1)
  (before, _), (_, info) = history()[3:5]  # the prompt one, between rounds 2 and 3
  state, late = lagging(jax.random.key(5), jnp.int32(3), before, uploads(3), SLOTS)
  silence = jax.tree.map(jnp.zeros_like, uploads(3))
  expected, _ = receive(jax.random.key(5), jnp.int32(3), before, silence, SLOTS)
  assert bool(late['cvae_trained'])
  assert_close(state['cvae'], expected['cvae'])
  np.testing.assert_array_equal(state['store']['count'], before['store']['count'] + jnp.array([2, 1, 0]))
  assert float(info['cvae_reconstruction']) != float(late['cvae_reconstruction'])


def test_a_class_that_comes_after_a_training_is_not_drawn_before_the_next():
  """Its code in the autoencoder is still what it was at random."""
  server, receive = compiled(interval=3)
  state = history(interval=3)[3][0]  # trained before round 2, due again before round 5
  late = (uploads_of(np.ones((2, CLASSES, WIDTH)), [[False, False, True]] * 2),)
  for t, valid in ((3, False), (4, True)):
    state, info = receive(KEY, jnp.int32(t), state, late, SLOTS)
    assert bool(info['cvae_trained']) == valid
    assert int(state['store']['count'][2]) > 0
    np.testing.assert_array_equal(features(server, KEY, state)[0].valid, [True, True, valid])


def test_it_does_not_learn_from_nothing():
  server, receive = compiled()
  before = server.init(KEY, groups_of(2, classes=CLASSES), (), ())
  state, info = receive(KEY, jnp.int32(INITIAL), before, jax.tree.map(jnp.zeros_like, uploads(0)), SLOTS)
  assert not info['cvae_trained']
  assert_same_bits(state['cvae'], before['cvae'])
  assert not features(server, KEY, state)[0].valid.any()


# Losses.

S = np.random.default_rng(0).normal(size=(6, WIDTH)).astype(np.float32)
NORMAL = jnp.zeros((6, 2)), jnp.zeros((6, 2))


@pytest.mark.parametrize('loss', LOSSES.values(), ids=LOSSES)
def test_a_perfect_reconstruction_from_the_prior_costs_nothing(loss):
  assert [float(part) for part in loss(S, S, *NORMAL)] == [0, 0]


def test_the_two_losses_in_numpy():
  rng = np.random.default_rng(1)
  rebuilt, mean, log_variance = (rng.normal(size=shape).astype(np.float32) for shape in ((6, WIDTH), (6, 2), (6, 2)))
  kl = 0.5 * (np.exp(log_variance) + mean**2 - 1 - log_variance)
  both = (S, rebuilt, mean, log_variance)
  np.testing.assert_allclose(elbo(*both), [0.5 * ((S - rebuilt) ** 2).sum() / 6, kl.sum() / 6], rtol=1e-5)
  np.testing.assert_allclose(code(*both), [((S - rebuilt) ** 2).mean(), kl.sum()], rtol=1e-5)


def test_the_noise_of_the_decoder_in_numpy():
  squares = np.float32([0.5, 3.0])  # half the squared error of vectors of 4 numbers
  np.testing.assert_allclose(scaled(squares, 4, 0.25), 4 * squares)
  best = 2 * squares / 4  # log(variance) + squared error / variance, whose least value is at the mean squared error
  likelihood = lambda v: 0.5 * 4 * np.log(v) + squares / v
  np.testing.assert_allclose(scaled(squares, 4, 0), likelihood(best) - 2, rtol=1e-6)
  assert (likelihood(best) < np.minimum(likelihood(1.01 * best), likelihood(0.99 * best))).all()


# What it can draw.


def test_units_are_used_if_their_means_vary_inside_a_class():
  """The first varies by 0.02, the second by 0.005, the third only between classes."""
  row = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]])
  inside = np.array([1, -1, 1, -1, 9])  # the last is not stored
  mean = np.stack([np.sqrt(0.02) * inside, np.sqrt(0.005) * inside, [3, 3, 5, 5, 0]], 1)
  assert float(active_units(jnp.float32(mean + 7), jnp.float32(row), jnp.float32(4))) == 1


@pytest.mark.parametrize(
  ('scale', 'variance', 'share', 'active'),
  [
    (1.0, 1.0, (8 / 9, 3 / 4), 2),
    pytest.param(0.5, 0.25, (8 / 9, 3 / 4), 2, marks=pytest.mark.slow),  # the same in other units
    pytest.param(
      0.3, 1.0, (0, 0), 0, marks=pytest.mark.slow
    ),  # all is narrower than the noise: only the class means are left
    # One direction, and the mean of the other variances, 1.36, as the best noise.
    pytest.param(0.5, 0.0, (0.85, 0), 1, marks=pytest.mark.slow),
  ],
)
def test_it_draws_from_the_gaussian_of_each_class(scale, variance, share, active):
  """Class means within 0.25, large variances v as v - 1 within a fifth of v, the absent class masked.

  The decoder is linear in z and in the label's code: a mean for each class, but one covariance for all of them, so the
  data share theirs. Eq. 2 explains unit noise around the decoder, which draws without it: of a variance of 9 come back
  8, of 4 come back 3, and what is narrower than the noise (0.04) collapses to the mean (Tipping and Bishop, 1999). Four
  ReLUs in the encoder pass on two directions of the four. `scale` multiplies everything; units that vary count as used.
  """
  rng = np.random.default_rng(0)
  mean = np.array([[4.0, 0, -4, 2], [-4, 4, 0, -2], [0, 0, 0, 0]])
  deviation = np.array([3.0, 2.0, 0.2, 0.2])
  places = 1000
  value = scale * (mean[:, None] + deviation * rng.normal(size=(CLASSES, places, WIDTH)))
  training = {'tx': optax.adam(3e-3), 'work': local.Work(50, epochs=60)}
  server = generator(**{**PLAIN, **training, 'limit': places, 'variance': variance})
  state = server.init(KEY, groups_of(1, classes=CLASSES), (), ())
  buffer = {
    'value': jnp.asarray(value, jnp.float32),
    'count': jnp.array([places, places, 0]),
    'since': jnp.zeros((CLASSES, places)),
  }
  nothing = jax.tree.map(jnp.zeros_like, uploads(0))
  state, info = jax.jit(bound(server).receive)(KEY, jnp.int32(0), {**state, 'store': buffer}, nothing, SLOTS)
  assert bool(info['cvae_trained'])
  assert int(info['cvae_active']) == active
  assert (float(info['cvae_kl']) < 0.1) == (not active)
  draw = jax.jit(jax.vmap(lambda key: bound(server).send(key, 1, state, SLOTS)[0].shared['knowledge']))
  drawn = draw(jax.random.split(KEY, 2000))
  np.testing.assert_array_equal(drawn.valid, np.tile([True, True, False], (2000, 1)))
  for c in range(2):
    got = np.asarray(drawn.value[:, c]) / scale
    np.testing.assert_allclose(got.mean(0), mean[c], atol=0.25)
    np.testing.assert_allclose(got.var(0) / deviation**2, [*share, 0, 0], atol=0.2)


# Refusals, and what clients send.


def test_every_option_of_the_autoencoder_reaches_it(monkeypatch):
  module, told = sys.modules['fedkd.methods.velo'], []
  bind = inspect.signature(generator).bind
  monkeypatch.setattr(module, 'generator', lambda *args, **how: told.append(bind(*args, **how).arguments) or CLASSES)
  monkeypatch.setattr(module, 'exchanging', lambda tx, logits, features, *_, **__: features(width=WIDTH))
  options = {'interval': 2, 'latent': 6, 'relu': True}
  cvae = {'lag': 1, 'epochs': 7, 'batch': 8, 'rate': 0.25}
  cvae = {f'cvae_{name}': value for name, value in cvae.items()}
  methods.velo(optax.sgd(0.1), limits=(10, 20), initial=3, vae_loss='code', **options, **cvae)
  methods.velo(optax.sgd(0.1), vae_variance=0.5)
  tx, length = told[0].pop('tx'), {'first': 3, 'lag': 1, 'work': local.Work(8, epochs=7)}
  assert told[0] == {'limit': 10, 'width': WIDTH, 'variance': 1.0, 'loss': code, **options, **length}
  np.testing.assert_allclose(tx.update(1.0, tx.init(1.0))[0], -0.25, rtol=1e-4)
  assert told[1]['variance'] == 0.5


@pytest.mark.parametrize(('initial', 'lag', 'first'), [(0, 0, 1), (0, 1, 2), (1, 1, 2), (5, 1, 5)])
def test_it_first_learns_when_features_are_stored(monkeypatch, initial, lag, first):
  """Those of round 0 are there in round 1; with a lag they are learned from at the end of that."""
  module, told = sys.modules['fedkd.methods.velo'], []
  monkeypatch.setattr(module, 'generator', lambda **how: told.append(how['first']) or CLASSES)
  monkeypatch.setattr(module, 'exchanging', lambda tx, logits, features, *_, **__: features(width=WIDTH))
  methods.velo(optax.sgd(0.1), initial=initial, cvae_lag=lag)
  assert told == [first]


def test_before_the_first_training_there_is_no_loss_of_the_autoencoder():
  losses = ('cvae_reconstruction', 'cvae_kl', 'cvae_active')
  for name in losses:
    values = [float(info[name]) for _, info in history()[1:]]
    assert np.isnan(values).tolist() == [t + 1 < INITIAL for t in range(8)]


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'interval': 0}, r'interval=0 must be a whole number of at least 1'),
    ({'cvae_epochs': 0}, r'cvae_epochs=0 must be a whole number of at least 1'),
    ({'latent': -1}, r'latent=-1 must be a whole number of at least 0'),
    ({'cvae_lag': 2}, r'cvae_lag=2 must be .*at most 1'),
    ({'vae_loss': 'mse'}, r"vae_loss='mse' is unknown; choose one of elbo, code"),
    ({'vae_variance': -0.5}, r'vae_variance=-0.5 must be .*at least 0'),
    ({'vae_variance': 0.0, 'vae_loss': 'code'}, r"vae_variance=0.0 must be 1 with vae_loss='code'"),
    ({'upload': 'all'}, r"upload='all' is unknown; choose one of class_mean, per_sample"),
    ({'knowledge_rule': aggregate.mean, 'upload': 'per_sample'}, r"knowledge_rule .* set upload='class_mean'"),
    ({'feature_align': 'linear'}, r"feature_align='linear' is unknown; choose one of none, pool, group"),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.velo(optax.sgd(0.1), **wrong)


def test_features_per_example_are_kept_up_to_the_limit():
  buffer = servers.class_buffer(CLASSES, 3, WIDTH)
  label = jnp.zeros((1, 5), jnp.int32)
  valid = jnp.ones((1, 5), bool)
  value = jnp.arange(5.0)[None, :, None] * jnp.ones(WIDTH)
  buffer = servers.push(buffer, 0, ({'knowledge': Masked(value, valid), 'label': Masked(label, valid)},))
  assert sorted(np.asarray(buffer['value'][0, :, 0])) == [2, 3, 4]


@pytest.mark.slow
def test_a_knowledge_rule_reduces_the_latest_logits():
  how = {'initial': 1, 'limits': (9, 9), 'cvae_epochs': 1, 'knowledge_rule': aggregate.median}
  server = methods.velo(optax.sgd(0.1), **how).server
  images = pool(2)
  net = preprocessed(models.MLP((WIDTH,), classes=CLASSES))
  variables = {'batch_stats': {}, **net.init(KEY, images.example[:1], False)}
  group = types.Group('g', net, np.arange(3))
  data = (types.Data(images, None, None),)
  state, server = server.init(KEY, (group,), (variables,), data), bound(server, (group,), data)
  logits = np.random.default_rng(0).normal(size=(3, CLASSES, CLASSES)).astype(np.float32)
  valid = jnp.ones((3, CLASSES), bool)
  knowledge = {'features': Masked(jnp.ones((3, CLASSES, WIDTH)), valid), 'logits': Masked(jnp.asarray(logits), valid)}
  knowledge['label'] = Masked(jnp.tile(jnp.arange(CLASSES), (3, 1)), valid)
  rows = jax.tree.map(lambda a: jnp.stack([a, a, a]), variables)
  uploads = ({'weights': {**rows, 'count': jnp.ones(3, jnp.int32)}, 'knowledge': knowledge},)
  state, info = jax.jit(server.receive)(KEY, jnp.int32(0), state, uploads, (jnp.arange(3),))
  down = server.send(KEY, jnp.int32(1), state, (jnp.arange(3),))[0].shared['knowledge']
  np.testing.assert_allclose(down['logits'].value, np.median(logits, 0), rtol=1e-6)
  assert set(info) == {
    'known_classes',
    'knowledge_age',
    'feature_age',
    'cvae_trained',
    'cvae_reconstruction',
    'cvae_kl',
    'cvae_active',
  }
