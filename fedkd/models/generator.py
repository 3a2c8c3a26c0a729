"""Generators, as in their authors' codes: FedGen's of features (Zhu, Hong, Zhou, 2021), DENSE's of images (Zhang et
al., 2022)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.models.layers import Conv
from fedkd.models.torch_layers import TorchDense, norm

NOISE = 32  # numbers of the noise


class FeatureGenerator(nn.Module):
  """Features [B, width] from noise [B, 32] and labels int[B]: dense, BatchNorm, ReLU, dense.

  19 744 weights and 512 statistics for ten classes and width 32. PyTorch's default initialisers.
  """

  width: int
  classes: int
  hidden: int = 256

  @nn.compact
  def __call__(self, noise, label, train):
    x = jnp.concatenate([noise, jax.nn.one_hot(label, self.classes)], -1)
    x = jax.nn.relu(norm()(TorchDense(self.hidden)(x), train))
    return TorchDense(self.width)(x)


class ImageGenerator(nn.Module):
  """Images [B, *shape] between 0 and 1 from noise [B, d]: dense, and twice nearest upsampling and a 3x3 convolution.

  With BatchNorm before and after each, by the statistics of the batch alone, and a last convolution. 1 834 305 weights
  for noise of 256 numbers, images of 28x28x1 and width 64. The authors start again and again from small normal numbers.

  shape: (height, width, channels) of an image.
  width: channels of the last but one convolution; the first has twice as many.
  """

  shape: tuple[int, ...]
  width: int = 64

  @nn.compact
  def __call__(self, noise):
    small = nn.initializers.normal(0.02)
    height, width, channels = self.shape
    low = -(-height // 4), -(-width // 4)
    conv = lambda filters, use_bias=False: Conv(filters, (3, 3), use_bias=use_bias, kernel_init=small)
    larger = lambda x: x.repeat(2, axis=1).repeat(2, axis=2)
    x = nn.Dense(low[0] * low[1] * 2 * self.width, kernel_init=small)(noise)
    x = self.normalised(x.reshape(-1, *low, 2 * self.width), 0)
    for i, filters in enumerate((2 * self.width, self.width)):
      x = jax.nn.leaky_relu(self.normalised(conv(filters)(larger(x)), i + 1), 0.2)
    return jax.nn.sigmoid(conv(channels, use_bias=True)(x))[:, :height, :width]

  def normalised(self, x, i):
    """BatchNorm by the statistics of this batch."""
    scale = self.param(f'scale_{i}', lambda key, shape: 1 + 0.02 * jax.random.normal(key, shape), x.shape[-1:])
    bias = self.param(f'bias_{i}', nn.initializers.zeros, x.shape[-1:])
    return jax.nn.standardize(x, (0, 1, 2), epsilon=1e-5) * scale + bias
