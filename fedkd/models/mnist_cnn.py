"""The small CNN of PyTorch's MNIST example, as FedProto trains it (Tan et al., 2022): 21 840 weights, ten classes."""

import jax

from fedkd.checks.ranges import Positive, Share
from fedkd.models.base import Classifier
from fedkd.models.layers import Dropout, flatten, max_pool
from fedkd.models.torch_layers import TorchDense, torch_conv


class MnistCNN(Classifier):
  """Two 5x5 convolutions with max pooling, dropout of whole maps after the second; dense `width`, dropout, `classes`.

  Features are the `width` numbers before the dropout. FedProto's clients of different architectures have 18, 20 or 22
  channels in the second convolution.
  """

  channels: tuple[int, int] = (10, 20)
  width: Positive = 50
  dropout: Share = 0.5
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    conv = lambda filters: torch_conv(filters, (5, 5), padding='VALID', lowering=self.lowering)
    self.convs = [conv(filters) for filters in self.channels]
    self.drop_maps, self.drop = Dropout(self.dropout, maps=True), Dropout(self.dropout)
    self.hidden, self.output = TorchDense(self.width), TorchDense(self.classes)

  def features(self, x, train):
    first, second = self.convs
    x = jax.nn.relu(max_pool(first(x)))
    x = jax.nn.relu(max_pool(self.drop_maps(second(x), train)))
    return jax.nn.relu(self.hidden(flatten(x)))

  def __call__(self, x, train):
    f = self.features(x, train)
    return self.head(self.drop(f, train)), {'features': f}
