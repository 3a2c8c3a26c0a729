"""Run directories with damaged files, in use, or on a full disk: the same result or one sentence, never another."""

import contextlib
import copy
import json
import shutil

import pytest

import runs
from fedkd import analysis, experiment, files
from fedkd.analysis import results
from fedkd.errors import ConfigError, StoreError
from fedkd.experiment.storage import checkpoint, lock


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """(config, workdir, summary) of four rounds, a checkpoint and an evaluation every two."""
  folder = tmp_path_factory.mktemp('damage')
  config = runs.config(runs.save_images(folder / 'tiny.npz'), 'private', 4, batch=4)
  config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (4,)},)
  config.checkpoint_every = 2
  return config, folder / 'run', experiment.run(config, folder / 'run', show=False)


@pytest.fixture
def config(made):
  return made[0]


@pytest.fixture
def run(made, tmp_path):
  """A copy of the run directory."""
  return shutil.copytree(made[1], tmp_path / 'run')


def timeless(value):
  return {k: v for k, v in value.items() if k not in ('seconds', 'digests')}


def same_result(made, run):
  rows = [[timeless(row) for row in files.read(folder / 'metrics.jsonl')] for folder in (made[1], run)]
  assert rows[0] == rows[1]
  assert timeless(results.summary(run)) == timeless(json.loads(json.dumps(made[2])))


def flip(path):
  content = bytearray(path.read_bytes())
  content[-80] ^= 1
  path.write_bytes(content)


def cut(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = (flip, cut, lambda path: path.write_bytes(b''), lambda path: path.unlink())


@pytest.mark.parametrize('damage', DAMAGES)
@pytest.mark.parametrize('name', ['config.json', 'metrics.jsonl', 'split.npz'])
def test_a_finished_run_with_a_changed_file_is_not_read(run, name, damage):
  damage(run / name)
  for look in (results.summary, analysis.read, experiment.load, lambda run: results.of_run(run, 'id', 'small')):
    with pytest.raises(ConfigError, match=name.replace('.', r'\.')) as caught:
      look(run)
    assert str(caught.value).count('\n') == 0


@pytest.mark.parametrize(
  ('damage', 'name', 'remedy', 'goes_on'),
  [
    (cut, 'config.json', '; restore the file, or choose another workdir', False),
    (flip, 'metrics.jsonl', '; start the run again, which repairs what can be repaired, or restore the file', True),
    (lambda path: path.unlink(), 'split.npz', '; start the run again, which repairs it, or restore the file', True),
    (cut, 'summary.json', '; start the run again, which repairs it, or restore the file', True),
  ],
)
def test_the_remedy_for_a_damaged_file_is_one(made, config, run, damage, name, remedy, goes_on):
  damage(run / name)
  with pytest.raises(ConfigError) as caught:
    results.summary(run)
  assert str(caught.value).endswith(remedy)
  with contextlib.nullcontext() if goes_on else pytest.raises(ConfigError, match=remedy):
    experiment.run(config, run, show=False)
    same_result(made, run)


def test_a_run_that_was_given_more_rounds_and_stopped_is_to_be_started_again(config, run):
  config = copy.deepcopy(config)
  config.rounds += 1
  files.write_sealed(run / 'config.json', {**files.read_sealed(run / 'config.json'), 'rounds': config.rounds})
  with pytest.raises(ConfigError, match=r'config\.json has changed since the run was finished; start the run again$'):
    results.summary(run)
  experiment.run(config, run, show=False)
  assert results.summary(run)['rounds'] == config.rounds


def test_the_last_line_of_a_run_that_died_drawing_its_figures_is_not_believed(made, config, run, capsys):
  """A flipped bit there was the final accuracy; now the evaluation is made again from the checkpoint before."""
  (run / 'summary.json').unlink()
  flip(run / 'metrics.jsonl')
  experiment.run(config, run, show=False)
  assert 'metrics.jsonl is damaged (line 3' in capsys.readouterr().err
  same_result(made, run)


def test_evaluations_that_no_checkpoint_is_older_than_are_not_made_up(config, run):
  (run / 'summary.json').unlink()
  before = {path: path.read_bytes() for path in (run / 'checkpoints').rglob('*') if path.is_file()}
  for damage in (lambda path: path.write_text(path.read_text().splitlines()[0] + '\n'), lambda path: path.unlink()):
    damage(run / 'metrics.jsonl')
    with pytest.raises(ConfigError, match=r'metrics\.jsonl is damaged \(.* missing\), and no checkpoint is older'):
      experiment.run(config, run, show=False)
  assert before == {path: path.read_bytes() for path in (run / 'checkpoints').rglob('*') if path.is_file()}


def test_a_finished_run_repairs_what_can_be_made_again(made, config, run, capsys):
  cut(run / 'split.npz')
  cut(run / 'summary.json')
  experiment.run(config, run, show=False)
  assert 'summary.json is damaged' in capsys.readouterr().err
  same_result(made, run)
  assert (run / 'split.npz').read_bytes() == (made[1] / 'split.npz').read_bytes()


def test_a_directory_without_its_config_is_refused(config, run):
  (run / 'config.json').unlink()
  with pytest.raises(ConfigError, match=r'has a metrics\.jsonl but no config\.json; restore it'):
    experiment.run(config, run, show=False)


def test_a_checkpoint_of_another_round_is_noticed(made, config, run, capsys):
  """Its contents match their checksum, which the number of the round therefore enters."""
  (run / 'summary.json').unlink()
  shutil.rmtree(run / 'checkpoints' / '4')
  shutil.copytree(run / 'checkpoints' / '2', run / 'checkpoints' / '4')
  experiment.run(config, run, show=False)
  assert 'checkpoint 4 is damaged' in capsys.readouterr().err
  same_result(made, run)


def test_a_model_of_an_older_round_is_not_loaded_for_that_of_the_last(run):
  shutil.rmtree(run / 'checkpoints' / '4')
  with pytest.raises(ConfigError, match=r'checkpoint of the last round is damaged; delete summary\.json and start'):
    experiment.load(run)


def test_a_directory_in_use_is_refused_and_says_by_whom(config, tmp_path):
  with (
    lock.held(tmp_path),
    pytest.raises(ConfigError, match=r'is in use by process \d+ on .+ since \d{4}-.*; wait for'),
  ):
    experiment.run(config, tmp_path, show=False)
  assert [path.name for path in tmp_path.iterdir()] == ['lock']
  (tmp_path / 'lock').write_bytes(b'\xff' * 999)
  with lock.held(tmp_path):
    assert (tmp_path / 'lock').read_text().startswith('process ')


def full(*args, **options):
  raise OSError(28, 'No space left on device')


@pytest.mark.parametrize(('where', 'error', 'match'), [
  ('fedkd.files.append', StoreError, r'workdir=.*: No space left on device; free space or repair it and start again'),
  ('fedkd.files.write', ConfigError, r'cannot be written \(No space left on device\); choose'),
  ('orbax.checkpoint.CheckpointManager.save', StoreError, r'checkpoint 2 cannot be written to .* \(No space left'),
])  # fmt: skip
def test_a_full_disk_is_one_sentence_and_then_the_run_goes_on(made, config, tmp_path, monkeypatch, where, error, match):
  with monkeypatch.context() as patch:
    patch.setattr(where, full)
    with pytest.raises(error, match=match):
      experiment.run(config, tmp_path / 'run', show=False)
  if where.endswith('save'):
    experiment.run(config, tmp_path / 'run', show=False)
    same_result(made, tmp_path / 'run')


def test_memory_that_runs_out_in_a_save_is_one_sentence(tmp_path, monkeypatch):
  def out_of_memory(*args, **options):
    raise MemoryError

  monkeypatch.setattr('orbax.checkpoint.CheckpointManager.save', out_of_memory)
  with (
    checkpoint.manager(tmp_path) as opened,
    pytest.raises(StoreError, match=r'checkpoint 3 cannot .*\(MemoryError\)'),
  ):
    checkpoint.save(opened, 3, [], {})
