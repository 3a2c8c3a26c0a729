"""Typed random keys (`jax.random.key`) as plain arrays: what NumPy, Orbax, files and other hosts can hold."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedkd.types import PyTree


class KeyData(NamedTuple):
  """Where a tree has a typed key of shape [...]."""

  bits: dict  # {the generator, such as 'threefry2x32': uint32[..., words]}; its name is part of the tree's structure


def _is(node) -> bool:
  return isinstance(node, KeyData)


def unwrapped(tree: PyTree) -> PyTree:
  """A tree of arrays, its typed keys as `KeyData`; a tree without keys stays as it is."""

  def one(leaf):
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return leaf
    return KeyData({jax.random.key_impl(leaf): jax.random.key_data(leaf)})

  return jax.tree.map(one, tree)


def wrapped(tree: PyTree) -> PyTree:
  """Inverse of `unwrapped`."""

  def one(node):
    if not _is(node):
      return node
    ((generator, bits),) = node.bits.items()
    return jax.random.wrap_key_data(jnp.asarray(bits), impl=generator)

  return jax.tree.map(one, tree, is_leaf=_is)


def generators(tree: PyTree) -> list:
  """The generators of all `KeyData` of a tree, in its order."""
  return [str(generator) for node in jax.tree.leaves(tree, is_leaf=_is) if _is(node) for generator in node.bits]
