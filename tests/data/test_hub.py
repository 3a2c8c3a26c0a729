"""Sets of the library `datasets` in local files: tables, lists, images; and what is said without library or network."""

import socket
import sys

import numpy as np
import pytest
from PIL import Image

from fedkd.data import sources, tables
from fedkd.errors import ConfigError

LABELS = ['no', 'yes', 'no', 'yes', 'yes', 'no']


def load(path, size=0, limit=2e9, **roles):
  return sources.load(f'hf:{path}', size=size, limit=limit, roles=tables.Roles(**roles))


@pytest.fixture
def datasets(tmp_path, monkeypatch):
  monkeypatch.setenv('HF_HOME', str(tmp_path / 'hf'))
  return pytest.importorskip('datasets')


def dictionary(datasets, **columns):
  """Four training and two test rows."""
  of = lambda rows: datasets.Dataset.from_dict({key: [values[i] for i in rows] for key, values in columns.items()})
  return datasets.DatasetDict({'train': of(range(4)), 'test': of((4, 5))})


def test_tables_of_files_and_of_saved_sets(datasets, tmp_path):
  columns = {'age': [1, 2, 3, 4, 5, 6], 'label': LABELS, 'who': ['a', 'b', 'a', 'b', 'a', 'a']}
  both = dictionary(datasets, **columns)
  both.save_to_disk(tmp_path / 'saved')
  source = load(tmp_path / 'saved', user='who')
  assert source.train_image.tolist() == [[1], [2], [3], [4]]
  assert source.test_image.tolist() == [[5], [6]]
  assert source.train_label.tolist() == [0, 1, 0, 1]
  assert source.test_label.tolist() == [1, 0]
  assert (source.class_names, source.origins, source.origin.tolist()) == (('no', 'yes'), ('a', 'b'), [0, 1, 0, 1])
  both['train'].to_json(tmp_path / 'rows.jsonl')
  file = load(tmp_path / 'rows.jsonl', features=('age',), test=0.5)
  assert (len(file.train_label), len(file.test_label)) == (2, 2)


def test_lists_are_tokens_or_vectors_and_labels_have_their_names(datasets, tmp_path):
  tokens = np.arange(18).reshape(6, 3)
  both = dictionary(datasets, ids=tokens.tolist(), label=[0, 1, 0, 1, 1, 0])
  both = both.cast_column('label', datasets.ClassLabel(names=['bad', 'good']))
  both.save_to_disk(tmp_path / 'saved')
  source = load(tmp_path / 'saved')
  np.testing.assert_array_equal(source.train_image, tokens[:4])
  assert source.train_image.dtype == np.int32
  assert source.class_names == ('bad', 'good')
  dictionary(datasets, x=(tokens / 2).tolist(), y=list(tokens[:, 0]), label=LABELS).save_to_disk(tmp_path / 'two')
  with pytest.raises(ConfigError, match=r'has several columns to learn from, x, y; set data.columns to one of x$'):
    load(tmp_path / 'two', features=('x', 'y'))
  vectors = load(tmp_path / 'two', features=('x',))
  np.testing.assert_array_equal(vectors.train_image, tokens[:4].astype(np.float32) / 2)
  dictionary(datasets, x=[[1, 2]] * 3 + [[1]] * 3, label=LABELS).save_to_disk(tmp_path / 'ragged')
  with pytest.raises(ConfigError, match=r"row 4, column 'x': \[1\] where the first row has \[2\]; pad or cut all rows"):
    load(tmp_path / 'ragged')
  with pytest.raises(ConfigError, match=r'GB of examples, more than data.limit=1e-08'):
    load(tmp_path / 'saved', limit=10)


def test_images_of_one_size(datasets, tmp_path):
  pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
  images = [Image.fromarray(one) for one in pixels]
  dictionary(datasets, image=images, label=LABELS).save_to_disk(tmp_path / 'saved')
  source = load(tmp_path / 'saved')
  np.testing.assert_array_equal(source.train_image, pixels[:4])
  np.testing.assert_array_equal(source.test_image, pixels[4:])
  odd = [*images[:5], Image.fromarray(pixels[5, :3])]
  dictionary(datasets, image=odd, label=LABELS).save_to_disk(tmp_path / 'odd')
  with pytest.raises(ConfigError, match=r"row 6, column 'image': \[3, 5, 3\] where the first image is \[4, 5, 3\]; s"):
    load(tmp_path / 'odd')
  assert load(tmp_path / 'odd', size=2).train_image.shape == (4, 2, 2, 3)


@pytest.mark.parametrize('shape', [(4, 5), (4, 5, 1), (4, 5, 3)])
def test_arrays_of_bytes_are_images(datasets, tmp_path, shape):
  pixels = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8)
  feature = getattr(datasets, f'Array{len(shape)}D')
  both = dictionary(datasets, image=pixels.tolist(), label=LABELS)
  both.cast_column('image', feature(shape, 'uint8')).save_to_disk(tmp_path / 'bytes')
  source = load(tmp_path / 'bytes')
  assert source.train_image.dtype == np.uint8
  np.testing.assert_array_equal(source.train_image, pixels[:4].reshape(4, 4, 5, -1))
  both.cast_column('image', feature(shape, 'int16')).save_to_disk(tmp_path / 'numbers')
  assert load(tmp_path / 'numbers').train_image.dtype == np.int32


def test_a_row_of_bytes_is_tokens(datasets, tmp_path):
  both = dictionary(datasets, ids=np.arange(18).reshape(6, 3).tolist(), label=LABELS)
  both.cast_column('ids', datasets.Sequence(datasets.Value('uint8'))).save_to_disk(tmp_path / 'saved')
  assert load(tmp_path / 'saved').train_image.dtype == np.int32


def test_images_are_grey_if_all_are_and_of_eight_bits(datasets, tmp_path):
  grey = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
  dictionary(datasets, image=[Image.fromarray(one) for one in grey], label=LABELS).save_to_disk(tmp_path / 'grey')
  np.testing.assert_array_equal(load(tmp_path / 'grey').train_image, grey[:4, ..., None])
  colour = np.stack([grey[5], grey[4], grey[3]], -1)
  images = [*(Image.fromarray(one) for one in grey[:5]), Image.fromarray(colour)]
  dictionary(datasets, image=images, label=LABELS).save_to_disk(tmp_path / 'mixed')
  source = load(tmp_path / 'mixed')
  np.testing.assert_array_equal(source.train_image, np.repeat(grey[:4, ..., None], 3, -1))
  np.testing.assert_array_equal(source.test_image[1], colour)
  images[5] = Image.fromarray(np.full((4, 5), 700, np.uint16))
  dictionary(datasets, image=images, label=LABELS).save_to_disk(tmp_path / 'deep')
  with pytest.raises(ConfigError, match=r"row 6, column 'image': pixels of mode I;16, more than 8 bits per channel; s"):
    load(tmp_path / 'deep')


@pytest.mark.parametrize('label', [None, -1])
def test_a_missing_class_is_named_with_its_row(datasets, tmp_path, label):
  features = datasets.Features({'x': datasets.Value('float64'), 'label': datasets.ClassLabel(names=['no', 'yes'])})
  datasets.Dataset.from_dict({'x': [1, 5, 3], 'label': [0, label, 1]}, features=features).save_to_disk(tmp_path / 'a')
  with pytest.raises(ConfigError, match=r"row 2, column 'label': the label is missing"):
    load(tmp_path / 'a')


def test_files_that_cannot_be_read(datasets, tmp_path):
  (tmp_path / 'a.parquet').write_bytes(b'PAR1 broken')
  (tmp_path / 'empty').mkdir()
  for path in ('a.parquet', 'empty'):
    with pytest.raises(ConfigError, match=r'^data.name=hf:.* cannot be read \(.*\); check the files$') as refused:
      load(tmp_path / path)
    assert '\n' not in str(refused.value)
  dictionary(datasets, age=[1] * 6, label=LABELS)['train'].save_to_disk(tmp_path / 'saved')
  with pytest.raises(ConfigError, match=r" has no column 'class'; set data.label to one of age, label$"):
    load(tmp_path / 'saved', label='class')


def test_without_the_library(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'datasets', None)
  with pytest.raises(ConfigError, match=r"needs datasets; install it with pip install 'fedkd\[datasets\]'$"):
    load(tmp_path)


def test_without_a_network_a_name_of_the_hub_is_refused_at_once(monkeypatch):
  def unknown(*args):
    raise socket.gaierror(-2, 'Name or service not known')

  for name in ('HF_ENDPOINT', 'HTTPS_PROXY', 'https_proxy', 'HF_HUB_OFFLINE'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(socket, 'getaddrinfo', unknown)
  told = r'^data.name=hf:imdb: there is no folder or file imdb, and huggingface.co is not reachable \(Name or .*\); '
  with pytest.raises(ConfigError, match=told + 'check the path or the network, or set HF_HUB_OFFLINE=1'):
    load('imdb')
