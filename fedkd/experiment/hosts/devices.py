"""The devices of a run, and their memory."""

import contextlib
import os
import pathlib
import resource

import jax
from jax.sharding import AxisType

from fedkd.errors import ConfigError
from fedkd.experiment.hosts import hosts
from fedkd.sharding import AXIS


def request(count):
  """Lets a CPU count as several devices, `count` on all hosts together; has no effect once JAX has initialised its
  devices."""
  if count > 1:
    with contextlib.suppress(RuntimeError):
      jax.config.update('jax_num_cpu_devices', max(1, count // hosts.count()))


def mesh(count):
  """The first `count` devices as a mesh; None for a single one, which needs no mesh.

  Raises:
    ConfigError: if there are fewer.
  """
  if count == hosts.count() == 1:
    return None
  if count % hosts.count():
    raise ConfigError(f'devices={count} cannot be shared by {hosts.count()} hosts; set it to a multiple')
  request(count)
  found = jax.devices()
  if hosts.count() > 1 and count != len(found):
    raise ConfigError(f'devices={count} but {hosts.count()} hosts have {len(found)} together; set it to that')
  if count > len(found):
    raise ConfigError(
      f'devices={count} but JAX has {len(found)} ({found[0].platform}); lower it, or on a CPU call '
      f"jax.config.update('jax_num_cpu_devices', {count}) before anything else of JAX"
    )
  return jax.make_mesh((count,), (AXIS,), axis_types=(AxisType.Auto,), devices=found[:count])


def memory() -> int:
  """Bytes that all devices of this host can hold; on a CPU those of the machine, or of what this process may have."""
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  if all('bytes_limit' in one for one in stats):
    return sum(one['bytes_limit'] for one in stats)
  limits = [os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'), resource.getrlimit(resource.RLIMIT_AS)[0]]
  with contextlib.suppress(OSError, ValueError):  # a container's; 'max' is none
    limits.append(int(pathlib.Path('/sys/fs/cgroup/memory.max').read_text()))
  return min(limit for limit in limits if limit > 0)
