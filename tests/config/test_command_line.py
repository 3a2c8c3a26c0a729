"""The command line as a user types it: choices by name, fields that follow them, and what is refused."""

import functools
import pathlib
import re
import shlex

import pytest
from absl import flags

from fedkd import cli, methods
from fedkd import config as base
from fedkd.config import command_line
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly

QUICK = '--config=configs/fedhe_digits.py:smoke'
CONFIGS = sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / 'configs').glob('[!_]*.py'))


@pytest.fixture
def read(monkeypatch, request):
  """A function from flags to the config that they make."""
  monkeypatch.chdir(request.config.rootpath)

  def config_of(*words):
    values = flags.FlagValues()
    holder = command_line.define(values)
    command_line.parse(['main', *words], values)
    return holder.value

  return config_of


def settings(block) -> dict:
  return {k: v for k, v in base.to_json(block).items() if k != 'name'}


@pytest.mark.parametrize(
  'words',
  [
    (QUICK, '--config.plan.name=sampled', '--config.plan.ratio=0.5'),
    (QUICK, '--config.plan.ratio=0.5', '--config.plan.name=sampled'),
    ('--config.plan.ratio=0.5', '--config.plan.name=sampled', QUICK),
    ('--config.plan.ratio', '0.5', '--config', 'configs/fedhe_digits.py:smoke', '--config.plan.name', 'sampled'),
  ],
)
def test_a_choice_by_name_brings_its_fields_in_any_order_of_the_flags(read, words):
  assert base.to_json(read(*words).plan) == {'name': 'sampled', 'ratio': 0.5, 'seed': 0}


def test_the_fields_of_another_choice_are_its_own_defaults(read):
  file = read(QUICK)
  config = read(QUICK, '--config.optimizer.name=sgd', '--config.optimizer.momentum=0.9', '--config.method.name=fedprox')
  assert config.optimizer.learning_rate == file.optimizer.learning_rate == 6e-3  # has no default, so it stays
  assert (config.optimizer.name, config.optimizer.momentum) == ('sgd', 0.9)
  assert settings(config.method) == settings(base.method('fedprox'))
  assert settings(file.method) != settings(base.method('fedhe'))
  assert base.to_json(read(QUICK, '--config.method.name=fedhe').method) == base.to_json(file.method)


def test_an_optimizer_by_path_and_one_without_a_default(read):
  config = read(QUICK, '--config.optimizer.name=fedkd.optimizers:amsgrad', '--config.optimizer.eps=0.5')
  assert settings(config.optimizer) == {
    'learning_rate': 6e-3,
    'b1': 0.9,
    'b2': 0.999,
    'eps': 0.5,
    'weight_decay': 0.0,
  }
  assert read(QUICK, '--config.schedule.every=7', '--config.schedule.name=step').schedule.every == 7


@pytest.mark.parametrize('clients', [1, 4, 7])
def test_other_numbers_of_clients_share_the_models(read, clients):
  flag, word = read(QUICK, f'--config.data.clients={clients}'), read(f'{QUICK},clients={clients}')
  counts = [group['clients'] for group in flag.groups]
  assert counts == [len(range(i, clients, 5)) for i in range(min(clients, 5))]
  assert base.to_json(flag) == base.to_json(word)
  typed = read(QUICK, '--config.data.clients=4', "--config.groups=({'model': 'MLP', 'clients': 4},)")
  assert typed.groups == ({'model': 'MLP', 'clients': 4},)


def halves(labels, clients, seed, large=0.8):
  raise NotImplementedError


@pytest.mark.parametrize(
  ('words', 'match'),
  [
    (('--config.data.nosuch=1',), r"^data has no field 'nosuch'; it has aligned, .*, validation$"),
    (('--config.method=fedeh',), r'^method is a block; set its fields, for example --config.method.name=fedhe$'),
    (('--config.groop[0].width=1',), r"^config has no field 'groop'; it has .*; is it 'groups'\?$"),
    (('--config.rounds[0]=3',), r'^rounds is no tuple, so that --config.rounds\[0\] names nothing; write'),
    (('--config.seeds[0].x=3',), r'^seeds\[0\].x is not there to be set; write all of seeds, for example'),
    (('--config.data.client=1',), r"^data has no field 'client'; it has .*; is it 'clients'\?$"),
    (
      (f'--config.data.partition={__name__}:halves', '--config.data.large=0.9'),
      r"^data has no field 'large', its partition has; write --config.data.partition.large$",
    ),
    (
      ('--config.data.partition=iid', '--config.data.concentration=0.1'),
      r"^data.partition iid has no field 'concentration'; .*; another data.partition has it: dirichlet, exdir,",
    ),
    (('--config.optimizer.name=sgd', '--config.optimizer.momentun=1'), r"has no field 'momentun'; .*'momentum'\?$"),
    (('--config.rouns=1',), r"^config has no field 'rouns'; .* is it 'rounds'\?$"),
    (('--config.optimizer.name=sgd', '--config.optimizer.eps=1'), r"^optimizer sgd has no field 'eps'; it has .*mom"),
    (('--config.method.name=fedhee',), r"^method.name='fedhee' is unknown; .*, or module:function; is it 'fedhe'\?$"),
    (('--config.codec_up.name=quantized',), r"^codec_up.name='quantized' is unknown; .*; is it 'quantised'\?$"),
    (('--config.data.partition=dirichlt',), r"^data.partition.name='dirichlt' is unknown; .*; is it 'dirichlet'\?$"),
    (('--config=configs/fedhe_digits.py:smok',), r"^config string has 'smok'; .*; is it 'smoke'\?$"),
    (('--config.rounds.x=1',), r'^rounds has no fields, so that --config.rounds.x names nothing$'),
    *(
      ((f'--config.{field}={value}',), rf"^{field}='{value}' must be {words}$")
      for field, value, words in (
        ('rounds', 'ten', r'a whole number of at least 1 and at most .*; write for example --config\.rounds=\d+'),
        ('eval_every', '1e3', r'a whole number of at least 1; write for example --config\.eval_every=\d+'),
        ('optimizer.learning_rate', 'fast', r'a number of at least 0; write .* --config\.optimizer\.learning_rate=.*'),
        ('data.flip', 'maybe', r'True or False; write for example --config\.data\.flip=False'),
        ('model_seed', 'x', 'a whole number of at least 0 .*, or None'),
      )
    ),
    (
      ('--config.groups[0].width=3',),
      r'^groups\[0\]\.width is not there to be set; write all of groups, for example --config\.groups="\(.*\)"$',
    ),
    (('--config.groups[99].model=MLP',), r'^groups\[99\]\.model is not there to be set; write all of groups'),
    (('--config.data.clients=0',), r"^clients='0'|^data.clients='0' is not a whole number of at least 1"),
    (
      ('--config=configs/none.py',),
      r'^config=configs/none.py names no file configs/none.py \(No such file or directory\); give one',
    ),
    (('--config=configs/fedhe_digits.py:metod=3',), r"^config string has 'metod=3'; use a profile"),
    (
      ('--config=configs/fedhe_digits.py:smoke,smoke',),
      r"^config string has 'smoke' and 'smoke'; give one of them, once$",
    ),
    (
      ('--config=configs/fedhe_digits.py:small,smoke',),
      r"^config string has 'small' and 'smoke'; give one of them, once$",
    ),
    (
      ('--config=configs/fedhe_digits.py:method=a,smoke,method=b',),
      r"^config string has 'method=a' and 'method=b'; give one of them, once$",
    ),
    (('--config=configs/fedhe_digits.py:clients=x',), r"^clients='x' is not a whole number of at least 1"),
    (('--config=configs/fedhe_digits.py:optimizer=adamm',), r"^optimizer.name='adamm' is unknown; choose one of ada"),
  ],
)
def test_what_cannot_be_is_refused_in_one_sentence(read, words, match):
  with pytest.raises(ConfigError, match=match) as refused:
    read(*([] if words[0].startswith('--config=') else [QUICK]), *words)
  assert '\n' not in str(refused.value)


@pytest.mark.parametrize(
  ('content', 'sentence'),
  [
    (b'hello world', ' is no Python (line 1: invalid syntax)'),
    (b'ok = 1\n\x00', ' is no Python (source code string cannot contain null bytes)'),
    (b'ok = 1\n"\xff"', " is no Python (line 2: (unicode error) 'utf-8' codec can't decode byte 0xff"),
    (b'-' * 50_000 + b'1', ' is no Python (MemoryError)'),
    (b'', ' has no function get_config'),
    (b'get_config = 3', ' has no function get_config'),
    (b'\nimport nosuchmodule', ", line 2: raises ModuleNotFoundError: No module named 'nosuchmodule'"),
    (b'raise KeyError("a\\nb")', ", line 1: raises KeyError: 'a\\nb'"),
    (b'import sys\nsys.exit(3)', ', line 2: raises SystemExit: 3'),
    (
      b'def get_config(arg):\n  return arg.a',
      ", line 2: get_config('small') raises AttributeError: 'str' object has no",
    ),
    (b'def get_config():\n  return 1', ": get_config('small') raises TypeError: get_config() takes 0 positional"),
    (b'def get_config(arg):\n  return 3', ': get_config returned 3, an int; let it return a ConfigDict'),
    (b'def get_config(arg):\n  pass', ': get_config returned None; let it return a ConfigDict'),
  ],
)
def test_a_file_that_makes_no_config_is_refused_in_one_sentence(tmp_path, capsys, content, sentence):
  """Where it is run, and where its fields are asked for."""
  path = tmp_path / 'mine.py'
  path.write_bytes(content)
  values = flags.FlagValues()
  command_line.define(values)
  with pytest.raises(ConfigError) as refused:
    command_line.parse(['main', f'--config={path}:small'], values)
  assert str(refused.value).startswith(f'config={path}{sentence}')
  assert '\n' not in str(refused.value)
  with pytest.raises(SystemExit, match='2'):
    cli.main(['run', f'{path}:small', '--help'])
  assert capsys.readouterr() == ('', f'fedkd: {refused.value}\n')


def test_tuples_switches_and_whole_blocks_are_read_as_before(read):
  config = read(
    QUICK, '--config.seeds=3,4', '--config.data.flip', '--config.early_stop={"watch": "accuracy"}', '--config.rounds=7'
  )
  assert (config.seeds, config.data.flip, config.rounds) == ((3, 4), True, 7)
  assert config.early_stop.watch == 'accuracy'
  assert read(QUICK, '--noconfig.data.flip').data.flip is False


@pytest.mark.parametrize('name', CONFIGS)
def test_every_config_string_takes_an_optimizer(read, name):
  config = read(f'--config=configs/{name}.py:optimizer=sgd')
  plain = read(f'--config=configs/{name}.py')
  assert (config.optimizer.name, config.optimizer.learning_rate) == ('sgd', plain.optimizer.learning_rate)


def test_all_configs_are_in_the_test_above(request):
  marks = test_every_config_string_takes_an_optimizer.pytestmark[0].args[1]
  found = {path.stem for path in (request.config.rootpath / 'configs').glob('*.py')}
  assert {name for name in found if not re.match('_', name)} == set(marks)


def commands(path):
  """The words of each `fedkd run` in a page, as `launch.main` has them."""
  text = path.read_text().replace('\\\n', ' ')
  for line in re.findall(r'^fedkd run (.*)$', text, re.MULTILINE):
    name, _, string = shlex.split(line, comments=True)[0].partition(':')
    flags_of = [word for word in shlex.split(line, comments=True)[1:] if word.startswith('--config.')]
    yield [f'--config=configs/{name}.py' + (f':{string}' if string else ''), *flags_of]


def test_the_commands_of_the_page_on_configs_make_configs(read, request):
  found = [read(*words) for words in commands(request.config.rootpath / 'docs' / 'running' / 'configs.md')]
  assert len(found) == 14
  for config in found:
    base.check(config)
    assembly.make_method(assembly.make_blocks(config)[-1], config, ())
  assert [c.schedule.name for c in found].count('warmup_cosine') == 1


def named_as_a_phase_is(tx, rounds: int = 100, early_stop: int = 3):
  return methods.private(tx)._replace(calibrate=functools.partial(print, rounds, early_stop))


def test_a_methods_own_arguments_may_be_called_rounds_and_early_stop(read):
  """FedKD's `rounds` was silently dropped: results were made with its default."""
  words = [f'--config.method.name={__name__}:named_as_a_phase_is', '--config.method.rounds=9']
  config = read(QUICK, *words, '--config.method.early_stop=5', '--config.rounds=4')
  (block,) = assembly.make_blocks(config)
  assert (block.rounds, block.early_stop.watch) == (4, '')
  assert assembly.make_method(block, config, ()).calibrate.args == (9, 5)


def test_the_python_of_the_page_on_configs_makes_its_groups(request, monkeypatch):
  monkeypatch.chdir(request.config.rootpath)
  text = (request.config.rootpath / 'docs' / 'running' / 'configs.md').read_text().partition('## Early stopping')[0]
  names = {'__name__': 'page'}
  for code in re.findall(r'^```python\n(.*?)^```$', text, re.MULTILINE | re.DOTALL):
    exec(code, names)
  config = names['config']
  base.check(config)
  assert [entry['clients'] for entry in base.entries(config)] == [2, 2, 3]
  assert base.to_json(config)['method']['rule'] == 'page:halves'
  source = assembly.load_data(config)
  groups = assembly.make_groups(config, source)
  assert [group.name for group in groups] == ['LeNet', 'MLP 128', 'TwoConv 8-16']
