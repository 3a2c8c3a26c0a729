"""What holds for every aggregation rule: a row of weight 0 is no upload. A tiny check of somebody's rule, once."""

import warnings
import weakref
from collections.abc import Callable

import jax
import numpy as np

from fedkd.errors import ConfigError
from fedkd.rows import aligned
from fedkd.types import PyTree

ROWS = 4  # uploads in the check, one of them absent
PRESENT = [np.arange(ROWS) != absent for absent in (0, ROWS - 1)]
LARGEST = 2  # entries of an axis of an upload
_looked_at: weakref.WeakSet = weakref.WeakSet()


def look(function: Callable, who: str, init: Callable, update: Callable, like: PyTree) -> None:
  """Warns of a rule whose result changes with a row of weight 0: an empty slot, or a class that a client has not seen.

  Args:
    function: that somebody wrote.
    who: how a sentence about it begins.
    init, update: of the rule as a pair, whose errors are `ConfigError`.
    like: with the shapes of a result, of whose axes the check has `LARGEST` entries.
  """
  if function in _looked_at:
    return
  _looked_at.add(function)
  random = np.random.default_rng(0)
  small = jax.tree.map(lambda leaf: np.zeros([min(n, LARGEST) for n in leaf.shape], leaf.dtype), like)
  rows = jax.tree.map(lambda leaf: random.uniform(-1, 1, (ROWS, *leaf.shape)).astype(leaf.dtype), small)
  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None
  reduced = jax.jit(lambda rows, weight: update(rows, weight, init(small))[0], compiler_options=cheap)
  weight = np.arange(1, ROWS + 1, dtype=np.float32)
  other = jax.tree.map(lambda leaf: np.full_like(leaf, 3), rows)
  try:  # called as it is, also in a trace
    program = reduced.lower(rows, weight).compile()
    matters = [
      _differ(*(program(of, weight * there) for of in (rows, _where(there, rows, other)))) for there in PRESENT
    ]
  except (ConfigError, TypeError):  # a rule for other shapes, or one with traced hyperparameters
    return
  if any(matters):
    warnings.warn(
      f'{who} changes its result with a row of weight 0, which is no upload but an empty slot, or a class that a '
      'client has not seen; leave such rows out, as fedkd.aggregate.mean does',
      stacklevel=2,
    )


def _where(there, rows, other):
  return jax.tree.map(lambda a, b: np.where(aligned(there, a), a, b), rows, other)


def _differ(one, other) -> bool:
  return not all(map(lambda a, b: np.allclose(a, b, equal_nan=True), *map(jax.tree.leaves, (one, other))))
