"""LeNet-5 as FedH2L uses it on Rotated MNIST (Li et al., 2021): 61 706 weights for ten classes.

The variant (ReLU, max pooling, 28 pixels zero-padded to 32) and PyTorch's default initialiser are our completion;
the paper names only LeNet. HeFlwr's LeNet has eight filters in the first convolution, and sub-networks.
"""

import math

import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Positive, Ratio
from fedkd.models.base import Classifier
from fedkd.models.identity import added
from fedkd.models.layers import check_images, flatten, max_pool
from fedkd.models.torch_layers import TorchDense, torch_conv

HIDDEN = (120, 84)


class LeNet(Classifier):
  """Two 5x5 convolutions (6, 16) with max pooling, dense 120, 84, `classes`; features are the 84-vector.

  filters: of the convolutions.
  rate: in (0, 1], the part of the network that this one is: the first ceil(rate * n) of every n channels and units, as
    in `PreActResNet`. Behind the flattening these are the first of every block of channels (`servers.corners`).
  """

  filters: tuple[Positive, Positive] = added((6, 16))
  rate: Ratio = added(1.0)
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    part = lambda n: math.ceil(self.rate * n)
    conv = lambda filters: torch_conv(part(filters), (5, 5), padding='VALID', lowering=self.lowering)
    self.convs = [conv(filters) for filters in self.filters]
    self.hidden = [TorchDense(part(units)) for units in HIDDEN]
    self.output = TorchDense(self.classes)

  def features(self, x, train):
    del train
    check_images(x)
    small = max(0, 32 - x.shape[1])
    sides = (small // 2, small - small // 2)
    x = jnp.pad(x, ((0, 0), sides, sides, (0, 0)))
    for conv in self.convs:
      x = jax.nn.relu(max_pool(conv(x)))  # as the other way round, on a quarter of the numbers
    x = flatten(x)
    for layer in self.hidden:
      x = jax.nn.relu(layer(x))
    return x
