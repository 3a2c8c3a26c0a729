"""Folders of images: classes, and domains of classes; what does not fit in them is named."""

import os
import pathlib

import numpy as np
import pytest
from PIL import Image

from fedkd.data import sources
from fedkd.data.splits import partition, split
from fedkd.errors import ConfigError
from small_sources import write_folder

pytestmark = pytest.mark.usefixtures('own_cache')


# ---- classes


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


@pytest.mark.parametrize(('orientation', 'suffix'), [(3, 'png'), (6, 'png'), (6, 'jpg'), (8, 'tif')])
def test_images_are_seen_upright(tmp_path, orientation, suffix):
  """As a camera writes them that was turned: the pixels as they lie, and how they are to be seen."""
  name = write_folder(tmp_path / 'set')
  upright = np.zeros((4, 6, 3), np.uint8)
  upright[:2] = 200  # the upper half
  exif = Image.Exif()
  exif[0x0112] = orientation
  turns = {3: 2, 6: 1, 8: 3}[orientation]  # by 90 degrees, against the clock
  for path in (tmp_path / 'set' / 'train' / 'cat').iterdir():
    path.unlink()
  lying = Image.fromarray(np.ascontiguousarray(np.rot90(upright, turns)))
  lying.save(
    tmp_path / 'set' / 'train' / 'cat' / f'0.{suffix}', exif=exif, **({'quality': 100} if suffix == 'jpg' else {})
  )
  np.testing.assert_allclose(sources.load(name).train_image[0], upright, atol=3)


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


# ---- domains

DOMAINS = ('art', 'photo', 'sketch')


@pytest.fixture
def root(tmp_path):
  """Domain d has d + 1 images of class c, all of grey 100 d + 10 c."""
  for d, domain in enumerate(DOMAINS):
    for c, label in enumerate(('cat', 'dog')):
      (tmp_path / 'set' / domain / label).mkdir(parents=True)
      for i in range(d + 1):
        Image.new('RGB', (6, 4), (100 * d + 10 * c,) * 3).save(tmp_path / 'set' / domain / label / f'{i}.png')
  return tmp_path / 'set'


def test_domains_are_read_in_alphabetical_order(root, own_cache):
  (root / '.git').mkdir()
  (root / 'art' / '.thumbnails').mkdir()
  (root / 'art' / 'cat' / '.0.png').touch()
  (root / 'list.txt').touch()
  for _ in range(2):  # the second from the cache
    source = sources.load(f'domains:{root}')
    assert source.train_image.shape == (12, 4, 6, 3)
    assert source.train_image[:, 1, 1, 2].tolist() == [0, 10, 100, 100, 110, 110, 200, 200, 200, 210, 210, 210]
    assert source.train_label.tolist() == [0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1]
    assert source.origin.tolist() == [0] * 2 + [1] * 4 + [2] * 6
    assert source.origins == DOMAINS
    assert source.class_names == ('cat', 'dog')
    assert source.test_image.shape == (0, 4, 6, 3)
    assert source.test_label.shape == (0,)
  assert len(list(own_cache.iterdir())) == 1


def test_each_client_of_by_origin_is_one_domain(root):
  source = sources.load(f'domains:{root}', keep=('dog',))
  parts = partition.by_origin(source.train_label, 3, 0, source.origin)
  assert [len(part) for part in parts] == [1, 2, 3]
  assert source.train_image[parts[1], 0, 0, 0].tolist() == [110, 110]


@pytest.mark.parametrize(
  ('place', 'message'),
  [
    ('no_such', r'no_such has no domain folders; give a folder of DOMAIN/CLASS/IMAGE'),
    ('art/cat', r'cat has no domain folders, only 0\.png; give a folder of DOMAIN/CLASS/IMAGE'),
    ('sketch', r'cat has no class folders, only 0\.png, 1\.png, 2\.png; give a folder of DOMAIN/'),
    ('..', r'art has no image; remove it or add some, as DOMAIN/CLASS/IMAGE'),
  ],
)
def test_refuses_folders_without_domains_a_domain_itself_and_the_folder_above(place, message, root):
  with pytest.raises(ConfigError, match=message):
    sources.load(f'domains:{(root / place).resolve()}')


def test_refuses_domains_of_unequal_classes(root):
  (root / 'photo' / 'eel').mkdir()
  Image.new('RGB', (6, 4)).save(root / 'photo' / 'eel' / '0.png')
  with pytest.raises(ConfigError, match=r'art has no class eel, unlike another domain; add or remove it'):
    sources.load(f'domains:{root}')


def test_refuses_images_of_other_sizes_and_damaged_ones(root):
  path = root / 'photo' / 'dog' / '1.png'
  Image.new('RGB', (5, 4)).save(path)
  with pytest.raises(
    ConfigError, match=r'data\.name=domains:.*photo.dog.1\.png is 5x4 pixels but .*art.cat.0\.png is 6x4; resize all'
  ):
    sources.load(f'domains:{root}')
  assert sources.load(f'domains:{root}', size=3).train_image.shape[1:] == (3, 3, 3)  # as Office-Home is distributed
  path.write_bytes(b'none')
  with pytest.raises(ConfigError, match=r'data\.name=domains:.*photo.dog.1\.png cannot be read'):
    sources.load(f'domains:{root}')


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get('FEDKD_IMAGES'), reason='FEDKD_IMAGES is unset; point it at image folders')
def test_real_pacs():
  root = pathlib.Path(os.environ['FEDKD_IMAGES']) / 'pacs_96'
  if not root.is_dir():
    pytest.skip('pacs_96 is not in FEDKD_IMAGES')
  source = sources.load(f'domains:{root}')
  assert source.train_image.shape == (9991, 96, 96, 3)
  assert source.origins == ('art_painting', 'cartoon', 'photo', 'sketch')
  assert source.class_names == ('dog', 'elephant', 'giraffe', 'guitar', 'horse', 'house', 'person')
  parts = partition.by_origin(source.train_label, 4, 0, source.origin)
  # The published counts.
  assert partition.overview(parts, source.train_label, 7).tolist() == [
    [379, 255, 285, 184, 201, 295, 449],
    [389, 457, 346, 135, 324, 288, 405],
    [189, 202, 182, 186, 199, 280, 432],
    [772, 740, 753, 608, 816, 80, 160],
  ]
  found = split.pacs_paper(source, parts, 0)
  assert [len(rows) for rows in found.test] == [1847, 2114, 1506, 3538]
