"""Reads untrusted `.npz` files: what their headers say is checked before anything is unpacked."""

import math
import os
import stat
import zipfile
from collections.abc import Iterable

import numpy as np

MOST_MEMBERS = 64


def check_file(path, most: float) -> None:
  """Checks that a path is a regular file of at most `most` bytes: a pipe would wait for ever.

  Raises:
    ValueError: if it is not.
    OSError: if it cannot be reached.
  """
  found = os.stat(path)
  if not stat.S_ISREG(found.st_mode):
    raise ValueError('it is not a regular file')
  if found.st_size > most:
    raise ValueError(f'it has {found.st_size / 1e9:,.1f} GB, more than {most / 1e9:,.1f}')


def read(path, most: float, names: Iterable[str] | None = None, members: int = MOST_MEMBERS) -> tuple[dict, list[str]]:
  """({name: array}, names of all arrays) of an `.npz` file.

  Args:
    path: of the file.
    most: bytes that the arrays may take together.
    names: those to read; None is all.
    members: how many entries the file may have.

  Raises:
    ValueError: for object arrays, too many entries, or arrays that are larger than allowed or than their entry.
    Exception: of `zipfile`, `zlib` or NumPy, for a damaged file.
  """
  check_file(path, most)
  with zipfile.ZipFile(path) as archive:
    entries = {entry.filename.removesuffix('.npy'): entry for entry in archive.infolist()}
    if len(entries) > members:
      raise ValueError(f'it has {len(entries)} entries, more than {members}')
    wanted = [name for name in entries if names is None or name in set(names)]
    if (size := sum(entries[name].file_size for name in wanted)) > most:
      raise ValueError(f'its arrays have {size / 1e9:,.1f} GB unpacked, more than {most / 1e9:,.1f}')
    return {name: _array(archive, name, entries[name]) for name in wanted}, list(entries)


def _array(archive, name, entry) -> np.ndarray:
  with archive.open(entry) as file:
    version = np.lib.format.read_magic(file)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if header is None:
      raise ValueError(f'{name!r} has version {version} of the format')
    shape, _, dtype = header(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > entry.file_size or min(shape, default=0) < 0:
      raise ValueError(f'{name!r} says {dtype}{list(shape)}, which its {entry.file_size} bytes do not hold')
  with archive.open(entry) as file:
    array = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):  # to its end, where the checksum is compared
      raise ValueError(f'{name!r} has bytes behind its array')
    return array
