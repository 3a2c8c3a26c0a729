"""What a server makes of mean probabilities before it sends them: less entropy, or as they are."""

import jax
import jax.numpy as jnp

from fedkd import aggregate
from fedkd.aggregate.rule import PlainRule
from fedkd.errors import check_choice

AGGREGATIONS = ('era', 'mean', 'power')


def era(p: jax.Array, temperature: float = 0.1) -> jax.Array:
  """Entropy reduction aggregation (DS-FL): the softmax of probabilities [..., C] divided by a temperature.

  1 is not the identity: of ten classes a one-hot vector becomes one with the maximum 0.23.
  """
  return jax.nn.softmax(p / temperature)


def power(p: jax.Array, exponent: float = 2.0) -> jax.Array:
  """Enhanced ERA (SCARLET): probabilities [..., C] to a power, normalised; the exponent 1 leaves them as they are."""
  if isinstance(exponent, int | float) and exponent == 1:
    return p
  p = (p / jnp.max(p, -1, keepdims=True)) ** exponent  # the largest stays 1, where all would underflow
  return p / jnp.sum(p, -1, keepdims=True)


def sharpened(aggregation: str, temperature: float = 0.1, exponent: float = 2.0) -> PlainRule:
  """The rule of probabilities: their weighted mean ('mean'), sharpened by `era` or by `power`.

  Raises:
    ValueError: for another name.
  """
  check_choice('aggregation', aggregation, AGGREGATIONS)
  of = {'era': lambda p: era(p, temperature), 'mean': lambda p: p, 'power': lambda p: power(p, exponent)}[aggregation]
  return lambda rows, weight: of(aggregate.mean(rows, weight))
