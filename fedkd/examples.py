"""Who owns which examples: views of a client's `Data`."""

from typing import Literal

import jax
import jax.numpy as jnp

from fedkd.types import Data, ExampleIndices, Pool


def unshared(data: Data) -> ExampleIndices:
  """The examples that a client does not share: all of its own where nobody shares."""
  return data.private if data.shared is None else data.private._replace(size=data.private.size - data.shared.size)


# What a method's argument `rows` may name.
Own = Literal['own', 'unshared']
OWN = {'own': lambda data: data.private, 'unshared': unshared}


def owned(rows: ExampleIndices) -> jax.Array:
  """bool[n], which entries of `rows` are not padding."""
  return jnp.arange(rows.index.shape[0]) < rows.size


def class_counts(rows: ExampleIndices, pool: Pool, classes: int) -> jax.Array:
  """int32[classes], how many examples there are of each class."""
  return jnp.zeros(classes, jnp.int32).at[pool.label[rows.index]].add(owned(rows))


def public(data: Data) -> ExampleIndices:
  """The public examples.

  Raises:
    ValueError: if there are none.
  """
  if data.public is None:
    raise ValueError(
      'there are no public rows; give fedkd.federation public=... or shared=..., in a config data.public or '
      'data.public_share above 0'
    )
  return data.public


def union(a: ExampleIndices, b: ExampleIndices) -> ExampleIndices:
  """The rows of `a` and then those of `b`, with the id of `a`."""
  place = jnp.arange(a.index.shape[0] + b.index.shape[0])
  both = jnp.concatenate([a.index, b.index])
  # Where a has padding, b moves up.
  return ExampleIndices(
    both[jnp.where(place < a.size, place, place - a.size + a.index.shape[0])], a.size + b.size, a.id
  )


def known(data: Data) -> ExampleIndices:
  """All examples that a client has access to: those it does not share, and the public ones."""
  return union(unshared(data), public(data))
