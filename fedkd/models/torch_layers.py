"""What torchvision's networks share: PyTorch's initialisers, norms, blocks and stages."""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Scale, check
from fedkd.models.layers import BatchNorm, Conv, GroupNorm, check_map_size
from fedkd.models.lowering import materialize

# PyTorch's default initialisers of dense and convolution layers: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for both.
torch_kernel = nn.initializers.variance_scaling(1 / 3, 'fan_in', 'uniform')


def torch_bias(fan_in):
  """The initialiser of a bias next to a kernel with `fan_in` inputs."""
  bound = 1 / math.sqrt(fan_in)
  return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)


torch_conv = functools.partial(Conv, kernel_init=torch_kernel, bias_init=torch_bias)


class TorchDense(nn.Module):
  """A dense layer with PyTorch's default initialisation."""

  units: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.units, kernel_init=torch_kernel, bias_init=torch_bias(x.shape[-1]))(x)


kaiming = nn.initializers.variance_scaling(2.0, 'fan_out', 'normal')
norm = functools.partial(BatchNorm, momentum=0.9, epsilon=1e-5, unbiased=True)  # PyTorch's defaults in Flax's terms
NORMS = {'batch': norm, 'group': GroupNorm}
STEMS = {'imagenet': (7, 2), 'cifar': (3, 1)}  # kernel and stride of the first convolution; a pool follows the former


def scaled(channels, width):
  """`channels` times the width factor, rounded, at least 1.

  Raises:
    ConfigError: for a factor that is not positive.
  """
  check('width', width, Scale)
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
  check_map_size(x.shape[1:3], (3, 3))

  def along(x, axis):
    span = (x.shape[axis] - 3) // 2 * 2 + 1
    cut = lambda start: jax.lax.slice_in_dim(x, start, start + span, 2, axis)
    return jnp.maximum(jnp.maximum(cut(0), cut(1)), cut(2))

  return along(along(materialize(x), 1), 2)


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
