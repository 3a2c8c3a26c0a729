"""A small transformer encoder (Vaswani et al., Attention is all you need, 2017) on tokens or on signals.

LayerNorm comes before attention and feed-forward layers (Xiong et al., On layer normalization in the transformer
architecture, 2020), positions are learned, and the last vectors are averaged over time.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Count, Positive, Share
from fedkd.models.base import Classifier
from fedkd.models.embedding import Embedding, as_sequence, is_tokens, mean_of_known
from fedkd.models.layers import Dropout


class _Block(nn.Module):
  """Self-attention and a feed-forward layer four times as wide, each on a LayerNorm and added to its input."""

  width: int
  heads: int
  dropout: float

  @nn.compact
  def __call__(self, x, known, train):
    normal = nn.LayerNorm()(x)
    mask = known[:, None, None, :, 0] > 0  # of what is looked at, [B, heads, T, T]
    mixed = nn.MultiHeadDotProductAttention(self.heads)(normal, mask=mask)
    x = x + Dropout(self.dropout)(mixed, train)
    inner = jax.nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
    return x + Dropout(self.dropout)(nn.Dense(self.width)(inner), train)


class _Positions(nn.Module):
  """Adds a learned vector to each place."""

  @nn.compact
  def __call__(self, x):
    return x + self.param('position', nn.initializers.normal(0.02), x.shape[1:])


class Transformer(Classifier):
  """`depth` blocks on vectors of `width` numbers with `heads` heads, LayerNorm, the mean over time, dense `classes`.

  Examples are tokens int[B, T], or numbers [B, T] or [B, T, c], which a dense layer takes to `width`.

  vocabulary, padding: of tokens, as in `embedding.Embedding`.
  """

  width: Positive = 32
  depth: Positive = 2
  heads: Positive = 4
  dropout: Share = 0.0
  vocabulary: Count = 0
  padding: int | None = None
  classes: int = 10
  lowering: str = 'auto'  # nothing to lower; every model has the field

  def __post_init__(self):
    super().__post_init__()
    if self.width % self.heads:
      raise ValueError(f'width={self.width} must be a multiple of heads={self.heads}')

  def setup(self):
    self.embedding = Embedding(self.vocabulary, self.width, self.padding)
    self.entry, self.positions = nn.Dense(self.width), _Positions()
    self.blocks = [_Block(self.width, self.heads, self.dropout) for _ in range(self.depth)]
    self.normal, self.output = nn.LayerNorm(), nn.Dense(self.classes)

  def _vectors(self, x):
    """[B, T, width], and which of them are known, [B, T, 1]."""
    if is_tokens(x):
      return self.embedding(x)
    x = as_sequence(x)
    return self.entry(x), jnp.ones_like(x[..., :1])

  def features(self, x, train):
    x, known = self._vectors(x)
    x = self.positions(x)
    for block in self.blocks:
      x = block(x, known, train)
    return mean_of_known(self.normal(x), known)
