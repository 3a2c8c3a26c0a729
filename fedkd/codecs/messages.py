"""Messages whose floating-point arrays travel as a codec makes them."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedkd.codecs.codec import IDENTITY, Codec, decode_row, encode_row
from fedkd.errors import ConfigError
from fedkd.rows import where_valid
from fedkd.types import Download, Known, PeerMessages, PyTree, is_partial


class Coded(NamedTuple):
  """A coded leaf of a message."""

  arrays: dict  # {name: array, or `Masked` or `PeerMessages` of one}, what travels
  like: dict  # {(dtype, shape of an array or of an entry, mask's axes): ()}, a key without leaves
  base: Known | None = None  # what the difference in `arrays` is from


_coded = lambda leaf: isinstance(leaf, Coded)


def with_arrays(message: PyTree) -> PyTree:
  """A message whose plain Python numbers are arrays, as they are after the step of a method that is not coded."""
  return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, bool | int | float) else leaf, message)


def encoded(codec: Codec, key: jax.Array, message: PyTree, bases: dict | None = None) -> PyTree:
  """One client's message, its floating-point leaves `Coded`.

  Args:
    bases: {path: array} that the receiver has, for differences from them.

  Raises:
    ValueError: if no leaf that would be coded has its base.
  """
  if codec is IDENTITY:
    return message
  leaves, tree = jax.tree_util.tree_flatten_with_path(message, is_leaf=lambda leaf: is_partial(leaf) or _coded(leaf))
  if any(_coded(leaf) for _, leaf in leaves):
    raise ConfigError('the messages of this method are coded already; give coded one codec up and one down')
  out = []
  for i, (path, leaf) in enumerate(leaves):
    base = None if bases is None else bases.get(jax.tree_util.keystr(path))
    out.append(_encoded_leaf(codec, jax.random.fold_in(key, i), leaf, base))
  coded_leaves = [leaf for leaf in out if _coded(leaf)]
  if bases is not None and coded_leaves and all(leaf.base is None for leaf in coded_leaves):
    raise ValueError(
      'changes=True codes differences, but nothing in an upload has a counterpart in a download; set it to False'
    )
  return jax.tree.unflatten(tree, out)


def _parts(leaf) -> tuple:
  """(all numbers of a leaf, the shape of its rows' numbers, the shape of what a row holds)."""
  value, mask = (leaf.value, leaf.valid.ndim) if is_partial(leaf) else (leaf, 0)
  return value, value.shape[:mask], value.shape[mask:]


def is_shorter(codec: Codec, leaf: Any) -> bool:
  """Whether the rows of a leaf are shorter when they are coded; others are sent as they are."""
  value, _, entry = _parts(leaf)
  if not value.size or not jnp.issubdtype(value.dtype, jnp.floating):
    return False
  row = jax.ShapeDtypeStruct((math.prod(entry),), jnp.float32)
  shapes = jax.eval_shape(functools.partial(encode_row, codec), jax.random.key(0), row)
  return sum(a.size * a.dtype.itemsize for a in shapes.values()) < row.size * value.dtype.itemsize


def _encoded_leaf(codec, key, leaf, base):
  if not is_shorter(codec, leaf):
    return leaf
  value, lead, entry = _parts(leaf)
  base = base if base is not None and base.shape == value.shape else None
  rows = (value if base is None else value - base).astype(jnp.float32).reshape(-1, math.prod(entry))
  encode = jax.vmap(functools.partial(encode_row, codec))
  arrays = {name: a.reshape(*lead, *a.shape[1:]) for name, a in encode(jax.random.split(key, len(rows)), rows).items()}
  arrays = {name: leaf._replace(value=a) for name, a in arrays.items()} if is_partial(leaf) else arrays
  return Coded(arrays, {(str(value.dtype), entry, len(lead)): ()}, None if base is None else Known(base))


def decoded(codec: Codec, message: PyTree, stacked: bool = False) -> PyTree:
  """What the receiver of an `encoded` message reads; `stacked`: of many, with a leading axis."""
  if codec is IDENTITY:
    return message
  of_leaf = lambda leaf: _decoded_leaf(codec, leaf)
  of_leaf = jax.vmap(of_leaf) if stacked else of_leaf
  return jax.tree.map(lambda leaf: of_leaf(leaf) if _coded(leaf) else leaf, message, is_leaf=_coded)


def _decoded_leaf(codec, leaf):
  (dtype, entry, mask), *_ = leaf.like
  whole = next(iter(leaf.arrays.values()))
  arrays = {name: a.value if is_partial(a) else a for name, a in leaf.arrays.items()}
  lead = next(iter(arrays.values())).shape[:mask]
  flat = {name: a.reshape(-1, *a.shape[mask:]) for name, a in arrays.items()}
  rows = jax.vmap(lambda row: decode_row(codec, row, math.prod(entry)))(flat)
  value = rows.reshape(*lead, *entry).astype(dtype)
  value = value if leaf.base is None else value + leaf.base.value
  return whole._replace(value=value) if is_partial(whole) else value


def bases_of(download: Download) -> dict:
  """{path: array} of what a client has received; 0 where an entry was not sent. What peers have sent is theirs."""
  leaves = [jax.tree_util.tree_leaves_with_path(part, is_leaf=is_partial) for part in download]
  own = lambda leaf: not isinstance(leaf, PeerMessages)
  return {jax.tree_util.keystr(path): _base(leaf) for part in leaves for path, leaf in part if own(leaf)}


def _base(leaf):
  return where_valid(leaf.value, leaf.valid) if is_partial(leaf) else leaf
