"""MobileNetV2 as torchvision defines it (Sandler et al., 2018, Table 2), its initialisers too.

FedH2L says only "MobileNet"; the second version is our completion.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Scale, Share
from fedkd.models.base import Classifier
from fedkd.models.layers import Dropout
from fedkd.models.lowering import materialize
from fedkd.models.torch_layers import kaiming, norm, scaled, square_conv

# Expansion, channels, blocks, stride of the first.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class DepthwiseConv(nn.Module):
  """3x3 convolution of each channel by itself, padding 1: nine strided shifts, multiplied and added.

  Stays fast in loops and under vmap, where XLA's grouped convolution does not. Kernel [3, 3, 1, c], as
  `lax.conv_general_dilated` with c groups takes it.
  """

  stride: int = 1

  @nn.compact
  def __call__(self, x):
    kernel = self.param('kernel', kaiming, (3, 3, 1, x.shape[-1]))
    height, width = ((n - 1) // self.stride * self.stride + 1 for n in x.shape[1:3])
    x = materialize(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))
    cut = lambda i, j: x[:, i : i + height : self.stride, j : j + width : self.stride]
    return sum(cut(i, j) * kernel[i, j, 0] for i in range(3) for j in range(3))


class _Inverted(nn.Module):
  """1x1 to `expansion` times the channels, depthwise 3x3, 1x1 to `channels` without ReLU; added to an alike input."""

  expansion: int
  channels: int
  stride: int
  lowering: str

  @nn.compact
  def __call__(self, x, train):
    y, at = x, 0  # the index in torchvision's Sequential, which has no first convolution without expansion
    if self.expansion > 1:
      conv = square_conv(x.shape[-1] * self.expansion, 1, lowering=self.lowering, name='conv_0_0')
      y, at = jax.nn.relu6(norm(name='conv_0_1')(conv(y), train)), 1
    y = DepthwiseConv(self.stride, name=f'conv_{at}_0')(y)
    y = jax.nn.relu6(norm(name=f'conv_{at}_1')(y, train))
    y = square_conv(self.channels, 1, lowering=self.lowering, name=f'conv_{at + 1}')(y)
    y = norm(name=f'conv_{at + 2}')(y, train)
    return x + y if self.stride == 1 and x.shape[-1] == self.channels else y


class MobileNetV2(Classifier):
  """2 232 839 weights for seven classes; features are the pooled vector, 1280.

  width: factor on all channels; 1.0 is the published network. Channels are not rounded to multiples of eight and the
    last 1280 shrink too, unlike torchvision's `width_mult`.
  dropout: of the pooled vector, in training; the features of a training step are the dropped ones.
  """

  width: Scale = 1.0
  dropout: Share = 0.2
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    self.features_0_0 = square_conv(scaled(32, self.width), 3, 2, lowering=self.lowering)
    self.features_0_1 = norm()
    blocks = [
      _Inverted(expansion, scaled(channels, self.width), stride if i == 0 else 1, self.lowering)
      for expansion, channels, count, stride in STAGES
      for i in range(count)
    ]
    for i, block in enumerate(blocks, 1):
      setattr(self, f'features_{i}', block)
    self.last = len(blocks) + 1
    setattr(self, f'features_{self.last}_0', square_conv(scaled(1280, self.width), 1, lowering=self.lowering))
    setattr(self, f'features_{self.last}_1', norm())
    self.classifier_1 = nn.Dense(self.classes, kernel_init=nn.initializers.normal(0.01))
    self.drop = Dropout(self.dropout)

  def _plain(self, x, at, train):
    """The first or last convolution, BatchNorm and ReLU6, which are in no block."""
    conv, normalise = (getattr(self, f'features_{at}_{i}') for i in (0, 1))
    return jax.nn.relu6(normalise(conv(x), train))

  def features(self, x, train):
    x = self._plain(x, 0, train)
    for i in range(1, self.last):
      x = getattr(self, f'features_{i}')(x, train)
    x = self._plain(x, self.last, train)
    return self.drop(jnp.mean(x, (1, 2)), train)

  def head(self, f):
    return self.classifier_1(f)
