"""What models of sequences share: tokens as vectors, and which of them are padding."""

import flax.linen as nn
import jax.numpy as jnp

from fedkd.checks.ranges import Count


class Embedding(nn.Module):
  """Tokens int[B, T] as vectors [B, T, width], zero where they are `padding`, and [B, T, 1], 0 there and else 1.

  vocabulary: rows of the table, the largest token plus one. Configs fill it in from the data.
  padding: the token that fills up shorter sequences; None: there is none.
  """

  vocabulary: Count
  width: int
  padding: int | None = None

  @nn.compact
  def __call__(self, x):
    if not is_tokens(x):
      raise ValueError(
        f'an embedding is for tokens, int[N, length], and examples are {x.dtype}{list(x.shape[1:])}; choose '
        'MLP for vectors, SequenceCNN or Transformer for sequences of numbers'
      )
    if not self.vocabulary:
      raise ValueError('vocabulary=0 has no token; set it to the largest token of the data plus one')
    known = jnp.ones(x.shape, bool) if self.padding is None else x != self.padding
    # Tokens below 0 would be counted from the end of the table; as those above it, they have no vector, but NaN.
    row = jnp.where(known, jnp.where(x < 0, self.vocabulary, x), 0)
    known = known[..., None].astype(jnp.float32)
    return nn.Embed(self.vocabulary, self.width)(row) * known, known


def is_tokens(x) -> bool:
  """Whether these are tokens, int[B, T]."""
  return x.ndim == 2 and jnp.issubdtype(x.dtype, jnp.integer)


def as_sequence(x):
  """Numbers [B, T, c], of [B, T] as c = 1.

  Raises:
    ValueError: for other shapes.
  """
  if x.ndim not in (2, 3):
    raise ValueError(
      f'the network is for sequences [N, length] or [N, length, c], and examples are {list(x.shape[1:])}; '
      'choose a network for images'
    )
  return x.astype(jnp.float32).reshape(*x.shape[:2], -1)


def mean_of_known(vectors, known):
  """The mean over the time of [B, T, width], of what is no padding; zero where everything is."""
  return (vectors * known).sum(1) / jnp.maximum(known.sum(1), 1)
