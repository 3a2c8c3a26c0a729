"""Nonsense in configs: one sentence with field, value and remedy, before the run directory is made."""

import math
import re

import numpy as np
import pytest
from absl import flags

import runs
from fedkd import aggregate, experiment, methods, optimizers
from fedkd import config as configs
from fedkd.checks import ranges
from fedkd.config import command_line
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly

HUGE = 10**30
PRIVATE = {'name': 'private', 'rounds': 1, 'steps': 1}


def entry(**fields):
  """The groups with a TwoConv that has other fields."""
  return ({'model': 'TwoConv', 'filters': (2, 2), 'clients': 4, **fields},)


FIELDS = {
  'optimizer.learning_rate': [-1, math.nan, math.inf, 'fast'],
  'optimizer.b1': [math.nan, -1, 1],
  'optimizer.eps': [-1, math.inf],
  'decay': [math.nan, math.inf, -1],
  'milestones': [(-1,), (HUGE,), (True,), ('3',)],
  'schedule': [{'name': 'step', 'every': 0}, {'name': 'linear_schedule', 'init_value': math.nan}],
  'data.concentration': [-math.inf, 0, 1e7],
  'data.per_class': [-1],
  'data.crop': [999999, -1],
  'data.keep': [(1, 1), ({'a': 1},), (1.5,), (0,)],
  'data.validation': [1, -0.1, math.nan],
  'data.limit': [0, -1],
  'seeds': [(True,), {1: 2}, (0, 2**32), (-1,), (0, 0), ()],
  'groups': [
    *(entry(clients=True), entry(penalty=-50), entry(dropout=1), entry(hidden=3), entry(learning_rate=-1)),
    ({'model': 'MLP', 'clients': 4, 'hidden': (10**8,) * 2},),
    ({'model': 'MLP', 'clients': 4, 'hidden': (0,)},),
  ],
  'method.batch': [HUGE, 10**9, 0, True, 1.5],
  'method.count_offset': [math.inf, -1],
  'method.refresh_every': [math.inf],
  'method.cold_start': [-math.inf],
  'method.alpha': [-1000, math.nan],
  'method.rule': ['os:system', 'os:nothing', 'math:pi', 'nowhere:f'],
  'early_stop.min_delta': [-1],
  'early_stop': [5, None],
  'chunk': [-1, HUGE],
  'client_store': ['inf', '-1', 'nan', '1e5'],
  'rounds': [-1, 0, None, '3', HUGE, True],
  'before': [
    *(('private',), (5,), ({'rounds': 1},)),
    *(({**PRIVATE, 'rounds': value},) for value in (None, '3', -1, True)),
    *(({**PRIVATE, 'early_stop': value},) for value in (5, 'x')),
    ({**PRIVATE, 'batch': 10**9},),
  ],
  'eval_clients': [HUGE, -1],
  'data.test_share': [0.2],  # beside a test set for all clients
  'data.nosuch': [1],
  'data.partition': ['os:system', 'fair'],
  'data.protocol': ['os:system'],
  'data.normalise': ['os:system', 'os:getpid', 'fedkd.cli:main'],
  'plan': [{'name': 'subprocess:getoutput', 'cmd': 'false'}, {'name': 'sampled', 'ratio': 2}, {}, {'name': 3}],
  'data': [5, None],
  'codec_up': [
    *({'name': 'quantised', 'bits': bits} for bits in (0, 40, 2.5)),
    *({'name': 'top_k', 'share': share} for share in (0, 2)),
    *({}, {'name': 'gzip'}),
  ],
  'codec_down': [{'name': 'top_k', 'changes': True}, {'name': 'quantised', 'bits': 'few'}],
}
CASES = [(field, value) for field, values in FIELDS.items() for value in values]


@pytest.mark.parametrize(('field', 'value'), CASES, ids=lambda part: str(part)[:40])
def test_nonsense_is_one_sentence_before_anything_is_written(images, tmp_path, field, value):
  config = runs.config(images, rounds=1)
  changed = {**configs.to_json(config)}
  *path, last = field.split('.')
  block = changed
  for part in path:
    block = block[part]
  block[last] = value
  config = configs.ConfigDict({**configs.freeze(changed), **({last: value} if not path else {})})
  with pytest.raises(ConfigError) as refused:
    experiment.run(config, tmp_path / 'run', show=False)
  told = str(refused.value)
  assert last in told, told
  assert '\n' not in told
  assert any(word in told for word in (' must ', ';', ' no ', ' raised ')), told
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('word', 'match'),
  [
    ('--config.seeds={1: 2}', r'^seeds=\{1: 2\} must be a tuple; write for example --config.seeds=1,2$'),
    ("--config.before={'name': 'private'}", r'write for example --config.before="\(\{'),
    ("--config.groups={'model': 'MLP'}", r'write for example --config.groups="\(\{'),
    ('--config.data.nosuch=1', r"^data has no field 'nosuch'; it has aligned, "),
    ('--config.groups[0].clients=True', r"^groups\[0\].clients='True' must be a whole number; write "),
  ],
)
def test_the_command_line_says_so_too(monkeypatch, request, word, match):
  monkeypatch.chdir(request.config.rootpath)
  values = flags.FlagValues()
  command_line.define(values)
  with pytest.raises(ConfigError, match=match):
    command_line.parse(['main', '--config=configs/fedhe_digits.py:smoke', word], values)


@pytest.mark.parametrize('workdir', ['', 'x' * 300, 'a\0b', 'a\udcff', __file__])
def test_a_work_directory_that_cannot_be_one(images, workdir):
  with pytest.raises(ConfigError, match=r'^workdir=.*; (give|shorten) ') as refused:
    experiment.run(runs.config(images), workdir, show=False)
  assert len(str(refused.value)) < 200
  assert '\n' not in str(refused.value)


def test_what_does_not_fit_begins_with_its_method(images):
  config = runs.config(images, 'fedprox', rounds=1)
  with pytest.raises(ConfigError, match=r'^method fedprox does not fit its models or messages: groups have different'):
    assembly.build(config, dry=True)


@pytest.mark.parametrize(('field', 'value'), [('crop', 2), ('flip', True)])
def test_only_images_are_cropped_and_flipped(tmp_path, field, value):
  x = {f'x_{split}': np.zeros((6, 4)) for split in ('train', 'test')}
  np.savez(tmp_path / 'a.npz', **x, y_train=np.arange(6) % 3, y_test=np.arange(6) % 3)
  config = runs.config(tmp_path / 'a.npz')
  config.data[field] = value
  with pytest.raises(ConfigError, match=rf'^data.{field}={value} is for images, and data.name=npz:.* has none; set it'):
    assembly.build(config, dry=True)


def test_the_door_refuses_the_same():
  for make, told in (
    (lambda: methods.fedhe(None, alpha=-1), r'^alpha=-1 must be a number of at least 0$'),
    (lambda: methods.fedavg(None, batch=0), r'^batch=0 must be a whole number of at least 1$'),
    (lambda: methods.felo(None, limits=(1, 0)), r'^limits\[1\]=0 must be a whole number of at least 1$'),
    (
      lambda: methods.fedmd(None, weights=(1.0, math.nan)),
      r'^weights\[1\]=nan must be a number .* finite$',
    ),
    (lambda: methods.private(None, steps='3'), r"^steps='3' must be a whole number of at least 0, or None$"),
    (lambda: optimizers.fedadam(0.1, b2=1), r'^b2=1 must be a number of at least 0 and below 1$'),
    (lambda: aggregate.centred_clipping(HUGE * 1e10), r'must be a number above 0, of at most 32 bits$'),
  ):
    with pytest.raises(ValueError, match=told):
      make()


def test_every_number_of_a_factory_has_a_range():
  """A hyperparameter added without one would take NaN and 10**30."""
  factories = [(name, getattr(module, name)) for module in (methods, optimizers) for name in module.__all__]
  for name, factory in factories:
    for key, annotation in ranges.annotations_of(factory).items():
      numbers = {int, float} & {ranges.plain(option) for option in ranges._options(annotation)}
      assert not numbers or ranges.is_bounded(annotation), (name, key)


def test_help_prints_meanings_and_ranges():
  config = configs.default()
  config.groups = ({'model': 'MLP', 'clients': 10},)
  config.method = configs.method('fedhe')
  lines = re.split(r'\n  (?! )', configs.described(config))
  find = lambda start: next(' '.join(line.split()) for line in lines if line.strip().startswith(start))
  whole = 'a whole number of at least 1'
  last = f'of the last phase, or the only one ({whole} and at most 10,000,000)'
  assert find('--config.rounds') == f'--config.rounds=100 {last}'
  assert find('--config.method.alpha').startswith('--config.method.alpha=1.0 weight of the knowledge loss (Eq. 13)')
  assert find('--config.early_stop.patience').endswith(f"'' watches nothing ({whole})")
  assert find('--config.optimizer.b1').endswith('(a number of at least 0 and below 1)')
  assert max(map(len, '\n'.join(lines).split('\n'))) <= 120
  assert find("groups, 'model': 'MLP'") == "groups, 'model': 'MLP', 'hidden' a tuple, each a whole number of at least 1"
