"""What `fedkd data` finds, and what it says of the rest."""

import json
import sys
import types

import numpy as np
import pytest

from fedkd.data import catalogue
from fedkd.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path, monkeypatch):
  """No prepared sets, no images, no TensorFlow."""
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'tfds'))
  monkeypatch.delenv('FEDKD_IMAGES', raising=False)
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)


def put(folder, name, form='array_record'):
  where = folder / name / '1.0.0'
  where.mkdir(parents=True)
  (where / 'dataset_info.json').write_text(json.dumps({'fileFormat': form}))


def by_name(directory=None) -> dict:
  return {entry.name: entry for entry in catalogue.entries(directory)}


def test_embedded_sets_are_always_there_and_the_others_say_how():
  found = by_name()
  assert {name for name, entry in found.items() if entry.there} == {'mnist_5k', 'rotated_mnist_5k'}
  assert found['cifar10'].note == 'fedkd data prepare cifar10'
  assert 'pacs/{art_painting,cartoon,photo,sketch}/CLASS/IMAGE' in found['domains:pacs'].note
  assert found['rotated_mnist'].note.endswith('fedkd data prepare mnist')


def test_prepared_sets_are_there_if_they_are_read_without_tensorflow(tmp_path):
  put(tmp_path / 'tfds', 'mnist')
  put(tmp_path / 'tfds', 'emnist/letters', 'parquet')
  put(tmp_path / 'tfds', 'cifar10', 'tfrecord')
  found = by_name()
  assert [found[name].there for name in ('mnist', 'emnist/letters', 'cifar10', 'rotated_mnist')] == [1, 1, 0, 1]
  assert 'is tfrecord, which needs TensorFlow' in found['cifar10'].note
  put(tmp_path / 'other', 'svhn_cropped')
  assert by_name(tmp_path / 'other')['svhn_cropped'].there
  (tmp_path / 'tfds' / 'mnist' / '1.0.0' / 'dataset_info.json').write_text('{"file')
  assert 'is damaged' in by_name()['mnist'].note


def test_folders_and_files_of_images_are_found_by_what_they_look_like(tmp_path, monkeypatch):
  images = tmp_path / 'images'
  for folder in ('cinic10/train/cat', 'cinic10/test/cat', 'cinic10/valid/cat', 'pacs/art/dog', 'pacs/photo/dog'):
    (images / folder).mkdir(parents=True)
  for folder in ('unlike/art/dog', 'unlike/photo/cat', 'empty', 'half/train'):
    (images / folder).mkdir(parents=True)
  np.savez(images / 'mine.npz', x_train=0)
  (images / 'notes.txt').write_text('')
  monkeypatch.setenv('FEDKD_IMAGES', str(images))
  found = {name: entry.note for name, entry in by_name().items() if entry.there and ':' in name}
  assert set(found) == {'folder:cinic10', 'domains:pacs', 'npz:mine.npz'}
  assert found['npz:mine.npz'] == str(images / 'mine.npz')
  lines = catalogue.table(catalogue.entries()).splitlines()
  assert sum(line.startswith('domains:pacs ') for line in lines) == 1  # and not among the missing again
  assert any(line.startswith('folder:cinic10') and ' there ' in line for line in lines)


def test_preparing_what_is_there_decodes_it():
  assert catalogue.prepare('rotated_mnist_5k') == 'rotated_mnist_5k: 4,000 train, 0 public, 0 test, 10 classes'


def test_preparing_without_tensorflow_says_the_one_command(tmp_path):
  with pytest.raises(ConfigError) as caught:
    catalogue.prepare('cifar10')
  text = str(caught.value)
  assert 'which is not installed here' in text
  assert text.endswith(f'tf/bin/tfds build cifar10 --file_format=array_record --data_dir={tmp_path / "tfds"}')
  assert '\n' not in text
  for name, guess in (('minst', 'is it mnist or '), ('nosuchset', 'it knows mnist_5k, ')):
    with pytest.raises(
      ConfigError, match=rf'fedkd does not know it \({guess}.* If that has it, run once, .* build {name} '
    ):
      catalogue.prepare(name)
  with pytest.raises(ConfigError, match='tfds build mnist '):  # of which it is made
    catalogue.prepare('rotated_mnist')
  with pytest.raises(ConfigError, match='cannot be fetched for you: put Office-Home'):
    catalogue.prepare('domains:officehome')
  with pytest.raises(ConfigError, match=r'npz:nothing\.npz cannot be read .*, in data\.dir, \$FEDKD_IMAGES or'):
    catalogue.prepare('npz:nothing.npz')


def test_with_tensorflow_a_set_is_downloaded_as_array_record(tmp_path, monkeypatch):
  asked = []

  def builder(name, data_dir, file_format):
    if name == 'minst':
      raise ValueError('Failed to construct dataset minst\nand a thousand names')
    asked.append((name, str(data_dir), file_format))
    return types.SimpleNamespace(download_and_prepare=lambda: put(tmp_path / 'tfds', name))

  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', types.SimpleNamespace(builder=builder))
  monkeypatch.setattr('importlib.util.find_spec', lambda name: object())
  monkeypatch.setattr(catalogue.sources, 'load', lambda name, directory: name)
  monkeypatch.setattr(catalogue.sources, 'counts', lambda source: {'train': 60_000})
  assert catalogue.prepare('rotated_mnist') == 'rotated_mnist: 60,000 train'
  assert asked == [('mnist', str(tmp_path / 'tfds'), 'array_record')]
  assert catalogue.prepare('rotated_mnist') == 'rotated_mnist: 60,000 train'
  assert len(asked) == 1  # it is there now
  with pytest.raises(ConfigError, match=r'minst could not be prepared .* \(Failed to construct dataset minst\); check'):
    catalogue.prepare('minst')
