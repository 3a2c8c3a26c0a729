"""Static entries of a server's state: they belong to the tree's structure, and no program or checkpoint sees them."""

import dataclasses
from collections.abc import Hashable

import jax


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
  """A value that `Server.init` computes, and that later is too expensive, or in a method's `variables` impossible, to
  compute again."""

  value: Hashable
