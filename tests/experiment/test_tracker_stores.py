"""What Weights & Biases, MLflow and trackio hold of a run that was killed twice, read back with their own libraries."""

import json
import os
import signal
import subprocess
import sys

import pytest

import runs
from fedkd import files
from fedkd.experiment.trackers import mlflow as ours
from fedkd.experiment.trackers.protocol import Run

TRACKERS = ('wandb', 'mlflow', 'trackio')
# Kills itself after the evaluation of so many rounds has been told to the tracker, before anything else is saved.
PROGRAM = """
import os, pathlib, signal, sys
import runs
from fedkd import experiment
from fedkd.experiment import loop
folder, tracker, killed_at = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
config = runs.config(folder / 'images.npz', 'private', rounds=8, seeds=(0, 1))
config.tracker, config.checkpoint_every = tracker, 4
evaluate = loop._evaluate
def killed(this, now):
  found = evaluate(this, now)
  if now.at == killed_at:
    os.kill(os.getpid(), signal.SIGKILL)
  return found
loop._evaluate = killed
experiment.run(config, folder / 'run', show=False)
"""
EVERY = [0, 2, 4, 6, 8]


@pytest.fixture(params=TRACKERS)
def killed_twice(request, tmp_path, monkeypatch):
  """(tracker, folder) of a run of eight rounds that was killed after the evaluations of rounds 2 and 6."""
  runs.save_images(tmp_path / 'images.npz')
  for name, value in {
    'WANDB_MODE': 'offline',
    'MLFLOW_TRACKING_URI': f'sqlite:///{tmp_path}/mlflow.db',
    'TRACKIO_DIR': str(tmp_path / 'trackio'),
    'JAX_COMPILATION_CACHE_DIR': str(tmp_path / 'xla'),
    'PYTHONPATH': os.pathsep.join(sys.path),
  }.items():
    monkeypatch.setenv(name, value)
  pytest.importorskip(request.param)  # which may read them at once
  for at in (2, 6, -1):
    ended = subprocess.run([sys.executable, '-c', PROGRAM, str(tmp_path), request.param, str(at)], cwd=tmp_path)
    assert ended.returncode == (-signal.SIGKILL if at > 0 else 0)
  return request.param, tmp_path


@pytest.mark.slow
def test_a_store_has_every_evaluation_once_and_the_summary(killed_twice):
  tracker, folder = killed_twice
  rows = {row['round']: row for row in files.read(folder / 'run' / 'metrics.jsonl')}
  mean = {step: sum(row['accuracy']) / 2 for step, row in rows.items()}
  assert list(rows) == EVERY
  steps, accuracy, summary, clients = globals()[f'_of_{tracker}'](
    folder, files.read_sealed(folder / 'run' / 'tracker.json')['id']
  )
  assert steps == EVERY
  assert accuracy == pytest.approx(list(mean.values()))
  assert summary == files.read_sealed(folder / 'run' / 'summary.json')['state_sha256']
  assert clients


def test_what_changes_when_a_run_goes_on_is_no_parameter_of_mlflow(tmp_path, monkeypatch):
  monkeypatch.setenv('MLFLOW_TRACKING_URI', f'sqlite:///{tmp_path}/mlflow.db')
  mlflow = pytest.importorskip('mlflow')
  for rounds, devices in ((4, 1), (6, 2)):
    config = {'rounds': rounds, 'devices': devices, 'optimizer': {'name': 'adam'}}
    ours.start(Run('run', 'id', config, tmp_path, 0, (0,))).finish(None, ())
  client = mlflow.MlflowClient()
  (run,) = client.search_runs([client.get_experiment_by_name('fedkd').experiment_id])
  assert run.data.params == {'optimizer.name': 'adam'}
  assert (run.data.tags['config.rounds'], run.data.tags['config.devices']) == ('6', '2')


def _of_wandb(folder, id):
  from fedkd.experiment.trackers.wandb_files import histories

  logs = sorted((folder / 'run' / 'wandb').glob(f'offline-run-*-{id}/run-{id}.wandb'))
  found, clients = [], []
  for log in logs:
    for record in histories(log):
      items = {item.key or '/'.join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
      found.append((record.history.step.num, items['accuracy']))
      clients.append(any(key.startswith('clients/accuracy') for key in items))
  found.sort()
  return [step for step, _ in found], [value for _, value in found], _wandb_summary(logs[-1]), all(clients)


def _wandb_summary(log):
  from wandb.proto import wandb_internal_pb2

  from fedkd.experiment.trackers.wandb_files import _messages

  found = {}
  for message in _messages(log.read_bytes()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(message)
    for item in record.summary.update:
      found[item.key or '/'.join(item.nested_key)] = json.loads(item.value_json)
  return found['summary/state_sha256']


def _of_mlflow(folder, id):
  import mlflow

  client = mlflow.MlflowClient()
  experiment = client.get_experiment_by_name('fedkd')
  (run,) = client.search_runs([experiment.experiment_id])
  assert run.data.tags['fedkd.id'] == id
  assert run.info.status == 'FINISHED'
  assert run.data.params['method.name'] == 'private'
  history = sorted(client.get_metric_history(run.info.run_id, 'accuracy'), key=lambda metric: metric.step)
  tables = [file.path for file in client.list_artifacts(run.info.run_id, 'clients')]
  figures = client.list_artifacts(run.info.run_id, 'figures')
  assert figures
  assert len(tables) == len(EVERY)
  return [m.step for m in history], [m.value for m in history], run.data.tags['summary.state_sha256'], tables


def _of_trackio(folder, id):
  import trackio
  from trackio.sqlite_storage import SQLiteStorage

  (run,) = trackio.Api().runs('fedkd')
  assert run.name == f'run-{id}'
  assert run.config['method']['name'] == 'private'
  rows = SQLiteStorage.get_logs('fedkd', run.name)
  files_of_it = [path.read_bytes() for path in (folder / 'trackio' / 'artifacts').rglob('*') if path.is_file()]
  (summary,) = [json.loads(content) for content in files_of_it if content.startswith(b'{"')]
  assert sum(content.startswith(b'\x89PNG') for content in files_of_it) == len(list((folder / 'run').rglob('*.png')))
  clients = [sum(row['clients/accuracy']['values']) for row in rows]
  assert clients == [4] * len(EVERY)
  return [row['step'] for row in rows], [row['accuracy'] for row in rows], summary['state_sha256'], clients
