"""The command `fedkd`: from a checkout here; from a wheel, in an empty environment, in the slow test."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pandas as pd
import pytest
from absl import flags
from absl.testing import flagsaver

from fedkd import cli
from fedkd.experiment import provenance
from helpers import cases
from launch import compare, data, main

ROOT = pathlib.Path(__file__).parents[2]
TINY = """
from configs import fedhe_mnist, mine
from fedkd import config as base

def get_config(arg=''):
  config = fedhe_mnist.get_config('smoke,method=private')
  config.rounds = mine.ROUNDS
  return config
"""


def fedkd(*words, cwd, program=(sys.executable, '-m', 'fedkd'), **env):
  """(exit code, output, errors) of the command."""
  path = {'PYTHONPATH': str(ROOT)} if program[-1] == 'fedkd' else {}
  done = subprocess.run([*program, *words], cwd=cwd, env={**os.environ, **path, **env}, capture_output=True, text=True)
  return done.returncode, done.stdout, done.stderr


def test_help_is_there_for_everything(capsys):
  cli.main([])
  overview = capsys.readouterr().out
  for command in ('run', 'compare', 'report', 'watch', 'reproduce', 'benchmark', 'export', 'predict', 'bench'):
    assert f'fedkd {command} ' in overview
    cli.main([command, '--help'])
    assert capsys.readouterr().out.startswith(f'fedkd {command} ')
  with pytest.raises(SystemExit, match='0'):
    cli.main(['data', '--help'])
  assert 'fedkd data prepare NAME [--dir=DIR]' in capsys.readouterr().out
  cli.main(['run'])
  assert 'quickstart  ' in capsys.readouterr().out
  cli.main(['run', 'fedh2l', '--help'])
  assert 'setting' in capsys.readouterr().out


def test_a_set_without_a_name_is_asked_for_by_the_command_alone(capsys):
  with pytest.raises(SystemExit):
    data.main(['prepare'], 'fedkd data')
  assert capsys.readouterr().err.splitlines()[-1].startswith('fedkd data prepare: error: the following arguments are')


MISTAKES = [
  (
    ['fly'],
    "fedkd: command 'fly' is unknown; choose one of run, sweep, compare, report, watch, reproduce, benchmark, ",
  ),
  (['run', 'nothing:smoke'], "fedkd: config 'nothing' is unknown; choose one of fedgen, fedh2l, "),
  (['run', 'quickstart:huge', '--workdir=runs/a'], "fedkd: config string has 'huge'; use a profile"),
  (['run', 'quickstart:smoke'], 'fedkd: give --workdir, the run directory'),
  (
    ['run', 'quickstart:smoke', '--workdir=runs/a', '--config.rounds=0'],
    'fedkd: rounds=0 must be a whole number',
  ),
  (['run', 'quickstart:smoke', '--workdir=runs/a', '--confg.rounds=9'], "fedkd: Unknown command line flag 'confg"),
  (['repotr', 'runs/none'], "; is it 'report'?"),
  (['run', 'quickstrt', '--workdir=a'], "or give the path of a file; is it 'quickstart'?"),
  (['compare', 'runs/none'], 'fedkd: runs/none holds no finished run'),
  (['compare', '--refrence=a', 'runs/none'], "fedkd: Unknown command line flag 'refrence'"),
  (['report', 'runs/none'], 'fedkd: give --out'),
  (['report', 'runs/none', '--out=a.html'], 'fedkd: runs=runs/none does not exist'),
  (['report', 'runs/none', '--out=a.pdf'], 'fedkd: out=a.pdf is no name of a page; let it end in .html or .md'),
  (['watch', 'runs/none'], 'fedkd: watch=runs/none is no folder'),
  (['reproduce', '--id=h2l'], "fedkd: id='h2l' is unknown; choose one of md-femnist-first, "),
  (['benchmark', '--profile=smoke'], 'fedkd: give --suite=digits|letters|cifar10|cifar100|pacs'),
  (['export', 'runs/none', '--client=3'], 'fedkd: give one run and --out, as in runs/first --client=3 --out=exported'),
  (['export', 'runs/none', '--client=x', '--out=a'], 'fedkd: flag --client=x: '),
  (['export', 'runs/none', '--out=a'], 'fedkd: workdir=runs/none holds no run (no config.json)'),
  (['predict', 'runs/none'], 'fedkd: give a run and at least one image, as in runs/first --client=3 digit.png'),
  (['predict', 'runs/none', 'a.png', '--clent=3'], "fedkd: Unknown command line flag 'clent'"),
  (['data', 'prepare', 'domains:none'], 'fedkd: data.name=domains:none: '),
  (['bench', 'slowly'], "fedkd: benchmark 'slowly' is unknown; choose one of scale, stages, report, or give --suite"),
]


@pytest.mark.parametrize(('words', 'sentence'), cases(MISTAKES, fast=MISTAKES[:1]))
def test_a_mistake_is_one_sentence_and_code_2(words, sentence, tmp_path):
  code, _, said = fedkd(*words, cwd=tmp_path)
  at_end = said.endswith(f'{sentence}\n')
  assert said.startswith(sentence) or at_end or sentence.replace('fedkd: ', f'fedkd: {tmp_path}/') in said
  assert said.count('\n') == 1
  assert code == 2
  assert not list(tmp_path.iterdir())


LONG = 'x' * 10_000


@pytest.mark.parametrize(
  ('words', 'sentence'),
  [
    (['run', LONG], f'{LONG[:80]}... (10000 characters) cannot be the name of a file (it is too long); shorten it'),
    (['run', '\udcff', '--help'], r"config '\udcff' is unknown; choose one of fedgen, "),
    (['run', 'quickstart:huge', '--help'], "config string has 'huge'; use a profile"),
    (
      ['run', 'quickstart', '--config.rounds=3', '--config.rounds', '4'],
      '--config.rounds=3 and --config.rounds are one',
    ),
    (
      ['run', 'quickstart', '--config.data.flip', '--noconfig.data.flip'],
      '--config.data.flip and --noconfig.data.flip',
    ),
    (['compare', 'a', '--out=a', '--out=b'], '--out=a and --out=b are one flag; give it once'),
    (['bench', '--suite=cpu', '--suite=gpu'], '--suite=cpu and --suite=gpu are one flag; give it once'),
    (
      ['bench', 'report', 'none'],
      'file=none is no benchmark (No such file or directory); give what fedkd bench --json',
    ),
    (['bench', 'report', '.'], 'file=. is no benchmark (Is a directory)'),
    (['bench', 'report', 'cut'], 'file=cut is no benchmark (JSONDecodeError: Expecting value'),
    (['bench', 'report', 'other'], "file=other is no benchmark (KeyError: 'rows')"),
    (['bench', 'report', 'list'], 'file=list is no benchmark (TypeError: '),
    (['bench', 'report', 'bytes'], 'file=bytes is no benchmark (JSONDecodeError: '),
    (['bench', 'report', LONG], 'file=xxxx'),
  ],
)
def test_a_mistake_in_a_name_or_a_flag_is_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
  for name, content in [('cut', b'{"rows": ['), ('other', b'{}'), ('list', b'[1]'), ('bytes', b'\xff\xfe')]:
    (tmp_path / name).write_bytes(content)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'argv', ['fedkd'])
  with pytest.raises(SystemExit, match='2'):
    cli.main(words)
  out, said = capsys.readouterr()
  assert said.startswith(f'fedkd: {sentence}')
  assert (out, said.count('\n')) == ('', 1)
  assert len(said) < 500


def test_where_a_comparison_goes_is_checked_before_it_is_made(tmp_path, monkeypatch, capsys):
  flags.FLAGS.mark_as_parsed()
  (tmp_path / 'file').touch()
  (tmp_path / 'out' / 'table.csv').mkdir(parents=True)
  monkeypatch.setattr(compare.results, 'summary', lambda path: {'method': 'fedhe'})
  monkeypatch.setattr(compare.compare, 'table', lambda runs, frame, reference: pytest.fail('a table'))
  for flag in ('out', 'results'):
    with flagsaver.flagsaver(**{flag: str(tmp_path / 'file')}), pytest.raises(SystemExit, match='2'):
      compare.main(['fedkd', 'a'])
    file = tmp_path / 'file'
    assert capsys.readouterr() == ('', f'fedkd: {flag}={file} cannot be written (File exists); choose another\n')
  monkeypatch.setattr(compare.analysis, 'runs', lambda paths: pd.DataFrame())
  monkeypatch.setattr(compare.compare, 'table', lambda runs, frame, reference: pd.DataFrame())
  with flagsaver.flagsaver(out=str(tmp_path / 'out')), pytest.raises(SystemExit, match='2'):
    compare.main(['fedkd', 'a'])
  out = tmp_path / 'out'
  assert capsys.readouterr().err == f'fedkd: out={out}: {out}/table.csv cannot be written (Is a directory)\n'


@pytest.mark.slow
def test_a_config_of_ones_own_may_use_the_shipped_ones_and_its_neighbours(tmp_path):
  (tmp_path / 'configs').mkdir()
  (tmp_path / 'configs' / 'mine.py').write_text('ROUNDS = 7\n')
  (tmp_path / 'tiny.py').write_text(TINY)
  code, said, error = fedkd('run', 'tiny.py', '--dry_run', cwd=tmp_path)
  assert code == 0, error
  assert ': 7 rounds, ' in said
  (tmp_path / 'configs' / '__init__.py').write_text('')  # a package, where the shipped folder is one too
  assert fedkd('run', 'tiny.py', '--dry_run', cwd=tmp_path)[0] == 0


@pytest.mark.parametrize('command', cases(['fedkd.cli reproduce', 'launch.reproduce'], fast=['fedkd.cli reproduce']))
def test_the_reader_of_a_list_may_go_away(command):
  words = f'{sys.executable} -m {command} --list | head -n 1'
  done = subprocess.run(words, shell=True, cwd=ROOT, capture_output=True, text=True)
  assert done.stdout.startswith('md-femnist-first')
  assert not done.stderr


def test_a_refused_config_does_not_wait(tmp_path):
  """Not seconds, which depend on the machine: no program is compiled, no data are read, nothing heavy is imported."""
  program = f"""
import sys
from fedkd import cli
try:
  cli.main(['run', 'quickstart:smoke', '--workdir={tmp_path}/a', '--config.rounds=0'])
except SystemExit as end:
  late = ('orbax', 'tensorboardX', 'matplotlib', 'pandas', 'mlxtend', 'tensorflow_datasets', 'scipy.stats', 'torch')
  print(end.code, [name for name in late if name in sys.modules])
"""
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True)
  assert done.stdout == '2 []\n', done.stderr


def git(folder, *words):
  identity = ['-c', 'user.name=somebody', '-c', 'user.email=somebody@example.org']
  return subprocess.run(['git', *identity, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path):
  """Somebody's repository with a commit."""
  git(tmp_path, 'init', '-q')
  (tmp_path / 'pyproject.toml').write_text('[project]\nname = "theirs"\n')
  git(tmp_path, 'add', '-A')
  git(tmp_path, 'commit', '-qm', 'theirs')
  return tmp_path


@pytest.mark.parametrize('place', ['.venv/lib/python3/site-packages/fedkd', 'fedkd', 'vendor/fedkd/fedkd'])
def test_somebody_elses_commit_is_not_ours(repository, place):
  """Installed inside their repository, as a package of it, and as a copy of our sources in it."""
  package = repository / place
  package.mkdir(parents=True)
  if 'vendor' in place:
    shutil.copy(ROOT / 'pyproject.toml', package.parent)
  assert provenance.commit(package) == {'commit': '', 'dirty': False}


def test_our_own_commit_is_recorded(repository, monkeypatch):
  (repository / 'fedkd').mkdir()
  shutil.copy(ROOT / 'pyproject.toml', repository)
  git(repository, 'add', '-A')
  git(repository, 'commit', '-qm', 'ours')
  head = git(repository, 'rev-parse', '--short', 'HEAD').strip()
  assert provenance.commit(repository / 'fedkd') == {'commit': head, 'dirty': False}
  (repository / 'pyproject.toml').write_text('[project]\nname = "fedkd"\n')
  assert provenance.commit(repository / 'fedkd') == {'commit': head, 'dirty': True}
  monkeypatch.setenv('PATH', '')  # where git is not installed
  assert provenance.commit(repository / 'fedkd') == {'commit': '', 'dirty': False}


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
  """The programs of an environment in which nothing but the wheel and its dependencies is."""
  folder = tmp_path_factory.mktemp('wheel')
  pip = lambda *words: subprocess.run([str(folder / 'env/bin/pip'), '--quiet', *words], check=True, cwd=folder)
  subprocess.run([sys.executable, '-m', 'venv', str(folder / 'env')], check=True)
  pip('wheel', '--no-deps', '--wheel-dir', str(folder), str(ROOT))
  pip('install', *map(str, folder.glob('*.whl')))
  return folder / 'env' / 'bin'


def test_a_single_accuracy_is_not_called_one_per_seed():
  summary = {'method': 'fedhe', 'final': [0.5628, 0.6], 'seconds': 3.2}
  assert main.outcome(summary) == 'fedhe: test accuracy 56.28 60.00 % (per seed), 3 s of training'
  assert main.outcome({**summary, 'final': [0.5628]}) == 'fedhe: test accuracy 56.28 %, 3 s of training'


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment_inside_somebodys_repository(installed, repository):
  here, program = repository, [str(installed / 'fedkd')]
  env = {'PYTHONPATH': '', 'TFDS_DATA_DIR': str(here / 'none'), 'FEDKD_IMAGES': ''}
  call = lambda *words: fedkd(*words, cwd=here, program=program, **env)
  for method in ('fedhe', 'private'):
    code, said, error = call('run', f'quickstart:smoke,method={method}', f'--workdir=runs/{method}')
    assert code == 0, error
    assert f'figures and metrics: runs/{method}' in said
  summary = json.loads((here / 'runs/fedhe/summary.json').read_text())
  assert (summary['commit'], summary['dirty']) == ('', False)
  assert (here / 'runs/fedhe/figures/accuracy_rounds.png').exists()
  code, said, error = call('compare', 'runs/fedhe', 'runs/private', '--out=out')
  assert code == 0, error
  assert 'reference' in said
  assert (here / 'out/table.md').read_text().startswith('| run |')
  assert 'h2l-rmnist-a10' in call('reproduce', '--list')[1]
  assert call('reproduce', '--id=h2l-rmnist-a10', '--profile=smoke', '--check')[1].count('up {') == 6
  assert 'cifar10             missing  fedkd data prepare cifar10' in call('data', 'list')[1]
  code, _, said = call('data', 'prepare', 'cifar10')
  assert code == 2
  assert 'tfds build cifar10 --file_format=array_record' in said
  assert '--suite' in call('bench', '--suite=cpu', '--help')[1]
  (shipped,) = installed.parent.glob('lib/*/site-packages/fedkd/shipped/launch')
  tools = {path.name for path in (shipped / 'tools').iterdir()} - {'__pycache__'}
  assert tools == {'__init__.py', 'speed'}  # the others need tests/
  for name in ('configs', 'launch'):  # nobody's environment gets such
    done = subprocess.run([str(installed / 'python'), '-c', f'import {name}'], cwd=here, capture_output=True, text=True)
    assert f"No module named '{name}'" in done.stderr


@pytest.mark.slow
def test_an_editable_installation_has_no_copy_of_what_is_shipped(tmp_path):
  subprocess.run([sys.executable, '-m', 'venv', str(tmp_path / 'env')], check=True)
  pip = str(tmp_path / 'env/bin/pip')
  subprocess.run([pip, '--quiet', 'install', '--no-deps', '--editable', str(ROOT)], check=True)
  packages = tmp_path / 'env' / pathlib.Path(sysconfig.get_path('purelib')).relative_to(sys.prefix)
  assert not (packages / 'fedkd').exists()
  found = subprocess.run(
    [str(tmp_path / 'env/bin/python'), '-c', 'import configs; print(configs.__path__)'],
    cwd=tmp_path, capture_output=True, text=True, check=True,
  )  # fmt: skip
  assert str(ROOT / 'configs') in found.stdout
