"""The public entry points: federations of own arrays, simulations as pure functions."""

import sys
import traceback
import types

import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
import runs
from fedkd import aggregate, codecs, experiment, methods, models, plan, servers
from fedkd.experiment.build import assembly
from fedkd.models.initial import group_variables
from fedkd.types import Client, Download, Masked, Method, Server, apply_model, own_model
from helpers import assert_close, assert_same_bits, cases

CLASSES, WIDTH, CLIENTS, SIDE = 3, 6, 4, 12
KEY = jax.random.key(0)
SGD = optax.sgd(0.1)


class Logits(nn.Module):
  """Somebody's module: no classes, no flag for training, logits alone."""

  width: int = 5

  @nn.compact
  def __call__(self, x):
    x = x.reshape(x.shape[0], -1)
    return nn.Dense(CLASSES)(nn.relu(nn.Dense(self.width)(x)))


class Smooth(nn.Module):
  """Differentiable twice, as the gradient of a gradient step needs it."""

  @nn.compact
  def __call__(self, x):
    return nn.Dense(CLASSES)(nn.tanh(nn.Dense(5)(x)))


def vectors(count=120, seed=0):
  """float32[N, WIDTH] around one centre per class, and labels."""
  random = np.random.default_rng(seed)
  label = np.arange(count) % CLASSES
  return (2 * random.normal(size=(CLASSES, WIDTH)))[label] + random.normal(size=(count, WIDTH)), label


def images(count=120, side=SIDE):
  """uint8[N, side, side, 1] that show their class as a bright band."""
  random = np.random.default_rng(0)
  label = np.arange(count) % CLASSES
  image = random.integers(0, 160, (count, side, side, 1))
  for row, c in enumerate(label):
    image[row, c * side // CLASSES : (c + 1) * side // CLASSES] += 60
  return image.astype(np.uint8), label


X, Y = vectors()
TRAIN, HELD = np.arange(100), np.arange(100, 120)
PARTS = np.array_split(TRAIN, CLIENTS)
NET = models.MLP((5,), classes=CLASSES)
OTHER = models.MLP((4,), classes=CLASSES)
NARROW = models.MLP((3,))  # a common model, which gets the classes of the clients' own
DEEP = models.MLP((4, 5), classes=CLASSES)
FEDHE = methods.fedhe(SGD, steps=2, batch=8, cold_start=0.0)


def federation(nets=(NET, NET, OTHER, OTHER), **how):
  return fedkd.federation(X, Y, PARTS, list(nets), **how)


# Every method through the entry points, on images that even FedGKT's stem can take: (factory, modules, what is given).
def _every_method():
  turn = {'steps': 2, 'batch': 8}
  wide = lambda rate: models.PreActResNet(classes=CLASSES, width=0.03, rate=rate, blocks=(1,))
  mixed, gkt, one = [NET, NET, OTHER, OTHER], [models.GKTClient(classes=CLASSES, channels=4)], [NET]
  cut = [wide(1.0), wide(1.0), wide(0.5), wide(0.5)]
  alike = [NET, NET, DEEP, DEEP]  # in the width of features
  shared, public = {'shared': [part[-6:] for part in PARTS]}, {'public': HELD[:12]}
  digest = {'subset': 8, 'digest_epochs': 1, 'digest_batch': 4, 'epochs': None}
  tables = {
    'private': (methods.private(SGD, **turn), mixed, {}),
    'agg': (methods.agg(SGD, **turn), mixed, {}),
    'fd': (methods.fd(SGD, **turn), mixed, {}),
    'fedproto': (methods.fedproto(SGD, epochs=1, batch=8), alike, {}),
    'lg_fedavg': (methods.lg_fedavg(SGD, batch=8), alike, {}),
    'fml': (methods.fml(SGD, NARROW, epochs=1, batch=8), mixed, {}),
    'fedapen': (methods.fedapen(SGD, NARROW, epochs=1, batch=8), mixed, {}),
    'fedmrl': (methods.fedmrl(SGD, NARROW, epochs=1, batch=8), mixed, {}),
    'fedkd': (methods.fedkd(SGD, NARROW, epochs=1, batch=8), mixed, {}),
    'fedtgp': (methods.fedtgp(SGD, batch=8, server_epochs=1), alike, {}),
    'fedgh': (methods.fedgh(SGD, batch=8), alike, {}),
    'fedgen': (methods.fedgen(SGD, steps=2, batch=8, server_steps=2, server_batch=4, hidden=4), one, {}),
    'public': (methods.public(SGD, **turn), mixed, public),
    'fedavg': (methods.fedavg(SGD, **turn), one, {}),
    'fedprox': (methods.fedprox(SGD, **turn), one, {}),
    'scaffold': (methods.scaffold(SGD, **turn), one, {}),
    'fedper': (methods.fedper(SGD, batch=8), one, {}),
    'fedrep': (methods.fedrep(SGD, 1, batch=8), one, {}),
    'fedbabu': (methods.fedbabu(SGD, batch=8), one, {}),
    'moon': (methods.moon(SGD, **turn), one, {}),
    'ditto': (methods.ditto(SGD, **turn), one, {}),
    'fedhe': (methods.fedhe(SGD, **turn), mixed, {}),
    'fedmd': (methods.fedmd(SGD, subset=8, digest_batch=4, epochs=None, **turn), mixed, public),
    'dsfl': (methods.dsfl(SGD, **digest, **turn), mixed, public),
    'feddf': (methods.feddf(SGD, epochs=None, server_steps=2, server_batch=4, **turn), mixed, public),
    'ktpfl': (methods.ktpfl(SGD, subset=8, digest_batch=4, epochs=2, batch=8), mixed, public),
    'rhfl': (methods.rhfl(SGD, subset=8, digest_batch=4, epochs=None, **turn), mixed, public),
    'fccl': (methods.fccl(SGD, subset=8, digest_batch=4, epochs=None, **turn), mixed, public),
    'selective_fd': (methods.selective_fd(SGD, subset=8, digest_batch=4, auxiliary=9, **turn), mixed, public),
    'scarlet': (methods.scarlet(SGD, **digest, **turn), mixed, public),
    'fedh2l': (methods.fedh2l(SGD, batch=4), mixed, shared),
    'felo': (methods.felo(SGD, epochs=1, initial=1, feature_align='group'), mixed, {}),
    'velo': (methods.velo(SGD, epochs=1, initial=1, feature_align='group', cvae_epochs=1, limits=(8, 8)), mixed, {}),
    'fiarse': (methods.fiarse(SGD, (1.0, 0.5), **turn), one, {}),
    'fedre': (methods.fedre(SGD, batch=8, head='own'), alike, {}),
    'fedkt': (methods.fedkt(SGD, teachers=2, epochs=2, student_epochs=1, final_epochs=1, batch=8), mixed, public),
    'dense': (methods.dense(SGD, 2, 8, generator_steps=2, latent=4, width=2, server_batch=4), mixed, {}),
    'coboosting': (methods.coboosting(SGD, 2, 8, generator_steps=2, latent=4, width=2, server_batch=4), mixed, {}),
    'fedgkt': (methods.fedgkt(SGD, batch=8, server_blocks=(1,), server_width=0.1, server_epochs=1), gkt, {}),
    'heterofl': (methods.heterofl(SGD, epochs=1, batch=8), cut, {}),
    'fedrolex': (methods.fedrolex(SGD, epochs=1, batch=8), cut, {}),
    'federated_dropout': (methods.federated_dropout(SGD, epochs=1, batch=8), cut, {}),
  }
  assert set(tables) == set(methods.__all__)
  return tables


# Those with rows or modules that the others do not need; `tests/test_methods.py` trains them all.
@pytest.mark.parametrize('name', cases(methods.__all__, fast=('fedmd', 'fedh2l')))
def test_every_method_runs_through_the_door(name):
  method, nets, given = _every_method()[name]
  x, y = images()
  made = fedkd.federation(x, y, PARTS, nets, **given)
  simulation = fedkd.simulation(method, made)
  before = simulation.init(KEY)
  state, report = simulation.run(before, rounds=2)
  assert int(state.round) == 2
  assert sum(int((ids >= 0).sum()) for ids in report.ids) == 2 * CLIENTS
  loss, examples = (np.concatenate([np.asarray(info[k]).ravel() for info in report.info]) for k in ('loss', 'examples'))
  assert (np.isfinite(loss) == (examples > 0)).all()  # a mean over no examples is undefined
  assert (examples > 0).sum() >= CLIENTS
  accuracy = simulation.accuracy(state, x[HELD], y[HELD])
  assert accuracy.shape == (CLIENTS,)
  networks = {'head', 'large', *(['own'] if method.deployed is own_model else [])}
  if alone := networks & {name for name, _ in method.predictions}:  # what a client deploys is its network
    accuracy = simulation.accuracy(state, x[HELD], y[HELD], inference=alone.pop())
  for client, (module, variables) in enumerate(simulation.models(state)):
    if client % 2:  # one of either group
      logits = jax.jit(lambda variables, module=module: module.apply(variables, x[HELD], False)[0])(variables)
      assert float(jnp.mean(logits.argmax(-1) == y[HELD])) == pytest.approx(float(accuracy[client]))
  moved = jax.tree.map(lambda a, b: bool((np.asarray(a) != np.asarray(b)).any()), state[2:4], before[2:4])
  assert any(jax.tree.leaves(moved))


STUDENTS = ('dsfl', 'scarlet', 'fedkt', 'dense', 'coboosting', 'fedgh', 'fedre')


@pytest.mark.parametrize('name', cases((*STUDENTS, 'feddf'), fast=('dsfl', 'fedgh')))
def test_what_a_server_trains_begins_untrained(name):
  """Given the models of an earlier phase, it knows none of them: nobody has sent any. Means of weights start from those
  of the first client."""
  method, nets, given = _every_method()[name]
  simulation = fedkd.simulation(method, fedkd.federation(*images(), PARTS, nets, **given))
  example = jax.ShapeDtypeStruct((SIDE, SIDE, 1), np.uint8)
  shapes = jax.eval_shape(lambda: tuple(group_variables(KEY, g, example) for g in simulation.federation.groups))
  marked = jax.tree.map(lambda s: np.full(s.shape, 7, s.dtype), shapes)
  server = simulation.init(KEY, marked).federated.server
  held = [leaf for path, leaf in jax.tree.leaves_with_path(server) if 'teachers' not in jax.tree_util.keystr(path)]
  assert any((np.asarray(leaf) == 7).all() for leaf in held if leaf.size > 1) == (name not in STUDENTS)
  fresh = simulation.init(KEY).federated.server
  assert kinds_of(fresh) == kinds_of(server)


@pytest.mark.parametrize('name', cases(methods.__all__, fast=('fedh2l',)))
def test_every_method_may_be_coded(name):
  """From shapes alone: a coded round leaves states of the shapes and dtypes that there were."""
  method, nets, given = _every_method()[name]
  coded = codecs.coded(method, codecs.quantised(bits=4), codecs.float16())
  simulation = fedkd.simulation(coded, fedkd.federation(*images(), PARTS, nets, **given))
  before = jax.eval_shape(simulation.init, KEY)
  after = jax.eval_shape(lambda key: simulation.round(simulation.init(key))[0], KEY)
  assert jax.tree.structure(before) == jax.tree.structure(after)
  assert kinds_of(before) == kinds_of(after)


def kinds_of(tree):
  """All that decides whether JAX compiles a program once more."""
  return [(a.shape, a.dtype, a.weak_type) for a in jax.tree.leaves(tree)]


class InHalf(nn.Module):
  """A network whose parameters are bfloat16, and that computes so."""

  classes: int = CLASSES
  width: int = 6
  lowering: str = 'auto'

  def setup(self):
    dense = lambda width: nn.Dense(width, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    self.hidden, self.output = dense(self.width), dense(self.classes)

  def features(self, x, train):
    return nn.relu(self.hidden(x.reshape(len(x), -1)))

  def head(self, f):
    return self.output(f)

  def __call__(self, x, train):
    f = self.features(x, train)
    return self.head(f), {'features': f}


# FedGKT's networks are its own.
@pytest.mark.parametrize('name', cases([n for n in methods.__all__ if n != 'fedgkt'], fast=('scaffold', 'heterofl')))
def test_every_method_trains_parameters_in_half_precision(name):
  """From shapes alone; a state of other dtypes is refused."""
  method, nets, given = _every_method()[name]
  small = InHalf(width=3 if name in ('heterofl', 'fedrolex', 'federated_dropout') else 6)
  nets = [InHalf() if net is nets[0] or len(nets) == 1 else small for net in nets]
  simulation = fedkd.simulation(method, fedkd.federation(*images(), PARTS, nets, **given))
  begun = jax.eval_shape(simulation.init, KEY)
  after = jax.eval_shape(lambda key: simulation.run(simulation.init(key), 2)[0], KEY)
  assert kinds_of(after) == kinds_of(begun)
  parameters = jax.eval_shape(lambda state: simulation.method.variables(state.federated, 0)['params'], after)
  assert {leaf.dtype for leaf in jax.tree.leaves(parameters)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize('name', cases(methods.__all__, fast=('dense',)))
def test_every_method_trains_where_numbers_of_64_bits_are_on(name):
  with jax.enable_x64(True):
    method, nets, given = _every_method()[name]
    simulation = fedkd.simulation(method, fedkd.federation(*images(), PARTS, nets, **given))
    begun = jax.eval_shape(simulation.init, KEY)
    after = jax.eval_shape(lambda state: simulation.run(state, 2)[0], begun)
    assert kinds_of(after) == kinds_of(begun)


@pytest.mark.parametrize('name', cases(methods.__all__, fast=('fedh2l', 'dense')))
def test_every_method_lowers_for_gpus_and_tpus(name):
  """A round of any number, those of the server alone too; export refuses operations that only one platform has."""
  method, nets, given = _every_method()[name]
  simulation = fedkd.simulation(method, fedkd.federation(*images(), PARTS, nets, **given))
  begun = jax.eval_shape(simulation.init, KEY)
  exported = jax.export.export(jax.jit(lambda state: simulation.round(state)[0]), platforms=('cuda', 'tpu'))(begun)
  assert exported.platforms == ('cuda', 'tpu')
  assert [(a.shape, a.dtype) for a in exported.out_avals] == [(a.shape, a.dtype) for a in jax.tree.leaves(begun)]


@pytest.mark.parametrize('initial', cases(['equal', 'own'], fast=['own']))
def test_a_notebook_and_a_run_directory_end_alike(tmp_path, initial):
  """With the split of a run the entry points give that run: to rounding, as the runner compiles weights apart."""
  file = runs.save_images(tmp_path / 'tiny.npz')
  config = runs.config(file, 'fedhe', rounds=3)
  config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  config.data.normalise, config.initial = 'mean_image', initial
  summary = experiment.run(config, tmp_path / 'run', show=False)
  parts = assembly.build(config, dry=True)
  source, split = parts.source, parts.splits[0]
  nets = [g.model.net for g in parts.groups for _ in g.ids]
  made = fedkd.federation(
    source.train_image,
    source.train_label,
    split.private,
    nets,
    validation=split.validation[0],
    normalise=fedkd.models.base.mean_image(source.train_image),  # rows that the split gives to nobody included
  )
  method = methods.fedhe(optax.adam(1e-3), steps=2, batch=8)
  simulation = fedkd.simulation(method, made, initial=initial)
  state, report = simulation.run(simulation.init(jax.random.key(0)), rounds=3)
  found = simulation.accuracy(state, source.test_image, source.test_label)
  np.testing.assert_allclose(found, np.asarray(summary['final_per_client'][0]), atol=1e-6)
  assert fedkd.ledger.total(report.up)['knowledge'][0] == summary['ledger']['up']['knowledge']['numbers'][0]
  loaded = experiment.load_all(tmp_path / 'run')
  for (_, ours), (_, theirs) in zip(simulation.models(state), loaded, strict=True):
    assert_close(ours, theirs)


def test_clients_start_from_equal_weights_or_each_from_its_own():
  """Drawn by the number of a client and its architecture, whatever the others have."""
  private = methods.private(SGD, steps=1, batch=8)

  def kernels(initial, nets=(NET,) * 4):
    simulation = fedkd.simulation(private, federation(nets), initial=initial)
    return [np.asarray(v['params']['net']['layers_0']['kernel']) for _, v in simulation.models(simulation.init(KEY))]

  assert all(np.array_equal(one, kernels('equal')[0]) for one in kernels('equal'))
  own, beside = kernels('own'), kernels('own', (OTHER, NET, OTHER, NET))
  assert len({one.tobytes() for one in own}) == 4
  assert_same_bits([own[1], own[3]], [beside[1], beside[3]])
  simulation = fedkd.simulation(methods.fedavg(SGD, steps=1, batch=8), federation((NET,) * 4), initial='own')
  _, common = simulation.model(simulation.init(KEY), 3)
  np.testing.assert_array_equal(common['params']['net']['layers_0']['kernel'], own[0])


def test_equal_modules_form_a_group_and_names_tell_groups_apart():
  made = federation([Logits(5), Logits(7), Logits(5), NET])
  assert [(g.name, g.ids.tolist()) for g in made.groups] == [
    ('Logits width=5', [0, 2]),
    ('Logits width=7', [1]),
    ('MLP 5', [3]),
  ]


def test_owners_by_example_are_the_same_as_lists_of_rows():
  owner = np.full(len(Y), -1)
  for k, part in enumerate(PARTS):
    owner[part] = k
  assert_same_bits(*(jax.tree.map(np.asarray, fedkd.federation(X, Y, p, [NET])[1:]) for p in (PARTS, owner)))


def test_float_vectors_are_learned_by_modules_from_elsewhere():
  simulation = fedkd.simulation(methods.private(optax.adam(0.03), steps=4, batch=16), federation([Logits()]))
  state, _ = simulation.run(simulation.init(KEY), rounds=25)
  assert simulation.accuracy(state, X[HELD], Y[HELD]).min() > 0.7


def test_integer_tokens_are_learned():
  random = np.random.default_rng(0)
  y = random.integers(0, CLASSES, 200)
  x = random.integers(0, 5, (200, 7))
  x[np.arange(200), random.integers(0, 7, 200)] = 10 + y  # a word that gives the class away

  class Bag(nn.Module):
    @nn.compact
    def __call__(self, tokens, train):
      return nn.Dense(CLASSES)(nn.Embed(20, 8)(tokens).mean(1))

  made = fedkd.federation(x, y, np.array_split(np.arange(160), 2), [Bag()])
  simulation = fedkd.simulation(methods.fedavg(optax.adam(0.1), steps=5, batch=20), made)
  state, _ = simulation.run(simulation.init(KEY), rounds=10)
  assert simulation.accuracy(state, x[160:], y[160:]).min() > 0.9


def test_an_nnx_module_is_trained_through_to_linen():
  class Net(nnx.Module):
    def __init__(self, rngs):
      self.hidden = nnx.Linear(WIDTH, 8, rngs=rngs)
      self.output = nnx.Linear(8, CLASSES, rngs=rngs)

    def __call__(self, x):
      return self.output(jax.nn.relu(self.hidden(x)))

  simulation = fedkd.simulation(
    methods.fedhe(optax.adam(0.03), steps=4, batch=16), federation([nnx.bridge.to_linen(Net)])
  )
  state, _ = simulation.run(simulation.init(KEY), rounds=25)
  assert simulation.accuracy(state, X[HELD], Y[HELD]).min() > 0.7


class Silent(nn.Module):
  """Has the methods for features, and returns none."""

  classes: int = CLASSES
  lowering: str = 'auto'

  def setup(self):
    self.hidden, self.output = nn.Dense(4), nn.Dense(CLASSES)

  def features(self, x, train):
    return nn.relu(self.hidden(x))

  def head(self, f):
    return self.output(f)

  def __call__(self, x, train):
    return self.head(self.features(x, train)), {}


@pytest.mark.parametrize('name', ['fedgh', 'fedproto', 'felo', 'moon'])
def test_a_method_whose_features_are_nowhere_names_the_model(name):
  method = getattr(methods, name)(SGD)
  with pytest.raises(
    ValueError, match=r'^models: Silent returns no features beside its logits, .* let `__call__` return'
  ):
    fedkd.simulation(method, federation([Silent()]))
  with pytest.raises(ValueError, match=r'^models: Logits returns logits alone, but this method needs the features'):
    fedkd.simulation(method, federation([Logits()]))


def test_a_method_that_needs_features_shows_the_two_methods_to_add():
  method = methods.felo(SGD, epochs=1)
  with pytest.raises(ValueError, match=r'Logits returns logits alone.*`features\(self, x, train\)`.*`head\(self, f\)`'):
    fedkd.simulation(method, federation([Logits()]))

  class Parts(Logits):
    def setup(self):
      self.hidden, self.output = nn.Dense(5), nn.Dense(CLASSES)

    def features(self, x, train):
      return nn.relu(self.hidden(x))

    def head(self, f):
      return self.output(f)

    def __call__(self, x):
      return self.head(self.features(x, False))

  simulation = fedkd.simulation(method, federation([Parts()]))
  assert int(simulation.run(simulation.init(KEY), rounds=1)[0].round) == 1


@pytest.mark.parametrize('flag', ['train', 'training', 'deterministic'])
def test_the_flag_for_training_reaches_a_module_under_its_name(flag):
  """Dropout of everything: logits are the bias in training, and not so in inference."""
  code = f'lambda self, x, {flag}: nn.Dense(3, bias_init=nn.initializers.ones)(drop(x, {flag}))'
  quiet = (lambda v: v) if flag == 'deterministic' else (lambda v: not v)
  drop = lambda x, value: x * quiet(value)
  call = nn.compact(eval(code, {'nn': nn, 'drop': drop}))
  net = type('Net', (nn.Module,), {'__call__': call})()
  adapted = fedkd.models.base.adapted(net, X[:1])
  variables = adapted.init(KEY, X[:1], False)
  assert (adapted.apply(variables, X[:2], True)[0] == 1).all()
  assert (adapted.apply(variables, X[:2], False)[0] != 1).any()


SIMULATION = fedkd.simulation(FEDHE, federation([NET]), plan=plan.sampled(ratio=0.5))


def test_rounds_and_runs_are_the_same_program_however_they_are_cut():
  start = SIMULATION.init(KEY)
  whole, report = SIMULATION.run(start, rounds=4)
  state = start
  for _ in range(2):
    state, one = SIMULATION.round(state)
  state, last = SIMULATION.run(state, rounds=2)
  assert_same_bits(whole[1:], state[1:])
  assert_same_bits(jax.tree.map(lambda a: a[2:], report), last)
  assert_same_bits(jax.tree.map(lambda a: a[1], report), one)
  assert_close(jax.jit(SIMULATION.round)(start)[0][1:], SIMULATION.round(start)[0][1:])


def without_models(client, server):
  """A method whose clients learn nothing."""
  nothing = lambda state, g: {'params': jnp.zeros((1, 2))}
  return Method(client, server, nothing, lambda model, variables, state, x: jnp.zeros((len(x), CLASSES)))


def test_no_key_is_given_twice():
  """Whether to clients or the server, before the first round or in one of the next."""
  told = lambda key, *_: {'key': jax.random.bits(key)}

  def send(key, t, groups, state, ids, data):
    return tuple(Download(shared=told(key)) for _ in ids)

  def step(key, t, model, state, down, data):
    return state, told(key), {'loss': jnp.float32(0), 'own': told(key)['key'], 'sent': down.shared['key']}

  server = Server(told, lambda key, *_: (told(key), told(key)), send)
  simulation = fedkd.simulation(without_models(Client(told, step), server), federation())
  first = simulation.init(KEY)
  _, report = simulation.run(first, rounds=5)
  sent = {int(key) for info in report.info for key in info['sent'].ravel()}
  assert len(sent) == 5  # one of every round, to all
  rest = [*jax.tree.leaves(first.client), first.server['key'], *(i['own'] for i in report.info), report.server['key']]
  given = [*sent, *(int(key) for a in rest for key in np.ravel(a))]
  assert len(given) == 5 + 4 + 1 + 4 * 5 + 5 == len(set(given))


def test_accuracies_are_traced_beside_arrays_that_are_on_a_device():
  held, state = (jnp.asarray(X[HELD]), jnp.asarray(Y[HELD])), SIMULATION.init(KEY)
  assert_close(jax.jit(lambda state: SIMULATION.accuracy(state, *held))(state), SIMULATION.accuracy(state, *held))


@pytest.mark.slow
def test_seeds_under_vmap_equal_single_seeds():
  keys = jax.random.split(KEY, 3)
  states = jax.vmap(SIMULATION.init)(keys)
  together, _ = jax.vmap(lambda state: SIMULATION.run(state, rounds=3))(states)
  for s in range(3):
    alone, _ = SIMULATION.run(SIMULATION.init(keys[s]), rounds=3)
    assert_close(jax.tree.map(lambda a, s=s: a[s], together)[2:], alone[2:], rtol=1e-4, atol=1e-5)


SWEEPS = {
  'alpha': lambda v: methods.fedhe(SGD, steps=2, batch=8, cold_start=0.0, alpha=v),
  'temperature': lambda v: methods.fedmd(
    SGD, subset=8, digest_batch=4, digest_loss='kl', temperature=v, steps=2, epochs=None, batch=8
  ),
  'mu': lambda v: methods.fedprox(SGD, steps=2, batch=8, mu=v),
  'learning rate': lambda v: methods.private(optax.adam(v), steps=2, batch=8),
}


@pytest.mark.parametrize('name', cases(SWEEPS, fast=('alpha',)))
def test_a_vmapped_sweep_over_a_scalar_equals_single_runs(name):
  made, values = federation([NET], public=HELD[:12]), [0.1, 0.5, 1.0, 2.0]

  def weights(value):
    simulation = fedkd.simulation(SWEEPS[name](value), made)
    state, _ = simulation.run(simulation.init(KEY), rounds=3)
    return [variables['params'] for _, variables in simulation.models(state)]

  sweep, single = jax.jit(jax.vmap(weights))(jnp.array(values)), jax.jit(weights)
  for i, value in enumerate(values):
    assert_close(jax.tree.map(lambda a, i=i: a[i], sweep), single(value), rtol=1e-3, atol=1e-5)
  first, last = (np.concatenate([np.ravel(a[i]) for a in jax.tree.leaves(sweep)]) for i in (0, -1))
  assert np.abs(first - last).max() > 1e-4  # what is swept matters


@pytest.mark.slow
def test_the_gradient_through_two_rounds_is_that_of_finite_differences():
  made = federation([Smooth()])  # a ReLU's gradient jumps, and with it what a step of training leads to

  def loss(trust):
    rule = lambda rows, weight: aggregate.mean(rows, weight * trust)
    simulation = fedkd.simulation(methods.fedavg(SGD, steps=2, batch=16, rule=rule), made)
    state, _ = simulation.run(simulation.init(KEY), rounds=2)
    model, variables = simulation.model(state, client=0)
    logits = model.apply(variables, X[HELD], False)[0]
    return optax.softmax_cross_entropy_with_integer_labels(logits, Y[HELD]).mean()

  trust, loss = jnp.ones(CLIENTS), jax.jit(loss)
  found = jax.grad(loss)(trust)
  step = 0.05
  expected = [(loss(trust.at[k].add(step)) - loss(trust.at[k].add(-step))) / (2 * step) for k in range(CLIENTS)]
  np.testing.assert_allclose(found, expected, rtol=0.05, atol=2e-5)
  assert np.abs(found).max() > 1e-4


def test_further_predictions_are_asked_for_by_name():
  """And what `variables` holds for them is no part of the model that a client deploys."""
  least = lambda model, variables, server, x: variables['sign'] * apply_model(model, variables, server, x)
  method = methods.private(optax.adam(0.03), steps=4, batch=16)._replace(predictions=(('least', least),))
  own = method.variables
  method = method._replace(variables=lambda state, g: {**own(state, g), 'sign': -jnp.ones(CLIENTS)})
  simulation = fedkd.simulation(method, federation([NET], validation=HELD))
  state, _ = simulation.run(simulation.init(KEY), rounds=25)
  right, wrong = (simulation.accuracy(state, X[HELD], Y[HELD], inference=name) for name in ('', 'least'))
  assert right.min() > 0.7
  assert wrong.max() < 0.1
  np.testing.assert_allclose(simulation.validation_accuracy(state, inference='least'), wrong)
  assert set(simulation.model(state, 0)[1]) == {'params', 'batch_stats'}
  with pytest.raises(
    ValueError, match=r"inference='best' is unknown; choose one of 'least', or leave it out; is it 'least'"
  ):
    simulation.accuracy(state, X[HELD], Y[HELD], inference='best')


def test_accuracy_is_told_apart_by_domain():
  domains = np.arange(len(Y)) // 2 % 2
  made = federation(validation=HELD, domains=domains)
  simulation = fedkd.simulation(methods.private(optax.adam(0.03), steps=4, batch=16), made)
  state, _ = simulation.run(simulation.init(KEY), rounds=5)
  found = simulation.validation_accuracy(state)
  assert found.shape == (CLIENTS, 2)
  for d in range(2):
    rows = HELD[domains[HELD] == d]
    np.testing.assert_allclose(found[:, d], simulation.accuracy(state, X[rows], Y[rows]), atol=1e-6)
  np.testing.assert_array_equal(found, simulation.accuracy(state, X[HELD], Y[HELD], domains=domains[HELD]))
  apart = np.where(domains == 1, 2, 0)  # nothing of domain 1
  found = simulation.accuracy(state, X[HELD], Y[HELD], domains=apart[HELD])
  assert np.isnan(found).tolist() == [[False, True, False]] * CLIENTS


FORMS = r'give a list with the row numbers of each client, or an array int\[120\] with the owner of each row'
START = jax.eval_shape(SIMULATION.init, KEY)  # no state is looked at
OTHERS = jax.eval_shape(fedkd.simulation(FEDHE, fedkd.federation(X, Y, PARTS[:2], NET)).init, KEY)
VARIABLES = ({'params': START.client[0].params, 'batch_stats': {}},)
WRONG = {
  'x without rows': (lambda: fedkd.federation(X[:0], Y[:0], PARTS, [NET]), r'x has shape \[0, 6\]'),
  'text': (lambda: fedkd.federation(np.array(['a']), [0], [[0]], [NET]), r'x is <U1\[1\]; give numbers'),
  'short y': (lambda: fedkd.federation(X, Y[:5], PARTS, [NET]), r'y is int64\[5\] for 120 examples; give integers'),
  'float y': (lambda: fedkd.federation(X, Y + 0.5, PARTS, [NET]), r'y is float64\[120\].*give integers'),
  'negative label': (
    lambda: fedkd.federation(X, Y - 1, PARTS, [NET]),
    r'y has the label -1; number the classes from 0',
  ),
  'label outside the head': (
    lambda: fedkd.federation(X, np.where(Y == 2, 7, Y), PARTS, [NET]),
    r'y has the label 7, but the models have 3 classes; give them at least 8',
  ),
  'overlap': (
    lambda: fedkd.federation(X, Y, [[0, 1], [1, 2]], [NET]),
    r'parts\[1\] and parts\[0\] both have row 1; give it to one of them',
  ),
  'a row that is not there': (
    lambda: fedkd.federation(X, Y, [[0, 120]], [NET]),
    r'parts\[0\] names row 120 of 120; row numbers are 0 to 119',
  ),
  'a row twice': (lambda: fedkd.federation(X, Y, [[0, 0]], [NET]), r'parts\[0\] names row 0 twice'),
  'a client without rows': (lambda: fedkd.federation(X, Y, [[0], []], [NET]), r'parts\[1\] is empty.*leave it out'),
  'nobody': (lambda: fedkd.federation(X, Y, [], [NET]), r'parts names no client'),
  'parts of floats': (lambda: fedkd.federation(X, Y, [[0.5]], [NET]), r'parts\[0\] is float64\[1\]; give row numbers'),
  'another start': (
    lambda: fedkd.simulation(FEDHE, federation(), initial='each'),
    r"initial='each' is unknown; choose one of equal, own",
  ),
  'a class': (lambda: federation([Logits] * 4), r'models\[0\] is the class Logits, not called; give a Flax module'),
  'too few modules': (lambda: federation([NET] * 3), r'models has 3 entries for 4 clients'),
  'other heads': (
    lambda: federation([NET, NET, NET, models.MLP((4,), classes=5)]),
    r'models have heads of different size \(MLP 5: 3, MLP 4: 5\)',
  ),
  'a module for images': (
    lambda: federation([models.LeNet(classes=CLASSES)]),
    r'models: LeNet 6-16 cannot take examples float32\[6\]',
  ),
  'shared and public': (
    lambda: federation(shared=[part[:1] for part in PARTS], public=HELD),
    r'public and shared are both given.*leave out one',
  ),
  'foreign shared rows': (
    lambda: federation(shared=[PARTS[1][:1]] * 4),
    r'shared\[0\] has row 25, which is not in parts\[0\]; share only own rows',
  ),
  'validation that is trained on': (lambda: federation(validation=[0]), r'validation and parts\[0\] both have row 0'),
  'domains': (lambda: federation(domains=[0, 1]), r'domains is int64\[2\]; give integers \[120\]'),
  'a plan for other clients': (
    lambda: fedkd.simulation(FEDHE, federation(), plan.synchronous()([2, 3], 1)),
    r'plan: the table of group MLP 4.*rows of its 2 clients, 0 to 1, or -1',
  ),
  'a plan for other groups': (
    lambda: fedkd.simulation(FEDHE, federation(), plan.synchronous()([4], 1)),
    r'plan has tables for 1 groups, the federation has 2 \(MLP 5, MLP 4\)',
  ),
  'a plan that selects nobody': (
    lambda: fedkd.simulation(FEDHE, federation(), plan.sampled(ratio=0.01)),
    r'^ratio=0.01 selects 0 of 4 clients; set ratio \(plan.ratio in a config\) between 0.25 and 1',
  ),
  'no public rows': (
    lambda: fedkd.simulation(methods.fedmd(SGD, subset=2), federation()),
    r'^there are no public rows; give fedkd.federation public=... or shared=..., in a config data.public or',
  ),
  'different architectures': (
    lambda: fedkd.simulation(methods.fedavg(SGD), federation()),
    r'groups have different architectures \(MLP 5, MLP 4\)',
  ),
  'a client that is not there': (
    lambda: SIMULATION.model(SIMULATION.init(KEY), 4),
    r'client=4 is unknown; the federation has clients 0 to 3',
  ),
  'other examples': (
    lambda: SIMULATION.accuracy(SIMULATION.init(KEY), X[:, :3], Y),
    r'^x has shape \[120, 3\]; give examples \[T, 6\], at least one$',
  ),
  'no rounds': (lambda: SIMULATION.run(SIMULATION.init(KEY), rounds=0), r'rounds=0 must be a whole number, at least 1'),
  **{
    f'parts {name}': (lambda parts=parts: fedkd.federation(X, Y, parts, [NET]), rf'^parts is {told}; {FORMS}')
    for name, parts, told in (
      ('as a number', 5, '5, an int'),
      ('left out', None, 'None'),
      ('as a mask', Y == 0, r'bool\[120\]'),
      ('as masks', np.stack([Y == 0, Y == 1]), r'bool\[2, 120\]'),
      ('as a list of owners', Y.tolist(), r'a list of single entries such as 0, an int'),
      ('by name', {'a': [0], 'b': [1]}, 'a dict'),
    )
  },
  'a negative owner': (
    lambda: fedkd.federation(X, Y, Y - 2, [NET]),
    r'parts has the owner -2; number the clients from 0, and -1 is nobody',
  ),
  'ragged public rows': (lambda: federation(public=[[100], [101, 102]]), r'public is a list of unequal rows; give row'),
  'no public rows at all': (lambda: federation(public=[]), r'public is empty; give row numbers.*or leave it out'),
  'no held out rows': (lambda: federation(validation=[]), r'validation is empty; give row numbers.*or leave it out'),
  'shared by a number': (
    lambda: federation(shared=3),
    r'shared is 3, an int; give a list with the row numbers of each',
  ),
  'a negative domain': (lambda: federation(domains=Y - 1), r'domains has the domain -1; number the domains from 0'),
  'complex x': (lambda: fedkd.federation(X + 1j, Y, PARTS, [NET]), r'x is complex128\[120, 6\]; give real numbers'),
  **{
    f'normalise {name}': (lambda value=value: federation(normalise=value), rf'^normalise {told}.*give \(mean, scale\)')
    for name, value, told in (
      ('as a number', 3, 'is 3, an int; '),
      ('by name', 'mean_image', "is 'mean_image', a str; "),
      ('by the mean', lambda x: x.mean(0), r'\S*<lambda> \(test_simulation.py, line \d+\) returned float32\[6\]; '),
      ('of other examples', (np.zeros(5), 1.0), r'is a tuple of float64\[5\], 1.0, a float; '),
      ('without scale', (np.zeros(6), None), r'is a tuple of float64\[6\], None; '),
    )
  },
  'a normalise that fails': (
    lambda: federation(normalise=lambda x: x.nothing),
    r"^normalise \S*<lambda> \(test_simulation.py, line \d+: .*\) raised AttributeError: 'numpy.ndarray' object has no",
  ),
  **{
    f'a method {name}': (
      lambda value=value: fedkd.simulation(value, federation()),
      rf'^method is {told}; give a method',
    )
    for name, value, told in (
      ('by name', 'fedhe', "'fedhe', a str"),
      ('uncalled', methods.fedhe, 'the function fedhe, not called'),
    )
  },
  'method and federation swapped': (
    lambda: fedkd.simulation(federation(), FEDHE),
    r'^method is a Federation; give a method such as fedkd.methods.fedhe',
  ),
  'data as a federation': (
    lambda: fedkd.simulation(FEDHE, (X, Y)),
    r'^federation is a tuple; give what fedkd.federation\(x, y, parts, models\) returns',
  ),
  **{
    f'a plan {name}': (
      lambda value=value: fedkd.simulation(FEDHE, federation(), value),
      rf'^plan is {told}; give a plan',
    )
    for name, value, told in (
      ('by name', 'sampled', "'sampled', a str"),
      ('as one table', np.zeros((1, 2), int), r'int64\[1, 2\]'),
      ('uncalled', plan.sampled, 'the function sampled, not called'),
    )
  },
  **{
    f'a plan with {name}': (
      lambda tables=tables: fedkd.simulation(FEDHE, federation((NET,) * 4), plan.Plan(tables)),
      rf'^plan{told}',
    )
    for name, tables, told in (
      ('floats', (np.zeros((1, 2)),), r': the table of group MLP 5 is float64\[1, 2\]; give int32\[rounds, slots\]'),
      ('lists', ([[0, 1]],), r': the table of group MLP 5 is a list; give int32\[rounds, slots\]'),
      ('-2', (np.array([[0, -2]]),), r': the table of group MLP 5 is \[1, 2\] with rows from -2 to 0; give int32'),
      (
        'a client twice',
        (np.array([[0, 1], [2, 2]]),),
        r': round 1 of group MLP 5 has row 2 twice; give every client one',
      ),
      ('a client apart', (np.array([[3, -1, 3]]),), r': round 0 of group MLP 5 has row 3 twice; give every client one'),
      ('one array', np.array([[0, 1]]), r'\.participants is int64\[1, 2\]; give a tuple'),
    )
  },
  'a plan of different lengths': (
    lambda: fedkd.simulation(FEDHE, federation(), plan.Plan((np.zeros((1, 1), int), np.zeros((2, 1), int)))),
    r'^plan has tables of 1 and 2 rounds; give all groups the same',
  ),
  'a plan that draws models': (
    lambda: fedkd.simulation(FEDHE, federation(), plan.dynamic()),
    r'^plan dynamic needs groups of the same clients, and a federation has one model per client; give fedkd.plan.sam',
  ),
  **{
    f'a plan of nobody with {slots} slots': (
      lambda slots=slots: fedkd.simulation(FEDHE, federation(), plan.Plan((np.full((3, slots), -1),) * 2)),
      r'^plan names no client in any of its 3 rounds, so that nobody would train; give a row of a group in one',
    )
    for slots in (0, 2)
  },
  'a planner that returns tables': (
    lambda: fedkd.simulation(FEDHE, federation(), lambda sizes, rounds: [[0]]),
    r'^plan \S*<lambda> \(test_simulation.py, line \d+\) returned a list; let it return a fedkd.plan.Plan',
  ),
  **{
    f'{field}={value!r}': (
      lambda given={field: value}: fedkd.simulation(FEDHE, federation(), **given),
      rf'^{field}={value!r} must be a whole number, at least 1',
    )
    for field, values in (('horizon', (0, 2.5, True)), ('clients_per_vmap', (0, -1, 2.5)))
    for value in values
  },
  **{
    f'an optimizer {name}': (make, rf'^{told}; give an optax optimizer, such as optax.adam\(1e-3\)')
    for name, make, told in (
      ('as a rate', lambda: methods.fedhe(0.1), 'tx is 0.1, a float'),
      ('uncalled', lambda: methods.private(optax.adam), 'tx is the function adam, not called'),
      ('left out', lambda: methods.private(None), 'tx is None'),
      ('of the server', lambda: methods.fedavg(SGD, server_tx=0.1), 'server_tx is 0.1, a float'),
    )
  },
  'a common model by name': (lambda: methods.fml(SGD, 'MLP'), r"^common is 'MLP', a str; give a Flax module, such as"),
  'a common model uncalled': (
    lambda: methods.fml(SGD, models.MLP),
    r'^common is the class MLP, not called; give a Flax',
  ),
  'a seed as a key': (lambda: SIMULATION.init(0), r'^key is 0, an int; give one key, jax.random.key\(0\)'),
  'several keys': (lambda: SIMULATION.init(jax.random.split(KEY)), r'^key is key<fry>\[2\]; give one key.*jax.vmap'),
  'a generator whose bits change': (
    lambda: SIMULATION.init(jax.random.key(0, impl='rbg')),
    r'^key has random bits of the kind rbg, which change with the number of clients .*; give jax.random.key\(0, impl=',
  ),
  'an optimizer of such a generator': (
    lambda: fedkd.simulation(
      methods.private(optax.noisy_sgd(0.1, key=jax.random.key(0, impl='unsafe_rbg'))), federation([NET])
    ),
    r'^a state of this method or of its optimizer has random bits of the kind key<urbg>, which change',
  ),
  'a state of other clients': (
    lambda: SIMULATION.accuracy(OTHERS, X, Y),
    r'^state is of another simulation, with \[2, .*, not \[4, .*; give a state of this simulation',
  ),
  'a state of several seeds': (
    lambda: SIMULATION.model(jax.eval_shape(jax.vmap(SIMULATION.init), jax.random.split(KEY)), 0),
    r'^state is of another simulation, with \[2\] at .key, not \[\]; .* map over several with jax.vmap',
  ),
  'what a round returns as a state': (
    lambda: SIMULATION.round((START, None)),
    r'^state is a tuple; give what init returns, or the first',
  ),
  'variables of another net': (
    lambda: SIMULATION.init(KEY, jax.tree.map(lambda leaf: np.zeros((*leaf.shape, 1)), VARIABLES)),
    r'^variables are given with \[.*; give a tuple with those of every group',
  ),
  'variables of some clients': (
    lambda: SIMULATION.init(KEY, jax.tree.map(lambda leaf: np.zeros((3, *leaf.shape[1:])), VARIABLES)),
    r'^variables are of \[3\] clients for the 4 of MLP',
  ),
  'a prediction of another method': (
    lambda: SIMULATION.accuracy(START, X, Y, inference='prototypes'),
    r"^inference='prototypes' is unknown; this method has one prediction; leave it out$",
  ),
  'a fraction of a client': (lambda: SIMULATION.model(START, 1.5), r'^client=1.5 is unknown; .* has clients 0 to 3'),
  'a label without an output': (
    lambda: SIMULATION.accuracy(START, X, Y + 1),
    r'^y has the label 3, but the models have 3 classes, 0 to 2; leave it out',
  ),
  'labels as floats': (
    lambda: SIMULATION.accuracy(START, X, Y / 1),
    r'^y is float64\[120\] for 120 examples; give integers \[T\]',
  ),
  'nothing to be right about': (
    lambda: SIMULATION.accuracy(START, X[:0], Y[:0]),
    r'^x has shape \[0, 6\]; .*one$',
  ),
  'examples of another kind': (
    lambda: SIMULATION.accuracy(START, X.astype(np.uint8), Y),
    r'^x is uint8, and the examples of the federation are float32; give float32 of the same scale',
  ),
  'no validation rows': (
    lambda: SIMULATION.validation_accuracy(SIMULATION.init(KEY)),
    r'the federation has no validation rows',
  ),
}


@pytest.mark.parametrize('name', WRONG)
def test_bad_input_is_one_sentence_with_argument_value_and_remedy(name, compiled):
  call, words = WRONG[name]
  SIMULATION.init(KEY)
  compiled.clear()
  with pytest.raises(ValueError, match=words) as caught:
    call()
  assert '\n' not in str(caught.value)
  assert not [program for program in compiled if 'init' not in program and 'round' not in program and 'run' in program]


def test_scaled_images_are_refused_where_the_models_scale_them():
  x, y = images()
  simulation = fedkd.simulation(methods.private(SGD, steps=1, batch=8), fedkd.federation(x, y, PARTS, [NET]))
  with pytest.raises(ValueError, match=r'^x is float64, and the examples of the federation are uint8; give uint8 of'):
    simulation.accuracy(jax.eval_shape(simulation.init, KEY), x / 255, y)


def test_optimizers_of_any_kind_are_taken():
  for tx in (optax.sgd(0.1), optax.with_extra_args_support(SGD), optax.MultiSteps(SGD, 2)):
    methods.fedavg(tx, server_tx=tx)
  methods.fedavg(SGD, server_tx=None)


PRIVATE = methods.private(SGD, steps=1, batch=8)


def broken(key, t, model, state, download, data):
  raise KeyError('count')


def stepping(step):
  client, zeros = PRIVATE.client, lambda key, model, data, variables: jnp.zeros(2)
  return PRIVATE._replace(client=client._replace(init=zeros, step=step), variables=lambda state, g: {})


def serving(**functions):
  return PRIVATE._replace(server=PRIVATE.server._replace(init=lambda *args: jnp.zeros(2), **functions))


def rule(rows, weight):
  raise KeyError('nothing')


class Odd(nn.Module):
  """Fails in training alone."""

  @nn.compact
  def __call__(self, x, train):
    return nn.Dense(CLASSES)(x) @ jnp.ones((4 if train else 3, CLASSES))


LINE = r'\S+ \(test_simulation.py, line \d+(: .*)?\) '
MISFITS = {
  'another state': (
    stepping(lambda *args: (jnp.zeros(3), {}, {})),
    rf'^Client.step {LINE}returned for a client of MLP 5 a state with float32\[3\] at its root, and it had '
    r'float32\[2\]; let Client.init and Client.step agree',
  ),
  'another structure': (stepping(lambda *args: ((), {}, {})), rf'^Client.step {LINE}.* let .* the same structure'),
  'a pair': (stepping(lambda *args: (jnp.zeros(2), {})), rf'^Client.step {LINE}returned a tuple of 2; let it return '),
  'no dict': (
    stepping(lambda *args: (args[3], {}, 0.5)),
    rf'^Client.step {LINE}returned 0.5, a float as info; let it be',
  ),
  'text': (
    stepping(lambda *args: (args[3], {'a': 'b'}, {})),
    rf"^Client.step {LINE}.* 'b', a str at \['a'\] in its upload",
  ),
  'text in a first state': (
    PRIVATE._replace(server=PRIVATE.server._replace(init=lambda *args: {'a': 'b'})),
    rf"^Server.init {LINE}returned 'b', a str at \['a'\] in its state; let it be a pytree of arrays$",
  ),
  **{
    f'valid {name}': (
      stepping(lambda *args, sent=sent: (args[3], {'knowledge': sent}, {})),
      rf'^Client.step {LINE}returned for a client of MLP 5 {words}',
    )
    for name, sent, words in (
      (
        'of counts',
        servers.class_message(jnp.zeros((3, 4)), jnp.arange(3))['knowledge'],
        r"int32\[3\] as valid of \['knowledge'\] in its upload; let it be bool, such as count > 0$",
      ),
      (
        'of other entries',
        Masked(jnp.zeros((5, 3)), jnp.ones(4, bool)),
        r"bool\[4\] as valid of \['knowledge'\] in its upload, whose value is float32\[5, 3\]; let it have the first ",
      ),
      (
        'and value swapped',
        Masked(jnp.ones(5, bool), jnp.zeros((5, 3))),
        r'float32\[5, 3\] as valid of .* let it be bool',
      ),
      (
        'of a tree',
        Masked({'a': jnp.zeros(3)}, jnp.ones(3, bool)),
        r'a dict as value of .*; let it be one array, in a M',
      ),
    )
  },
  'valid of counts in a download': (
    serving(send=lambda *args: (Download(own=Masked(jnp.zeros((4, 3)), jnp.ones(4))),)),
    rf'^Server.send {LINE}returned float32\[4\] as valid of .own in its Download for group 0; let it be bool',
  ),
  'an error': (stepping(broken), rf"^Client.step {LINE}raised KeyError: 'count'"),
  'receive without info': (
    serving(receive=lambda *args: args[3]),
    rf'^Server.receive {LINE}returned float32\[2\]; let it return \(state, info\)',
  ),
  'another state of the server': (
    serving(receive=lambda *args: (args[3].astype(int)[:1], {})),
    rf'^Server.receive {LINE}returned a state with int32\[1\] at its root, and it had float32\[2\]; let Server.init',
  ),
  'no downloads': (
    serving(send=lambda *args: None),
    rf'^Server.send {LINE}returned None for 1 groups; let it return a',
  ),
  'one download': (
    serving(send=lambda *args: Download()),
    rf'^Server.send {LINE}returned a Download of 2 for 1 groups; let it return a tuple with a Download per group',
  ),
  'no Download': (
    serving(send=lambda *args: ({},)),
    rf'^Server.send {LINE}returned a dict for group 0; let it return a',
  ),
  'rows of nobody': (
    serving(send=lambda *args: (Download(own=jnp.zeros(3)),)),
    rf'^Server.send {LINE}returned a Download for group 0 whose own is \[3\]; let own have leaves \[4, ...\]',
  ),
  **{
    f'a metric {name}': (
      stepping(lambda *args, info=info: (args[3], {}, info)),
      rf'^Client.step {LINE}returned {words}',
    )
    for name, info, words in (
      ('per class', {'gap': jnp.zeros(3)}, r"float32\[3\] as 'gap' in info; let it be a scalar, for example its mean"),
      ('of metrics', {'gap': {'a': 0.5}}, "a dict as 'gap' in info; let it be a scalar"),
      ('by a number', {1: 0.5}, '1 in info, a name that an evaluation has for something else'),
      *((f'{name} twice', {name: 0.5}, f"'{name}' in info, a name") for name in ('accuracy', 'round', 'bytes_up')),
      ('of clients', {'gap_per_client': 0.5}, "'gap_per_client' in info, a name"),
    )
  },
  **{
    f'a metric of the server {name}': (
      PRIVATE._replace(server=PRIVATE.server._replace(receive=lambda *args, info=info: (args[3], info))),
      rf'^Server.receive {LINE}returned {words}',
    )
    for name, info, words in (
      ('per class', {'gap': jnp.zeros(3)}, r"float32\[3\] as 'gap' in info; let it be a scalar"),
      ('that clients have', {'loss': 0.5}, "'loss' in info, a name that an evaluation has for something else; choose"),
      ('as examples', {'examples': 0.5}, "'examples' in info, a name"),
    )
  },
  **{
    f'a prediction {name}': (
      PRIVATE._replace(**{field: predict if field == 'predict' else (('mine', predict),)}),
      rf'^predict {LINE}{words}',
    )
    for name, field, predict, words in (
      (
        'of classes',
        'predict',
        lambda *args: jnp.argmax(apply_model(*args), -1),
        r'returned int32\[2\] for 2 examples',
      ),
      ('of some classes', 'predictions', lambda *args: apply_model(*args)[:, :2], r'returned float32\[2, 2\] for 2 .*'),
      (
        'of one example',
        'predict',
        lambda *args: apply_model(*args)[:1],
        r'returned .*; let it return logits \[2, 3\]$',
      ),
      ('with more', 'predictions', lambda *args: (apply_model(*args), {}), 'returned a tuple for 2 examples'),
      ('that fails', 'predictions', lambda *args: apply_model(*args).nothing, 'raised AttributeError: '),
    )
  },
  'a rule': (methods.fedavg(SGD, steps=1, rule=rule), rf"^rule {LINE}raised KeyError: 'nothing'"),
}


@pytest.mark.parametrize('name', MISFITS)
def test_what_a_method_returns_is_looked_at(name):
  method, words = MISFITS[name]
  with pytest.raises(ValueError, match=words) as caught:
    fedkd.simulation(method, federation((NET,) * 4))
  last = traceback.format_exception(caught.value)[-1]
  assert last.strip().endswith(str(caught.value))
  assert len(traceback.format_exception(caught.value)) < 9  # none of JAX's frames or notes
  assert '\n' not in str(caught.value)


def idle(key, t, model, state, download, data):
  return state, {}, {}


AT_FAULT = {
  'a plan': (
    methods.fedmd(SGD, subset=8, steps=1, epochs=None, batch=8),
    {'plan': plan.asynchronous(stale=True)},
    '^clients of a stale plan answer older downloads, ',
  ),
  'a name': (
    PRIVATE._replace(predictions=(('local', lambda *args: apply_model(*args)),)),
    {},
    "^predictions: the name 'local' is taken or not an identifier; ",
  ),
  'models': (methods.fedavg(SGD, steps=1, batch=8), {}, r'^groups have different architectures \(MLP 5, MLP 4\)'),
}


@pytest.mark.parametrize('name', AT_FAULT)
def test_functions_that_are_right_are_not_blamed(name):
  """For what the package refuses by itself, though one of them is somebody else's."""
  method, how, words = AT_FAULT[name]
  method = method._replace(client=method.client._replace(step=idle))
  with pytest.raises(ValueError, match=words):
    fedkd.simulation(method, federation(public=HELD), **how)


@pytest.mark.parametrize(
  ('upload', 'error'), [({'params': {}}, "KeyError: 'count'"), ({'params': (), 'count': 3}, 'pytree ')]
)
def test_functions_of_which_one_does_not_fit_are_named(upload, error):
  """Where what fails is the package's, and does not say of whose making it is."""
  method = methods.fedavg(SGD, steps=1, batch=8)
  method = method._replace(client=method.client._replace(step=lambda *args: (args[3], upload, {})))
  with pytest.raises(ValueError, match=rf'^Client.step {LINE[:-1]}: a round fails with {error}') as caught:
    fedkd.simulation(method, federation((NET,) * 4))
  assert '\n' not in str(caught.value)


def test_numbers_of_python_are_sent_as_arrays():
  upload = {'count': 3, 'knowledge': Masked(np.zeros((2, 5)), True), 'label': np.int64(1)}
  step = lambda *args: (args[3], upload, {})
  keeps = PRIVATE.server._replace(send=lambda *args: (Download(shared={'index': 7}),))
  method = without_models(stepping(step).client, keeps)
  simulation = fedkd.simulation(method, federation((NET,) * 4))
  _, report = simulation.round(simulation.init(KEY))
  assert fedkd.ledger.total(report.up) == {'labels': (8, 32), 'knowledge': (40, 160)}
  assert fedkd.ledger.total(report.down) == {'indices': (4, 16)}


def test_a_module_that_fails_in_training_is_named():
  with pytest.raises(ValueError, match=rf'^model {LINE}raised TypeError: dot_general') as caught:
    fedkd.simulation(PRIVATE, federation([Odd()]))
  assert '\n' not in str(caught.value)


def test_a_module_that_fails_at_once_is_named():
  class Never(nn.Module):
    def __call__(self, x):
      return x.nothing

  with pytest.raises(ValueError, match=rf'^model {LINE}raised AttributeError: ') as caught:
    federation([Never()])
  assert len(traceback.format_exception(caught.value)) < 9


def test_a_module_that_was_typed_in_has_no_file_and_is_taken(monkeypatch):
  """As in a notebook, whose `__main__` has no file."""
  monkeypatch.setitem(sys.modules, '__main__', types.ModuleType('__main__'))
  space = {'__name__': '__main__', 'nn': nn}
  exec('class Typed(nn.Module):\n  @nn.compact\n  def __call__(self, x):\n    return nn.Dense(3)(x)', space)
  x, y = np.eye(3, dtype=np.float32)[np.arange(12) % 3], np.arange(12) % 3
  (group,) = fedkd.federation(x, y, [np.arange(12)], space['Typed']()).groups
  assert (group.name, group.model.classes) == ('Typed', 3)


def test_gradients_through_rounds_are_those_of_differences():
  y = np.arange(24) % 3
  x, net = np.eye(3, dtype=np.float32)[y], fedkd.models.MLP((3, 3), classes=3)
  federation = fedkd.federation(x, y, [np.arange(12), np.arange(12, 24)], net)

  def loss(alpha):
    method = methods.fedhe(optax.adam(1e-2, eps_root=1e-8), steps=2, batch=4, alpha=alpha)
    simulation = fedkd.simulation(method, federation)
    _, report = simulation.run(simulation.init(jax.random.key(0)), rounds=3)
    return report.info[0]['loss'][-1].mean()

  less, more = jax.vmap(loss)(jnp.array([0.95, 1.05]))
  np.testing.assert_allclose(jax.grad(loss)(1.0), (more - less) / 0.1, rtol=0.01)


def test_traced_labels_are_refused_in_one_sentence():
  y = jnp.arange(6) % 3
  with pytest.raises(ValueError, match=r'^y is traced, and labels are read when a federation is made; make it outside'):
    jax.jit(lambda y: fedkd.federation(np.eye(3)[np.arange(6) % 3], y, [range(6)], fedkd.models.MLP((3,))))(y)
