"""Sharpening of averaged soft labels: entropy reduction, a power, or none."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from fedkd.checks.ranges import checked

Aggregation = Literal['era', 'mean', 'power']


def era(p: jax.Array, temperature: float = 0.1) -> jax.Array:
  """Entropy reduction aggregation (DS-FL): the softmax of probabilities [..., C] divided by a temperature.

  1 is not the identity: of ten classes a one-hot vector becomes one with the maximum 0.23.
  """
  return jax.nn.softmax(p / temperature)


def power(p: jax.Array, exponent: float = 2.0) -> jax.Array:
  """Enhanced ERA (SCARLET): probabilities [..., C] to a power, normalised: the exponent 1 leaves those that add up to 1
  as they are, but for rounding.

  Where all are 0, as their median may be, they stay so, but for the exponent 0.
  """
  tiny = jnp.finfo(p.dtype).tiny
  p = (p / jnp.maximum(jnp.max(p, -1, keepdims=True), tiny)) ** exponent  # the largest stays 1: all would underflow
  return p / jnp.maximum(jnp.sum(p, -1, keepdims=True), tiny)


@checked
def sharpening(
  aggregation: Aggregation, temperature: float = 0.1, exponent: float = 2.0
) -> Callable[[jax.Array], jax.Array]:
  """What probabilities [..., C] become: sharper by `era` or by `power`, or as they are ('mean').

  Raises:
    ValueError: for another name.
  """
  return {'era': lambda p: era(p, temperature), 'mean': lambda p: p, 'power': lambda p: power(p, exponent)}[aggregation]
