"""Partitions in files, JSON or `.npz`: who owns which rows, as it came from elsewhere or goes there."""

import hashlib
import json
import pathlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedkd import files
from fedkd.checks import npz
from fedkd.checks.arguments import row_numbers
from fedkd.checks.ranges import checked
from fedkd.errors import ConfigError, in_a_sentence, reason_of

__all__ = ['stored']  # what a config may name

LIMIT = 1e9  # bytes of a file
REMEDY = 'give a .json of a list of row numbers for each client, or what fedkd.data.splits.stored.write has written'


@checked
def stored(labels: np.ndarray, clients: int, seed: int, file: str = '') -> list[np.ndarray]:
  """The partition in a file; rows in it that nobody owns stay without an owner.

  Args:
    labels: int[N].
    clients: how many the file must have.
    seed: takes the place of '{seed}' in `file`; without it all seeds share a partition.
    file: of `write`, or JSON of a list of row numbers for each client.

  Raises:
    ConfigError: for a file that cannot be read, has other rows or clients, or was written for other labels.
  """
  if not file:
    raise ConfigError("data.partition.file='' names no file; set it to one with the row numbers of each client")
  path = pathlib.Path(file.replace('{seed}', str(seed))).expanduser()
  what = f'data.partition.file={path}'
  parts, count, checksum = _read(path, what)
  if len(parts) != clients:
    raise ConfigError(f'{what} has {len(parts)} clients, and data.clients={clients}; make them equal')
  if count not in (None, len(labels)) or checksum not in (None, labels_checksum(labels)):
    raise ConfigError(
      f'{what} was written for {count} rows of other data than these {len(labels)}; choose the same data.name, '
      'data.rows and data.keep'
    )
  for k, rows in enumerate(parts):
    if not len(rows):
      raise ConfigError(f'{what}: client {k} has no rows; give it at least one, or leave it out')
    if rows.min() < 0 or rows.max() >= len(labels) or len(np.unique(rows)) < len(rows):
      raise ConfigError(
        f'{what}: the {len(rows)} rows of client {k}, from {rows.min()} to {rows.max()}, must be distinct numbers from '
        f'0 to {len(labels) - 1}; mend the file'
      )
  return parts


def write(path: str | pathlib.Path, parts: Sequence[ArrayLike], labels: ArrayLike) -> None:
  """Writes a partition for `stored`, as JSON or, with the suffix `.npz`, as arrays.

  Args:
    path: of the file.
    parts: per client int[n_k], row numbers.
    labels: int[N] of all rows, whose checksum is written, so that a partition of other data is refused.

  Raises:
    ConfigError: for another suffix, or a file that cannot be written.
    ValueError: for parts that are no row numbers, each once.
  """
  path, labels = pathlib.Path(path), np.asarray(labels)
  about = {'rows': len(labels), 'labels_sha256': labels_checksum(labels)}
  lists = [row_numbers(f'parts[{k}]', part, len(labels)) for k, part in enumerate(parts)]
  if path.suffix not in ('.json', '.npz'):
    raise ConfigError(f'a partition cannot be written to {path}; give a name that ends in .json or .npz')
  with in_a_sentence(lambda error: f'a partition cannot be written to {path} ({reason_of(error)}); choose another'):
    if path.suffix == '.json':
      files.write_json(path, {**about, 'clients': [rows.tolist() for rows in lists]})
    else:
      row, size = np.concatenate([np.zeros(0, np.int64), *lists]), np.array(list(map(len, lists)))
      np.savez(path, size=size, row=row, rows=len(labels), labels_sha256=labels_checksum(labels))


def read(path: str | pathlib.Path) -> list[np.ndarray]:
  """The partition in a file, per client int64[n_k], for `fedkd.federation`.

  Raises:
    ConfigError: for a file that cannot be read.
  """
  return _read(pathlib.Path(path), f'{path}')[0]


def labels_checksum(labels: ArrayLike) -> str:
  """SHA-256 of labels as little-endian integers of 64 bits."""
  return hashlib.sha256(np.asarray(labels).astype('<i8').tobytes()).hexdigest()


def _read(path, what) -> tuple:
  """(parts, number of rows or None, checksum of labels or None)."""
  with in_a_sentence(lambda error: f'{what} cannot be read ({reason_of(error)}); {REMEDY}'):
    npz.check_file(path, LIMIT)
    held = _from_npz(path) if path.suffix == '.npz' else json.loads(path.read_bytes())
    held = held if isinstance(held, dict) else {'clients': held}
    if 'clients' not in held:
      raise ValueError(f'it has {", ".join(map(str, held)) or "nothing"} and no clients')
    lists = held['clients'].values() if isinstance(held.get('clients'), dict) else held['clients']
    parts = [_rows(rows) for rows in lists]
  return parts, held.get('rows'), held.get('labels_sha256')


def _rows(rows) -> np.ndarray:
  array = np.asarray(rows)
  if array.ndim != 1 or (array.size and array.dtype.kind not in 'iu'):
    raise ValueError(f'a client has {array.dtype}{list(array.shape)} in place of row numbers')
  return np.sort(array.astype(np.int64))


def _from_npz(path) -> dict:
  arrays, _ = npz.read(path, LIMIT)
  if not {'size', 'row'} <= {*arrays}:
    raise ValueError(f'it has the arrays {", ".join(arrays)} and not size and row')
  size = arrays['size']
  if size.min(initial=0) < 0 or size.sum() != len(arrays['row']):
    raise ValueError('its sizes are not those of its rows')
  about = {key: arrays[key].item() for key in ('rows', 'labels_sha256') if key in arrays}
  return {**about, 'clients': np.split(arrays['row'], np.cumsum(size)[:-1])}
