"""Aggregation rules: how a server reduces the clients' uploads to one tree.

A rule is `rule(rows, weight) -> tree`: `rows` has leaves [m, ...], one row per upload, `weight` is float[m] >= 0, and
the result has leaves [...]. A row of weight 0 is not an upload (an empty slot, a class that the client has not seen)
and must not affect the result, even if it is NaN. With all weights 0 the result is unused. A stateful rule is a `Rule`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedkd.aggregate.rule import AnyRule as AnyRule
from fedkd.aggregate.rule import Rule
from fedkd.aggregate.rule import as_rule as as_rule
from fedkd.aggregate.rule import mapped as mapped
from fedkd.checks import numeric
from fedkd.checks.ranges import Positive, Scale, Share, checked
from fedkd.rows import aligned
from fedkd.types import PyTree

__all__ = ['mean', 'median', 'trimmed_mean']  # what a config may name


def _wide(dtype):
  return jnp.promote_types(dtype, jnp.float32) if jnp.issubdtype(dtype, jnp.floating) else dtype


def total(term: Callable[..., PyTree], *rows: PyTree) -> PyTree:
  """The sum of `term(*row)` over the rows, added one after the other.

  `jnp.sum` adds in an order that depends on the number of rows, so that an empty slot, or another grouping of
  the same clients, would change the last bits. Numbers of 16 bits are added up in 32: of many rows each would be less
  than the last bit of their sum.
  """
  one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), rows)
  zero = jax.tree.map(lambda a: jnp.zeros(a.shape, _wide(a.dtype)), jax.eval_shape(term, *one))
  return jax.lax.scan(lambda sums, row: (jax.tree.map(jnp.add, sums, term(*row)), None), zero, rows)[0]


def _shares(weight) -> jax.Array:
  """Weights, or counts, by their sum; all 0 where they are."""
  weight = jnp.asarray(weight)
  weight = weight if jnp.issubdtype(weight.dtype, jnp.floating) else weight.astype(jnp.float32)
  return weight / jnp.maximum(total(lambda w: w, weight), jnp.finfo(weight.dtype).tiny)


def mean(rows: PyTree, weight: jax.Array) -> PyTree:
  """Weighted mean (McMahan et al., 2017, Algorithm 1, with the weight n_k)."""
  share = _shares(weight)
  return total(lambda row, s: jax.tree.map(lambda a: jnp.where(s > 0, a, 0) * s, row), rows, share)


def _sorted(rows, weight):
  """Each number's values in ascending order, those of absent rows (+inf) last; and how many are present."""
  order = jax.tree.map(lambda a: jnp.sort(jnp.where(aligned(weight > 0, a), a, jnp.inf), axis=0), rows)
  return order, jnp.sum(weight > 0)


def median(rows: PyTree, weight: jax.Array) -> PyTree:
  """Coordinate-wise median of the present rows, each counted once (Yin et al., 2018)."""
  order, count = _sorted(rows, weight)
  low, high = jnp.maximum(count - 1, 0) // 2, count // 2
  return jax.tree.map(lambda a: (a[low] + a[high]) / 2, order)


@checked
def trimmed_mean(rows: PyTree, weight: jax.Array, share: Share = 0.1) -> PyTree:
  """Coordinate-wise mean without the floor(share * m) smallest and largest of the m present rows (Yin et al., 2018)."""
  order, count = _sorted(rows, weight)
  cut = jnp.minimum(numeric.share_of(share, count).astype(jnp.int32), (count - 1) // 2)

  def reduce(a):
    place = jnp.arange(a.shape[0])
    kept = (place >= cut) & (place < count - cut)
    return total(lambda row, k: jnp.where(k, row, 0), a, kept) / jnp.maximum(count - 2 * cut, 1)

  return jax.tree.map(reduce, order)


@checked
def centred_clipping(radius: Scale, iterations: Positive = 1) -> Rule:
  """Weighted mean of clipped distances from the last result (Karimireddy, He, Jaggi, "Learning from History for
  Byzantine Robust Optimization", 2021, Eq. 1): v <- v + sum_i p_i (x_i - v) min(1, radius / |x_i - v|).

  The first centre v is the initial weights, or zeros where knowledge is reduced; all leaves of a row together are one
  vector.

  Args:
    radius: the longest distance that counts in full, in the units of the rows.
    iterations: clipped means per call, each from the one before.

  Raises:
    ValueError: for a radius that is not positive, or less than one iteration.
  """

  def update(rows, weight, centre):
    share = _shares(weight)

    def closer(_, centre):
      def clipped(row, s):
        away = jax.tree.map(lambda a, c: jnp.where(s > 0, a - c, 0), row, centre)
        return optax.tree.scale(s * radius / jnp.maximum(optax.tree.norm(away), radius), away)

      return jax.tree.map(jnp.add, centre, total(clipped, rows, share))

    centre = jax.lax.fori_loop(0, iterations, closer, jax.tree.map(lambda c: c.astype(_wide(c.dtype)), centre))
    return centre, centre

  return Rule(lambda like: like, update)
