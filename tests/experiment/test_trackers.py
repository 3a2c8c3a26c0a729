"""Trackers: told of every evaluation once, whatever kills the run, and read back with their own libraries."""

import pathlib
import sys

import pytest

import runs
from fedkd import experiment, files
from fedkd.config import to_json
from fedkd.errors import ConfigError
from fedkd.experiment import trackers
from fedkd.experiment.trackers import metrics
from fedkd.experiment.trackers.protocol import Run, Tracker

ROOT = pathlib.Path(__file__).parents[2]
KNOWN: dict = {'log': [], 'finish': [], 'runs': [], 'last': -1, 'error': None}


def noted(run):
  """A tracker of the test's own, `test_trackers:noted`."""

  def log(row, step):
    if KNOWN['error'] and step == KNOWN['error']:
      raise RuntimeError('the network is gone')
    KNOWN['log'].append((step, row['accuracy']))

  KNOWN['runs'].append(run)
  return Tracker(log, lambda summary, figures: KNOWN['finish'].append(summary), KNOWN['last'])


@pytest.fixture
def known(monkeypatch):
  fresh = {'log': [], 'finish': [], 'runs': [], 'last': -1, 'error': None}
  monkeypatch.setattr(sys.modules[noted.__module__], 'KNOWN', fresh)
  return fresh


@pytest.fixture
def config(images):
  made = runs.config(images, method='private', rounds=4)
  made.tracker = noted
  return made


def steps(workdir):
  return [(row['round'], row['accuracy']) for row in files.read(workdir / 'metrics.jsonl')]


def test_a_tracker_is_told_of_every_evaluation_and_of_what_a_longer_run_adds(known, config, tmp_path):
  first = experiment.run(config, tmp_path / 'run', show=False)
  assert known['log'] == steps(tmp_path / 'run')
  config.rounds, known['last'] = 6, 2  # as a tracker that a kill has robbed of its last evaluation
  known['log'].clear()
  second = experiment.run(config, tmp_path / 'run', show=False)
  assert [step for step, _ in known['log']] == [4, 6]
  assert known['log'] == steps(tmp_path / 'run')[2:]
  assert known['finish'] == [first, second]
  assert [run.step for run in known['runs']] == [0, 4]
  assert known['runs'][0].id == known['runs'][1].id
  assert known['runs'][0].name == 'run'
  assert known['runs'][0].config == {**to_json(config), 'rounds': 4}


@pytest.mark.parametrize(
  ('folder', 'name'), [('try', 'try'), ('points/alpha=0.1/seed0', 'alpha=0.1 seed0'), ('seeds', 'seeds')]
)
def test_a_run_has_the_name_of_its_directory_and_in_a_sweep_of_its_point(tmp_path, monkeypatch, folder, name):
  (tmp_path / folder).mkdir(parents=True)
  assert trackers.name_of(tmp_path / folder) == name
  monkeypatch.chdir(tmp_path / folder)
  assert trackers.name_of(pathlib.Path()) == name


def test_of_two_evaluations_at_one_step_a_tracker_is_told_of_the_first(known, config, tmp_path):
  """The end of a phase, and the start of the next: a tracker that was killed in between knows its last step alone."""
  config.before = ({'name': 'private', 'rounds': 3, 'steps': 2, 'batch': 8},)
  experiment.run(config, tmp_path / 'run', show=False)
  rows = [(row['phase'], row['round'], row['accuracy']) for row in files.read(tmp_path / 'run' / 'metrics.jsonl')]
  assert [row[:2] for row in rows] == [(0, 0), (0, 2), (0, 3), (1, 0), (1, 2), (1, 4)]
  assert known['log'] == [(round + 3 * phase, accuracy) for phase, round, accuracy in rows if (phase, round) != (1, 0)]
  known['last'] = None  # as TensorBoard
  known['log'].clear()
  experiment.run(config, tmp_path / 'again', show=False)
  assert [step for step, _ in known['log']] == [0, 2, 3, 3, 5, 7]


def test_a_tracker_that_fails_does_not_end_the_run(known, config, tmp_path, capsys):
  known['error'] = 2
  summary = experiment.run(config, tmp_path / 'run', show=False)
  assert [step for step, _ in known['log']] == [0, 4]
  assert 'RuntimeError: the network is gone; training goes on' in capsys.readouterr().err
  config.tracker = 'tensorboard'  # which may change
  assert experiment.run(config, tmp_path / 'run', show=False) == summary
  plain = experiment.run(config, tmp_path / 'plain', show=False)
  assert plain['state_sha256'] == summary['state_sha256']
  assert not (tmp_path / 'plain' / 'tracker.json').exists()


def test_a_tracker_hears_that_a_run_has_been_stopped(known, tmp_path):
  with (
    pytest.raises(KeyboardInterrupt),
    trackers.tracking(noted, Run('run', 'id', {}, tmp_path, 0, (0,))),
  ):
    raise KeyboardInterrupt
  assert known['finish'] == [None]


@pytest.mark.parametrize(
  ('value', 'sentence'),
  [
    ('wandbb', "tracker='wandbb' is unknown; choose one of tensorboard, wandb, mlflow, trackio, or module:function"),
    (3, 'tracker=3 is unknown'),
    ('no_such_module:start', "tracker='no_such_module:start' cannot be loaded"),
    ('test_trackers:steps_of_nothing', "tracker='test_trackers:steps_of_nothing' cannot be loaded"),
    ('fedkd.experiment.trackers:run_id', None),
  ],
)
def test_an_unknown_tracker_is_refused_before_anything_starts(config, tmp_path, value, sentence):
  config.tracker = value
  if sentence is None:
    return
  with pytest.raises(ConfigError) as refused:
    experiment.run(config, tmp_path / 'run', show=False)
  assert str(refused.value).startswith(sentence)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('name', ['wandb', 'mlflow', 'trackio'])
def test_a_tracker_that_is_not_installed_is_named(config, tmp_path, name, monkeypatch):
  monkeypatch.setitem(sys.modules, name, None)
  config.tracker = name
  with pytest.raises(
    ConfigError, match=f"tracker='{name}' needs the package {name}.*pip install 'fedkd\\[{name}\\]', or set"
  ):
    experiment.run(config, tmp_path / 'run', show=False)
  assert not (tmp_path / 'run').exists()


def test_numbers_are_means_over_seeds():
  row = {'round': 2, 'accuracy': [0.2, 0.4], 'loss': [None, 1.0], 'accuracy_per_client': [[0.1, 0.3], [0.3, 0.5]]}
  row['feature_per_client'] = [[None, 1.0], [1.0, 1.0]]
  row['seeds'] = [0, 2]  # which are no metric
  assert metrics.means(row) == pytest.approx({'accuracy': 0.3, 'loss': 1.0})
  assert metrics.headline({'method': 'fd', 'final': [0.25, 0.5], 'seeds': [0, 2]}) == {'method': 'fd', 'final': 0.375}
  assert metrics.table(row, (3, 7)) == (['client', 'accuracy'], [[3, 0.2], [7, 0.4]])
