"""A codec: how one row of numbers is sent, and the checks of a user's."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks import blame
from fedkd.checks.kinds import check_is, short, what_is
from fedkd.errors import ConfigError


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


IDENTITY = Codec(lambda key, row: {'value': row}, lambda arrays, width: arrays['value'])


def check_codec(field: str, codec: Any) -> None:
  """Raises ConfigError for what is neither a codec nor None."""
  if codec is None:
    return
  check_is(field, codec, Codec, 'a codec such as fedkd.codecs.quantised(bits=8), or None')
  for name, returns in (('encode', '(key, row) -> {name: array}'), ('decode', '(arrays, width) -> float32[width]')):
    if not callable(function := getattr(codec, name)):
      raise ConfigError(f'{field}.{name} is {what_is(function)}; give a function {returns}')
  for name in ('changes', 'drops'):
    check_is(f'{field}.{name}', getattr(codec, name), bool, 'True or False')


def encode_row(codec: Codec, key: jax.Array, row: jax.Array) -> dict:
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


def decode_row(codec: Codec, arrays: dict, width: int) -> jax.Array:
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
