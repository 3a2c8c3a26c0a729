"""Decoded arrays on disk. A damaged or missing cache costs time, never a run."""

import hashlib
import os
import pathlib
import re
import tempfile
import zipfile

import numpy as np
from absl import logging

FORMAT = 1  # increment when the loaders' output for the same files changes


def directory() -> pathlib.Path:
  """$FEDKD_CACHE, or ~/.cache/fedkd."""
  return pathlib.Path(os.environ.get('FEDKD_CACHE') or pathlib.Path.home() / '.cache' / 'fedkd')


def fingerprint(files) -> str:
  """A hash of path, size and times of files, which changes with the source: two that are exchanged may have equal times
  of modification, and have those of the change."""
  told = lambda stat: (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
  entries = [(str(path), *told(path.stat())) for path in sorted(files)]
  return hashlib.sha256(repr(entries).encode()).hexdigest()


def cached(name, version, make) -> dict:
  """The arrays that `make()` returns, from disk if they are cached.

  Args:
    name: of the source, for the reader of the directory.
    version: text that changes whenever the source does, such as a `fingerprint`.
    make: () -> dict of arrays.
  """
  key = hashlib.sha256(repr((FORMAT, name, version)).encode()).hexdigest()[:16]
  path = directory() / f'{re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[-60:]}-{key}.npz'
  arrays = _read(path)
  if arrays is None:
    arrays = make()
    _write(path, arrays)
  return arrays


def _read(path) -> dict | None:
  try:
    if not path.exists():
      return None
    # NumPy alone may stop before the end of a member and so never compare its checksum.
    with zipfile.ZipFile(path) as archive:
      if bad := archive.testzip():
        raise zipfile.BadZipFile(f'checksum of {bad}')
    with np.load(path, allow_pickle=False) as file:
      arrays = dict(file)
    # A damaged table of contents may hide a member.
    if set(arrays.pop('members')) != set(arrays):
      raise zipfile.BadZipFile('a member is missing')
    return arrays
  except Exception as error:  # damage raises anything, from BadZipFile to NotImplementedError
    logging.warning('The cache file %s is damaged (%s) and is made again.', path, error)
    return None


def _write(path, arrays):
  """Writes beside the file and renames: a reader sees a whole file or none."""
  temporary = None
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix='.', suffix='.tmp', delete=False) as file:
      temporary = file.name
      np.savez(file, **arrays, members=np.array(sorted(arrays)))
    os.replace(temporary, path)
  except OSError as error:
    logging.warning('Could not write the cache file %s (%s); set FEDKD_CACHE to a writable folder.', path, error)
  finally:
    if temporary and os.path.exists(temporary):
      os.unlink(temporary)
