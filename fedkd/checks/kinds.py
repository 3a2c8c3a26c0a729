"""Values that are not what was asked for: how a sentence calls them, and the refusals that many arguments share."""

import types
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.errors import ConfigError

THREEFRY = 'threefry2x32'  # random bits that are the same however many keys are mapped at once


def what_is(value: Any) -> str:
  """A wrong value in a few words: 'the function adam, not called', 'float32[3]', "'fedhe', a str"."""
  if isinstance(value, np.generic):
    value = value.item()
  if isinstance(value, np.ndarray | jax.Array):
    return f'{value.dtype}{list(value.shape)}'
  if value is None or isinstance(value, str | int | float | complex):
    return short(value) if value is None else f'{short(value)}, {_a(type(value).__name__)}'
  if isinstance(value, type) or hasattr(value, '__code__'):
    return f'the {"class" if isinstance(value, type) else "function"} {value.__name__}, not called'
  return _a(type(value).__name__)


def _a(name) -> str:
  return f'{"an" if name[:1] in "aeiou" else "a"} {name}'


def short(value: Any) -> str:
  """A value in one line of a message, of NumPy's scalars the number alone."""
  text = ' '.join(repr(value.item() if isinstance(value, np.generic) else value).split())
  return text if len(text) <= 60 else f'{text[:40]}... ({len(text)} characters)'


def check_is(field: str, value: Any, kind: type | types.UnionType, remedy: str) -> None:
  """Checks that a value is of a kind; `remedy`: what to give."""
  if not isinstance(value, kind):
    raise ConfigError(f'{field} is {what_is(value)}; give {remedy}')


def check_one_each(field: str, values: Any, count: int, things: str) -> None:
  """Checks that an array has the shape [count]; `things`: of what it holds one entry each."""
  if np.shape(values) != (count,):
    raise ConfigError(f'{field} has shape {list(np.shape(values))} for {count} {things}; give one for each')


def whole_number(field: str, value: Any) -> int:
  """A whole number of at least 1."""
  if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
    raise ValueError(f'{field}={value!r} must be a whole number, at least 1')
  return int(value)


def check_number(field: str, value: Any, known: Sequence[int], whole: str, things: str) -> None:
  """Checks that a whole number is one of those that there are, such as the number of a client of `whole`."""
  if isinstance(value, bool) or not isinstance(value, int | np.integer) or value not in known:
    is_range = isinstance(known, range) and len(known) > 1
    told = f'{known[0]} to {known[-1]}' if is_range else ', '.join(map(str, known))
    raise ConfigError(f'{field}={value!r} is unknown; {whole} has {things} {told}')


def check_key(key: Any) -> None:
  """Checks that this is one key, of either form that JAX has, whose random bits do not depend on what is mapped."""
  remedy = 'give one key, jax.random.key(0), and map init over several with jax.vmap'
  dtype, shape = getattr(key, 'dtype', np.dtype(bool)), np.shape(key)
  typed = jnp.issubdtype(dtype, jax.dtypes.prng_key)
  if not (typed or dtype == np.uint32) or len(shape) != (not typed):
    raise ValueError(f'key is {what_is(key)}; {remedy}')
  check_generator('key', jax.config.values['jax_default_prng_impl'] if not typed else str(jax.random.key_impl(key)))
  if not typed and shape != (2,):
    raise ValueError(f'key is {what_is(key)}; {remedy}')


def check_generators(field: str, tree: Any) -> None:
  """Checks that the random bits of the typed keys in a tree do not depend on what is mapped."""
  for leaf in jax.tree.leaves(tree):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      check_generator(field, str(leaf.dtype))


def check_generator(field: str, kind: str) -> None:
  """Checks that random bits of a kind do not depend on what is mapped."""
  if 'rbg' in kind:
    raise ValueError(
      f'{field} has random bits of the kind {kind}, which change with the number of clients that are mapped at once; '
      f"give jax.random.key(0, impl='{THREEFRY}')"
    )


def as_array(field: str, value: Any, remedy: str) -> Any:
  """An array, of whatever NumPy can make one, in the byte order of this machine.

  Raises:
    ValueError: for rows of unequal length, masked entries, and what its own library keeps from NumPy.
  """
  if isinstance(value, jax.Array):
    return value
  if np.ma.is_masked(value) or (isinstance(value, list | tuple) and any(map(np.ma.is_masked, value))):
    raise ValueError(f'{field} has masked entries; fill them or leave out their rows, and give {remedy}')
  try:
    array = np.asarray(value)
  except (TypeError, ValueError, RuntimeError) as error:
    said = str(error).partition('\n')[0]
    why = ' of unequal rows' if 'inhomogeneous' in said else f' that NumPy cannot read ({said})'
    raise ValueError(f'{field} is {what_is(value)}{why}; give {remedy}') from error
  return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder('='))


def is_integer(dtype: Any) -> bool:
  """Whether these are integers; NumPy counts time differences among them."""
  return jnp.issubdtype(dtype, jnp.integer) and not jnp.issubdtype(dtype, np.timedelta64)
