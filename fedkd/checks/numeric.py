"""Numbers that a device does not hold: NaN and infinity, those beyond the dtype that JAX gives them; and how products
are rounded."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks.kinds import as_array, is_integer
from fedkd.errors import ConfigError

ROUNDING = 1e-6  # relative, of a product in float32


def share_of(share: Any, count: Any) -> Any:
  """A share of a count, to be rounded down: 7 / 23 of 23, which is 6.9999995 in float32, is 7."""
  return share * count * (1 + ROUNDING)


def floor_of_share(share: float, count: int) -> int:
  """A share of a count, rounded down, on the host: 0.29 of 100, which is 28.999999999999996 in float64, is 29."""
  return int(share * count + 1e-9)


def examples(field: str, x: Any) -> Any:
  """Real numbers [N, ...] of a dtype that JAX has, none of them changed but by rounding.

  Raises:
    ValueError: for other kinds of numbers, NaN, infinity, and what is beyond 32 bits; in one sentence.
  """
  x = as_array(field, x, 'examples [N, ...]')
  if x.ndim < 1 or not x.size:
    raise ValueError(f'{field} has shape {list(x.shape)}; give examples [N, ...], at least one')
  if not (is_integer(x.dtype) or x.dtype == bool or jnp.issubdtype(x.dtype, jnp.floating)):
    real = 'real numbers' if jnp.issubdtype(x.dtype, jnp.complexfloating) else 'numbers, for text integer tokens'
    raise ValueError(f'{field} is {x.dtype}{list(x.shape)}; give {real}')
  dtype = _held(x.dtype)
  if jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.itemsize > dtype.itemsize:  # others fit: they are not looked at
    in_range(field, x, dtype)
  return x.astype(dtype, copy=False)


def _held(dtype) -> Any:
  """The dtype that JAX has for another one; NumPy has floats of more than 64 bits."""
  wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 8
  return jax.dtypes.canonicalize_dtype(np.dtype(np.float64) if wide else dtype)


def in_range(field: str, x: Any, dtype: Any) -> None:
  """Checks that a dtype holds all numbers of an array [N, ...]; those that are traced have no values yet.

  Raises:
    ConfigError: with the first row that has another one, NaN or infinity.
  """
  if isinstance(x, jax.core.Tracer):
    return
  whole = is_integer(dtype)
  kind, limits = (int, jnp.iinfo(dtype)) if whole else (float, jnp.finfo(dtype))
  least, most = kind(limits.min), kind(limits.max)
  with jax.ensure_compile_time_eval():  # an array has values in a traced function too
    if least <= kind(x.min()) and kind(x.max()) <= most:  # NaN is in no range
      return
  x = np.asarray(x)
  row, *_ = np.argwhere(~((x >= least) & (x <= most)))[0]
  value = kind(next(v for v in x[row].reshape(-1) if not least <= v <= most))
  remedy = (
    'number what occurs from 0, for example by np.unique(x, return_inverse=True)[1]'
    if whole
    else 'replace such values or leave out their rows'
  )
  raise ConfigError(f'{field}[{row}] has {value:.6g}, which {dtype} cannot hold; {remedy}')


EXACT = 2**24  # up to which float32 has all whole numbers
LOST = 0.05  # of a column's standard deviation, that rounding may take at most
OFFSET = 'subtract a number that all of them exceed'


def in_precision(field: str, x: Any, dtype: Any, remedy: str = OFFSET) -> None:
  """Checks that a narrower dtype leaves the columns of training examples [N, ..., c] as they vary: as float32, seconds
  since 1970 are alike within two minutes. Integers that are no tokens become float32 in a model's first layer.

  Raises:
    ConfigError: with the first column of which it does not.
  """
  if isinstance(x, jax.core.Tracer):
    return
  whole = is_integer(x.dtype)
  dtype = np.dtype(np.float32) if whole else dtype
  if not jnp.issubdtype(dtype, jnp.floating) or x.dtype.itemsize < dtype.itemsize + (not whole):
    return
  columns = np.asarray(x).reshape(-1, x.shape[-1] if x.ndim > 1 else 1)
  if whole and -EXACT <= int(columns.min()) <= int(columns.max()) <= EXACT:
    return
  least, most = columns.min(0), columns.max(0)
  rounding = float(jnp.finfo(dtype).eps) / 2 * np.maximum(np.abs(least), np.abs(most))
  # No deviation is less than this of the range: nearly all columns need no second look.
  for c in np.flatnonzero(rounding > LOST * (most - least) / np.sqrt(2 * len(columns))):
    column = columns[:, c].astype(np.float64)
    lost, deviation = np.std(column - column.astype(dtype)), np.std(column)
    if lost > LOST * deviation > 0:
      where = f'{field}[..., {c}]' if x.ndim > 1 else field
      raise ConfigError(
        f'{where} varies by {deviation:.3g} around {column.mean():.12g}, which {np.dtype(dtype)} rounds away; {remedy}'
      )
