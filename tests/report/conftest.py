"""Runs for the reports: two that can be compared, and what is kept out."""

import shutil

import pytest
from hostile import HOSTILE

import runs
from fedkd import experiment


@pytest.fixture(scope='session')
def finished(tmp_path_factory):
  """A folder of Private and FedHe on three seeds, the second with a hostile name."""
  path = tmp_path_factory.mktemp('report')
  images = runs.save_images(path / 'images.npz')
  for name, method in (('private', 'private'), (HOSTILE, 'fedhe')):
    config = runs.config(images, method, rounds=2, seeds=(3, 4, 5))
    experiment.run(config, path / 'runs' / name, show=False)
  return path / 'runs'


@pytest.fixture
def mixed(finished, tmp_path):
  """The same, and one run each that is not finished, damaged, or of other data."""
  folder = shutil.copytree(finished, tmp_path / 'runs')
  for name in ('unfinished', 'damaged', 'other'):
    shutil.copytree(finished / 'private', folder / name)
  (folder / 'unfinished' / 'summary.json').unlink()
  metrics = folder / 'damaged' / 'metrics.jsonl'
  metrics.write_bytes(metrics.read_bytes().replace(b'"accuracy"', b'"accuracY"', 1))
  runs.change_config(folder / 'other', lambda config: config['data'].update(validation=0.2))
  return folder
