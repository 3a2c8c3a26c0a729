"""The cache: made once, kept apart by what it is made of, and never served damaged."""

import os

import numpy as np
import pytest

from fedkd.data import cache
from small_sources import equal, random_images

pytestmark = pytest.mark.usefixtures('own_cache')


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


def test_files_that_are_exchanged_are_another_source(tmp_path):
  """Of equal sizes and times of modification, as an archive may leave them."""
  files = [tmp_path / name for name in 'ab']
  for path, text in zip(files, 'xy', strict=True):
    path.write_text(text)
    os.utime(path, ns=(0, 0))
  before = cache.fingerprint(files)
  assert cache.fingerprint(files) == before
  files[0].rename(tmp_path / 'c')
  files[1].rename(files[0])
  (tmp_path / 'c').rename(files[1])
  assert cache.fingerprint(files) != before


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
