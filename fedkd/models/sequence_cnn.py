"""Convolutions over time (Kim, Convolutional neural networks for sentence classification, 2014), on signals or tokens.

Ours: one kernel size, layer after layer, where the paper has three sizes side by side.
"""

import flax.linen as nn
import jax

from fedkd.checks.ranges import Count, Positive
from fedkd.models.base import Classifier
from fedkd.models.embedding import Embedding, as_sequence, is_tokens
from fedkd.models.layers import Conv


class SequenceCNN(Classifier):
  """Convolutions of `filters` channels over `kernel` steps with ReLU, from the second on with stride 2; then the
  maximum over time, and dense `classes`.

  Examples are numbers [B, T] or [B, T, c], or tokens int[B, T] as vectors of `width` numbers.

  vocabulary, padding: of tokens, as in `embedding.Embedding`.
  """

  filters: tuple[Positive, ...] = (32, 64)
  kernel: Positive = 5
  width: Positive = 32
  vocabulary: Count = 0
  padding: int | None = None
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    self.embedding = Embedding(self.vocabulary, self.width, self.padding)
    strides = [1 if i == 0 else 2 for i in range(len(self.filters))]
    self.convs = [
      Conv(n, (self.kernel, 1), (stride, 1), lowering=self.lowering, kernel_init=nn.initializers.he_normal())
      for n, stride in zip(self.filters, strides, strict=True)
    ]
    self.output = nn.Dense(self.classes)

  def features(self, x, train):
    del train
    x = self.embedding(x)[0] if is_tokens(x) else as_sequence(x)
    x = x[:, :, None]  # time is the height of an image of width 1
    for conv in self.convs:
      x = jax.nn.relu(conv(x))
    return x.max((1, 2))
