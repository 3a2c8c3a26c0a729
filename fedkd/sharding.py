"""The clients' axis over several devices: rows per group, slots per device, and client updates in parallel; and how
many of them one device trains at once.

A group with at least as many clients as there are devices is padded to a multiple of them, with rows that never get
a slot, and sharded; a smaller one is replicated.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedkd.types import Data, PyTree

AXIS = 'clients'


def rows(clients, mesh) -> int:
  """Rows of a group of `clients`: a multiple of the devices, unless there are fewer clients than devices."""
  return clients if mesh is None or clients < mesh.size else -(-clients // mesh.size) * mesh.size


def assign_slots(participants, rows, mesh):
  """A plan's slots int32[rounds, m] for a group with `rows` rows, device after device, equally many for each."""
  if not _cut(rows, mesh):
    return participants
  on_device = [participants // (rows // mesh.size) == device for device in range(mesh.size)]  # -1, an empty slot: none
  most = max(int(here.sum(1).max(initial=0)) for here in on_device)

  def of_device(here):
    order = np.argsort(~here, 1, kind='stable')[:, :most]
    take = lambda table: np.take_along_axis(table, order, 1)
    return np.where(take(here), take(participants), -1)

  return np.concatenate([of_device(here) for here in on_device], 1)


def _cut(rows, mesh) -> bool:
  return mesh is not None and rows % mesh.size == 0


def over_clients(mesh, rows, updates):
  """The client updates of a group with `rows` rows, (key, t, state, shared, own, data, participants) -> (state, out),
  each device those of its own rows. Leaves of `state`, `own`, `participants`, `out`, and of a client's own data, are
  cut along their first axis."""
  if not _cut(rows, mesh):
    return updates
  cut, whole = P(AXIS), P()

  def on_device(key, t, state, shared, own, data, participants):
    first = jax.lax.axis_index(AXIS) * (rows // mesh.size)
    return updates(key, t, state, shared, own, data, jnp.where(participants >= 0, participants - first, -1))

  data = Data(pool=whole, private=cut, everyone=whole, shared=cut, public=whole)
  specs = (whole, whole, cut, whole, cut, data, cut)
  return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=cut, check_vma=False)


def replicate(tree, mesh):
  """A tree of arrays, on every device of the mesh."""
  if mesh is None:
    return tree
  whole = NamedSharding(mesh, P())
  return jax.tree.map(lambda a: put(a, whole) if isinstance(a, jax.Array) else a, tree)


def put(array, sharding):
  """An array that is the same on all hosts, laid out over their devices."""
  array = np.asarray(array)
  return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def placement(mesh, rows) -> tuple:
  """(shardings of the states [seeds, n, ...] of groups with `rows` rows each, sharding of everything else)."""
  whole = NamedSharding(mesh, P())
  return tuple(NamedSharding(mesh, P(None, AXIS)) if _cut(n, mesh) else whole for n in rows), whole


# The fastest in `launch.bench` (without `--quick`): clients per vmap, by backend and kind of network.
CLIENTS_PER_VMAP = {('cpu', 'convolution'): 1, ('cpu', 'dense'): 10}


ON_ACCELERATORS = 100


def mapped_at_once(params: PyTree, axes: int = 0) -> int:
  """The default number of clients per vmap, for models with parameters `params` (or their shapes).

  `axes`: how many axes the leaves have in front of a single model's.
  """
  kind = 'convolution' if any(leaf.ndim - axes >= 4 for leaf in jax.tree.leaves(params)) else 'dense'
  return CLIENTS_PER_VMAP.get((jax.default_backend(), kind), ON_ACCELERATORS)
