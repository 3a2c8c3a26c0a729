"""The client updates of one round of a benchmark case, compiled and timed."""

import time
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from fedkd import round
from fedkd.models.initial import initial_variables
from fedkd.states import initial_state
from fedkd.types import Data, Download, PyTree
from launch.tools.speed import parts
from launch.tools.speed.cases import Case
from launch.tools.speed.clock import COMPILING, deadline, timed_in_time
from launch.tools.speed.rows import Config, chunk_of


def prepare(case: Case, net: nn.Module, config: Config) -> tuple[Callable, tuple]:
  """One round of a case for one net, as (function to jit, its arguments); argument 0 (the state) can be donated.

  Raises:
    MemoryError: for more clients than fit on the device.
  """
  case = case._replace(nets=(net,))
  federation, method, key = parts.federation_of(case, config), parts.method_of(case), jax.random.key(0)
  (group,), (data,), ids = federation.groups, federation.data(), jnp.arange(case.clients)
  example = jax.ShapeDtypeStruct(case.shape, np.uint8)

  def init():
    fresh = initial_variables(key, group.model, example)
    return initial_state(key, method, federation, (jax.tree.map(lambda a: a[None], fresh),))

  check_memory(case.clients, jax.eval_shape(init).client)
  state = jax.jit(init)()
  (down,) = method.server.send(key, jnp.int32(0), federation.groups, state.server, (ids,), federation.data())
  width, slots = chunk_of(case, config), case.clients // config.devices

  def updates(state, key, pool, private, everyone, shared, participants):
    own = Data(pool, private, everyone)
    view = Download, shared, down.own, own
    return round.client_updates(key, jnp.int32(0), method.client, group, state, *view, participants, width)

  participants = ids % slots
  arguments = state.client[0], jax.random.key(2), data.pool, data.private, data.everyone, down.shared, participants
  if config.devices > 1:
    mesh, split, whole = jax.make_mesh((config.devices,), ('clients',)), P('clients'), P()
    specs = (split, whole, whole, split, whole, whole, split)
    updates = jax.shard_map(updates, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    arguments = tuple(jax.device_put(a, jax.NamedSharding(mesh, s)) for a, s in zip(arguments, specs, strict=True))
  return updates, arguments


def check_memory(clients: int, states: PyTree, limit: int | None = None) -> None:
  """Checks that the clients' states fit into the device's memory, or into `limit` bytes.

  Raises:
    MemoryError: with both numbers.
  """
  limit = limit or (jax.devices()[0].memory_stats() or {}).get('bytes_limit')  # None on a CPU
  need = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states))
  if limit and need > limit:
    raise MemoryError(f'the states of {clients} clients are {need / 1e9:.0f} GB, the device has {limit / 1e9:.0f} GB')


def measure_net(case: Case, net: nn.Module, config: Config, row: dict, budget: float) -> tuple[list[float], float, int]:
  """(seconds of the repetitions, compile seconds, bytes of XLA's temporaries) of one net."""
  client_updates, arguments = prepare(case, net, config)
  start = time.perf_counter()
  with deadline(row, 'compiling', COMPILING[config.backend]):
    compiled = jax.jit(client_updates, donate_argnums=0).lower(*arguments).compile()
  compile_seconds = time.perf_counter() - start
  state, rest = arguments[0], arguments[1:]

  def one_round():
    nonlocal state
    state, _ = jax.block_until_ready(compiled(state, *rest))

  return timed_in_time(one_round, budget, row), compile_seconds, compiled.memory_analysis().temp_size_in_bytes
