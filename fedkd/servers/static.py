"""Static entries of a server's state: they belong to the tree's structure, and no program or checkpoint sees them."""

import dataclasses
from collections.abc import Hashable
from typing import Any

import jax

from fedkd.models.identity import identity


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
  """A value that `Server.init` computes, and that later is too expensive, or in a method's `variables` impossible, to
  compute again."""

  value: Hashable


class Network:
  """A module that is equal to others by the value of its fields."""

  def __init__(self, module: Any):
    self.module, self.identity = module, identity(module)

  def __eq__(self, other):
    return isinstance(other, Network) and self.identity == other.identity

  def __hash__(self):
    return hash(self.identity)
