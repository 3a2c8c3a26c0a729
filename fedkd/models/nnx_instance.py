"""An NNX module that somebody has made, with its weights, as a function that makes it again."""

import copy
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from fedkd.errors import ConfigError
from fedkd.models.identity import checksum, identity
from fedkd.models.nnx_state import CARRIED, MODES


class Instance:
  """A copy of a module; `instance()` is a module like it, with its weights.

  Two are equal if their modules are, whatever their weights: of one class, with equal attributes and variables of equal
  shapes.
  """

  def __init__(self, module: nnx.Module, field: str):
    self.kind = type(module)
    self.structure = tuple((path, _compared(node)) for path, node in nnx.iter_graph(module) if _counts(path))
    self._graph, state = nnx.split(module)
    leaves = jax.tree.leaves(state)
    if not all(isinstance(leaf, jax.Array | np.ndarray | int | float) for leaf in leaves):
      raise ConfigError(f'{field} is a {self.kind.__name__} of shapes without weights; give its class')
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
      raise ConfigError(f'{field} is a {self.kind.__name__} made inside a transformation of JAX; make it outside')
    self._state = jax.tree.map(_copy, state)
    self.checksum = tuple(checksum(leaf) for leaf in jax.tree.leaves(nnx.state(module, CARRIED)))
    self.of_clients: tuple[Instance, ...] = (self,)  # those of the clients of a group, in their order

  def __call__(self) -> nnx.Module:
    return nnx.merge(self._graph, jax.tree.map(lambda leaf: leaf, self._state))

  def among(self, instances: 'Sequence[Instance]') -> 'Instance':
    """This one, as that of a group whose clients have `instances`."""
    one = copy.copy(self)
    one.of_clients = tuple(instances)
    return one

  def __eq__(self, other):
    return isinstance(other, Instance) and self.structure == other.structure

  def __hash__(self):
    return hash(self.structure)

  def __repr__(self):
    return f'an instance of {self.kind.__name__}'


def _counts(path) -> bool:
  return not any(str(name).startswith('_pytree__') for name in path) and not (path and path[-1] in MODES)


def _compared(node) -> Any:
  if isinstance(node, nnx.Variable):
    leaves = jax.tree.leaves(node.get_value())
    return (type(node), *((jnp.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves))
  return type(node) if isinstance(node, nnx.Pytree | tuple | list | dict) else identity(node)


def _copy(leaf):
  is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
  return leaf if is_key else np.array(leaf)
