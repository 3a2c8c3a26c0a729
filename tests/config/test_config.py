"""Config blocks come from signatures; config strings choose; differences decide about resuming."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import fedh2l, fedhe_cifar10, fedhe_digits, fedhe_mnist, fedmd, felo, quickstart
from fedkd import aggregate, losses, methods, models, optimizers
from fedkd import config as base
from fedkd.data import sources
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly
from fedkd.types import Method


def test_a_block_holds_every_hyperparameter_with_its_default():
  block = base.to_json(base.method('fedavg', steps=7))
  own = {'rule': 'mean', 'per_group': False, 'statistics': 'averaged', 'server_tx': None, 'ensemble': False}
  assert block == {'name': 'fedavg', 'steps': 7, 'epochs': None, 'batch': 50, 'keep_optimizer': False, **own}


def twice(rows, weight):
  return 2 * aggregate.mean(rows, weight)


def own(tx, rounds, loss: Callable | None = None, combine=aggregate.mean, distance=losses.mae, title='mae'):
  """A method of a user's: some arguments are functions, one is called as a config field is."""
  return Method((tx, rounds, loss, combine, distance, title), None, None)


def test_functions_are_named_in_text_whatever_the_argument_is_called():
  block = base.method(own, rounds=3)
  assert base.to_json(block) == {
    **{'name': f'{__name__}:own', 'rounds': 3, 'loss': None, 'combine': 'mean', 'distance': 'mae', 'title': 'mae'}
  }
  assert base.build('method', block, 'tx').client == ('tx', 3, None, aggregate.mean, losses.mae, 'mae')
  block.loss, block.combine, block.distance = f'{__name__}:twice', 'median', twice
  assert base.build('method', block, 'tx').client == ('tx', 3, twice, aggregate.median, twice, 'mae')
  block.combine = 'math:pi'
  with pytest.raises(ConfigError, match=r"method.combine='math:pi' is a float; give the path of a function"):
    base.build('method', block, 'tx')
  block.combine = 'mode'
  with pytest.raises(ConfigError, match=r"method.combine='mode' is unknown; choose one of mean, median, trimmed_mean"):
    base.build('method', block, 'tx')


def test_what_a_function_was_made_with_is_part_of_its_name():
  class Pulled(NamedTuple):
    """A pair of functions that is no optimizer."""

    init: Callable
    update: Callable

  def power(exponent, inner):
    return lambda rows, weight: inner(rows, weight**exponent)

  said = base.to_json
  assert said(aggregate.trimmed_mean) == 'fedkd.aggregate:trimmed_mean'
  assert said(functools.partial(aggregate.trimmed_mean, share=0.2)) == 'fedkd.aggregate:trimmed_mean(share=0.2)'
  assert said(power(2, aggregate.median)).endswith(
    ':' + power.__qualname__ + '.<locals>.<lambda>(exponent=2, inner=fedkd.aggregate:median)'
  )
  assert said(optax.sgd(0.1)) != said(optax.sgd(0.2)) == said(optax.sgd(0.2))
  pair = Pulled(said, power(1, said))
  assert base.freeze([pair, [1]]) == (pair, (1,))
  assert isinstance(base.freeze(pair), Pulled)


def test_a_method_takes_tx_first():
  with pytest.raises(ConfigError, match=r"method.name='test_config:twice': let its first parameter be tx, the optim"):
    base.method(twice)


def test_a_servers_optimizer_is_a_block():
  block = base.method('fedavg', server_tx={'name': 'sgd', 'learning_rate': 1.0, 'momentum': 0.9})
  assert base.to_json(block)['server_tx'] == {'name': 'sgd', 'learning_rate': 1.0, 'momentum': 0.9}
  assert base.build('method', block, optax.sgd(0.1)).server
  block.server_tx = {'name': 'sgd', 'rate': 1.0}
  with pytest.raises(ConfigError, match=r"method\.server_tx sgd has no field 'rate'; it has learning_rate"):
    base.build('method', block, optax.sgd(0.1))


def test_a_model_that_is_an_argument_is_a_block():
  block = base.method('fml', common={'model': 'MLP', 'hidden': [4, 3]})
  assert base.to_json(block)['common'] == {'model': 'MLP', 'hidden': [4, 3]}
  assert dict(base.build('method', block, optax.sgd(0.1)).predictions)['common']
  with pytest.raises(ConfigError, match=r"method fml needs a value for 'common'"):
    base.method('fml')
  for wrong, message in (
    ('MLP', r"method.common='MLP' has no model; it must be a block such as \{'model': 'MLP'\}"),
    ({'model': 'MLQ'}, r"method.common.model='MLQ' is unknown; choose one of .*; is it 'MLP'\?$"),
    ({'model': 'MLP', 'width': 3}, r"method.common, a MLP, has no field 'width'; it has hidden"),
    ({'model': 'MLP', 'hidden': (0,)}, r'method.common.hidden\[0\]=0 must be .*at least 1'),
  ):
    block.common = wrong
    with pytest.raises(ConfigError, match=message):
      base.build('method', block, optax.sgd(0.1))


def test_names_of_optimizers_are_optax_and_ours_are_paths():
  params, grads = jnp.ones(3), jnp.ones(3)
  for name, expected in (('adam', optax.adam(0.1)), ('fedkd.optimizers:adam', optimizers.adam(0.1))):
    tx = base.build('optimizer', {'name': name, 'learning_rate': 0.1})
    updates = [t.update(grads, t.init(params), params)[0] for t in (tx, expected)]
    np.testing.assert_array_equal(*updates)


def test_optional_hyperparameters_keep_their_type():
  block = base.method('fedhe')
  block.epochs = 3
  block.steps = None
  block.rule = 'median'
  assert (block.epochs, block.steps, block.rule) == (3, None, 'median')
  with pytest.raises(TypeError):
    block.epochs = 'three'


@pytest.mark.parametrize(
  ('make', 'match'),
  [
    (
      lambda: base.method('fedbest'),
      r"method.name='fedbest' is unknown; choose one of " + ', '.join(methods.__all__),
    ),
    (
      lambda: base.method('fedhe', beta=1),
      r"method fedhe has no field 'beta'; it has steps, epochs, batch, alpha.*; another method has it: fedgen, fml,",
    ),
    (lambda: base.optimizer('sgd'), r"optimizer sgd needs a value for 'learning_rate'"),
    (
      lambda: base.plan('turns'),
      r"plan.name='turns' is unknown; choose one of asynchronous, dynamic, sampled, synchronous",
    ),
    (lambda: base.method('nowhere:f'), r"method.name='nowhere:f' cannot be loaded .*give module:function"),
    (lambda: base.method('optax:adamm'), r"\); the module has adabelief, .*, \.\.\.; is it 'adamw?'\?$"),
    (
      lambda: base.method('C:\\own rules\\mine.py:damped'),
      r"cannot be loaded .*name the module, not its file: mine:damped, with 'C:.*own rules' in PYTHONPATH",
    ),
    (lambda: base.method('C:\\mine.py'), r"name the module, not its file: mine:FUNCTION, with 'C:' in PYTHONPATH"),
    (lambda: base.method('../mine.py:damped'), r"not its file: mine:damped, with '\.\.' in PYTHONPATH"),
    (lambda: base.method('mine.py:damped'), r'name the module, not its file: mine:damped$'),
    (
      lambda: base.parse('small,speed=9', zoo='a'),
      r"config string has 'speed=9'; use a profile \(paper, small, smoke\) or zoo=",
    ),
    (lambda: fedhe_mnist.get_config('zoo=mixed'), r"zoo='mixed' is unknown; choose one of hetero, homo"),
    (lambda: fedhe_digits.get_config('zoo=mixed'), r"zoo='mixed' is unknown; choose one of hetero, homo"),
  ],
)
def test_unknown_names_are_refused_with_the_choices(make, match):
  with pytest.raises(ConfigError, match=match):
    make()


@pytest.mark.parametrize(
  ('change', 'match'),
  [
    ({'seeds': ('a',)}, r"^seeds\[0\]='a' must be a whole number of at least 0 and at most 4,294,967,295$"),
    ({'seeds': (0, 1.5)}, r'^seeds\[1\]=1.5 must be a whole number'),
    ({'milestones': ('x',)}, r"^milestones\[0\]='x' must be a whole number of at least 0$"),
    ({'data': {'size': -1}}, r'^data.size=-1 must be a whole number of at least 0 and at most 4,096$'),
    ({'rounds': -1}, r'^rounds=-1 must be a whole number of at least 1\b'),
    ({'rounds': None}, r'^rounds=None must be a whole number of at least 1\b'),
    ({'seeds': (True,)}, r'^seeds\[0\]=True must be a whole number'),
    ({'data': {'validation': None}}, r'^data.validation=None must be a number of at least 0 and below 1$'),
    ({'data': {'flip': None}}, r'data.flip=None must be True or False, as False'),
    ({'name': None}, r"name=None must be printable text, as 'experiment'"),
  ],
)
def test_values_that_cannot_be_are_refused(change, match):
  config = base.default()
  config.update(change)
  with pytest.raises(ConfigError, match=match):
    base.check(config)


def bare(filters):
  return models.TwoConv(filters)


@pytest.mark.parametrize(
  ('entry', 'match'),
  [
    ({'clients': 4}, r"groups\[1\] has no model: \{'clients': 4\}; give .* one of MLP, .*, or module:Class"),
    ('MLP', r"groups\[1\] has no model: 'MLP'; give"),
    ({'model': 'MLP', 'clients': 'x'}, r"groups\[1\].clients='x' must be a whole number"),
    ({'model': 'MLP', 'clients': 1, 'first': 0.5}, r'groups\[1\].first=0.5 must be a whole number'),
    (
      {'model': 'TwoConv', 'clients': 4},
      r"groups\[1\], a TwoConv, needs a value for 'filters'; set groups\[1\].filters",
    ),
    (
      {'model': f'{__name__}:bare', 'clients': 4, 'filters': (2, 2)},
      r"groups\[1\].model='.*:bare' has no field 'classes'; add it, as fedkd/models/__init__.py describes",
    ),
    ({'model': 'math:pi', 'clients': 4}, r"groups\[1\].model='math:pi' is not a function or class; give one of MLP"),
    (
      {'model': 'TwoConv', 'clients': 4, 'filters': (2, 2), 'initialiser': 'he'},
      r"groups\[1\].initialiser='he' is unknown; choose one of lecun_normal, glorot_uniform",
    ),
    (
      {'model': 'ThreeConv', 'clients': 4, 'filters': (8, 16)},
      r'groups\[1\], a ThreeConv, cannot be built: filters=\(8, 16\) must be 3 whole numbers above 0, one for each',
    ),
    ({'model': 'TwoConv', 'clients': 4, 'filters': 8}, r'groups\[1\].filters=8 must be a tuple, each a whole number'),
    ({'model': 'TwoConv', 'clients': 4, 'filters': (8, 0)}, r'filters=\(8, 0\) must be 2 whole numbers above 0'),
  ],
)
def test_mistakes_in_a_group_are_refused_with_its_place(entry, match):
  config = base.default()
  config.groups = ({'model': 'MLP', 'clients': 1}, entry)
  image, label = np.zeros((2, 8, 8, 1), np.uint8), np.arange(2, dtype=np.int32)
  with pytest.raises(ConfigError, match=match):
    assembly.make_groups(config, sources.Source('tiny', image, label, image, label, 2, ('0', '1')))


def test_differences_ignore_run_fields_and_growing_rounds():
  old = base.to_json(base.default())
  new = {**old, 'rounds': 200, 'lowering': 'native', 'checkpoint_every': 3, 'data': {**old['data'], 'dir': 'elsewhere'}}
  assert base.differences(old, new) == []
  assert base.differences(new, old) == ['rounds: 200 -> 100']
  assert base.differences(old, {**old, 'eval_rows': 5}) == ['eval_rows: 1000 -> 5']


def test_paths_of_windows_in_config_strings():
  choice = base.parse('small,data=npz:C:\\own data\\a.npz,rule=D:\\a.py', data='', rule='')
  assert (choice.data, choice.rule) == ('npz:C:\\own data\\a.npz', 'D:\\a.py')


def test_what_auto_is_on_images_is_no_difference():
  """A run begun when `mean_image` was the default goes on; another normalisation is another run."""
  now = base.to_json(base.default())
  assert now['data']['normalise'] == 'auto'
  then = {**now, 'data': {**now['data'], 'normalise': 'mean_image'}}
  assert base.differences(then, now) == []
  other = {**now, 'data': {**now['data'], 'normalise': 'unit'}}
  assert base.differences(other, now) == ['data.normalise: unit -> auto']


def test_the_zoo_is_the_papers():
  config = fedhe_mnist.get_config('paper')
  assert [g['clients'] for g in config.groups] == [1] * 10
  assert [g['model'] for g in config.groups] == ['TwoConv'] * 5 + ['ThreeConv'] * 5
  assert config.groups[9]['filters'] == (128, 128, 192)
  assert fedhe_mnist.get_config('paper,zoo=homo').groups == ({**config.groups[9], 'clients': 10},)
  assert sum(g['clients'] for g in fedhe_mnist.zoo('hetero', clients=23)) == 23


def test_the_paper_profile_has_the_papers_numbers():
  config = fedhe_cifar10.get_config('paper')
  assert (config.rounds, config.plan.name, config.plan.ratio) == (50_000, 'sampled', 0.1)
  assert (config.method.steps, config.method.batch, config.method.alpha) == (3, 50, 1.0)
  assert (config.method.cold_start * 10, config.method.refresh_every * 10) == (10, 100)
  assert (config.optimizer.learning_rate, config.optimizer.eps) == (1e-3, 1e-7)
  assert (config.data.name, config.data.partition.name, config.data.normalise) == (
    'cifar10',
    'contiguous',
    'auto',
  )


@pytest.mark.parametrize('module', [fedhe_mnist, fedhe_cifar10, fedhe_digits])
@pytest.mark.parametrize('method', ['private', 'agg', 'fedavg', 'fedhe'])
def test_every_config_names_its_clients_and_the_same_turns_for_every_method(module, method):
  config = module.get_config(f'small,method={method}')
  other = module.get_config('small')
  assert sum(g['clients'] for g in config.groups) == config.data.clients == 10
  turns = lambda c: c.rounds * (10 if c.plan.name == 'synchronous' else 1)
  assert turns(config) == turns(other)


@pytest.mark.parametrize(('method', 'steps'), [('fedhe', 2), ('felo', None), ('fedh2l', None)])
def test_fedhe_on_digits_sets_the_steps_of_methods_that_count_them(method, steps):
  assert fedhe_digits.get_config(f'method={method}').method.get('steps') == steps


@pytest.mark.parametrize('profile', ['small', 'smoke'])
def test_the_quickstart_gives_every_method_the_same_local_batches(profile):
  names = ('private', 'agg', 'fedhe', 'fedmd', 'fedh2l')
  one, *others = (quickstart.get_config(f'{profile},method={name}') for name in names)
  assert [(c.method.get('steps', 1), c.method.batch) for c in (one, *others)] == [(1, 32)] * 5
  # FedMD's first round only uploads logits, and in FedH2L's first nothing is received.
  assert [c.rounds - one.rounds for c in others] == [0, 0, 1, 1]
  for other in others:
    for field in ('groups', 'seeds', 'optimizer', 'data', 'eval_every'):
      assert other[field] == one[field]


def test_the_paper_profile_of_felo_is_heterofls_training():
  config = felo.get_config('paper,method=felo,split=dir0.5')
  optimizer = {'name': 'fedkd.optimizers:sgd', 'learning_rate': 0.1}
  assert (config.optimizer.to_dict(), config.milestones, config.decay) == (optimizer, (38, 63), 0.1)
  known = base.parameters_of(optimizers.sgd)
  assert [known[name].default for name in ('momentum', 'weight_decay', 'clip')] == [0.9, 5e-4, 1.0]
  method = config.method
  assert (method.epochs, method.batch, method.alpha, method.initial, method.load_in_initial) == (5, 10, 0.5, 5, False)
  assert (config.rounds, config.data.clients, config.plan.ratio, config.eval_rows) == (100, 20, 0.2, 0)
  assert [(g['model'], g['clients']) for g in config.groups] == [(f'ResNet{d}', 4) for d in (10, 14, 18, 22, 26)]
  assert felo.get_config('paper,data=cinic10').data.clients == 10
  assert felo.get_config('paper,zoo=homo,split=dir0.5').plan.ratio == 1.0
  assert felo.get_config('paper,method=fedavg,zoo=resnet18,split=dir0.5').plan.ratio == 0.2


@pytest.mark.parametrize('arg', ['paper', 'light,data=cinic10', 'paper,zoo=homo,split=dir0.5', 'small'])
def test_velo_forgets_no_class_mean(arg):
  config = felo.get_config(f'{arg},method=velo')
  assert config.method.limits[0] >= config.rounds * round(config.data.clients * config.plan.ratio)


@pytest.mark.parametrize(
  ('arg', 'match'),
  [
    ('ratio=half', "ratio='half' is not a number"),
    ('method=velo,interval=x', "interval='x' is not a whole number"),
    ('zoo=all', "zoo='all' is"),
    ('ratio=nan', "ratio='nan' is not a number"),
    ('method=heterofl,ratio=inf', "ratio='inf' is not a number"),
    ('method=fedgkt,ratio=0.01', 'ratio=0.01 does nothing for method=fedgkt'),
    ('method=fedhe,zoo=extreme,align=pool', 'align=pool does nothing for method=fedhe, zoo=extreme; leave it out'),
    ('method=felo,align=group', 'align=group does nothing for method=felo, zoo=previous'),
    ('method=fedgkt,zoo=extreme,align=linear', 'align=linear does nothing for method=fedgkt'),
    ('method=velo,interval=1.5', "interval='1.5' is not a whole number"),
    ('method=velo,interval=1' + 400 * '0', 'is not a whole number'),
    ('method=felo,interval=3', 'interval=3 does nothing for method=felo'),
    ('method=fedhe,widths=fixed', 'widths=fixed does nothing for method=fedhe'),
  ],
)
def test_words_of_felo_that_mean_nothing_are_refused(arg, match):
  with pytest.raises(ConfigError, match=match):
    felo.get_config(arg)


def test_linear_alignment_gives_only_the_wide_net_a_layer():
  config = felo.get_config('paper,zoo=extreme,align=linear')
  assert [group.get('projection') for group in config.groups] == [None] * 4 + [512]
  assert config.method.feature_align == 'none'
  assert felo.get_config('paper,method=private,zoo=extreme,align=linear').groups == config.groups


def test_fixed_widths_deal_the_clients_out_in_order():
  config = felo.get_config('paper,method=heterofl,widths=fixed')
  assert [(group['first'], group['clients'], group['rate']) for group in config.groups] == [
    (4 * i, 4, rate) for i, rate in enumerate(felo.RATES)
  ]


@pytest.mark.parametrize(
  ('module', 'arg', 'match'),
  [
    (fedh2l, 'method=agg,variant=unlabeled', 'variant=unlabeled is one of fedh2l, not of method=agg'),
    (fedh2l, 'protocol=dirty', "protocol='dirty' is unknown; choose one of clean, paper"),
    (fedh2l, 'alpha=ten', "alpha='ten' is not a percentage"),
    (fedmd, 'weights=half', "weights='half' is unknown; choose one of uniform, paper"),
    (fedmd, 'zoo=table3', "zoo='table3' is unknown; choose one of table1, table2"),
    (fedmd, 'setting=cifar_noniid,superclasses=mine', "superclasses='mine' is unknown; choose one of paper, code"),
  ],
)
def test_words_of_the_tables_that_mean_nothing_are_refused(module, arg, match):
  with pytest.raises(ConfigError, match=match):
    module.get_config(arg)
