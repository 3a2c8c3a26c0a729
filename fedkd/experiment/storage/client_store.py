"""The client-state store: one record on disk for every client that has ever taken part, in one file per group.

A table, part of the state, says where the records are. A record that a saved table refers to is never overwritten, so
that a run that crashes resumes from a checkpoint (which holds such a table) as if nothing had happened.
"""

import contextlib
import itertools
import os
import pathlib
import zlib
from typing import NamedTuple

import jax
import numpy as np

from fedkd import config as configs
from fedkd import files
from fedkd.errors import ConfigError, StoreError
from fedkd.experiment.storage.checkpoint import KEPT


class Table(NamedTuple):
  """Where the records of a group's clients are."""

  place: np.ndarray  # int32[n], in records; -1 for a client that has never taken part
  sum: np.ndarray  # uint32[n], CRC-32 of its record


def blank(clients) -> Table:
  """The table before any client has taken part."""
  return Table(np.full(clients, -1, np.int32), np.zeros(clients, np.uint32))


def claim(directory, config, workdir):
  """Creates the directory of a run's records, or checks that it belongs to that run.

  Args:
    directory: where the records go.
    config: plain config of the run.
    workdir: of the run.

  Raises:
    ConfigError: if it cannot be written, is damaged, or belongs to another run.
  """
  path, owner = pathlib.Path(directory) / 'run.json', str(pathlib.Path(workdir).absolute())
  with files.writing(f'client_store={directory}'):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
      files.write_sealed(path, {'workdir': owner, 'config': config})
    found = files.read_sealed(path, 'client_store')
    for file in (path, *path.parent.glob('group*')):
      file.open('ab').close()
  if found.get('workdir') != owner or configs.differences(found.get('config', config), config):
    raise ConfigError(
      f'client_store={directory} holds the clients of the run in {found.get("workdir")}; choose another, or delete '
      f'{path} if that run was moved here'
    )


class Records:
  """The file of a group; not shared between processes."""

  def __init__(self, path, like):
    """`like`: pytree of ShapeDtypeStruct, the state of one client, leaves [seeds, ...]."""
    self.path, self._leaves = pathlib.Path(path), jax.tree.leaves(like)
    self._ends = np.cumsum([0, *(s.size * s.dtype.itemsize for s in self._leaves)]).tolist()
    self._file, self._kept, self._free, self._fixed, self._end = None, [], [], np.zeros(0, bool), 0

  @property
  def bytes(self) -> int:
    """Bytes of a record."""
    return self._ends[-1]

  def clear(self):
    """Starts over, without records."""
    self._open('wb+')
    with self._named():
      files.sync(self.path.parent)
    self._kept, self._free, self._fixed, self._end = [], [], np.zeros(0, bool), 0

  def resume(self, table):
    """Resumes from a table that an earlier process saved.

    Raises:
      StoreError: if the file does not have its records.
    """
    needed = int(table.place.max(initial=-1)) + 1
    size = self.path.stat().st_size if self.path.exists() else -1
    if needed * self.bytes > size:
      raise StoreError(f'{self.path} lacks records of the checkpoint; restore the file, or start in a new workdir')
    self._open('rb+' if os.access(self.path, os.W_OK) else 'rb')  # an archive may be read-only
    self._end = max(needed, -(-size // max(self.bytes, 1)))
    self._kept = [table.place]
    self._fix()

  def _open(self, mode):
    with self._named():
      self._file = open(self.path, mode, buffering=0)  # noqa: SIM115 (closed with this object)

  @contextlib.contextmanager
  def _named(self):
    try:
      yield
    except OSError as error:
      raise StoreError(
        f'{self.path}: {error.strerror}; free space or repair it and start again: the last checkpoint is kept'
      ) from error

  def keep(self, table):
    """Makes the records of `table` durable, until `KEPT` newer tables are kept."""
    with self._named():
      os.fsync(self._file)
    self._kept = [*self._kept, table.place][-KEPT:]
    self._fix()

  def _fix(self):
    self._fixed = np.zeros(self._end, bool)
    for place in self._kept:
      self._fixed[place[place >= 0]] = True
    # Until there are as many, older checkpoints may refer to records that no table here does.
    self._free = np.flatnonzero(~self._fixed).tolist() if len(self._kept) == KEPT else []

  def read(self, table, rows, out, at):
    """Puts the states of the clients in `rows` into the places `at` of `out`, leaves [seeds, k, ...]; those without a
    record are left as they are.

    Raises:
      StoreError: for a record whose CRC does not match.
    """
    record = np.empty(self.bytes, np.uint8)
    for row, i in zip(rows, at, strict=True):
      if table.place[row] < 0:
        continue
      self._get(record, int(table.place[row]) * self.bytes)
      if zlib.crc32(record) != table.sum[row]:
        raise StoreError(f'{self.path}: the record of row {row} is damaged; restore the file or choose a new workdir')
      for leaf, part in self._parts(out, record):
        leaf[:, i] = part

  def write(self, table, rows, states) -> Table:
    """The table after writing the states of the clients in `rows`: the first of `states`, leaves [seeds, k, ...].

    Raises:
      StoreError: if the disk is full.
    """
    place, sums = table.place.copy(), table.sum.copy()
    record = np.empty(self.bytes, np.uint8)
    for i, row in enumerate(rows):
      for leaf, part in self._parts(states, record):
        part[:] = leaf[:, i]
      place[row], sums[row] = self._place(place[row]), zlib.crc32(record)  # type: ignore[arg-type]
      self._put(record, int(place[row]) * self.bytes)
    return Table(place, sums)

  def _parts(self, tree, record):
    """The leaves of `tree`, each with its part of a record."""
    ends = itertools.pairwise(self._ends)
    parts = (record[a:b].view(s.dtype).reshape(s.shape) for s, (a, b) in zip(self._leaves, ends, strict=True))
    return zip(jax.tree.leaves(tree), parts, strict=True)

  def _place(self, last):
    """Where a client's record goes: over its last one, unless a kept table refers to that."""
    if last >= 0 and not (last < len(self._fixed) and self._fixed[last]):
      return last
    if self._free:
      return self._free.pop()
    self._end += 1
    return self._end - 1

  def _get(self, record, at):
    while len(record):
      with self._named():
        done = os.preadv(self._file.fileno(), [record], at)
      record, at = record[done:] if done else record[:0], at + done  # a short read fails the CRC

  def _put(self, record, at):
    while len(record):
      with self._named():
        done = os.pwrite(self._file.fileno(), record, at)
      record, at = record[done:], at + done
