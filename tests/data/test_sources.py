"""Sources: what is loaded from .npz files, which labels are kept, and two sets in one."""

import pathlib
import re

import numpy as np
import pytest
from scipy.io import savemat

from fedkd.data import sources
from fedkd.data.splits import partition
from fedkd.errors import ConfigError
from small_sources import equal, random_images, write_folder

pytestmark = pytest.mark.usefixtures('own_cache')


# ---- mnist_5k


def test_mnist_5k_is_balanced_mixed_and_a_permutation_of_the_file(own_cache):
  source = sources.load('mnist_5k')
  assert source.train_image.shape == (4000, 28, 28, 1)
  assert source.test_image.shape == (1000, 28, 28, 1)
  assert source.train_image.dtype == np.uint8
  assert source.train_label.dtype == np.int32
  assert np.bincount(source.train_label).tolist() == [400] * 10
  assert np.bincount(source.test_label).tolist() == [100] * 10
  assert source.classes == 10
  assert source.class_names == tuple('0123456789')
  # Ten contiguous cuts each see all classes: the file's order by label is gone.
  assert min(len(np.unique(cut)) for cut in np.split(source.train_label, 10)) == 10
  both = np.concatenate([source.train_image, source.test_image]).reshape(5000, -1)
  assert len({image.tobytes() for image in both}) == 5000  # as in the file: no image on both sides
  again = sources.load('mnist_5k')
  assert equal(again[1:5], source[1:5])
  assert len(list(own_cache.iterdir())) == 1


# ---- npz


def write_npz(path, **changes):
  arrays = {
    'x_train': random_images(6, 4, 5, 3),
    'y_train': np.array([0, 1, 2, 0, 1, 2]),
    'x_test': random_images(3, 4, 5, 3, seed=1),
    'y_test': np.array([2, 1, 0]),
  }
  arrays.update(changes)
  np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
  return f'npz:{path}', arrays


def test_npz_round_trip(tmp_path, own_cache):
  name, arrays = write_npz(tmp_path / 'a.npz')
  source = sources.load(name)
  assert source.name == name
  assert np.array_equal(source.train_image, arrays['x_train'])
  assert np.array_equal(source.test_image, arrays['x_test'])
  assert source.train_label.tolist() == [0, 1, 2, 0, 1, 2]
  assert source.test_label.tolist() == [2, 1, 0]
  assert source.train_label.dtype == source.test_label.dtype == np.int32
  assert (source.classes, source.class_names) == (3, ('0', '1', '2'))
  assert not own_cache.exists()


@pytest.mark.parametrize('shape', [(7,), (5, 3), (4, 5, 3)])
@pytest.mark.parametrize(('dtype', 'kept'), [(np.float64, np.float32), (np.int64, np.int32), (np.uint16, np.int32)])
def test_npz_of_vectors_sequences_and_tokens(tmp_path, shape, dtype, kept):
  x = np.arange(6 * np.prod(shape)).reshape(6, *shape).astype(dtype)
  source = sources.load(write_npz(tmp_path / 'a.npz', x_train=x, x_test=x[:3], origin=np.array(list('abbaab')))[0])
  assert source.train_image.dtype == source.test_image.dtype == kept
  np.testing.assert_array_equal(source.train_image, x)
  assert [source.origins[k] for k in source.origin] == list('abbaab')


def test_only_images_have_a_side(tmp_path):
  name, _ = write_npz(tmp_path / 'a.npz', x_train=np.zeros((6, 4)), x_test=np.zeros((3, 4)))
  with pytest.raises(ConfigError, match=r'^data.size=8 is the side of images, and data.name=npz:.* has none; set it'):
    sources.resize(sources.load(name), 8)
  images = sources.load(write_npz(tmp_path / 'b.npz')[0])
  with pytest.raises(ConfigError, match=r'images of the public set .* are \[4, 5, 3\], those of .* \[4\] \(float'):
    sources.combine(sources.load(name), images)


def test_npz_of_arrays_that_are_not_read_and_of_channels_first_is_told(tmp_path):
  x, y = np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 0, 1])
  path = tmp_path / 'own.npz'
  np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y, x_val=x, y_val=y)
  with (
    pytest.warns(UserWarning, match=r'x_val, y_val are not read; validation rows are held out of the training rows'),
    pytest.warns(
      UserWarning, match=r'x_train has examples \[3, 8, 8\], which look like images with their channels first'
    ),
  ):
    sources.load(f'npz:{path}')


def test_npz_of_images_of_another_dtype_is_told(tmp_path):
  x = np.arange(216).reshape(6, 6, 6)
  name, _ = write_npz(tmp_path / 'own.npz', x_train=x, x_test=x[:3])
  with pytest.warns(UserWarning, match=r'x_train has examples \[6, 6\] of whole numbers from 0 to 215.*as uint8'):
    sources.load(name)


def test_npz_of_grey_images_gets_a_channel(tmp_path):
  x = random_images(6, 4, 5)
  source = sources.load(write_npz(tmp_path / 'a.npz', x_train=x, x_test=x[:3])[0])
  assert source.train_image.shape == (6, 4, 5, 1)
  assert np.array_equal(source.train_image[..., 0], x)


def test_labels_become_contiguous_and_names_keep_the_originals(tmp_path):
  changes = {'y_train': np.array([7, 2, 40, 7, 2, 40]), 'y_test': np.array([40, 7, 7])}
  source = sources.load(write_npz(tmp_path / 'a.npz', **changes)[0])
  assert source.train_label.tolist() == [1, 0, 2, 1, 0, 2]
  assert source.test_label.tolist() == [2, 1, 1]
  assert (source.classes, source.class_names) == (3, ('2', '7', '40'))


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'x_test': None}, 'has no x_test, only x_train, y_train, y_test; give a file of x_train'),
    (
      {'x_train': np.zeros((6, 4, 5, 3), np.float32)},
      'training examples are float32, test examples uint8; make them equal',
    ),
    ({'x_test': random_images(3, 4)}, r'x_test is uint8\[3, 4\]; give images uint8.*, or tokens int32\[N, length\]'),
    ({'x_train': np.zeros(6)}, r'x_train is float64\[6\]; give images uint8.*, numbers float32\[N, columns\] or'),
    ({'x_train': np.zeros((6, 4), bool)}, r'x_train is bool\[6, 4\]; give images uint8'),
    ({'x_train': np.diag([0, 0, 0, np.nan, 0, 0])}, r'x_train\[3\] has nan, which float32 cannot hold; replace such'),
    ({'x_train': np.full((6, 4), 1e40)}, r'x_train\[0\] has 1e\+40, which float32 cannot hold; .*leave out'),
    ({'x_train': np.diag([0, 0, 2**31, 0, 0, 0])}, r'x_train\[2\] has 2.14748e\+09, which int32 cannot hold; number'),
    (
      {'x_train': np.arange(24.0).reshape(6, 4) + np.array([0, 0, 1e10, 0])},
      r'x_train\[..., 2\] varies by 6.83 around 10000000012, which float32 rounds away; subtract a number',
    ),
    (
      {'x_train': np.arange(24).reshape(6, 4) + np.array([0, 0, 1_700_000_000, 0])},
      r'x_train\[..., 2\] varies by 6.83 around 17000000\d\d, which float32 rounds away; subtract a number',
    ),
    ({'y_train': np.arange(5)}, r'y_train is int64\[5\]; give integers \[6\], one per image'),
    (
      {'y_train': np.array(['cat'] * 6)},
      r"y_train holds 'cat', which is no number; number the classes from 0: classes, y = np\.unique\(y, return_inv",
    ),
    ({'y_test': np.zeros(3)}, r'y_test is float64\[3\]; give integers \[3\]'),
    ({'y_train': np.zeros((6, 1), int)}, r'y_train is int64\[6, 1\]; give integers \[6\]'),
    (
      {'x_test': random_images(3, 4, 4, 3)},
      r'training images are \[4, 5, 3\], test images \[4, 4, 3\]; make them equal',
    ),
    ({'y_test': np.array([0, 3, 9])}, r'test label 3 has no training example; .*training labels are 0, 1, 2'),
    (
      {'x_test': random_images(0, 4, 5, 3), 'y_test': np.zeros(0, int)},
      r'x_test has shape \[0, 4, 5, 3\], .*at least one',
    ),
    ({'origin': np.arange(5)}, r'origin is int64\[5\]; give integers or names \[6\], the owner of each'),
    ({'origin': np.arange(6.0)}, r'origin is float64\[6\]; give integers or names'),
    ({'y_train': np.array([{}] * 6)}, 'cannot be read .*give a file of x_train, y_train, x_test, y_test'),
  ],
)
def test_npz_refuses(tmp_path, changes, message):
  name, _ = write_npz(tmp_path / 'a.npz', **changes)
  with pytest.raises(ConfigError, match=r'data\.name=npz:.*' + message):
    sources.load(name)


@pytest.mark.parametrize('content', [None, b'', b'not a zip', b'PK\x03\x04 broken'])
def test_npz_refuses_files_that_are_none(tmp_path, content):
  if content is not None:
    (tmp_path / 'a.npz').write_bytes(content)
  with pytest.raises(ConfigError, match=r'data\.name=npz:.*cannot be read .*give a file of x_train'):
    sources.load(f'npz:{tmp_path / "a.npz"}')


def test_npz_refuses_a_single_array(tmp_path):
  np.save(tmp_path / 'a.npy', np.arange(3))
  with pytest.raises(ConfigError, match='give a file of x_train'):
    sources.load(f'npz:{tmp_path / "a.npy"}')


@pytest.mark.parametrize('writers', [[701, 12, 12, 701, 40, 12], ['w701', 'w12', 'w12', 'w701', 'w40', 'w12']])
def test_npz_with_origins_has_natural_owners(tmp_path, writers):
  changes = {'y_train': np.array([1, 2, 3, 1, 2, 3]), 'y_test': np.array([3, 1, 1]), 'origin': np.array(writers)}
  name, _ = write_npz(tmp_path / 'a.npz', **changes)
  source = sources.load(name)
  assert source.origins == tuple(np.unique(writers).astype(str))
  assert [source.origins[k] for k in source.origin] == [str(writer) for writer in writers]
  assert source.origin.dtype == np.int32
  kept = sources.load(name, keep=(1, 3))
  assert [kept.origins[k] for k in kept.origin] == [str(writers[i]) for i in (0, 2, 3, 5)]
  parts = partition.writers(kept.train_label, 2, 0, kept.origin, minimum=2)
  assert sorted(part.tolist() for part in parts) == [[0, 2], [1, 3]]


def test_matlab_files_are_refused_with_the_conversion():
  with pytest.raises(
    ConfigError, match=r'data\.name=mat:a\.mat: MATLAB files are not read; convert it to npz:FILE, as docs'
  ):
    sources.load('mat:a.mat')


def test_emnist_as_published_becomes_an_npz_with_writers(tmp_path, monkeypatch):
  """The conversion that the documentation shows, on a file laid out like emnist-letters.mat."""
  monkeypatch.chdir(tmp_path)
  upright, column = random_images(6, 28, 28), lambda values: np.array(values, np.float64)[:, None]
  part = lambda label, writer: {
    'images': upright[: len(label)].swapaxes(1, 2).reshape(len(label), -1),
    'labels': column(label),
    'writers': column(writer),
  }
  dataset = {'train': part([1, 2, 3, 1, 2, 3], [701, 12, 12, 701, 40, 12]), 'test': part([3, 1], [9, 9])}
  savemat('emnist-letters.mat', {'dataset': dataset}, do_compression=True)
  page = (pathlib.Path(__file__).parents[2] / 'docs/running/data.md').read_text()
  exec(re.search(r'```text\n(import numpy.*?loadmat.*?)```', page, re.DOTALL)[1], {})
  source = sources.load('npz:emnist-letters.npz')
  assert np.array_equal(source.train_image[..., 0], upright)
  assert np.array_equal(source.test_image[..., 0], upright[:2])
  assert (source.train_label.tolist(), source.test_label.tolist()) == ([0, 1, 2, 0, 1, 2], [2, 0])
  assert (source.origin.tolist(), source.origins) == ([2, 0, 0, 2, 1, 0], ('12', '40', '701'))


# ---- keep


def test_keep_takes_labels_and_numbers_them_anew(tmp_path):
  changes = {'y_train': np.array([7, 2, 40, 7, 2, 40]), 'y_test': np.array([40, 7, 7])}
  name, arrays = write_npz(tmp_path / 'a.npz', **changes)
  source = sources.load(name, keep=(40, 2))
  assert source.train_label.tolist() == [0, 1, 0, 1]
  assert source.test_label.tolist() == [1]
  assert (source.classes, source.class_names) == (2, ('2', '40'))
  assert np.array_equal(source.train_image, arrays['x_train'][[1, 2, 4, 5]])
  assert np.array_equal(source.test_image, arrays['x_test'][:1])


def test_keep_takes_names(tmp_path):
  write_folder(tmp_path / 'set', classes=('cat', 'dog', 'eel'))
  for keep in (('eel', 'cat'), (2, 'cat'), (0, 2)):
    source = sources.load(f'folder:{tmp_path / "set"}', keep=keep)
    assert source.class_names == ('cat', 'eel')
    assert source.train_image[:, 1, 1, 0].tolist() == [0, 1, 20, 21]


def test_keep_refuses_what_is_not_there_and_names_what_is(tmp_path):
  name = write_folder(tmp_path / 'set')
  with pytest.raises(ConfigError, match=r"data\.keep names 'cow', .*choose among 0 \(cat\), 1 \(dog\)$"):
    sources.load(name, keep=('cat', 'cow'))
  with pytest.raises(ConfigError, match=r'data\.keep names 9, .*choose among 0, 1, 2$'):
    sources.load(write_npz(tmp_path / 'a.npz')[0], keep=(9,))


# ---- combine


def two_sources(tmp_path):
  private, _ = write_npz(tmp_path / 'a.npz')
  public, _ = write_npz(
    tmp_path / 'b.npz',
    x_train=random_images(5, 4, 5, 3, seed=2),
    y_train=np.array([3, 8, 3, 8, 8]),
    y_test=np.array([3, 3, 8]),
  )
  return sources.load(private), sources.load(public)


def test_combine_puts_public_rows_last_and_public_classes_first(tmp_path):
  private, public = two_sources(tmp_path)
  both = sources.combine(private, public)
  assert np.array_equal(both.train_image, np.concatenate([private.train_image, public.train_image]))
  assert both.train_label.tolist() == [2, 3, 4, 2, 3, 4, 0, 1, 0, 1, 1]
  assert both.test_label.tolist() == [4, 3, 2]
  assert both.test_image is private.test_image
  assert both.train_label.dtype == both.test_label.dtype == np.int32
  assert (both.classes, both.public, both.origin) == (5, 5, None)
  assert both.class_names == ('3', '8', '0', '1', '2')
  assert private.train_label.tolist() == [0, 1, 2, 0, 1, 2]


def test_combine_gives_public_rows_no_origin(tmp_path):
  private, public = two_sources(tmp_path)
  private = private._replace(origin=np.array([0, 0, 1, 1, 2, 2], np.int32), origins=('a', 'b', 'c'))
  both = sources.combine(private, public)
  assert both.origin.tolist() == [0, 0, 1, 1, 2, 2] + [-1] * 5
  assert both.origin.dtype == np.int32
  assert both.origins == ('a', 'b', 'c')


def test_combine_refuses_other_shapes(tmp_path):
  private, public = two_sources(tmp_path)
  grey = public._replace(train_image=public.train_image[..., :1])
  with pytest.raises(
    ConfigError, match=r'are \[4, 5, 1\], those of data\.name=npz:.*a\.npz \[4, 5, 3\]; choose two sets'
  ):
    sources.combine(private, grey)


@pytest.mark.parametrize(
  ('dtype', 'labels'),
  [('i8', (-5, 3, 10**12)), ('>i4', (-5, 3, 2**31 - 1)), ('u8', (7, 2**62, 2**62 + 1)), ('u1', (0, 7, 255))],
)
def test_labels_of_a_file_may_be_any_integers(dtype, labels, tmp_path):
  order, image = np.array([0, 2, 1, 0, 2, 1]), random_images(6, 4, 4)
  label = np.array(labels, dtype)[order]
  np.savez(tmp_path / 'a.npz', x_train=image, y_train=label, x_test=image, y_test=label)
  source = sources.load(f'npz:{tmp_path}/a.npz')
  np.testing.assert_array_equal([source.train_label, source.test_label], [order, order])
  assert source.class_names == tuple(map(str, labels))
