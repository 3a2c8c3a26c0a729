"""ResNets in torchvision's layout (He et al., 2016, Table 1; the blocks of ResNet14 and 22 are InCo's).

Layers carry torchvision's names, with `_` before an index, so that `pretrained` finds them. Also here: what the other
torchvision networks share with them.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.errors import refuse_unknown
from fedkd.models.layers import (
  BatchNorm,
  Classifier,
  Conv,
  GroupNorm,
  TorchDense,
  refuse_consumed,
  settle,
  torch_kernel,
)

kaiming = nn.initializers.variance_scaling(2.0, 'fan_out', 'normal')
norm = functools.partial(BatchNorm, momentum=0.9, epsilon=1e-5)  # PyTorch's defaults in Flax's terms
NORMS = {'batch': norm, 'group': GroupNorm}


def scaled(channels, width):
  """`channels` times the width factor, rounded, at least 1.

  Raises:
    ValueError: for a factor that is not positive.
  """
  if width <= 0:
    raise ValueError(f'width={width} must be positive; 1.0 is the published width')
  return max(1, round(channels * width))


def square_conv(filters, kernel=3, stride=1, padding=None, use_bias=False, kernel_init=kaiming, **fields):
  """A `Conv` as PyTorch writes it: one number for both axes, `padding` on all four sides (default: half the kernel)."""
  side = (kernel // 2 if padding is None else padding,) * 2
  return Conv(filters, (kernel,) * 2, (stride,) * 2, (side, side), use_bias=use_bias, kernel_init=kernel_init, **fields)


def max_pool_3x3(x, padding):
  """3x3 maximum, stride 2, `padding` of minus infinity on all sides: three shifts along each axis, no window reduction.

  Where several numbers of a window are equal the gradient is shared among them (PyTorch: the first gets it).

  Raises:
    ValueError: for a map smaller than the window.
  """
  sides = (padding, padding)
  x = jnp.pad(x, ((0, 0), sides, sides, (0, 0)), constant_values=-jnp.inf)
  refuse_consumed(x.shape[1:3], (3, 3))

  def along(x, axis):
    span = (x.shape[axis] - 3) // 2 * 2 + 1
    cut = lambda start: jax.lax.slice_in_dim(x, start, start + span, 2, axis)
    return jnp.maximum(jnp.maximum(cut(0), cut(1)), cut(2))

  return along(along(settle(x), 1), 2)


class Block(nn.Module):
  """Convolutions, each normalised, added to their input, which a 1x1 convolution fits where the shape changes."""

  shapes: tuple[tuple[int, int, int], ...]  # kernel, channels, stride
  lowering: str
  norm: str = 'batch'

  @nn.compact
  def __call__(self, x, train):
    norm = NORMS[self.norm]
    y = x
    for i, (kernel, channels, stride) in enumerate(self.shapes, 1):
      y = square_conv(channels, kernel, stride, lowering=self.lowering, name=f'conv{i}')(y)
      y = norm(name=f'bn{i}')(y, train)
      if i < len(self.shapes):
        y = jax.nn.relu(y)
    stride = max(stride for _, _, stride in self.shapes)
    if stride > 1 or x.shape[-1] != channels:
      x = square_conv(channels, 1, stride, lowering=self.lowering, name='downsample_0')(x)
      x = norm(name='downsample_1')(x, train)
    return jax.nn.relu(x + y)


def stage(channels, count, stride, bottleneck, **fields):
  """`count` blocks, the first with `stride`: two 3x3 convolutions, or 1x1, 3x3, 1x1 with four times the channels."""

  def block(stride):
    basic = ((3, channels, stride), (3, channels, 1))
    wide = ((1, channels, 1), (3, channels, stride), (1, 4 * channels, 1))
    return Block(wide if bottleneck else basic, **fields)

  return [block(1 if i else stride) for i in range(count)]


def run_stages(net, count, x, train):
  """`x` through the blocks of `net.layer1`, `net.layer2`, and so on, `count` stages."""
  for i in range(count):
    for block in getattr(net, f'layer{i + 1}'):
      x = block(x, train)
  return x


class ResNet(Classifier):
  """Stem, stages of 64, 128, 256, 512 channels, global average pool, linear layer; features are the pooled vector.

  blocks: per stage.
  bottleneck: blocks of 1x1, 3x3, 1x1 convolutions with four times the channels, rather than two 3x3.
  width: factor on all channels; 1.0 is the published network.
  stem: 'imagenet' (7x7 of stride 2, max pool) or 'cifar' (3x3 of stride 1, no pool: better on 32 pixels).
  norm: 'batch' or 'group' (`layers.GroupNorm`: no running statistics, so none to average between clients).
  dtype: of convolutions and maps, 'float32' or 'bfloat16'; parameters, statistics, features and head stay float32.
  projection: numbers of the features after one more linear layer without bias, so that nets of different width exchange
    features (Felo's ResNet50 among the others); 0 is no such layer.
  """

  blocks: tuple[int, ...] = (2, 2, 2, 2)
  bottleneck: bool = False
  width: float = 1.0
  stem: str = 'imagenet'
  norm: str = 'batch'
  dtype: str = 'float32'
  projection: int = 0
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    refuse_unknown('stem', self.stem, ('imagenet', 'cifar'))
    refuse_unknown('norm', self.norm, NORMS)
    refuse_unknown('dtype', self.dtype, ('float32', 'bfloat16'))
    kernel, stride = (7, 2) if self.stem == 'imagenet' else (3, 1)
    self.conv1 = square_conv(scaled(64, self.width), kernel, stride, lowering=self.lowering)
    self.bn1 = NORMS[self.norm]()
    for i, count in enumerate(self.blocks):
      channels, stride = scaled(64 * 2**i, self.width), 2 if i else 1
      blocks = stage(channels, count, stride, self.bottleneck, lowering=self.lowering, norm=self.norm)
      setattr(self, f'layer{i + 1}', blocks)
    if self.projection:
      self.project = nn.Dense(self.projection, use_bias=False, kernel_init=torch_kernel)
    self.fc = TorchDense(self.classes)

  def features(self, x, train):
    x = self.bn1(self.conv1(x.astype(self.dtype)), train)
    if self.stem == 'imagenet':
      x = max_pool_3x3(x, 1)  # before ReLU, whose numbers it leaves as they are, for a quarter of them
    x = jax.nn.relu(x)
    f = jnp.mean(run_stages(self, len(self.blocks), x, train), (1, 2), dtype=jnp.float32)
    return self.project(f) if self.projection else f

  def head(self, f):
    return self.fc(f)


class ResNet10(ResNet):
  """4 910 922 weights for ten classes."""

  blocks: tuple[int, ...] = (1, 1, 1, 1)


class ResNet14(ResNet):
  """10 812 234 weights for ten classes."""

  blocks: tuple[int, ...] = (1, 1, 2, 2)


class ResNet18(ResNet):
  """11 181 642 weights for ten classes."""

  blocks: tuple[int, ...] = (2, 2, 2, 2)


class ResNet22(ResNet):
  """17 082 954 weights for ten classes."""

  blocks: tuple[int, ...] = (2, 2, 3, 3)


class ResNet26(ResNet):
  """17 452 362 weights for ten classes."""

  blocks: tuple[int, ...] = (3, 3, 3, 3)


class ResNet34(ResNet):
  """21 289 802 weights for ten classes."""

  blocks: tuple[int, ...] = (3, 4, 6, 3)


class ResNet50(ResNet):
  """23 528 522 weights for ten classes; features of 2048."""

  blocks: tuple[int, ...] = (3, 4, 6, 3)
  bottleneck: bool = True
