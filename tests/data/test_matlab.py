import zlib

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from fedkd.data import partition, sources
from fedkd.errors import ConfigError


def upright(count, seed):
  return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), np.uint8)


def write(path, train_label=(1, 2, 3, 1, 2, 3), writers=(701, 12, 12, 701, 40, 12), **changes):
  """A file as emnist-letters.mat: columns of pixels first, numbers as MATLAB writes them, all in [N, 1]."""
  column = lambda values: np.array(values, np.float64)[:, None]
  part = lambda image, label, writer: {
    'images': image.swapaxes(1, 2).reshape(len(image), -1),
    'labels': column(label),
    **({} if writer is None else {'writers': column(writer)}),
  }
  mapping = np.array([[i + 1, 65 + i, 97 + i] for i in range(26)], np.float64)
  test = part(upright(2, 1), [3, 1], None if writers is None else [9, 9])
  dataset = {'train': part(upright(len(train_label), 0), train_label, writers), 'test': test, 'mapping': mapping}
  savemat(path, {'dataset': {**dataset, **changes}}, do_compression=True)
  return f'mat:{path}'


def element(kind, content) -> bytes:
  """An element as MATLAB writes it: up to four bytes stand in its own head."""
  if 0 < len(content) <= 4:
    return np.array([kind | len(content) << 16], '<u4').tobytes() + content + bytes(4 - len(content))
  return np.array([kind, len(content)], '<u4').tobytes() + content + bytes(-len(content) % 8)


def matrix(kind, shape, content, name=b'') -> bytes:
  head = np.array([6, 8, kind, 0], '<u4').tobytes()
  return element(14, head + element(5, np.array(shape, '<i4').tobytes()) + element(1, name) + content)


def struct(fields, name=b'') -> bytes:
  """MATLAB's names of fields have 32 bytes, SciPy's have as many as the longest."""
  names = b''.join(field.encode().ljust(32, b'\0') for field in fields)
  head = element(5, np.array([32], '<i4').tobytes()) + element(1, names)
  return matrix(2, (1, 1), head + b''.join(fields.values()), name)


def numbers(kind, array, stored='u1') -> bytes:
  """A matrix of a class, column by column, in the narrowest type that holds it: doubles of a byte each."""
  return matrix(kind, array.shape, element({'u1': 2, 'u2': 4}[stored], array.astype(f'<{stored}').tobytes('F')))


@pytest.mark.parametrize('label_class', [6, 9])  # double, uint8
def test_a_file_as_matlab_writes_it(tmp_path, label_class):
  """The published layout: header, one compressed variable `dataset`, struct of structs, narrow numbers."""
  column = lambda values: np.array(values)[:, None]
  part = lambda image, label, writer: struct({
    'images': numbers(9, image.swapaxes(1, 2).reshape(len(image), -1)),
    'labels': numbers(label_class, column(label)),
    'writers': numbers(6, column(writer), 'u2'),
  })  # fmt: skip
  mapping = numbers(6, np.array([[i + 1, 65 + i, 97 + i] for i in range(26)]))
  train, test = part(upright(6, 0), (1, 2, 3, 1, 2, 3), (701, 12, 12, 701, 40, 12)), part(upright(2, 1), (3, 1), (9, 9))
  packed = zlib.compress(struct({'train': train, 'test': test, 'mapping': mapping}, b'dataset'))
  head = b'MATLAB 5.0 MAT-file, Platform: GLNXA64, Created on: Tue Jan 10 17:19:51 2017'.ljust(116) + bytes(8)
  compressed = np.array([15, len(packed)], '<u4').tobytes() + packed  # the only kind that is not padded
  (tmp_path / 'a.mat').write_bytes(head + b'\x00\x01IM' + compressed)
  source, other = sources.load(f'mat:{tmp_path / "a.mat"}'), sources.load(write(tmp_path / 'b.mat'))
  for ours, scipys in zip(source[1:], other[1:], strict=True):
    np.testing.assert_array_equal(ours, scipys)
  assert source.class_names == ('a', 'b', 'c')
  assert loadmat(tmp_path / 'a.mat')['dataset'][0, 0]['train'][0, 0]['images'].shape == (6, 784)  # SciPy agrees


def test_letters_are_upright_named_and_have_writers(tmp_path):
  source = sources.load(write(tmp_path / 'emnist-letters.mat'))
  np.testing.assert_array_equal(source.train_image[..., 0], upright(6, 0))
  np.testing.assert_array_equal(source.test_image[..., 0], upright(2, 1))
  assert source.train_image.dtype == np.uint8
  assert source.train_label.tolist() == [0, 1, 2, 0, 1, 2]
  assert source.test_label.tolist() == [2, 0]
  assert source.class_names == ('a', 'b', 'c')
  assert source.origin.tolist() == [2, 0, 0, 2, 1, 0]
  assert source.origin.dtype == np.int32
  assert source.origins == ('12', '40', '701')


@pytest.mark.parametrize('keep', [('a', 'c'), (1, 3)])
def test_writers_of_the_letters_kept_remain(tmp_path, keep):
  source = sources.load(write(tmp_path / 'a.mat'), keep=keep)
  assert source.class_names == ('a', 'c')
  assert source.origins == ('12', '701')
  assert source.origin.tolist() == [1, 0, 1, 0]
  parts = partition.writers(source.train_label, 2, 0, source.origin, minimum=2)
  assert sorted(part.tolist() for part in parts) == [[0, 2], [1, 3]]


def test_a_file_without_writers_is_a_plain_data_set(tmp_path):
  source = sources.load(write(tmp_path / 'a.mat', writers=None))
  assert source.origin is None
  assert source.origins == ()
  with pytest.raises(ConfigError, match=r'data\.partition .*neither domains nor writers; use .*emnist-letters\.mat'):
    partition.writers(source.train_label, 2, 0, source.origin)


@pytest.mark.parametrize('mapping', [np.zeros((0, 2)), np.array([[1.0, 97.0]])])
def test_labels_are_names_where_the_mapping_lacks_some(tmp_path, mapping):
  assert sources.load(write(tmp_path / 'a.mat', mapping=mapping)).class_names == ('1', '2', '3')


def test_one_training_image_keeps_its_shape(tmp_path):
  test = {'images': np.zeros((1, 784), np.uint8), 'labels': np.ones((1, 1))}
  source = sources.load(write(tmp_path / 'a.mat', train_label=[1], writers=[5], test=test))
  assert source.train_image.shape == source.test_image.shape == (1, 28, 28, 1)


@pytest.mark.parametrize('content', [None, b'', b'not a file of MATLAB' * 20])
def test_refuses_files_that_are_none(tmp_path, content):
  if content is not None:
    (tmp_path / 'a.mat').write_bytes(content)
  with pytest.raises(ConfigError, match=r'data\.name=mat:.*a\.mat cannot be read .*such as emnist-letters\.mat'):
    sources.load(f'mat:{tmp_path / "a.mat"}')


def test_refuses_other_contents(tmp_path):
  savemat(tmp_path / 'a.mat', {'x': np.zeros(3)})
  with pytest.raises(ConfigError, match=r"cannot be read \(KeyError\('dataset'\)\); give a file as published"):
    sources.load(f'mat:{tmp_path / "a.mat"}')
  savemat(tmp_path / 'b.mat', {'dataset': {'train': {'images': np.zeros((2, 784))}}})
  with pytest.raises(ConfigError, match=r"cannot be read \(KeyError\('labels'\)\); give a file as published"):
    sources.load(f'mat:{tmp_path / "b.mat"}')


def test_refuses_images_that_are_not_square_and_writers_that_do_not_fit(tmp_path):
  part = {'images': np.zeros((2, 12), np.uint8), 'labels': np.ones((2, 1))}
  with pytest.raises(ConfigError, match=r'images of train have shape \[2, 12\]; give \[N, 784\]'):
    sources.load(write(tmp_path / 'a.mat', train=part))
  with pytest.raises(ConfigError, match=r'has 2 writers of 6 training images; give one for each'):
    sources.load(write(tmp_path / 'b.mat', writers=(1, 2)))
