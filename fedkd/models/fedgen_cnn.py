"""The small CNN of FedGen's code for digits and letters (Zhu et al., 2021): 26 434 weights and 44 statistics for ten
classes."""

import jax

from fedkd.checks.ranges import Positive
from fedkd.models.base import Classifier
from fedkd.models.layers import flatten
from fedkd.models.torch_layers import TorchDense, norm, torch_conv


class FedGenCNN(Classifier):
  """Two 3x3 convolutions of stride 2, each with BatchNorm and ReLU; dense `width`, dense `classes`.

  Features are the `width` numbers between the two, which have no activation, so that the generator may make any.
  """

  channels: tuple[int, int] = (6, 16)
  width: Positive = 32
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    shape = {'kernel': (3, 3), 'strides': (2, 2), 'padding': ((1, 1), (1, 1))}
    conv = lambda filters: torch_conv(filters, **shape, lowering=self.lowering, bias_gradient=False)
    self.convs, self.norms = [conv(filters) for filters in self.channels], [norm() for _ in self.channels]
    self.hidden, self.output = TorchDense(self.width), TorchDense(self.classes)

  def features(self, x, train):
    for conv, normalised in zip(self.convs, self.norms, strict=True):
      x = jax.nn.relu(normalised(conv(x), train))
    return self.hidden(flatten(x))
