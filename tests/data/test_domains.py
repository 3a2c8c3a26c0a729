import os
import pathlib

import pytest
from PIL import Image

from fedkd.data import sources
from fedkd.data.splits import partition, split
from fedkd.errors import ConfigError

DOMAINS = ('art', 'photo', 'sketch')


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'cache'))
  return tmp_path / 'cache'


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
