"""The CNNs of FedMD and FedHe (Li and Wang, 2019, Tables 1 and 2; Chan and Ngai, 2021, Table II).

Details (kernels, strides, pools, bias-free head, BatchNorm decay 0.99 and epsilon 1e-3) follow FedMD's published
code; profiles shorter than `paper` have a decay of 0.9. Initialiser: LeCun normal (FedHe) or Glorot uniform (FedMD).
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Share, Weight, check
from fedkd.models.base import Classifier
from fedkd.models.layers import BatchNorm, Conv, Dropout, average_pool, average_pool_same, flatten

Initialiser = Literal['lecun_normal', 'glorot_uniform']
INITIALISERS = {'lecun_normal': nn.initializers.lecun_normal, 'glorot_uniform': nn.initializers.glorot_uniform}


class _Block(nn.Module):
  """Convolution, BatchNorm, ReLU, dropout."""

  conv: Conv
  dropout: float
  momentum: float

  @nn.compact
  def __call__(self, x, train):
    x = BatchNorm(momentum=self.momentum, epsilon=1e-3)(self.conv(x), train)
    return Dropout(self.dropout)(jax.nn.relu(x), train)


class _FedMDNet(Classifier):
  filters: tuple[int, ...]
  dropout: Share = 0.2
  classes: int = 10
  lowering: str = 'auto'
  initialiser: Initialiser = 'lecun_normal'
  penalty: Weight = 0.0  # of the squared weights of the head, which FedMD's code adds to every loss
  momentum: Share = 0.99  # of BatchNorm's running statistics (Keras's); 0.99 needs 300 steps to forget its start

  def __post_init__(self):
    super().__post_init__()
    check('initialiser', self.initialiser, Initialiser)
    given, count = self.filters, len(self.shapes)
    whole = isinstance(given, tuple | list) and all(isinstance(n, int) and n > 0 for n in given)
    if not whole or len(given) != count:
      raise ValueError(f'filters={given!r} must be {count} whole numbers above 0, one for each convolution')

  def setup(self):
    kernel_init = INITIALISERS[self.initialiser]()

    def block(filters, kernel, strides, padding):
      conv = Conv(
        filters, kernel, strides, padding, lowering=self.lowering, kernel_init=kernel_init, bias_gradient=False
      )
      return _Block(conv, self.dropout, self.momentum)

    self.blocks = [block(n, *shape) for n, shape in zip(self.filters, self.shapes, strict=True)]
    self.dense = nn.Dense(self.classes, use_bias=False, kernel_init=kernel_init)

  def head(self, f):
    return self.dense(f)

  def __call__(self, x, train):
    logits, out = super().__call__(x, train)
    if self.penalty:
      out['penalty'] = self.penalty * jnp.sum(jnp.square(self.dense.variables['params']['kernel']))
    return logits, out


class TwoConv(_FedMDNet):
  """Models 0-4: conv 3x3, mean pool of stride 1, conv 3x3 of stride 2. `filters` (n1, n2)."""

  shapes = (((3, 3), (1, 1), 'SAME'), ((3, 3), (2, 2), 'VALID'))

  def features(self, x, train):
    x = average_pool_same(self.blocks[0](x, train))
    return flatten(self.blocks[1](x, train))


class ThreeConv(_FedMDNet):
  """Models 5-9: conv 3x3, mean pool of stride 1, conv 2x2 of stride 2, mean pool 2, conv 3x3 of stride 2."""

  shapes = (((3, 3), (1, 1), 'SAME'), ((2, 2), (2, 2), 'VALID'), ((3, 3), (2, 2), 'VALID'))

  def features(self, x, train):
    x = average_pool_same(self.blocks[0](x, train))
    x = average_pool(self.blocks[1](x, train))
    return flatten(self.blocks[2](x, train))


class FourConv(_FedMDNet):
  """Model 9 of FedMD's Table 2, in no released code: a ThreeConv and one more conv 3x3 on its last map (ours)."""

  shapes = (*ThreeConv.shapes, ((3, 3), (1, 1), 'SAME'))

  def features(self, x, train):
    x = average_pool_same(self.blocks[0](x, train))
    x = average_pool(self.blocks[1](x, train))
    return flatten(self.blocks[3](self.blocks[2](x, train), train))
