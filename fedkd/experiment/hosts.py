"""Several processes that work on one run, each with devices of its own; here and in `devices` only.

All of them run the same program on the same config and data. What depends on a clock, a signal or a file is decided by
the first (`tell`), and only the first writes the run directory: the others write into one that is thrown away.
"""

import contextlib
import importlib.util
import json
import pathlib
import re
import tempfile
import zlib

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedkd.errors import ConfigError, HostError

PATIENCE = 30  # heartbeat timeout in seconds
_joined = 1  # hosts


def join(where):
  """Makes this process one of several hosts, before anything else of JAX. Called once.

  Args:
    where: 'HOST:PORT,COUNT,INDEX', the address of the first host, how many there are, and which this one is, from 0.

  Raises:
    ConfigError: for another text, or if they do not come together.
  """
  global _joined  # like JAX's own state
  try:
    address, many, index = where.split(',')
    jax.distributed.initialize(
      address,
      int(many),
      int(index),
      cluster_detection_method='deactivate',  # in a SLURM step JAX would take one device per task
      heartbeat_timeout_seconds=PATIENCE,
      shutdown_timeout_seconds=PATIENCE,
    )
  except (ValueError, RuntimeError) as error:
    reason = str(error).split('\n')[0]
    raise ConfigError(f'hosts={where!r}: {reason}; give HOST:PORT,COUNT,INDEX, alike on all but for INDEX') from error
  _joined = int(many)


def count() -> int:
  """How many hosts there are; does not start JAX's devices."""
  return _joined


def is_primary() -> bool:
  """Whether this host is the one that writes."""
  return _joined == 1 or jax.process_index() == 0


def gather(value) -> list:
  """What every host says, JSON-ready, in their order. All hosts must call it."""
  if _joined == 1:
    return [value]
  text = np.frombuffer(json.dumps(value).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.int32(len(text)))
  texts = multihost_utils.process_allgather(np.pad(text, (0, max(sizes) - len(text))))
  return [json.loads(bytes(row[:size])) for row, size in zip(texts, sizes, strict=True)]


def broadcast_from_primary(value):
  """What the first host says. All hosts must call it."""
  return gather(value)[0]


def broadcast_arrays(tree, like):
  """The arrays of the first host, with the shapes of `like`; the others' are not looked at. Bit for bit."""
  if _joined == 1:
    return tree

  def one(s, a):
    # As bytes, since a broadcast is a sum: -0.0 would come out as 0.0.
    text = (
      np.ascontiguousarray(a).reshape(-1).view(np.uint8)
      if is_primary()
      else np.zeros(s.size * s.dtype.itemsize, np.uint8)
    )
    return multihost_utils.broadcast_one_to_all(text).view(s.dtype).reshape(s.shape)

  return jax.tree.map(one, like, tree if is_primary() else like)


def run_on_primary(look):
  """What `look()` finds on the first host, JSON-ready; its refusal is everybody's. All hosts must call it.

  Raises:
    ConfigError: where the first host raises it.
  """
  try:
    found = [look() if is_primary() else None, None]
  except ConfigError as error:
    found = [None, str(error)]
  value, refusal = broadcast_from_primary(found)
  if refusal:
    raise ConfigError(refusal)
  return value


def check_agreement(look):
  """Refuses hosts that find something else than the first. One host alone does not look.

  Args:
    look: () -> {field: value}, JSON-ready.

  Raises:
    ConfigError: that names the host and the field.
  """
  if _joined == 1:
    return
  said = gather(look())
  for host, other in enumerate(said):
    for field in sorted(other.keys() | said[0].keys()):
      if other.get(field) != said[0].get(field):
        raise ConfigError(
          f'{field}={other.get(field)!r} on host {host}, but {said[0].get(field)!r} on host 0; start all hosts alike'
        )


def code(config) -> int:
  """CRC-32 of this package's source files, and of the modules that a plain config names as 'module:function'."""
  files = sorted(pathlib.Path(__file__).parents[1].rglob('*.py'))
  for module in sorted(set(re.findall(r'"([A-Za-z_][\w.]*):[A-Za-z_]\w*"', json.dumps(config)))):
    with contextlib.suppress(ImportError):  # 'folder:DIR' is no module
      spec = importlib.util.find_spec(module)
      files += [pathlib.Path(spec.origin)] if spec and spec.has_location else []
  return zlib.crc32(b''.join(file.read_bytes() for file in files))


@contextlib.contextmanager
def writing_to(workdir):
  """The run directory for the first host, one that is thrown away for the others."""
  if is_primary():
    yield pathlib.Path(workdir)
    return
  with tempfile.TemporaryDirectory() as scratch:
    yield pathlib.Path(scratch)


def lost(error) -> bool:
  """Whether an error is that of a collective, which means that another host has ended."""
  of_devices = isinstance(error, jax.errors.JaxRuntimeError)
  words = ('Gloo', 'NCCL', 'UNAVAILABLE', 'onnection') if of_devices else ('Gloo',)
  return _joined > 1 and any(word in str(error) for word in words)


@contextlib.contextmanager
def together():
  """Names what a failure here most often means.

  Raises:
    HostError: for an error of what the hosts do together.
  """
  try:
    yield
  except (jax.errors.JaxRuntimeError, ValueError) as error:  # a collective that fails may raise either
    if not lost(error):
      raise
    reason = str(error).split('\n')[0][:200]
    raise HostError(
      f'another host has ended, or the way to it ({reason}); the last checkpoint is kept, start all hosts again'
    ) from error
