"""NNX modules as models: instances, classes and functions of rngs, and what of their state is refused."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import fedkd
from fedkd import methods
from fedkd.errors import ConfigError
from fedkd.models import from_nnx, nnx_state
from fedkd.servers import layer_subset
from helpers import cases
from nnx_nets import CLASSES, WIDTH, Net, Plain

KEY = jax.random.key(0)
Y = np.arange(120) % CLASSES
X = (2 * np.eye(CLASSES, WIDTH)[Y] + np.random.default_rng(0).normal(size=(120, WIDTH))).astype(np.float32)
PARTS = np.array_split(np.arange(60), 3)
HELD = np.arange(90, 120)
ADAM, SGD = optax.adam(0.03), optax.sgd(0.1)
WORK = {'steps': 4, 'batch': 16}
narrow = functools.partial(Net, 4)


def federation(models, **values):
  return fedkd.federation(X, Y, PARTS, models, **values)


def simulated(method, models, rounds=10, initial='equal', **values):
  simulation = fedkd.simulation(method, federation(models, **values), initial=initial)
  return simulation, *simulation.run(simulation.init(KEY), rounds=rounds)


def instance(seed, make=Net):
  return make(rngs=nnx.Rngs(seed))


METHODS = {
  'fedhe': (methods.fedhe(ADAM, **WORK), {}),
  'fedproto': (methods.fedproto(ADAM, epochs=2), {}),
  'fedmd': (methods.fedmd(ADAM, subset=20, **WORK), {'public': np.arange(60, 90)}),
}


@pytest.mark.parametrize('name', cases(METHODS, slow=['fedproto', 'fedmd']))
def test_dropout_batchnorm_and_features_are_trained(name):
  method, values = METHODS[name]
  models = [Net, narrow, Net] if name != 'fedproto' else [Net]
  simulation, state, _ = simulated(method, models, 15, **values)
  assert simulation.accuracy(state, X[HELD], Y[HELD]).mean() > 0.6
  module, variables = simulation.model(state, 0)
  assert np.abs(variables['batch_stats']['net']['net']['norm']['mean']).max() > 0.05  # moved in training
  features = module.apply(variables, X[HELD], False)[1]['features']
  logits = module.apply(variables, features, method='head')
  np.testing.assert_array_equal(logits, module.apply(variables, X[HELD], False)[0])
  np.testing.assert_allclose(simulation.logits(state, X[HELD])[0], logits, rtol=1e-5, atol=1e-6)


def test_dropout_draws_in_training_alone_and_for_each_key_anew():
  group = federation([Net]).groups[0]
  variables = group.model.init(KEY, X[:4], False)
  forward = lambda train, **rngs: group.model.apply(variables, X, train, rngs=rngs, mutable=['batch_stats'])[0][0]
  first, again, other = (forward(True, dropout=jax.random.key(seed)) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert np.abs(first - other).max() > 0.01
  np.testing.assert_array_equal(forward(False, dropout=KEY), forward(False))


class Noisy(nnx.Module):
  """Draws from streams of other names, which start from seeds of their own."""

  def __init__(self, rngs):
    self.output, self.noise = nnx.Linear(WIDTH, CLASSES, rngs=rngs), nnx.Rngs(noise=7)
    self.drops = nnx.List([nnx.Dropout(0.5, rngs=nnx.Rngs(3)) for _ in range(2)])
    self.training = True

  def masks(self, x):
    return [drop(jnp.ones((8, WIDTH))) for drop in self.drops]

  def __call__(self, x):
    noise = self.noise.noise.normal(x.shape) if self.training else 0.0
    return self.output(self.drops[0](x) + noise)


@pytest.mark.parametrize('model', [Noisy, Noisy(nnx.Rngs(0))])
def test_every_stream_of_random_numbers_follows_the_key_of_dropout(model):
  net = from_nnx.as_linen(model, 'models')
  variables = net.init(KEY, X[:1], lambda module, x: module.output(x))
  draw = lambda seed, of: net.apply(variables, X, of, rngs={'dropout': jax.random.key(seed)})
  noise = lambda module, x: module.noise.noise.normal((3,))
  assert np.abs(draw(0, noise) - draw(1, noise)).min() > 0
  one, other = draw(0, Noisy.masks)
  assert (one != other).any()  # two layers made from one seed do not share their masks
  assert (one != draw(1, Noisy.masks)[0]).any()


class Heeding(nnx.Module):
  """A layer with a flag for training."""

  def __init__(self, rngs):
    self.drop = nnx.Dropout(0.5, rngs=rngs)

  def __call__(self, x, train):
    return self.drop(x, deterministic=not train)


class OfLayers(nnx.Module):
  """Its two parts are layers."""

  def __init__(self, rngs):
    self.features, self.head = Heeding(rngs), nnx.Linear(WIDTH, CLASSES, rngs=rngs)


def test_a_layer_may_be_the_features_and_gets_its_flag():
  model = federation([OfLayers]).groups[0].model
  variables = model.init(KEY, X[:4], False)
  features = lambda train: model.apply(variables, X[:4], train, rngs={'dropout': KEY})[1]['features']
  np.testing.assert_array_equal(features(False), X[:4])
  assert (features(True) == 0).any()


# What clients start from.


def test_equal_modules_are_one_architecture_whatever_their_weights_and_modes():
  evaluating = instance(2)
  evaluating.eval()
  with pytest.warns(UserWarning, match='give initial=.own.'):
    simulation = fedkd.simulation(METHODS['fedhe'][0], federation([instance(0), instance(1), evaluating]))
  groups = simulation.federation.groups
  assert [(group.name, list(group.ids)) for group in groups] == [('Net', [0, 1, 2])]
  groups = federation([instance(0), instance(0, narrow), instance(1)]).groups
  assert [(group.name, list(group.ids)) for group in groups] == [('Net width=6', [0, 2]), ('Net width=4', [1])]


def test_classes_and_functions_are_compared_as_fields_of_linen_modules_are():
  function = lambda width: lambda rngs: Net(width, rngs=rngs)
  names = lambda models: [(group.name, list(group.ids)) for group in federation(models).groups]
  assert names([Net, narrow, functools.partial(Net, 4)]) == [('Net width=6', [0]), ('Net width=4', [1, 2])]
  assert names([functools.partial(Net, 4, rngs=nnx.Rngs(k)) for k in range(3)]) == [('Net', [0, 1, 2])]
  assert names([function(4), function(6), function(4)]) == [('Net width=4', [0, 2]), ('Net width=6', [1])]


def kernels(state):
  return np.stack(state.client[0].params['net']['net']['hidden']['kernel'])


@pytest.mark.parametrize('model', [Plain, lambda rngs: Plain(rngs), functools.partial(Plain, rngs=nnx.Rngs(5))])
def test_classes_and_functions_start_from_the_key(model):
  simulation = fedkd.simulation(METHODS['fedhe'][0], federation([model]))
  first, other = (kernels(simulation.init(jax.random.key(seed))) for seed in (0, 1))
  np.testing.assert_array_equal(first[0], first[1])
  assert np.abs(first - other).max() > 0.1
  assert abs(first.std() - WIDTH**-0.5) < 0.3  # lecun_normal
  own = kernels(fedkd.simulation(METHODS['fedhe'][0], federation([model]), initial='own').init(KEY))
  assert np.abs(own[0] - own[1]).max() > 0.1


@pytest.mark.filterwarnings('ignore:models. the clients of Plain start')
def test_instances_bring_their_weights():
  models = [instance(seed, Plain) for seed in range(3)]
  equal, own = (
    kernels(fedkd.simulation(METHODS['fedhe'][0], federation(models), initial=initial).init(KEY))
    for initial in ('equal', 'own')
  )
  for k, model in enumerate(models):
    np.testing.assert_array_equal(equal[k], models[0].hidden.kernel[...])
    np.testing.assert_array_equal(own[k], model.hidden.kernel[...])


def test_one_instance_for_all_is_no_weights_of_their_own():
  with pytest.raises(ValueError, match=r"initial='own', but clients of Plain have NNX instances of equal weights"):
    fedkd.simulation(METHODS['fedhe'][0], federation([instance(0, Plain)]), initial='own')


def test_an_instance_is_copied():
  model = instance(0, Plain)
  before = np.array(model.hidden.kernel[...])
  model.hidden.kernel = nnx.Param(before.copy())
  made = federation([model])
  model.hidden.kernel.get_value()[:] += 1
  simulation = fedkd.simulation(METHODS['fedhe'][0], made)
  np.testing.assert_array_equal(kernels(simulation.init(KEY))[0], before)
  simulation.run(simulation.init(KEY), rounds=1)
  np.testing.assert_array_equal(model.hidden.kernel[...], before + 1)


# As a linen module.


class Linen(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(CLASSES, name='output')(nn.relu(nn.Dense(5, name='hidden')(x)))


@pytest.mark.parametrize(
  'method', [pytest.param(METHODS['fedhe'][0], marks=pytest.mark.slow), methods.fedavg(SGD, **WORK)]
)
def test_it_learns_what_the_same_linen_module_learns(method):
  model = instance(0, Plain)
  simulations = [fedkd.simulation(method, federation([net])) for net in (model, Linen())]
  start = (jax.tree.map(lambda a: a[None], {'params': {'net': {'net': nnx_state.variables(model)['params']}}}),)
  start[0]['batch_stats'] = {}
  states = [simulation.run(simulation.init(KEY, start), rounds=4)[0] for simulation in simulations]
  logits = [simulation.logits(state, X[HELD]) for simulation, state in zip(simulations, states, strict=True)]
  np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-6)
  untrained = simulations[0].logits(simulations[0].init(KEY), X[HELD])
  np.testing.assert_allclose(untrained[0], model(X[HELD]), rtol=1e-5, atol=1e-6)
  assert np.abs(untrained - logits[0]).max() > 0.1


def test_the_head_and_the_layers_are_found_in_the_order_of_the_pass():
  made = federation([Net])
  model, data = made.groups[0].model, made.data()[0]
  name = lambda path: path.removeprefix('net/net/')
  assert set(map(name, layer_subset.linear_head(model, data))) == {'head/kernel', 'head/bias'}
  order = [name(paths[0]).rpartition('/')[0] for paths in layer_subset.layers(model, data)]
  assert order == ['hidden', 'norm', 'layers/0', 'head']


def test_a_shared_head_is_that_of_an_nnx_module_alone():
  simulation, state, _ = simulated(methods.lg_fedavg(SGD, share='head', **WORK), [Net], 2)
  nets = [variables['params']['net']['net'] for _, variables in simulation.models(state)]
  spread = {name: np.ptp(np.stack([net[name]['kernel'] for net in nets]), 0).max() for name in ('hidden', 'head')}
  assert spread['head'] == 0 < spread['hidden']


class Scaled(nnx.Module):
  """A share of the first channels of a wider net."""

  def __init__(self, rate, rngs):
    width, self.rate = int(8 * rate), rate
    self.hidden, self.norm = nnx.Linear(WIDTH, width, rngs=rngs), nnx.BatchNorm(width, rngs=rngs)
    self.head = nnx.Linear(width, CLASSES, rngs=rngs)

  def features(self, x):
    return jax.nn.relu(self.norm(self.hidden(x)))


@pytest.mark.slow
def test_heterofl_averages_corners_and_the_statistics_of_single_batches():
  models = [functools.partial(Scaled, rate) for rate in (1.0, 1.0, 0.5)]
  simulation, state, _ = simulated(methods.heterofl(SGD, epochs=1, batch=10), models, 15)
  assert simulation.accuracy(state, X[HELD], Y[HELD]).min() > 0.6
  (_, wide), _, (_, slim) = simulation.models(state)
  kernel = lambda variables: variables['params']['net']['net']['hidden']['kernel']
  np.testing.assert_array_equal(kernel(wide)[:, :4], kernel(slim))
  hidden = wide['params']['net']['net']['hidden']
  outputs = X[:60] @ hidden['kernel'] + hidden['bias']
  np.testing.assert_allclose(wide['batch_stats']['net']['net']['norm']['mean'], outputs.mean(0), rtol=1e-4, atol=1e-5)


# Refusals.


class Shared(Plain):
  def __init__(self, rngs):
    super().__init__(rngs)
    self.again = self.hidden


class Circle(Plain):
  def __init__(self, rngs):
    super().__init__(rngs)
    self.inner = Plain(rngs)
    self.inner.outer = nnx.data(self)


class Tied(Plain):
  def __init__(self, rngs):
    super().__init__(rngs)
    self.pair = nnx.List([nnx.Linear(2, 2, rngs=rngs)])
    self.pair[0].kernel = self.pair[0].bias


class Counting(Plain):
  def __init__(self, rngs):
    super().__init__(rngs)
    self.cache = nnx.List([nnx.Cache(jnp.zeros(2))])


class Own(nnx.Variable):
  pass


class Buffered(Plain):
  def __init__(self, rngs):
    super().__init__(rngs)
    self.buffer = Own(jnp.zeros(2))


REFUSED = {
  Shared: r'models\[0\]: Shared holds one Linear in two places \(\w+ and \w+\); keep it in one of them',
  Circle: r'models\[0\]: Circle holds one Circle in two places \(inner.outer, which is the module itself\)',
  Tied: r'models\[0\]: Tied holds one Param in two places \(pair.0.\w+ and pair.0.\w+\)',
  Counting: r'models\[0\]: Counting has the variable cache.0 of the kind Cache, and a round carries nnx.Param and',
  Buffered: r'models\[0\]: Buffered has the variable buffer of the kind Own, .* or a plain array if it never changes',
}


@pytest.mark.parametrize('model', REFUSED)
def test_state_that_a_round_cannot_carry_is_refused_by_name(model):
  for given in (model, instance(0, model)):
    with pytest.raises(ConfigError, match=REFUSED[model]):
      federation([given])


class Random(Plain):
  def __init__(self, rngs, fixed=False):
    super().__init__(rngs)
    self.table = jax.random.normal(jax.random.key(1) if fixed else rngs(), (WIDTH,))

  def __call__(self, x):
    return super().__call__(x * self.table)


def test_a_plain_array_that_each_pass_would_draw_again_is_refused():
  with pytest.raises(ConfigError, match=r'models\[0\]: Random has the array table, drawn from rngs, .* nnx.Param'):
    federation([Random])
  assert [group.name for group in federation([functools.partial(Random, fixed=True)]).groups] == ['Random']
  assert [group.name for group in federation([Random(nnx.Rngs(0))]).groups] == ['Random']


class Wide(nnx.Module):
  def __init__(self, width, rngs):
    self.output = nnx.Linear(WIDTH, width, rngs=rngs)


NOT_MADE = {
  'an argument is missing': (Wide, r"models\[0\] is test_nnx:Wide.*: missing a required argument: 'width'; give funct"),
  'no rngs': (lambda: Plain(nnx.Rngs(0)), r'models\[0\] is test_nnx:<lambda> .*: it has no argument rngs; give'),
  'it raises': (lambda rngs: Plain(rngs).lost, r'models\[0\] test_nnx:<lambda> \(.*\) raised AttributeError'),
  'something else': (lambda rngs: 3, r'models\[0\] is test_nnx:<lambda> .*which returns a int; let it return an nnx'),
  'shapes': (nnx.eval_shape(lambda: Plain(nnx.Rngs(0))), r'models\[0\] is a Plain of shapes without weights'),
}


@pytest.mark.parametrize('case', NOT_MADE)
def test_what_makes_no_module_is_refused(case):
  model, says = NOT_MADE[case]
  with pytest.raises(ConfigError, match=says):
    federation([model])
