import os
import pathlib
import re
import types

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fedkd.data import cache, sources, tfds
from fedkd.data.splits import partition
from fedkd.errors import ConfigError

needs_tfds = pytest.mark.skipif(
  not os.environ.get('TFDS_DATA_DIR'), reason='TFDS_DATA_DIR is unset; point it at prepared data sets'
)


@pytest.fixture(scope='module')
def shared_cache(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'cache'))
  return tmp_path / 'cache'


def random_images(count, *shape, seed=0):
  return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def equal(a, b):
  return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# ---- cache


def test_cache_makes_once_and_returns_the_same(own_cache):
  calls = []

  def make():
    calls.append(1)
    return {'a': np.arange(5, dtype=np.uint8), 'b': np.array(['x', 'yz'])}

  first, second = (cache.cached('some/set', 'v1', make) for _ in range(2))
  assert len(calls) == 1
  assert equal(first.values(), second.values())
  assert [f.name.startswith('some-set-') for f in own_cache.iterdir()] == [True]


def test_cache_keeps_versions_names_and_formats_apart(monkeypatch):
  make = lambda value: lambda: {'a': np.array(value)}
  assert cache.cached('n', 'v1', make(1))['a'] == 1
  assert cache.cached('n', 'v2', make(2))['a'] == 2
  assert cache.cached('m', 'v1', make(3))['a'] == 3
  monkeypatch.setattr(cache, 'FORMAT', cache.FORMAT + 1)
  assert cache.cached('n', 'v1', make(4))['a'] == 4


def the_file(folder):
  (path,) = folder.iterdir()
  return path


def test_a_flipped_bit_never_changes_what_is_served(own_cache):
  arrays = {'image': random_images(2, 3, 3), 'label': np.arange(2)}
  cache.cached('n', 'v', lambda: arrays)
  path = the_file(own_cache)
  sound = path.read_bytes()
  refused = 0
  for place in range(len(sound)):
    damaged = bytearray(sound)
    damaged[place] ^= 1 << place % 8
    path.write_bytes(damaged)
    served = cache._read(path)
    refused += served is None
    assert served is None or (served.keys() == arrays.keys() and equal(served.values(), arrays.values()))
  assert refused > len(sound) / 2  # the rest are time stamps and the like


def flipped(content):
  return content[:300] + bytes([content[300] ^ 1]) + content[301:]


SPOILT = [flipped, *(lambda content, keep=keep: content[: int(keep * len(content))] for keep in (0.0, 0.5, 0.99))]


@pytest.mark.parametrize('spoil', SPOILT, ids=['flipped', 'empty', 'half', 'nearly all'])
def test_a_damaged_or_truncated_file_is_made_again(own_cache, spoil):
  cache.cached('n', 'v', lambda: {'a': random_images(40, 8)})
  path = the_file(own_cache)
  path.write_bytes(spoil(path.read_bytes()))
  assert cache.cached('n', 'v', lambda: {'a': np.array(7)})['a'] == 7
  assert cache.cached('n', 'v', lambda: pytest.fail('the repaired file was not used'))['a'] == 7


def test_an_interrupted_write_leaves_no_file(own_cache, monkeypatch):
  def torn(file, **arrays):
    file.write(b'half')
    raise KeyboardInterrupt

  monkeypatch.setattr(np, 'savez', torn)
  with pytest.raises(KeyboardInterrupt):
    cache.cached('n', 'v', lambda: {'a': np.array(1)})
  assert list(own_cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
  (tmp_path / 'file').touch()
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'file' / 'below'))
  assert cache.cached('n', 'v', lambda: {'a': np.array(1)})['a'] == 1


def test_cache_lies_in_the_home_folder_by_default(tmp_path, monkeypatch):
  monkeypatch.delenv('FEDKD_CACHE')
  monkeypatch.setenv('HOME', str(tmp_path))
  assert cache.directory() == tmp_path / '.cache' / 'fedkd'


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
    ({'x_train': np.zeros((6, 4, 5, 3), np.float32)}, r'x_train is float32\[6, 4, 5, 3\]; give raw images uint8'),
    ({'x_test': random_images(3, 4)}, r'x_test is uint8\[3, 4\]; give raw images uint8'),
    ({'y_train': np.arange(5)}, r'y_train is int64\[5\]; give integers \[6\], one per image'),
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


# ---- folder


def write_folder(root, splits=('train', 'test', 'valid'), classes=('cat', 'dog'), count=2, mode='RGB'):
  """Image i of class c in split s is filled with the grey 100 s + 10 c + i, but for its first pixel, which is white."""
  for s, split in enumerate(splits):
    for c, label in enumerate(classes):
      (root / split / label).mkdir(parents=True)
      for i in range(count):
        pixels = np.full((4, 6), 100 * s + 10 * c + i, np.uint8)
        pixels[0, 0] = 255
        Image.fromarray(pixels).convert(mode).save(root / split / label / f'{i}.png')
  return f'folder:{root}'


def test_folder_round_trip(tmp_path):
  name = write_folder(tmp_path / 'set')
  (tmp_path / 'set' / 'train' / 'cat' / 'Thumbs.db').touch()
  (tmp_path / 'set' / 'train' / '.hidden').mkdir()
  for _ in range(2):  # the second from the cache
    source = sources.load(name)
    assert source.train_image.shape == source.test_image.shape == (4, 4, 6, 3)
    assert source.train_image[:, 1, 1, 2].tolist() == [0, 1, 10, 11]
    assert source.test_image[:, 1, 1, 0].tolist() == [100, 101, 110, 111]
    assert np.all(source.train_image[:, 0, 0] == 255)
    assert source.train_label.tolist() == source.test_label.tolist() == [0, 0, 1, 1]
    assert (source.classes, source.class_names) == (2, ('cat', 'dog'))


def test_folder_of_grey_images_has_one_channel_and_mixed_has_three(tmp_path):
  assert sources.load(write_folder(tmp_path / 'grey', mode='L')).train_image.shape == (4, 4, 6, 1)
  mixed = write_folder(tmp_path / 'mixed', mode='L')
  Image.new('RGB', (6, 4), (9, 8, 7)).save(tmp_path / 'mixed' / 'test' / 'dog' / '1.png')
  source = sources.load(mixed)
  assert source.train_image.shape == (4, 4, 6, 3)
  assert source.test_image[3, 0, 0].tolist() == [9, 8, 7]
  assert source.test_image[2, 1, 1].tolist() == [110, 110, 110]


def test_a_changed_folder_is_not_served_stale(tmp_path):
  name = write_folder(tmp_path / 'set')
  sources.load(name)
  changed = tmp_path / 'set' / 'train' / 'cat' / '0.png'
  Image.new('RGB', (6, 4), (77, 0, 0)).save(changed)
  assert sources.load(name).train_image[0, 2, 2].tolist() == [77, 0, 0]
  changed.unlink()
  assert len(sources.load(name).train_image) == 3


def test_folder_without_a_test_image_of_a_class_is_fine(tmp_path):
  name = write_folder(tmp_path / 'set')
  for path in (tmp_path / 'set' / 'test' / 'cat').iterdir():
    path.unlink()
  assert sources.load(name).test_label.tolist() == [1, 1]


def cut(path):
  path.write_bytes(path.read_bytes()[:40])


BAD_FOLDERS = {
  'a file of another size': (
    lambda root: Image.new('RGB', (5, 4)).save(root / 'test' / 'cat' / '1.png'),
    r'test.cat.1\.png is 5x4 pixels but .*0\.png is 6x4; resize all images',
  ),
  'a damaged file': (
    lambda root: cut(root / 'test' / 'dog' / '0.png'),
    r'test.dog.0\.png cannot be read .*repair or remove it',
  ),
  'a test class without training': (
    lambda root: (root / 'test' / 'eel').mkdir(),
    r'test.eel has no counterpart in train/; remove it or add training images',
  ),
  'a class without images': (
    lambda root: (root / 'train' / 'eel').mkdir(),
    r'train.eel has no image; remove it or add some',
  ),
  'a test split without images': (
    lambda root: [path.unlink() for path in (root / 'test').glob('*/*')],
    r'x_test has shape \[0, 4, 6, 3\], without pixels; give at least one image',
  ),
}


@pytest.mark.parametrize(('spoil', 'message'), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_folder_refuses_what_does_not_fit_and_names_it(spoil, message, tmp_path):
  name = write_folder(tmp_path / 'set')
  spoil(tmp_path / 'set')
  with pytest.raises(ConfigError, match=message):
    sources.load(name)


@pytest.mark.parametrize('splits', [(), ('train',), ('test',)])
def test_folder_refuses_a_missing_split(tmp_path, splits):
  name = write_folder(tmp_path / 'set', splits=splits)
  with pytest.raises(ConfigError, match=r'data\.name=folder:.*no class folders; give a folder of train/CLASS/IMAGE'):
    sources.load(name)


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
