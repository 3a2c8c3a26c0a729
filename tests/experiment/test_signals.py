"""The program as a process: exit codes, signals, and a real kill."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

import runs
from fedkd import experiment, files
from helpers import cases
from launch.tools.speed import stages

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = """
import sys
sys.path.insert(0, {tests!r})
import runs

def get_config(arg=''):
  config = runs.config({images!r}, rounds=60)
  config.checkpoint_every = 2
  return config
"""


@pytest.fixture(scope='module')
def command(tmp_path_factory):
  """The command line of a run of 60 rounds, without its workdir."""
  folder = tmp_path_factory.mktemp('command')
  images = runs.save_images(folder / 'tiny.npz')
  (folder / 'tiny.py').write_text(CONFIG.format(tests=str(ROOT / 'tests'), images=str(images)))
  return [sys.executable, '-m', 'launch.main', f'--config={folder / "tiny.py"}']


def start(command, *flags):
  pipe = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
  return subprocess.Popen([*command, *flags], cwd=ROOT, **pipe)


def wait_for_checkpoint(process, workdir):
  until = time.monotonic() + 120
  while not [p for p in (workdir / 'checkpoints').glob('*') if p.name.isdigit()]:
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < until
    time.sleep(0.01)


@pytest.mark.slow  # launch.crash kills runs at their operations on files in `tests/launch/tools/test_crash.py`
def test_killed_and_interrupted_runs_end_like_an_unbroken_one(command, tmp_path):
  broken = tmp_path / 'broken'
  process = start(command, f'--workdir={broken}')
  wait_for_checkpoint(process, broken)
  process.send_signal(signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL
  assert not (broken / 'summary.json').exists()

  process = start(command, f'--workdir={broken}')
  lines = ['']
  while 'compiled in' not in lines[-1]:
    lines.append(process.stdout.readline())
    assert lines[-1], process.communicate()
  (continuing,) = (line for line in lines if 'continuing from round' in line)
  assert int(continuing.split()[-1]) >= 2
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate()
  assert process.returncode == 143, (out, err)
  assert 'is saved; start again to continue' in err
  assert 'Traceback' not in err

  config = experiment.read_config(broken)
  one, other = (experiment.run(config, tmp_path / name, show=False) for name in ('unbroken', 'broken'))
  assert one['state_sha256'] == other['state_sha256']
  rows = [
    [{k: v for k, v in r.items() if k != 'seconds'} for r in files.read(tmp_path / n / 'metrics.jsonl')]
    for n in ('unbroken', 'broken')
  ]
  assert rows[0] == rows[1]
  assert [r['round'] for r in rows[0]] == list(range(0, 61, 2))


REFUSED = [
  (['--config.colour=red'], 'colour'),
  (['--config.rounds=many'], 'rounds'),
  (['--config.data.clients=999'], 'data.clients=999'),
  (['stray'], "'stray' is not a flag"),
]


@pytest.mark.parametrize(('flags', 'message'), cases(REFUSED, fast=REFUSED[:1]))
def test_refusals_exit_with_2_one_sentence_and_no_run_directory(command, tmp_path, flags, message):
  process = start(command, f'--workdir={tmp_path / "run"}', *flags)
  out, err = process.communicate()
  assert process.returncode == 2, (out, err)
  assert message in err
  assert err.startswith('fedkd: ')
  assert err.count('\n') == 1
  assert not (tmp_path / 'run').exists()


def test_a_config_string_with_an_unknown_word_exits_with_2(tmp_path):
  process = start(
    [sys.executable, '-m', 'launch.main', '--config=configs/quickstart.py:huge'], f'--workdir={tmp_path}/a'
  )
  _, err = process.communicate()
  assert process.returncode == 2
  assert err == "fedkd: config string has 'huge'; use a profile (small, smoke) or method=..., optimizer=...\n"


@pytest.mark.slow
def test_divergence_exits_with_3(command, tmp_path):
  process = start(
    command, f'--workdir={tmp_path / "run"}', '--config.optimizer.learning_rate=1e38', '--config.rounds=40'
  )
  _, err = process.communicate()
  assert process.returncode == 3, err
  assert 'the losses of' in err or 'the loss of client' in err


@pytest.mark.slow
def test_a_profile_is_written(command, tmp_path):
  process = start(
    command,
    f'--workdir={tmp_path / "run"}',
    f'--profile_dir={tmp_path / "trace"}',
    '--config.rounds=2',
    '--config.devices=2',
  )
  _, err = process.communicate()
  assert process.returncode == 0, err
  assert len(list((tmp_path / 'trace').rglob('*.xplane.pb'))) == 1
  assert (tmp_path / 'run' / 'summary.json').exists()
  shares = stages.shares(stages.operations(tmp_path / 'trace'))
  assert sum(shares.values()) == pytest.approx(1)
  assert 0.02 < shares['matrix products, convolutions, large sums'] < 0.98


def test_an_operation_belongs_to_the_first_stage_that_knows_it():
  seconds = {'ynn_fusion': 3.0, 'dot': 1.0, 'slice_pad_fusion': 2.0, 'add_maximum_fusion': 2.0}
  assert list(stages.shares(seconds).values()) == [0.5, 0.25, 0, 0, 0.25]
  assert stages.table([('a net', seconds)]).splitlines()[2] == '| a net | 50% | 25% | 0% | 0% | 25% |'
  with pytest.raises(ValueError, match='holds no trace; write one with'):
    stages.operations('nowhere')


def test_dry_run_prints_sizes_and_writes_nothing(command, tmp_path):
  process = start(command, f'--workdir={tmp_path / "run"}', '--dry_run')
  out, err = process.communicate()
  assert process.returncode == 0, err
  assert '1,187 parameters' in out  # MLP: 144 * 8 + 8 + 8 * 3 + 3
  assert '9 knowledge (36 B) + 3 labels' in out
  assert '240 client updates' in out
  assert not (tmp_path / 'run').exists()
