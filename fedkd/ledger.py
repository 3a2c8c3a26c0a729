"""Exact communication counts, taken from the messages themselves.

Only what is in an upload or download is sent, so the ledger is independent of the method. The papers
count `numbers` (floats and integers); `bytes` follow from the dtypes.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.types import Known, Masked, PeerMessages, PyTree, is_partial

# The last of these names on a leaf's path decides its kind; any other leaf is knowledge. The first three hold arrays of
# a model, whose layers may have any names: below them no key decides any more.
KINDS = {
  'params': 'weights',
  'control': 'weights',
  'batch_stats': 'statistics',
  'label': 'labels',
  'count': 'labels',
  'index': 'indices',
  'image': 'images',
}
OF_MODELS = ('params', 'control', 'batch_stats')


def _sent(message):
  """(path, leaf) of what crosses the wire; a leaf may be `Masked` or `PeerMessages`."""
  message = jax.tree.map(
    lambda leaf: () if _known(leaf) else leaf, message, is_leaf=lambda a: _known(a) or is_partial(a)
  )
  return jax.tree_util.tree_flatten_with_path(message, is_leaf=is_partial)[0]


_known = lambda leaf: isinstance(leaf, Known)


def _kind(path) -> str:
  kind, of_model = 'knowledge', False
  for entry in path:
    name = getattr(entry, 'key', getattr(entry, 'name', None))
    # Layers are keys; a field begins something else, such as the indices of a codec in the place of weights.
    of_model = of_model and hasattr(entry, 'key')
    if not of_model and name in KINDS:
      kind, of_model = KINDS[name], name in OF_MODELS
  return kind


def _size(leaf, id):
  """(numbers that crossed the wire, the array they belong to) of one leaf of a message."""
  if isinstance(leaf, Masked):
    per_entry = math.prod(leaf.value.shape[leaf.valid.ndim :])
    return jnp.sum(leaf.valid, dtype=jnp.int32) * per_entry, leaf.value
  if isinstance(leaf, PeerMessages):
    others = leaf.valid & (jnp.arange(leaf.valid.shape[0]) != id)
    return jnp.sum(others, dtype=jnp.int32) * math.prod(leaf.value.shape[1:]), leaf.value
  return jnp.int32(leaf.size), leaf


def count(message: PyTree, id: jax.Array | int = -1) -> dict[str, tuple[jax.Array, jax.Array]]:
  """Counts what one client sent or received.

  Args:
    message: a pytree for one client; leaves are arrays, `Masked`, `PeerMessages` or `Known`.
    id: the receiver's global number, whose own row of `PeerMessages` is not counted.

  Returns:
    {kind: (numbers, bytes)}, each int32[].

  Raises:
    ValueError: for a message that could have 2^31 bytes of a kind or more.
  """
  for kind, (_, most) in capacity(message).items():
    if most > jnp.iinfo(jnp.int32).max:
      raise ValueError(
        f'a message may have {most:,} bytes of {kind}, which the ledger cannot count (2^31 - 1 at most); '
        'let a client send less in one update: by a smaller model, or with fewer rows each by more clients'
      )
  id = jnp.asarray(id)
  total: dict[str, tuple[jax.Array, jax.Array]] = {}
  for path, leaf in _sent(message):
    numbers, array = _size(leaf, id)
    before = total.get(_kind(path), (jnp.int32(0), jnp.int32(0)))
    total[_kind(path)] = (before[0] + numbers, before[1] + numbers * array.dtype.itemsize)
  return total


def capacity(message: PyTree) -> dict[str, tuple[int, int]]:
  """The most that a message of these shapes can carry: {kind: (numbers, bytes)} as ints, from `eval_shape`.

  `PeerMessages` carry everyone's rows but the receiver's own.
  """
  total: dict[str, tuple[int, int]] = {}
  for path, leaf in _sent(message):
    array = leaf.value if is_partial(leaf) else leaf
    numbers = math.prod((array.shape[0] - 1, *array.shape[1:])) if isinstance(leaf, PeerMessages) else array.size
    before = total.get(_kind(path), (0, 0))
    total[_kind(path)] = (before[0] + numbers, before[1] + numbers * array.dtype.itemsize)
  return total


def total(counts: tuple) -> dict[str, tuple]:
  """What all clients sent, or received: {kind: (numbers, bytes)}, exact Python ints.

  Args:
    counts: `Report.up` or `Report.down` of one round or of many, per group {kind: (numbers, bytes)} with leaves of any
      shape. Where they are traced, inside `jax.vmap` over seeds or `jax.jit`, the sums are float32, to rounding.
  """
  out: dict[str, tuple] = {}
  for group in counts:
    for kind, both in group.items():
      before = out.get(kind, (0, 0))
      out[kind] = before[0] + _sum(both[0]), before[1] + _sum(both[1])
  return out


def _sum(counts):
  if isinstance(counts, jax.core.Tracer):
    return jnp.sum(counts, dtype=jnp.float32)
  return int(np.sum(np.asarray(counts), dtype=np.int64))
