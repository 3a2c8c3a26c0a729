"""TensorFlow Datasets, imitated and real: what is stored is what is read."""

import os
import pathlib
import types

import numpy as np
import pytest

from fedkd.data import sources, tfds
from fedkd.data.splits import partition
from fedkd.errors import ConfigError
from small_sources import random_images

pytestmark = pytest.mark.usefixtures('own_cache')
needs_tfds = pytest.mark.skipif(
  not os.environ.get('TFDS_DATA_DIR'), reason='TFDS_DATA_DIR is unset; point it at prepared data sets'
)


@pytest.fixture(scope='module')
def shared_cache(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


# ---- TFDS, imitated: what is stored is what is read, whatever sets are at hand


class Examples:
  def __init__(self, image, label, coarse=None):
    self.image, self.label, self.coarse = image, label, coarse

  def __len__(self):
    return len(self.label)

  def __getitems__(self, rows):
    coarse = lambda row: {} if self.coarse is None else {'coarse_label': self.coarse[row]}
    return [{'image': self.image[row], 'label': self.label[row], **coarse(row)} for row in rows]


@pytest.fixture
def imitate(tmp_path, monkeypatch):
  tfds = pytest.importorskip('tensorflow_datasets')
  (tmp_path / 'prepared').mkdir()
  (tmp_path / 'prepared' / 'shard').write_bytes(b'1')

  def install(name, train, test, names, shape):
    features = {
      'image': types.SimpleNamespace(shape=shape, np_dtype=np.uint8),
      'label': types.SimpleNamespace(names=names),
    }
    if len(train) > 2:
      features['coarse_label'] = types.SimpleNamespace(names=['wet', 'dry', 'hot'])
    builder = types.SimpleNamespace(
      name=name,
      version='1.0.0',
      data_path=str(tmp_path / 'prepared'),
      info=types.SimpleNamespace(features=features),
      is_prepared=lambda: True,
      as_data_source=lambda split: {'train': Examples(*train), 'test': Examples(*test)}[split],
    )
    monkeypatch.setattr(tfds, 'builder', lambda name, data_dir=None: builder)

  return install


def test_tfds_reads_every_block_in_order_and_keeps_names_of_the_classes_found(imitate, monkeypatch):
  monkeypatch.setattr(tfds, 'BLOCK', 4)
  x, y = random_images(10, 3, 2, 3), np.array([5, 2, 5, 2, 5, 2, 5, 2, 5, 5])
  imitate('some', (x, y), (x[:3], y[:3]), ['a', 'b', 'c', 'd', 'e', 'f'], (3, 2, 3))
  source = sources.load('some')
  assert np.array_equal(source.train_image, x)
  assert source.train_label.tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 1, 1]
  assert source.test_label.tolist() == [1, 0, 1]
  assert (source.classes, source.class_names) == (2, ('c', 'f'))


def test_tfds_emnist_is_transposed(imitate):
  x, y = random_images(4, 5, 5, 1), np.array([1, 2, 1, 2])
  imitate('emnist', (x, y), (x, y), list('0123'), (5, 5, 1))
  source = sources.load('emnist/letters')
  assert np.array_equal(source.test_image, x.transpose(0, 2, 1, 3))
  assert source.class_names == ('1', '2')


def test_tfds_coarse_label_ranks_the_fine_ones(imitate):
  x, fine, coarse = random_images(8, 3, 2, 3), np.array([4, 1, 9, 4, 0, 7, 1, 9]), np.array([2, 0, 2, 2, 0, 1, 0, 2])
  imitate('some', (x, fine, coarse), (x[:3], fine[:3], coarse[:3]), list('0123456789'), (3, 2, 3))
  source = sources.load('some', label='coarse_label')
  assert source.train_label.tolist() == coarse.tolist()
  assert source.test_label.tolist() == [2, 0, 2]
  assert source.class_names == ('wet', 'dry', 'hot')
  assert source.origin.tolist() == [0, 1, 1, 0, 0, 0, 1, 1]
  assert source.origins == ('0', '1')
  assert np.array_equal(source.train_image, x)
  kept = sources.load('some', label='coarse_label', keep=('wet', 2))
  assert kept.train_label.tolist() == [1, 0, 1, 1, 0, 0, 1]
  assert kept.origin.tolist() == [0, 1, 1, 0, 0, 1, 1]
  plain = sources.load('some')
  assert plain.train_label.tolist() == [2, 1, 4, 2, 0, 3, 1, 4]
  assert plain.origin is None


def test_refuses_a_label_that_a_set_does_not_have(imitate):
  x, y = random_images(4, 5, 5, 1), np.array([0, 1, 0, 1])
  imitate('some', (x, y), (x, y), ['a', 'b'], (5, 5, 1))
  with pytest.raises(
    ConfigError, match=r'data\.label=coarse_label is not a class label of data\.name=some; set it to label'
  ):
    sources.load('some', label='coarse_label')
  with pytest.raises(
    ConfigError, match=r'data\.label=coarse_label is not in data\.name=mnist_5k, .*set it to label, or use'
  ):
    sources.load('mnist_5k', label='coarse_label')


def test_tfds_prepared_anew_is_not_served_stale(imitate, tmp_path):
  x, y = random_images(4, 5, 5, 1), np.array([0, 1, 0, 1])
  imitate('some', (x, y), (x, y), ['a', 'b'], (5, 5, 1))
  sources.load('some')
  imitate('some', (255 - x, y), (x, y), ['a', 'b'], (5, 5, 1))
  assert np.array_equal(sources.load('some').train_image, x)  # nothing on disk changed
  (tmp_path / 'prepared' / 'shard').write_bytes(b'22')
  assert np.array_equal(sources.load('some').train_image, 255 - x)


def test_tfds_refuses_test_labels_without_training(imitate):
  x, y = random_images(4, 5, 5, 1), np.array([0, 1, 0, 1])
  imitate('some', (x, y), (x, y + 1), ['a', 'b', 'c'], (5, 5, 1))
  with pytest.raises(ConfigError, match=r'data\.name=some: test label 2 has no training example'):
    sources.load('some')


def test_tfds_names_damaged_files(imitate, monkeypatch, tmp_path):
  x, y = random_images(4, 5, 5, 1), np.array([0, 1, 0, 1])
  imitate('some', (x, y), (x, y), ['a', 'b'], (5, 5, 1))

  def damaged(self, rows):
    raise RuntimeError('hash mismatch')

  monkeypatch.setattr(Examples, '__getitems__', damaged)
  with pytest.raises(ConfigError, match=r'data\.name=some: the files in .*prepared are damaged.*copy them again'):
    sources.load('some')
  assert not list((tmp_path / 'cache').glob('*'))


def test_tfds_refuses_images_of_many_sizes(imitate):
  imitate('some', ([], []), ([], []), ['a'], (None, None, 3))
  with pytest.raises(ConfigError, match=r'data\.name=some has the features image, label, but .*data\.name=npz:FILE'):
    sources.load('some')


@pytest.mark.parametrize('name', ['mnst', 'emnist/no_such', 'mnist:99.0.0', '', 'two words', 'mnist'])
def test_tfds_refuses_what_is_not_prepared_in_one_short_sentence(name, tmp_path):
  pytest.importorskip('tensorflow_datasets')
  with pytest.raises(ConfigError) as caught:
    sources.load(name, str(tmp_path))
  message = str(caught.value)
  assert message.startswith(f'data.name={name} is not a data set')
  assert f'`tfds build {name} --file_format=array_record`' in message
  assert all(word in message for word in ('data.dir', 'TFDS_DATA_DIR', 'npz:FILE', 'folder:DIR', str(tmp_path)))
  assert '\n' not in message
  assert len(message) < 700 + len(str(tmp_path))
  assert caught.value.__suppress_context__  # else Python prints TFDS's thousand names above it


# ---- TFDS, real


@pytest.fixture
def real(shared_cache, monkeypatch):
  monkeypatch.setenv('FEDKD_CACHE', str(shared_cache))

  def load(name, **options):
    if not (pathlib.Path(os.environ['TFDS_DATA_DIR']) / name.removeprefix('rotated_')).is_dir():
      pytest.skip(f'{name} is not prepared in TFDS_DATA_DIR')
    return sources.load(name, **options)

  return load


def check_against_tfds(source, name):
  """Some images spread over each split, decoded one by one."""
  import tensorflow_datasets as tfds

  for split, image in (('train', source.train_image), ('test', source.test_image)):
    data = tfds.builder(name).as_data_source(split)
    assert len(data) == len(image)
    for row in (0, 1, 999, 1000, len(data) - 1):
      assert np.array_equal(data[row]['image'], image[row])


@needs_tfds
@pytest.mark.slow
def test_real_mnist(real):
  source = real('mnist')
  assert source.train_image.shape == (60000, 28, 28, 1)
  assert source.test_image.shape == (10000, 28, 28, 1)
  # The class counts of the published files.
  assert np.bincount(source.train_label).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
  assert np.bincount(source.test_label).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
  assert source.train_image.mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the constant everybody uses
  check_against_tfds(source, 'mnist')


@needs_tfds
@pytest.mark.slow
def test_real_mnist_holds_mnist_5k(real):
  whole = {image.tobytes() for image in real('mnist').train_image}
  assert all(image.tobytes() in whole for image in sources.load('mnist_5k').test_image)


@needs_tfds
@pytest.mark.slow
def test_real_cifar10(real):
  source = real('cifar10')
  assert source.train_image.shape == (50000, 32, 32, 3)
  assert np.bincount(source.train_label).tolist() == [5000] * 10
  assert np.bincount(source.test_label).tolist() == [1000] * 10
  np.testing.assert_allclose(source.train_image.mean((0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)
  check_against_tfds(source, 'cifar10')


@needs_tfds
def test_real_cifar100_has_contiguous_labels(real):
  source = real('cifar100')
  assert source.train_image.shape[1:] == (32, 32, 3)
  assert np.unique(source.train_label).tolist() == list(range(source.classes))
  assert len(source.class_names) == source.classes
  assert len(source.test_label) == 100 * source.classes
  check_against_tfds(source, 'cifar100')


@pytest.mark.slow
@needs_tfds
def test_real_cifar100_superclasses(real):
  source = real('cifar100', label='coarse_label', keep=range(6))
  assert source.class_names == tuple('012345')
  fine = len(real('cifar100').train_label) // real('cifar100').classes  # images of a fine class, 500 if not cut
  assert [np.bincount(source.origin[source.train_label == c]).tolist() for c in range(6)] == [[fine] * 5] * 6
  assert np.bincount(source.test_label).tolist() == [500] * 6
  parts = partition.few_by_origin(source.train_label, 10, 0, source.origin)
  assert np.all(partition.overview(parts, source.train_label, 6) == 20)
  assert len(np.unique(np.concatenate(parts))) == 1200


@pytest.mark.slow
@needs_tfds
def test_real_femnist_of_fedmd(real):
  source = sources.combine(real('emnist/letters', keep=range(1, 7)), real('mnist'))
  assert (source.classes, source.public) == (16, 60000)
  assert np.bincount(source.test_label).tolist() == [0] * 10 + [800] * 6
  assert set(source.train_label[-60000:]) == set(range(10))
  parts = partition.few(source.train_label[:-60000], 10, 0)
  assert [len(part) for part in parts] == [18] * 10


@needs_tfds
@pytest.mark.slow
def test_real_rotated_mnist_is_made_of_training_images(real):
  source, whole = real('rotated_mnist'), {image.tobytes() for image in real('mnist').train_image}
  assert np.bincount(source.train_label).tolist() == [400] * 10
  assert all(image.tobytes() in whole for image in source.train_image[:1000])


@pytest.mark.slow
@needs_tfds
def test_real_emnist_letters_are_counted_and_upright(real):
  source = real('emnist/letters')
  if source.classes != 6:
    pytest.skip('these are not the letters a-f')
  assert np.bincount(source.train_label).tolist() == [4800] * 6
  assert np.bincount(source.test_label).tolist() == [800] * 6
  assert source.class_names == ('1', '2', '3', '4', '5', '6')
  # A "c" is open to the right: at half height its ink is on the left. Lying on its back it would be open upwards.
  c = source.train_image[source.train_label == 2, ..., 0].mean(0)
  assert c[11:17, :11].sum() > 3 * c[11:17, 17:].sum()
  assert c[:11, 11:17].sum() < 2 * c[17:, 11:17].sum()
