"""Multi-host runs: several processes, each with its own devices. Handled here and in `devices` only.

All of them run the same program on the same config and data. Whatever depends on a clock, a signal or a file is decided
by the primary host (`broadcast_from_primary`), and only the primary writes the run directory: the others write to a
temporary one.
"""

import contextlib
import importlib.util
import inspect
import json
import pathlib
import re
import socket
import sys
import tempfile
import zlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

import fedkd
from fedkd import files
from fedkd.errors import ConfigError, HostError
from fedkd.experiment.hosts import rendezvous

PATIENCE = 30  # seconds, the heartbeat timeout of a host
MOST_HOSTS = 10_000
_joined = 1  # hosts


def join(where):
  """Makes this process one of several hosts, before anything else of JAX. Called once.

  The first host listens on the address that is given, and on no other. Whoever reaches it can join or end the run,
  since JAX asks for no password: the network must be trusted.

  Args:
    where: 'HOST:PORT,COUNT,INDEX', the address of the first host, how many there are, and which this one is, from 0.

  Raises:
    ConfigError: for a malformed text, a number that another host has, or if the hosts do not connect.
  """
  global _joined  # like JAX's own state
  try:
    address, place, many, index = _parsed(where)
    if index == 0:
      files.warn(f'listening on {address} for {many - 1} more host(s), without a password; the network must be trusted')
      rendezvous.wait_for_others(place, many)  # also because JAX crashes where it cannot listen
    else:
      rendezvous.connect(place, many, index)
    jax.distributed.initialize(
      address,
      many,
      index,
      coordinator_bind_address=address,
      cluster_detection_method='deactivate',  # in a SLURM step JAX would take one device per task
      heartbeat_timeout_seconds=PATIENCE,
      shutdown_timeout_seconds=PATIENCE,
    )
  except (ValueError, OSError, RuntimeError) as error:
    reason = getattr(error, 'strerror', None) or str(error).split('\n')[0]
    raise ConfigError(
      f'hosts={where!r}: {reason}; give HOST:PORT,COUNT,INDEX, the same on all hosts except INDEX'
    ) from error
  _joined = many


def _parsed(where) -> tuple:
  """(address, where that is for a socket, how many hosts, which this one is)."""
  address, many, index = where.split(',')
  host, colon, port = address.rpartition(':')
  if not (colon and host and port.isdecimal() and 1 <= int(port) < 2**16):
    raise ValueError(f'{address!r} is not an address with a port from 1 to 65535')
  if not 1 <= int(many) <= MOST_HOSTS or not 0 <= int(index) < int(many):
    raise ValueError(f'host {index} of {many} does not exist; hosts are numbered from 0')
  family, kind, protocol, _, place = socket.getaddrinfo(host.strip('[]'), int(port), type=socket.SOCK_STREAM)[0]
  return address, (family, kind, protocol, place), int(many), int(index)


def _check_devices():
  """Checks that all hosts have equally many devices, without which they could not even compare their configs."""
  per_host = [sum(device.process_index == host for device in jax.devices()) for host in range(_joined)]
  if len(set(per_host)) > 1:
    text = ', '.join(f'{many} on host {host}' for host, many in enumerate(per_host))
    raise ConfigError(
      f'devices: the hosts have {text}; give all hosts the same config.devices and the same number of devices'
    )


def count() -> int:
  """How many hosts there are; does not start JAX's devices."""
  return _joined


def is_primary() -> bool:
  """Whether this host is the one that writes."""
  return _joined == 1 or jax.process_index() == 0


def gather(value) -> list:
  """The values of all hosts, JSON-ready, in host order. All hosts must call it."""
  if _joined == 1:
    return [value]
  text = np.frombuffer(json.dumps(value).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.int32(len(text)))
  texts = multihost_utils.process_allgather(np.pad(text, (0, max(sizes) - len(text))))
  return [json.loads(bytes(row[:size])) for row, size in zip(texts, sizes, strict=True)]


def broadcast_from_primary(value):
  """The value of the primary host. All hosts must call it."""
  return gather(value)[0]


def broadcast_arrays(tree, like):
  """The arrays of the primary host, with the shapes of `like`, bit for bit; those of other hosts are ignored."""
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


def run_on_primary(function):
  """The result of `function()` on the primary host, JSON-ready; a ConfigError there is raised on all hosts. All hosts
  must call it.

  Raises:
    ConfigError: if the primary host raises one.
  """
  try:
    outcome = [function() if is_primary() else None, None]
  except ConfigError as error:
    outcome = [None, str(error)]
  value, message = broadcast_from_primary(outcome)
  if message:
    raise ConfigError(message)
  return value


def check_agreement(values):
  """Checks that all hosts have the same values as the primary; a single host computes none.

  Args:
    values: () -> {field: value}, JSON-ready.

  Raises:
    ConfigError: that names the host and the field.
  """
  if _joined == 1:
    return
  _check_devices()
  of_hosts = gather(values())
  primary = of_hosts[0]
  for host, other in enumerate(of_hosts):
    for field in sorted(other.keys() | primary.keys()):
      if other.get(field) != primary.get(field):
        raise ConfigError(
          f'{field}={other.get(field)!r} on host {host}, but {primary.get(field)!r} on host 0; start them identically'
        )


def source_checksum(config) -> int:
  """CRC-32 of the `sources` of a run, and of the functions that its config names in a notebook."""
  texts = [_source(module, name) for module, name in _named(config) if not _file(module)]
  return zlib.crc32(b''.join([*(file.read_bytes() for file in sources(config)), *texts]))


def sources(config) -> list[pathlib.Path]:
  """This package's source files, and those of the modules that a plain config names as 'module:function'."""
  modules = dict.fromkeys(module for module, _ in _named(config))
  return sorted(pathlib.Path(fedkd.__file__).parent.rglob('*.py')) + [f for m in modules if (f := _file(m))]


def _named(config) -> list[tuple[str, str]]:
  """(module, function) of every 'module:function' in a plain config, and of what only looks like one."""
  return sorted(set(re.findall(r'"([A-Za-z_][\w.]*):([A-Za-z_]\w*)"', json.dumps(config))))


def _file(module) -> pathlib.Path | None:
  """The source file of a module."""
  with contextlib.suppress(ImportError, ValueError):  # 'folder:DIR' is no module, and a notebook's has no spec
    spec = importlib.util.find_spec(module)
    return pathlib.Path(spec.origin) if spec and spec.has_location and spec.origin else None
  return None


def _source(module, name) -> bytes:
  """The source of a function of this process alone, where Python has it."""
  function: Any = getattr(sys.modules.get(module), name, None)
  with contextlib.suppress(OSError, TypeError):
    return inspect.getsource(function).encode()
  return b''


@contextlib.contextmanager
def writing_to(workdir):
  """The run directory on the primary host, a temporary one on the others."""
  if is_primary():
    yield pathlib.Path(workdir)
    return
  with tempfile.TemporaryDirectory() as scratch:
    yield pathlib.Path(scratch)


def is_lost_host(error) -> bool:
  """Whether an error is that of a collective, which means that another host has exited."""
  of_devices = isinstance(error, jax.errors.JaxRuntimeError)
  words = ('Gloo', 'NCCL', 'UNAVAILABLE', 'onnection') if of_devices else ('Gloo',)
  return _joined > 1 and any(word in str(error) for word in words)


@contextlib.contextmanager
def host_errors():
  """Turns a failed collective into a HostError.

  Raises:
    HostError: for an error of a collective operation.
  """
  try:
    yield
  except (jax.errors.JaxRuntimeError, ValueError) as error:  # a collective that fails may raise either
    if not is_lost_host(error):
      raise
    reason = str(error).split('\n')[0][:200]
    raise HostError(
      f'another host has exited or cannot be reached ({reason}); the last checkpoint is kept, start all hosts again'
    ) from error
