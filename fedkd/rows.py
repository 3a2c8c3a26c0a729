"""Rows of stacked trees, whose leaves begin with one axis [n]: of a group's clients, or of all clients on a server; and
masks of them."""

import jax
import jax.numpy as jnp


def aligned(mask, like):
  """`mask` [*v], numbers or bools of the leading axes of `like` [*v, ...], with axes of length 1 for the others."""
  return mask.reshape(*mask.shape, *[1] * (like.ndim - mask.ndim))


def where_valid(value: jax.Array, valid: jax.Array) -> jax.Array:
  """The entries [*v, ...] that are valid, bool[*v], and 0 for others: what is there may be NaN, and 0 times NaN is."""
  return jnp.where(aligned(valid, value), value, 0)


def fetch(tree, row):
  """One row of every leaf, by a number that is in range: a slice, which takes less tracing than indexing."""
  one = lambda a: jax.lax.dynamic_index_in_dim(a, row, keepdims=False, allow_negative_indices=False)
  return jax.tree.map(one, tree)


def store(tree, row, new):
  """The tree with one row of every leaf replaced, as in `fetch`."""
  put = lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, row, 0, allow_negative_indices=False)
  return jax.tree.map(put, tree, new)


def fetch_rows(tree, rows):
  """The rows int32[m] of every leaf, which are in range."""
  return jax.tree.map(lambda a: a.at[rows].get(wrap_negative_indices=False), tree)


def store_rows(tree, rows, new):
  """The tree with the rows int32[m] of every leaf replaced by `new`, leaves [m, ...]; a row of -1 is dropped."""
  # Out of bounds, where it is dropped: row 0 may have a slot of its own.
  put = lambda a, b: a.at[jnp.where(rows >= 0, rows, len(a))].set(b, mode='drop', wrap_negative_indices=False)
  return jax.tree.map(put, tree, new)
