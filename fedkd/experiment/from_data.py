"""Parts of states that follow from the data: no checkpoint holds them, and a run that is continued makes them again."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedkd.simulation import first_server
from fedkd.types import FromData, Method, PyTree


def _is(node) -> bool:
  return isinstance(node, FromData)


def parts_of(tree: PyTree) -> list:
  """The values of all `FromData` of a tree, in its order."""
  return [node.value for node in jax.tree.leaves(tree, is_leaf=_is) if _is(node)]


def without(tree: PyTree) -> PyTree:
  """A tree whose `FromData` are empty."""
  return jax.tree.map(lambda node: FromData(()) if _is(node) else node, tree, is_leaf=_is)


def completed(tree: PyTree, make: Callable[[], list]) -> PyTree:
  """A tree `without` them, with the `parts_of` that `make` returns; it is only called where there are any."""
  given = iter(make() if parts_of(tree) else ())
  return jax.tree.map(lambda node: FromData(next(given)) if _is(node) else node, tree, is_leaf=_is)


def maker(method: Method, groups, before: PyTree) -> Callable:
  """Inputs -> the `parts_of` a server's state before the first round; all else in it, XLA leaves out.

  Args:
    before: variables to start from, or their shapes, leaves [seeds, 1 or n, ...].
  """

  def from_data(inputs):
    variables = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), before)
    return parts_of(first_server(inputs.key, method, inputs.federation(groups), variables))

  return from_data
