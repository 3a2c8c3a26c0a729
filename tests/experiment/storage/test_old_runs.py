"""A run directory that an older version wrote (`tests/fixtures/run_88492e2/make.py`) loads, resumes and is a result."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

from fedkd import analysis, experiment, files
from fedkd import config as configs
from fedkd.analysis import differences, results
from fedkd.errors import ConfigError
from fedkd.experiment.storage import checkpoint
from fedkd.experiment.storage.loading import read_config
from helpers import cases

STORED = pathlib.Path(__file__).parents[2] / 'fixtures' / 'run_88492e2'
SUMMARY = json.loads((STORED / 'run' / 'summary.json').read_text())
PHASES = (2, 4)  # rounds


@pytest.fixture
def run(tmp_path, monkeypatch):
  """A copy of the run, its data where `data.name`, a relative path, is looked for."""
  monkeypatch.setenv('FEDKD_IMAGES', str(STORED))
  shutil.copytree(STORED / 'run', tmp_path / 'run')
  return tmp_path / 'run'


def leaves(workdir, step):
  """The arrays of a checkpoint, whatever tree they were."""
  import orbax.checkpoint as ocp

  with ocp.PyTreeCheckpointer() as opened:
    return jax.tree.leaves(opened.restore(workdir.absolute() / 'checkpoints' / str(step) / 'state'))


def test_it_is_finished(run):
  """Its config is what this version makes of it, so it is neither refused nor trained again."""
  assert experiment.run(read_config(run), run, show=False) == SUMMARY


def test_its_models_are_loaded(run):
  """The loaded model has the accuracy that the run wrote down for its client on all test images."""
  test = np.load(STORED / 'images.npz')
  for s, seed in enumerate(SUMMARY['seeds']):
    for client in range(2):
      model, variables = experiment.load(run, client, seed)
      logits, _ = model.apply(variables, test['x_test'], False)
      assert np.mean(np.argmax(logits, -1) == test['y_test']) == pytest.approx(SUMMARY['final_per_client'][s][client])


def test_it_is_a_result(run):
  found = results.of_run(run, 'he-tiny', 'small')
  assert (found['method'], found['seeds'], found['commit']) == ('fedhe', [0, 1], '88492e2')
  assert [(row['phase'], row['round']) for row in found['curve']] == [(0, 0), (0, 2), (1, 0), (1, 2), (1, 4)]
  assert found['ledger']['up']['knowledge']['numbers'] == [8 * 3 * 3] * 2  # turns, classes, logits


def test_without_its_summary_the_last_state_has_the_same_checksum(run):
  (run / 'summary.json').unlink()
  assert experiment.run(read_config(run), run, show=False)['state_sha256'] == SUMMARY['state_sha256']


@pytest.mark.parametrize('step', cases([4, 2], fast=[4]))  # in the last phase; at the end of the one before
def test_resumed_it_ends_in_the_stored_state(run, step):
  """The same bits, or on a processor that rounds otherwise the same numbers."""
  (run / 'summary.json').unlink()
  for later in range(step + 2, sum(PHASES) + 2, 2):
    shutil.rmtree(run / 'checkpoints' / str(later))
  again = experiment.run(read_config(run), run, show=False)
  if again['state_sha256'] != SUMMARY['state_sha256']:
    for new, old in zip(leaves(run, sum(PHASES)), leaves(STORED / 'run', sum(PHASES)), strict=True):
      np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
  assert again['final'] == pytest.approx(SUMMARY['final'], abs=0.05)
  assert again['ledger'] == SUMMARY['ledger']
  stored = (STORED / 'run' / 'metrics.jsonl').read_text().splitlines()
  assert len((run / 'metrics.jsonl').read_text().splitlines()) == len(stored)


def test_its_newest_checkpoint_matches_its_checksum(run):
  """`checkpoint.read` finds the checksum that was written then, so it is computed alike now."""
  shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves(run, sum(PHASES))]
  with checkpoint.manager(run / 'checkpoints', tidy=False) as opened:
    _, notes = checkpoint.read(opened, sum(PHASES), shapes)
  assert notes['turns'] == [8, 8]


@pytest.mark.parametrize('lines', cases([2, 3], fast=[2]))
def test_evaluations_without_checksums_are_missed_where_some_are_gone(run, lines):
  """One is made at the start of each phase, every second round and at its end; checkpoints are of rounds 2, 4 and 6."""
  (run / 'summary.json').unlink()
  kept = (run / 'metrics.jsonl').read_text().splitlines(keepends=True)
  (run / 'metrics.jsonl').write_text(''.join(kept[:lines]))
  assert experiment.run(read_config(run), run, show=False)['ledger'] == SUMMARY['ledger']
  again = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
  assert [(row['phase'], row['round']) for row in again] == [(0, 0), (0, 2), (1, 0), (1, 2), (1, 4)]
  (run / 'summary.json').unlink()
  (run / 'metrics.jsonl').write_text(kept[0])
  with pytest.raises(ConfigError, match=r'metrics\.jsonl is damaged \(evaluations are missing\)'):
    experiment.run(read_config(run), run, show=False)


def test_it_is_compared_with_runs_of_this_version(run, tmp_path):
  """Fields that have come since, or have moved, do not make it a run on other data; nor do those of speed alone."""
  now = shutil.copytree(run, tmp_path / 'now')
  config = configs.to_json(read_config(run))
  config['data'].update(limit=3.0, partition_out='parts.json')
  files.write_sealed(now / 'config.json', config)
  frame = analysis.runs([run, now])
  assert differences.apart(frame, 'run') == {'run': '', 'now': ''}
  assert frame['data_config'].nunique() == 1
  assert not {'data.partition', 'codec_up.name', 'data.limit'} & set(frame)
