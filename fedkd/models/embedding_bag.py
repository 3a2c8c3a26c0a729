"""A bag of words (Joulin et al., Bag of tricks for efficient text classification, 2017), the smallest net for text."""

import flax.linen as nn
import jax

from fedkd.checks.ranges import Count, Positive
from fedkd.models.base import Classifier
from fedkd.models.embedding import Embedding, mean_of_known


class EmbeddingBag(Classifier):
  """The mean of the tokens' vectors of `width` numbers, dense layers of the widths `hidden` with ReLU, dense `classes`.

  vocabulary, padding: as in `embedding.Embedding`.
  """

  width: Positive = 32
  hidden: tuple[Positive, ...] = ()
  vocabulary: Count = 0
  padding: int | None = None
  classes: int = 10
  lowering: str = 'auto'  # nothing to lower; every model has the field

  def setup(self):
    self.embedding = Embedding(self.vocabulary, self.width, self.padding)
    self.layers = [nn.Dense(units) for units in self.hidden]
    self.output = nn.Dense(self.classes)

  def features(self, x, train):
    del train
    x = mean_of_known(*self.embedding(x))
    for layer in self.layers:
      x = jax.nn.relu(layer(x))
    return x
