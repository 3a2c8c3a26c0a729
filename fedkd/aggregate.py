"""Server aggregation: rules over stacked uploads, and the servers of weights made of them.

A rule is `rule(rows, weight) -> tree`: `rows` has leaves [m, ...], one row per upload, `weight` is
float[m] >= 0, and a row of weight 0 is no upload at all (an empty slot, an absent class) and must not matter.
With all weights 0 the result is unused.
"""

import jax
import jax.numpy as jnp

__all__ = ['mean', 'median', 'trimmed_mean']  # what a config may name


def _broadcast(weight, like):
  return weight.reshape(weight.shape + (1,) * (like.ndim - weight.ndim))


def total(term, *rows):
  """The sum of `term(*row)` over the rows, one after the other.

  `jnp.sum` adds in an order that depends on the number of rows, so that an empty slot, or another grouping of
  the same clients, would change the last bits.
  """
  one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), rows)
  zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(term, *one))
  return jax.lax.scan(lambda sums, row: (jax.tree.map(jnp.add, sums, term(*row)), None), zero, rows)[0]


def mean(rows, weight):
  """Weighted mean (McMahan et al., 2017, Algorithm 1, with the weight n_k)."""
  share = weight / jnp.maximum(total(lambda w: w, weight), jnp.finfo(weight.dtype).tiny)
  return total(lambda row, s: jax.tree.map(lambda a: jnp.where(s > 0, a, 0) * s, row), rows, share)


def _sorted(rows, weight):
  """Each number's values in ascending order, those of absent rows (+inf) last; and how many are present."""
  order = jax.tree.map(lambda a: jnp.sort(jnp.where(_broadcast(weight > 0, a), a, jnp.inf), axis=0), rows)
  return order, jnp.sum(weight > 0)


def median(rows, weight):
  """Coordinate-wise median of the present rows, each counted once (Yin et al., 2018)."""
  order, count = _sorted(rows, weight)
  low, high = jnp.maximum(count - 1, 0) // 2, count // 2
  return jax.tree.map(lambda a: (a[low] + a[high]) / 2, order)


def trimmed_mean(rows, weight, share=0.1):
  """Coordinate-wise mean without the floor(share * m) smallest and largest of the m present rows (Yin et al., 2018)."""
  order, count = _sorted(rows, weight)
  cut = jnp.minimum((share * count).astype(jnp.int32), (count - 1) // 2)

  def reduce(a):
    place = jnp.arange(a.shape[0])
    kept = (place >= cut) & (place < count - cut)
    return total(lambda row, k: jnp.where(k, row, 0), a, kept) / jnp.maximum(count - 2 * cut, 1)

  return jax.tree.map(reduce, order)
