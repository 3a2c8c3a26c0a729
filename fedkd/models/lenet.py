"""LeNet-5 as FedH2L uses it on Rotated MNIST (Li et al., 2021): 61 706 weights for ten classes.

The variant (ReLU, max pooling, 28 pixels zero-padded to 32) and PyTorch's default initialiser are our completion;
the paper names only LeNet.
"""

import jax
import jax.numpy as jnp

from fedkd.models.base import Classifier
from fedkd.models.layers import Conv, check_images, flatten, max_pool
from fedkd.models.torch_layers import TorchDense, torch_bias, torch_kernel


class LeNet(Classifier):
  """Two 5x5 convolutions (6, 16) with max pooling, dense 120, 84, `classes`; features are the 84-vector."""

  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    conv = lambda filters: Conv(
      filters, (5, 5), padding='VALID', lowering=self.lowering, kernel_init=torch_kernel, bias_init=torch_bias
    )
    self.convs = [conv(6), conv(16)]
    self.hidden = [TorchDense(120), TorchDense(84)]
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

  def head(self, f):
    return self.output(f)
