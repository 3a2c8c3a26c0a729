"""Codecs: any method with compressed messages, `coded(method, up=quantised(bits=8))`.

A coded message holds the arrays that are sent, so that `ledger` counts their bytes as in any other message: packed
codes and two floats, or values and their positions. Only floating-point arrays are coded, row by row: a row is what one
entry of a `Masked` or `PeerMessages` selects, and any other array is one row. Rows that coding would make no shorter
are sent as they are, and labels, counts and indices always are.

SCARLET leaves out what the receiver still has from earlier rounds; that cache is a part of the method itself
(`methods.scarlet`), which may be coded as well.
"""

import functools
import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks import blame
from fedkd.checks.kinds import check_is, short, what_is
from fedkd.checks.ranges import Range, Ratio, checked
from fedkd.errors import ConfigError
from fedkd.types import Download, Known, Masked, Method, PeerMessages, PyTree, where_valid

__all__ = [
  'Codec',
  'Coded',
  'bfloat16',
  'coded',
  'decoded',
  'encoded',
  'float16',
  'identity',
  'quantised',
  'top_k',
]
CODECS = ('bfloat16', 'float16', 'identity', 'quantised', 'top_k')  # what a config may name
UP, DOWN = 2**31 - 1, 2**31 - 2  # folded into keys, of which methods fold small numbers
Bits = Annotated[int, Range(least=1, most=16)]


class Codec(NamedTuple):
  """How one row of numbers is sent.

  encode: (key, row float32[d]) -> {name: array}, what is sent of it; 'index' is counted as indices.
  decode: (what is sent, d) -> float32[d].
  changes: whether uploads are coded as differences from what the client received.
  drops: whether numbers are left out, and received as 0.
  """

  encode: Callable[[jax.Array, jax.Array], dict]
  decode: Callable[[dict, int], jax.Array]
  changes: bool = False
  drops: bool = False


class Coded(NamedTuple):
  """A coded leaf of a message."""

  arrays: dict  # {name: array, or `Masked` or `PeerMessages` of one}, what travels
  like: dict  # {(dtype, shape of an array or of an entry, mask's axes): ()}, a key without leaves
  base: Known | None = None  # what the difference in `arrays` is from


def identity() -> Codec:
  """Numbers as they are."""
  return IDENTITY


IDENTITY = Codec(lambda key, row: {'value': row}, lambda arrays, width: arrays['value'])


def float16() -> Codec:
  """IEEE half precision: a relative error of 2^-11 at most from 6.1e-5 up; beyond 65 504 numbers are cut off there, but
  for infinite ones, as of a class that a model masks."""
  return _rounded(jnp.float16)


def bfloat16() -> Codec:
  """The upper half of a float32: a relative error of 2^-8 at most, over the whole range."""
  return _rounded(jnp.bfloat16)


def _rounded(dtype) -> Codec:
  most = float(jnp.finfo(dtype).max)
  rounded = lambda row: jnp.where(jnp.isinf(row), row, round_to(dtype, jnp.clip(row, -most, most)))
  encode = lambda key, row: {'value': rounded(row).astype(dtype)}
  return Codec(encode, lambda arrays, width: arrays['value'].astype(jnp.float32))


def round_to(dtype: jnp.dtype, x: jax.Array) -> jax.Array:
  """The numbers of `dtype` next to float32s within its range, as float32.

  XLA for GPUs takes a conversion to a narrower type and back out of a program, which leaves the numbers as they are.
  It keeps `reduce_precision`, which turns subnormal numbers into zeros: those are multiples of the smallest.
  """
  info = jnp.finfo(dtype)
  normal = jax.lax.reduce_precision(x, info.nexp, info.nmant)
  least = float(info.smallest_subnormal)
  subnormal = jnp.round(x / least) * least
  return jnp.where(jnp.abs(x) < float(info.smallest_normal), subnormal, normal) if info.nexp < 8 else normal


@checked
def quantised(bits: Bits = 8, changes: bool = False) -> Codec:
  """Uniform levels from a row's minimum to its maximum, rounded up or down at random without bias.

  QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, 2017) rounds in this way, with levels from 0 to the norm. Of a row of d
  numbers ceil(d * bits / 8) + 8 bytes are sent: packed codes, the minimum and the distance of two levels. A row with an
  infinite number, as of a class that a model masks, is NaN.

  Args:
    bits: per number, 1 to 16.
    changes: whether uploads are differences from what the client received, which the server adds to it.
  """
  levels = 2**bits - 1

  def encode(key, row):
    least = jnp.min(row)
    step = (jnp.max(row) - least) / levels
    place = (row - least) / jnp.where(step > 0, step, 1)
    code = jnp.clip(jnp.floor(place + jax.random.uniform(key, row.shape)), 0, levels).astype(jnp.uint32)
    bit = (code[:, None] >> jnp.arange(bits, dtype=jnp.uint32)) & 1
    return {'code': jnp.packbits(bit.astype(jnp.uint8).reshape(-1)), 'least': least, 'step': step}

  def decode(arrays, width):
    bit = jnp.unpackbits(arrays['code'], count=width * bits).reshape(width, bits)
    code = jnp.sum(bit.astype(jnp.uint32) << jnp.arange(bits, dtype=jnp.uint32), -1)
    return arrays['least'] + arrays['step'] * code

  return Codec(encode, decode, changes)


@checked
def top_k(share: Ratio = 0.1, changes: bool = False) -> Codec:
  """The largest numbers of a row by magnitude, and their positions; all others are received as 0.

  Of a row of d numbers share * d are sent, rounded, and at least one: 4 bytes each, and 1, 2 or 4 for its position.

  Args:
    share: of the numbers that are sent.
    changes: whether uploads are differences from what the client received, which the server adds to it; required for
      weights, since a network without nine tenths of its weights is useless.
  """

  def encode(key, row):
    del key
    place = jax.lax.top_k(jnp.abs(row), max(1, round(share * row.size)))[1]
    return {'value': row[place], 'index': place.astype(_places(row.size))}

  def decode(arrays, width):
    return jnp.zeros(width, jnp.float32).at[arrays['index'].astype(jnp.int32)].set(arrays['value'])

  return Codec(encode, decode, changes, drops=True)


def _places(width):
  return next(kind for kind in (jnp.uint8, jnp.uint16, jnp.int32) if width <= jnp.iinfo(kind).max + 1)


def _check_codec(field, codec):
  if codec is None:
    return
  check_is(field, codec, Codec, 'a codec such as fedkd.codecs.quantised(bits=8), or None')
  for name, returns in (('encode', '(key, row) -> {name: array}'), ('decode', '(arrays, width) -> float32[width]')):
    if not callable(function := getattr(codec, name)):
      raise ConfigError(f'{field}.{name} is {what_is(function)}; give a function {returns}')
  for name in ('changes', 'drops'):
    check_is(f'{field}.{name}', getattr(codec, name), bool, 'True or False')


def _encode(codec, key, row) -> dict:
  """What a codec makes of a row, checked.

  Raises:
    ConfigError: unless that is a dict of arrays.
  """
  arrays = blame.call('encode of codec', codec.encode, key, row)
  values = arrays.values() if isinstance(arrays, dict) else ()
  fits = all(isinstance(a, jax.Array | np.ndarray | np.generic | int | float) for a in values)
  if not values or not fits or not all(isinstance(name, str) for name in arrays):
    returned = (
      f'a dict of {", ".join(f"{short(k)}: {what_is(a)}" for k, a in arrays.items()) or "nothing"}'
      if isinstance(arrays, dict)
      else what_is(arrays)
    )
    raise ConfigError(f'encode of codec {blame.named(codec.encode)} returned {returned}; let it return {{name: array}}')
  return {name: jnp.asarray(a) for name, a in arrays.items()}


def _decode(codec, arrays, width) -> jax.Array:
  """What a codec makes of `arrays`, checked.

  Raises:
    ConfigError: unless that is float[width].
  """
  row = blame.call('decode of codec', codec.decode, arrays, width)
  if not isinstance(row, jax.Array) or row.shape != (width,) or not jnp.issubdtype(row.dtype, jnp.floating):
    raise ConfigError(
      f'decode of codec {blame.named(codec.decode)} returned {what_is(row)}; let it return float32[{width}]'
    )
  return row


def coded(method: Method, up: Codec | None = None, down: Codec | None = None) -> Method:
  """A method whose uploads and downloads are coded; everything else, including state and random numbers, is as before.

  Args:
    method: any `Method`.
    up: codec of the uploads; None: they are sent as they are.
    down: codec of the downloads.

  Raises:
    ValueError: for what is no method or codec, and for changes down; in the first round for changes up where nothing in
      an upload corresponds to a download, for weights of which a codec leaves numbers out that their receiver does not
      have, for messages that are coded already, and for a codec that raises or returns something else than `Codec`
      says.
  """
  check_is('method', method, Method, 'a method such as fedkd.methods.fedhe(optax.adam(1e-3))')
  for field, codec in (('up', up), ('down', down)):
    _check_codec(field, codec)
  up, down = up or IDENTITY, down or IDENTITY
  if down.changes:
    raise ValueError(
      'changes=True for downloads would need what each client had before; set it to False, or code only uploads'
    )

  def step(key, t, model, state, download, data):
    received = decoded(down, download)
    state, upload, info = method.client.step(key, t, model, state, received, data)
    bases = _bases(received) if up.changes else None
    _check_whole(up, upload, received if up.changes else None)
    return state, encoded(up, jax.random.fold_in(key, UP), upload, bases), info

  def receive(key, t, groups, state, uploads, ids, data):
    decode = tuple(decoded(up, upload, True) for upload in uploads)
    return method.server.receive(key, t, groups, state, decode, ids, data)

  def send(key, t, groups, state, ids, data):
    downs, key = method.server.send(key, t, groups, state, ids, data), jax.random.fold_in(key, DOWN)
    _check_whole(down, downs)
    to_each = jax.vmap(lambda id, own: encoded(down, jax.random.fold_in(key, id), own))
    return tuple(Download(encoded(down, key, d.shared), to_each(i, d.own)) for d, i in zip(downs, ids, strict=True))

  server = method.server._replace(receive=receive, send=send)
  return method._replace(client=method.client._replace(step=step), server=server)


def _check_whole(codec, message, received=None):
  """Checks that a codec leaves out no weights, unless an upload is coded as changes of weights that were `received`.

  Raises:
    ValueError: if it does; a network without most of its weights is useless.
  """
  leaves = lambda tree: jax.tree_util.tree_leaves_with_path(tree, is_leaf=_wrapped)
  had = {jax.tree_util.keystr(path) for part in received or () for path, leaf in leaves(part) if not _wrapped(leaf)}
  for path, leaf in leaves(message) if codec.drops else ():
    name = jax.tree_util.keystr(path)
    if "['params']" in name and name not in had and _is_shorter(codec, leaf):
      why = (
        'and a network without them is useless; code changes (changes=True, for uploads alone), or choose'
        if received is None
        else 'and clients of this method lack the weights in some rounds, of which they would send changes; choose'
      )
      raise ValueError(f'the codec leaves weights out, {why} another one, such as quantised or float16')


_wrapped = lambda leaf: isinstance(leaf, Masked | PeerMessages)
_coded = lambda leaf: isinstance(leaf, Coded)


def encoded(codec: Codec, key: jax.Array, message: PyTree, bases: dict | None = None) -> PyTree:
  """One client's message, its floating-point leaves `Coded`.

  Args:
    bases: {path: array} that the receiver has, for differences from them.

  Raises:
    ValueError: if no leaf that would be coded has its base.
  """
  if codec is IDENTITY:
    return message
  leaves, tree = jax.tree_util.tree_flatten_with_path(message, is_leaf=lambda leaf: _wrapped(leaf) or _coded(leaf))
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
  value, mask = (leaf.value, leaf.valid.ndim) if _wrapped(leaf) else (leaf, 0)
  return value, value.shape[:mask], value.shape[mask:]


def _is_shorter(codec, leaf) -> bool:
  """Whether the rows of a leaf are shorter when they are coded; others are sent as they are."""
  value, _, entry = _parts(leaf)
  if not value.size or not jnp.issubdtype(value.dtype, jnp.floating):
    return False
  row = jax.ShapeDtypeStruct((math.prod(entry),), jnp.float32)
  shapes = jax.eval_shape(functools.partial(_encode, codec), jax.random.key(0), row)
  return sum(a.size * a.dtype.itemsize for a in shapes.values()) < row.size * value.dtype.itemsize


def _encoded_leaf(codec, key, leaf, base):
  if not _is_shorter(codec, leaf):
    return leaf
  value, lead, entry = _parts(leaf)
  base = base if base is not None and base.shape == value.shape else None
  rows = (value if base is None else value - base).astype(jnp.float32).reshape(-1, math.prod(entry))
  encode = jax.vmap(functools.partial(_encode, codec))
  arrays = {name: a.reshape(*lead, *a.shape[1:]) for name, a in encode(jax.random.split(key, len(rows)), rows).items()}
  arrays = {name: leaf._replace(value=a) for name, a in arrays.items()} if _wrapped(leaf) else arrays
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
  arrays = {name: a.value if _wrapped(a) else a for name, a in leaf.arrays.items()}
  lead = next(iter(arrays.values())).shape[:mask]
  flat = {name: a.reshape(-1, *a.shape[mask:]) for name, a in arrays.items()}
  rows = jax.vmap(lambda row: _decode(codec, row, math.prod(entry)))(flat)
  value = rows.reshape(*lead, *entry).astype(dtype)
  value = value if leaf.base is None else value + leaf.base.value
  return whole._replace(value=value) if _wrapped(whole) else value


def _bases(download: Download) -> dict:
  """{path: array} of what a client has received; 0 where an entry was not sent. What peers have sent is theirs."""
  leaves = [jax.tree_util.tree_leaves_with_path(part, is_leaf=_wrapped) for part in download]
  own = lambda leaf: not isinstance(leaf, PeerMessages)
  return {jax.tree_util.keystr(path): _base(leaf) for part in leaves for path, leaf in part if own(leaf)}


def _base(leaf):
  return where_valid(leaf.value, leaf.valid) if _wrapped(leaf) else leaf
