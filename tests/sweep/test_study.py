"""Sweeps as a whole: what is run, ranked, tested, kept and refused."""

import copy
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

import runs
from fedkd import config as configs
from fedkd import files
from fedkd.errors import ConfigError, StoppedError
from fedkd.sweep import grid as grids
from fedkd.sweep import runs as prepared
from fedkd.sweep import study, worker

GRID = 'optimizer.learning_rate=0.01,0.3;method.alpha=0.2,0.9'


def tiny(folder, rounds=2):
  config = runs.config(runs.save_images(folder / 'images.npz'), rounds=rounds)
  config.data.validation = 0.2
  return config


def sweep(config, out, grid=GRID, **more):
  return study.sweep(config, grid, out, **{'seeds': (0,), 'launcher': 'here', 'show': False, **more})


@pytest.fixture(scope='module')
def done(tmp_path_factory):
  """(folder, its config, what a sweep of four points found)."""
  folder = tmp_path_factory.mktemp('sweep')
  config = tiny(folder)
  return folder, config, sweep(config, folder / 'out')


def validation_of(folder, point, seed=0):
  rows = files.read(folder / 'points' / point / f'seed{seed}' / 'metrics.jsonl')
  return 100 * rows[-1]['validation_accuracy'][0]


def test_points_are_ranked_by_validation_and_the_best_is_tested_with_another_seed(done):
  folder, _, found = done
  table = found.table
  assert list(table['validation %']) == sorted(table['validation %'], reverse=True)
  for _, row in table.iterrows():
    assert row['validation %'] == pytest.approx(validation_of(folder / 'out', row['point']), abs=0.006)
  best = table['point'][0]
  assert found.best['point'] == best
  assert (found.best['seeds'], found.best['test_seeds']) == ([0], [1])
  summary = files.read(folder / 'out' / 'points' / best / 'seed1' / 'metrics.jsonl')[-1]
  assert found.best['test'] == [pytest.approx(summary['accuracy'][0])]
  assert not found.failed
  assert pd.read_csv(folder / 'out' / 'table.csv')['point'].tolist() == table['point'].tolist()
  assert {'budget.png', 'heat.png', 'parallel.png', 'best.json', 'table.md'} <= set(os.listdir(folder / 'out'))


def test_a_point_is_the_run_of_its_config(done, tmp_path):
  folder, config, _ = done
  assert configs.to_json(config)['traced'] == []  # of the caller, as it was
  config = copy.deepcopy(config)
  config.optimizer.learning_rate, config.method.alpha, config.seeds = 0.3, 0.9, (0,)
  runs.experiment.run(config, tmp_path / 'alone', show=False)
  rows = files.read(tmp_path / 'alone' / 'metrics.jsonl')
  assert 100 * rows[-1]['validation_accuracy'][0] == validation_of(folder / 'out', 'learning_rate=0.3,alpha=0.9')


def test_what_is_finished_is_not_run_again_and_more_seeds_extend_it(done, monkeypatch, capsys):
  folder, config, found = done
  ran = []
  monkeypatch.setattr(worker, '_run', lambda order: ran.append(order['run']) or {'reason': 'not run here'})
  again = sweep(config, folder / 'out', show=True)
  assert capsys.readouterr().out.endswith('; testing it with seed 1\n')
  assert ran == []
  pd.testing.assert_frame_equal(again.table, found.table)
  more = sweep(config, folder / 'out', seeds=(0, 5), test_seeds=())
  assert sorted(path.rsplit('/', 1)[1] for path in ran) == ['seed5'] * 4
  assert list(more.table['failed']) == ['seed5: not run here'] * 4
  assert more.best is None


def test_a_schedule_over_all_rounds_does_not_make_a_run_another(tmp_path):
  config = tiny(tmp_path)
  config.schedule = configs.schedule('cosine')
  first = prepared.prepare(config, tmp_path, 'point', 0)
  assert prepared.prepare(config, tmp_path, 'point', 0) == first
  config.schedule.end = 0.5
  with pytest.raises(ConfigError, match=r'holds a run with another config \(schedule.end: 0.0 -> 0.5\)'):
    prepared.prepare(config, tmp_path, 'point', 0)


def test_a_run_that_went_on_counts_by_its_evaluation_on_all_rows_or_not_at_all(tmp_path):
  config = tiny(tmp_path, rounds=1)
  config.eval_every = 1  # after round 1 in any case, but in the middle of a run on `eval_rows`
  run = prepared.prepare(config, tmp_path, 'rungs', 0)
  assert prepared.outcome(run) is None
  worker._run(run.order(''))
  before = prepared.outcome(run)
  worker._run(run._replace(rounds=2).order(''))
  assert prepared.outcome(run) == before
  at_once = prepared.prepare(config, tmp_path, 'at_once', 0)
  worker._run(at_once._replace(rounds=2).order(''))
  with pytest.raises(
    ConfigError, match='at_once/seed0 has trained past round 1 without an evaluation on all rows there'
  ):
    prepared.outcome(at_once)
  runs.change_config(at_once.workdir, lambda config: config.update(eval_rows=0))
  assert prepared.outcome(at_once) is not None


@pytest.mark.parametrize('damage', [lambda config: {**config, 'eval_every': 1}, lambda config: {}])
def test_a_point_that_cannot_be_compared_leaves_the_table_as_it_was(damage, done, tmp_path):
  folder, config, _ = done
  shutil.copytree(folder / 'out', tmp_path / 'out')
  path = tmp_path / 'out' / 'points' / 'learning_rate=0.3,alpha=0.9' / 'seed0' / 'config.json'
  files.write_sealed(path, damage(files.read_sealed(path)))
  with pytest.raises(ConfigError):
    sweep(config, tmp_path / 'out')
  for name in ('table.csv', 'best.json'):
    assert (tmp_path / 'out' / name).read_bytes() == (folder / 'out' / name).read_bytes()


def test_runs_of_a_file_that_has_changed_in_between_are_not_ranked(done, tmp_path):
  folder, config, _ = done
  shutil.copytree(folder / 'out', tmp_path / 'out')
  runs.change_data(tmp_path / 'out' / 'points' / 'learning_rate=0.3,alpha=0.9' / 'seed0')
  with pytest.raises(ConfigError, match=r'0.9/seed0 was trained on other data than .*/seed0, under the same name: res'):
    sweep(config, tmp_path / 'out')
  assert (tmp_path / 'out' / 'table.csv').read_bytes() == (folder / 'out' / 'table.csv').read_bytes()


def test_a_test_seed_that_fails_takes_no_other_ones_place(done, monkeypatch):
  folder, config, found = done
  monkeypatch.setattr(worker, '_run', lambda order: {'reason': 'not run here'})
  best = sweep(config, folder / 'out', test_seeds=(7, 1)).best
  assert (best['test_seeds'], best['test']) == ([7, 1], [None, *found.best['test']])
  assert json.loads((folder / 'out' / 'best.json').read_text()) == best


def test_a_point_that_fails_is_named_with_its_reason_and_the_others_go_on(tmp_path):
  found = sweep(tiny(tmp_path), tmp_path / 'out', 'optimizer.learning_rate=0.01,1e30', test_seeds=())
  assert list(found.failed) == ['learning_rate=1e+30, seed 0']
  assert 'lower optimizer.learning_rate=1e+30' in found.table['failed'][1]
  assert found.best['point'] == 'learning_rate=0.01'
  assert 'failed' not in found.table['failed'][0]


def test_a_signal_ends_the_sweep(tmp_path, monkeypatch):
  def stopped(order):
    raise StoppedError(signal.SIGINT, 'stopped')

  monkeypatch.setattr(worker, '_run', stopped)
  with pytest.raises(StoppedError):
    sweep(tiny(tmp_path), tmp_path / 'out')


MISTAKES = [
  ({'grid': 'method.beta=1,2'}, "method fedhe has no field 'beta'"),
  ({'grid': 'methods.beta=1,2'}, "config has no field 'methods'"),
  ({'grid': 'method.alpha=0.5,-1'}, 'method.alpha=-1.0 must be a number of at least 0'),
  ({'grid': 'method.alpha=0.5,high'}, "grid: method.alpha='high' is of another type than"),
  ({'grid': 'groups[0].hidden=linear:1:3'}, 'grid: groups[0].hidden is inside of groups; give values of all of groups'),
  ({'grid': 'rounds=0,1'}, 'rounds=0 must be a whole number'),
  ({'grid': 'data.validation=0.0,0.2'}, 'data.validation=0 holds no rows out'),
  ({'seeds': (0, 0)}, 'seeds=(0, 0) must be distinct'),
  ({'seeds': ()}, 'seeds=() must be distinct, at least one'),
  ({'seeds': 3}, 'seeds is 3, an int; give several, such as range(3) or (0, 1, 2)'),
  ({'grid': ['method.alpha']}, "grid is a list; give text such as 'method.alpha=0.1,1', or {field: values}"),
  ({'grid': {'method.alpha': 0.1}}, 'grid: method.alpha is 0.1, a float; give its values, such as [0.1, 1]'),
  ({'test_seeds': (0, 1)}, 'test_seeds=(0, 1) has 0, which is among seeds'),
  ({'launcher': 'moon'}, "launcher='moon' is unknown; choose one of local, here, slurm, debug"),
  ({'search': 'best'}, "search='best' is unknown; choose one of grid, random, tpe, halving"),
  ({'points': 3}, 'points=3 is for search=random, tpe or halving'),
  ({'search': 'halving', 'points': 3, 'grid': 'rounds=1,2'}, 'grid has rounds, which search=halving chooses itself'),
  (
    {'search': 'halving', 'points': 3, 'grid': 'schedule.name=constant,cosine'},
    'schedule.rounds=0 stretches the schedule over all rounds, of which search=halving begins with a part; set it to '
    'rounds=2, or choose search=random or tpe',
  ),
  ({'search': 'tpe'}, 'search=tpe needs points=None to be at least 1'),
]


@pytest.mark.parametrize(('mistake', 'sentence'), MISTAKES, ids=[str(m) for m, _ in MISTAKES])
def test_a_mistake_ends_it_before_anything_is_written(mistake, sentence, tmp_path):
  with pytest.raises(ConfigError) as error:
    sweep(tiny(tmp_path), tmp_path / 'out', **mistake)
  assert str(error.value).startswith(sentence)
  assert not (tmp_path / 'out').exists()


def test_what_is_no_config_is_named(tmp_path):
  with pytest.raises(
    ConfigError, match=r"config is 'table:smoke', a str; give what get_config\(\) of a file of configs/"
  ):
    sweep('table:smoke', tmp_path / 'out')
  with pytest.raises(ConfigError, match='config is the function tiny, not called; give what get_config'):
    runs.experiment.run(tiny, tmp_path / 'out')
  with pytest.raises(ConfigError, match='workdir is a ConfigDict; give the name of a directory, such as runs/try'):
    runs.experiment.run(tmp_path / 'out', tiny(tmp_path))


def test_a_sweep_over_rates_that_nobody_uses_is_refused(tmp_path):
  config = tiny(tmp_path)
  config.groups = tuple({**group, 'learning_rate': 0.1} for group in config.groups)
  with pytest.raises(ConfigError, match=r'grid has optimizer.learning_rate, but every entry of groups has its own'):
    sweep(config, tmp_path / 'out')


def test_a_sweep_over_rounds_goes_on(tmp_path):
  config, axes = tiny(tmp_path), grids.parse('rounds=3,4')
  (tmp_path / 'out').mkdir()
  study._check_same(tmp_path / 'out', config, axes, 'grid')
  study._check_same(tmp_path / 'out', config, axes, 'grid')
  config.method.steps = 3
  with pytest.raises(ConfigError, match=r'holds a sweep with another config \(method.steps: 2 -> 3\);'):
    study._check_same(tmp_path / 'out', config, axes, 'grid')


def test_an_interval_that_has_changed_is_told_apart(tmp_path):
  text, config = 'method.alpha=linear:0:1', tiny(tmp_path)
  (tmp_path / 'out').mkdir()
  study._check_same(tmp_path / 'out', config, grids.parse(text), 'random')
  with pytest.raises(ConfigError, match=r'fields: method.alpha \(0, 1\) -> method.alpha \(0.0, 0.5, 1.0\)'):
    study._check_same(tmp_path / 'out', config, grids.typed(grids.parse(text), config), 'random')


def test_a_directory_of_another_sweep_is_refused(done, tmp_path):
  folder, config, _ = done
  other = tiny(folder)
  other.method.steps = 3
  for given, grid, said in (
    (other, GRID, 'method.steps: 2 -> 3'),
    (config, 'method.alpha=0.2', 'fields: optimizer.learning_rate, method.alpha -> method.alpha'),
    (tiny(folder, rounds=3), GRID, 'rounds: 2 -> 3'),
  ):
    with pytest.raises(ConfigError, match='holds a sweep with another config') as error:
      sweep(given, folder / 'out', grid)
    assert said in str(error.value)
  (tmp_path / 'points' / 'a').mkdir(parents=True)
  with pytest.raises(ConfigError, match='has runs but no sweep'):
    sweep(config, tmp_path)


def test_more_values_of_a_grid_extend_it(tmp_path, monkeypatch):
  ran = []
  monkeypatch.setattr(worker, '_run', lambda order: ran.append(order['run']) or {'reason': 'no'})
  config = tiny(tmp_path)
  sweep(config, tmp_path / 'out', 'method.alpha=0,1')
  sweep(config, tmp_path / 'out', 'method.alpha=linear:0:1')
  assert any('alpha=0.5' in run for run in ran)


def test_numbers_that_cannot_be_traced_are_compiled(tmp_path, monkeypatch):
  asked = []

  def check(order):
    asked.append(tuple(files.read_sealed(pathlib.Path(order, 'config.json'))['traced']))
    return {'reason': 'no'} if 'method.alpha' in asked[-1] else {'backend': 'cpu'}

  monkeypatch.setattr(worker, '_check', check)
  monkeypatch.setattr(worker, '_run', lambda order: {'reason': 'no'})
  config = tiny(tmp_path)
  sweep(config, tmp_path / 'out')
  both, rate, alpha = ('optimizer.learning_rate', 'method.alpha'), ('optimizer.learning_rate',), ('method.alpha',)
  assert asked[:3] == [both, rate, alpha]
  stored = next((tmp_path / 'out' / 'points').glob('*/seed0/config.json'))
  assert tuple(files.read_sealed(stored)['traced']) == rate


def test_data_that_have_changed_are_refused(done):
  folder, _, _ = done
  run = next((folder / 'out' / 'points').glob('*/seed0'))
  worker._CHECKSUMS.clear()
  runs.save_images(folder / 'images.npz', seed=7)
  try:
    said = worker.answer({'run': str(run), 'rounds': 2, 'code': 'another'})
    assert f"{run} was begun with other data of data.name='npz:" in said['reason']
  finally:
    runs.save_images(folder / 'images.npz')
    worker._CHECKSUMS.clear()
  assert worker.answer({'run': str(run), 'rounds': 2, 'code': 'x'}) == {
    'warning': 'begun with another version of the code'
  }


PROGRAM = """
import pathlib, sys
from test_study import sweep, tiny
folder = pathlib.Path(sys.argv[1])
if __name__ == '__main__':
  sweep(tiny(folder, rounds=40), folder / 'out', seeds=(0, 1), launcher='local', jobs=2)
"""


@pytest.mark.slow
def test_a_sweep_that_is_killed_twice_ends_with_the_same_table(tmp_path):
  tables, environment = [], {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
  for name, kills in (('alone', 0), ('killed', 2)):
    (tmp_path / name).mkdir()
    for attempt in range(kills + 1):
      process = subprocess.Popen([sys.executable, '-c', PROGRAM, str(tmp_path / name)], env=environment)
      if attempt < kills:
        done = lambda folder=tmp_path / name: len(list(folder.glob('out/points/*/*/summary.json')))
        wanted = 2 * attempt + 1
        while done() < wanted and process.poll() is None:
          time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        assert done() < 8
      process.wait()
    tables.append(pd.read_csv(tmp_path / name / 'out' / 'table.csv'))
  pd.testing.assert_frame_equal(*tables)
  assert tables[0]['failed'].isna().all()
