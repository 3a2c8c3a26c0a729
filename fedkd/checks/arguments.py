"""Arguments of the door: examples, and who owns which rows of them.

Every function raises ValueError, in one sentence that names argument, value and remedy.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def arrays(x: Any, y: Any) -> tuple[Any, np.ndarray]:
  """(x, y) as numbers [N, ...] of a dtype that JAX has, and labels int[N] from 0."""
  x, y = (a if isinstance(a, np.ndarray | jax.Array) else np.asarray(a) for a in (x, y))
  if x.ndim < 1 or not x.size:
    raise ValueError(f'x has shape {list(x.shape)}; give examples [N, ...], at least one')
  if not (np.issubdtype(x.dtype, np.number) or x.dtype == bool or jnp.issubdtype(x.dtype, jnp.floating)):
    raise ValueError(f'x is {x.dtype}{list(x.shape)}; give numbers, for text integer tokens')
  if y.shape != x.shape[:1] or not np.issubdtype(y.dtype, np.integer):
    raise ValueError(f'y is {y.dtype}{list(y.shape)} for {len(x)} examples; give integers [{len(x)}], one per example')
  if int(y.min()) < 0:
    raise ValueError(f'y has the label {int(y.min())}; number the classes from 0')
  return x.astype(jax.dtypes.canonicalize_dtype(x.dtype)), np.asarray(y)


def owned(parts: Any, count: int) -> list[np.ndarray]:
  """Row numbers per client, from either form of `parts`: lists of them, or int[count] with the owner of each row."""
  if isinstance(parts, np.ndarray | jax.Array) and parts.ndim == 1 and np.issubdtype(parts.dtype, np.integer):
    owner = one_each('parts', parts, count)
    parts = [np.flatnonzero(owner == k) for k in range(int(owner.max(initial=-1)) + 1)]
  parts = [row_numbers(f'parts[{k}]', part, count) for k, part in enumerate(parts)]
  if not parts:
    raise ValueError('parts names no client; give a list of row numbers for each')
  if empty := [k for k, part in enumerate(parts) if not len(part)]:
    raise ValueError(f'parts[{empty[0]}] is empty, so client {empty[0]} has nothing to train on; leave it out')
  return parts


def one_each(field: str, values: Any, count: int) -> np.ndarray:
  """int32[count], one per example."""
  values = np.asarray(values)
  if values.shape != (count,) or not np.issubdtype(values.dtype, np.integer):
    raise ValueError(f'{field} is {values.dtype}{list(values.shape)}; give integers [{count}], one per example')
  return values.astype(np.int32)


def row_numbers(field: str, rows: Any, count: int) -> np.ndarray:
  """int64[n], which are in range and do not repeat."""
  rows = np.asarray(rows)
  if not rows.size:
    return np.zeros(0, np.int64)
  if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
    raise ValueError(f'{field} is {rows.dtype}{list(rows.shape)}; give row numbers, integers [n]')
  if rows.min() < 0 or rows.max() >= count:
    wrong = int(rows.min() if rows.min() < 0 else rows.max())
    raise ValueError(f'{field} names row {wrong} of {count}; row numbers are 0 to {count - 1}')
  if len(np.unique(rows)) < len(rows):
    values, times = np.unique(rows, return_counts=True)
    raise ValueError(f'{field} names row {values[times.argmax()]} twice; give every row once')
  return rows.astype(np.int64)


def check_disjoint(parts: Sequence[np.ndarray], public: np.ndarray | None, validation: np.ndarray | None) -> None:
  """Checks that no row has two owners."""
  named = [(f'parts[{k}]', rows) for k, rows in enumerate(parts)]
  named += [(field, rows) for field, rows in (('public', public), ('validation', validation)) if rows is not None]
  owner, most = {}, max(int(rows.max(initial=-1)) for _, rows in named) + 1
  holder = np.full(most, -1)
  for i, (field, rows) in enumerate(named):
    owner[i] = field
    taken = rows[holder[rows] >= 0]
    if len(taken):
      raise ValueError(
        f'{field} and {owner[int(holder[taken[0]])]} both have row {int(taken[0])}; give it to one of them'
      )
    holder[rows] = i


def check_shared(parts: Sequence[np.ndarray], shared: Sequence[np.ndarray | None], public: np.ndarray | None) -> None:
  """Checks that every client shares rows of its own, and that nothing else is public."""
  if public is not None:
    raise ValueError('public and shared are both given; what clients share is the public set, so leave out one')
  if len(shared) != len(parts):
    raise ValueError(f'shared has {len(shared)} entries for {len(parts)} clients; give one each')
  for k, (own, given) in enumerate(zip(parts, shared, strict=True)):
    if given is None or not len(given):
      raise ValueError(f'shared[{k}] is empty; let every client share at least one example, or leave out shared')
    if len(foreign := np.setdiff1d(given, own)):
      raise ValueError(f'shared[{k}] has row {foreign[0]}, which is not in parts[{k}]; share only own rows')
