"""Layers that stay fast inside loops and under vmap."""

import math
from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks.ranges import Share, check
from fedkd.models.lowering import conv_matmul, in_blocks, materialize, pad_amounts

Lowering = Literal['auto', 'native', 'matmul']
# The fastest in `launch.bench` (without `--quick`), per backend.
AUTO_LOWERING = {'cpu': 'matmul'}


class Conv(nn.Module):
  """2-D convolution with a selectable lowering, in the dtype of its input; the parameters are float32.

  lowering: 'native' (`lax.conv`), 'matmul' (`conv_matmul`), or 'auto' (what the benchmark found for the backend).
  bias_init: fan-in -> initialiser.
  bias_gradient: False before a BatchNorm, which takes any bias away: the gradient is then zero, not rounding noise
    that Adam blows up to full steps.
  """

  filters: int
  kernel: tuple[int, int]
  strides: tuple[int, int] = (1, 1)
  padding: str | tuple = 'SAME'
  use_bias: bool = True
  lowering: str = 'auto'
  kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()
  bias_init: Callable = lambda fan_in: nn.initializers.zeros_init()
  bias_gradient: bool = True

  @nn.compact
  def __call__(self, x):
    check_images(x)
    check_map_size(x.shape[1:3], self.kernel if self.padding == 'VALID' else (1, 1))
    kernel = self.param('kernel', self.kernel_init, (*self.kernel, x.shape[-1], self.filters)).astype(x.dtype)
    check('lowering', self.lowering, Lowering)
    lowering = self.lowering
    if lowering == 'auto':
      lowering = AUTO_LOWERING.get(jax.default_backend(), 'native')
    if lowering == 'matmul':
      y = conv_matmul(x, kernel, self.strides, self.padding)
    else:
      pads = pad_amounts(self.padding, x.shape[1:3], self.kernel, self.strides)
      y = jax.lax.conv_general_dilated(x, kernel, self.strides, pads, dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    if not self.use_bias:
      return y
    bias = self.param('bias', self.bias_init(math.prod(kernel.shape[:-1])), (self.filters,))
    bias = bias.astype(x.dtype)
    return y + (bias if self.bias_gradient else jax.lax.stop_gradient(bias))


@jax.custom_vjp
def _normalise(x, scale, bias, mean, inverse):
  """(x - mean) * inverse * scale + bias, differentiated as if mean and inverse deviation were those of `x`."""
  return ((x - mean) * (inverse * scale) + bias).astype(x.dtype)


def _normalise_pull(kept, grad):
  """The usual gradient of BatchNorm, in two reductions and one multiply-add of `grad` and `x` per number."""
  x, scale, mean, inverse = kept
  grad, x, dtype = grad.astype(jnp.float32), x.astype(jnp.float32), x.dtype
  axes = tuple(range(x.ndim - 1))
  count = x.size // x.shape[-1]
  grad_bias = jnp.sum(grad, axes)
  grad_scale = (jnp.sum(grad * x, axes) - mean * grad_bias) * inverse
  slope = inverse * scale
  tilt = -slope * inverse * grad_scale / count
  grad_x = grad * slope + x * tilt - (slope * grad_bias / count + mean * tilt)
  return grad_x.astype(dtype), grad_scale, grad_bias, jnp.zeros_like(mean), jnp.zeros_like(inverse)


_normalise.defvjp(lambda *args: (_normalise(*args), (args[0], args[1], *args[3:])), _normalise_pull)


class BatchNorm(nn.Module):
  """Flax's BatchNorm over all axes but the last: same variables, same numbers to rounding, fewer passes back.

  Statistics are float32 whatever the dtype of `x`, the result has that of `x`. Where the caller makes a collection
  'batch' mutable, a training step leaves there the 'mean' and 'var' of this very batch, under the paths of
  'batch_stats': what running averages blur, a caller can then average exactly.

  momentum: the part of the running statistics that stays at each training step.
  unbiased: whether the running variance averages n / (n - 1) times a batch's (PyTorch) or the batch's own (Keras,
    Flax); n is the numbers per channel. A batch is always normalised by its own.
  """

  momentum: float = 0.99
  epsilon: float = 1e-3
  unbiased: bool = False

  @nn.compact
  def __call__(self, x, train):
    shape, axes = x.shape[-1:], tuple(range(x.ndim - 1))
    scale, bias = self.param('scale', nn.initializers.ones, shape), self.param('bias', nn.initializers.zeros, shape)
    mean = self.variable('batch_stats', 'mean', jnp.zeros, shape)
    var = self.variable('batch_stats', 'var', jnp.ones, shape)
    if not train:
      return ((x - mean.value) * (jax.lax.rsqrt(var.value + self.epsilon) * scale) + bias).astype(x.dtype)
    fixed = jax.lax.stop_gradient(x).astype(jnp.float32)
    now = jnp.mean(fixed, axes)
    spread = jnp.maximum(jnp.mean(fixed * fixed, axes) - now * now, 0)
    if not self.is_initializing():
      mean.value = self.momentum * mean.value + (1 - self.momentum) * now
      count = x.size // shape[0]
      seen = spread * (count / max(count - 1, 1)) if self.unbiased else spread
      var.value = self.momentum * var.value + (1 - self.momentum) * seen
      if self.is_mutable_collection('batch'):  # after `initializing`, where every collection is mutable
        self.put_variable('batch', 'mean', now)
        self.put_variable('batch', 'var', spread)
    return _normalise(x, scale, bias, now, jax.lax.rsqrt(spread + self.epsilon))


class GroupNorm(nn.Module):
  """Flax's GroupNorm (Wu and He, 2018) in the place of a `BatchNorm`: no statistics, nothing shared between images.

  32 groups, or the largest number below that divides the channels. Up to 32 channels are thus a group each, which on
  a map of 1x1 is one number, and normalised to nothing but the bias.
  """

  epsilon: float = 1e-5

  @nn.compact
  def __call__(self, x, train):
    del train
    channels = x.shape[-1]
    groups = next(count for count in range(min(32, channels), 0, -1) if channels % count == 0)
    inner = nn.GroupNorm(groups, epsilon=self.epsilon, dtype=x.dtype)
    nn.share_scope(self, inner)  # the parameters lie where a BatchNorm's would
    return inner(x)


def hashed_bits(key, shape):
  """Random uint32 of `shape`: two threefry words per row of the last axis, hashed along it.

  Twenty times as fast as threefry throughout, which took a third of a CNN's step, and good enough for masks. The hash
  is lowbias32 (C. Wellons, "Prospecting for Hash Functions", 2018) with the second word added half way.
  """
  words = jax.random.bits(key, (2 * math.prod(shape[:-1]),), jnp.uint32)  # flat: compiles in a seventh of the time
  first, second = words.reshape(2, *shape[:-1], 1)
  h = first + jax.lax.iota(jnp.uint32, shape[-1]) * jnp.uint32(0x9E3779B9)
  h = (h ^ (h >> 16)) * jnp.uint32(0x7FEB352D)
  h = (h ^ (h >> 15)) + second
  h = h * jnp.uint32(0x846CA68B)
  return h ^ (h >> 16)


class Dropout(nn.Module):
  """Dropout; the rate is exact to 2**-32. `maps`: of whole maps [H, W] instead of single numbers."""

  rate: float
  maps: bool = False

  @nn.compact
  def __call__(self, x, train):
    check('dropout', self.rate, Share)
    keep = round((1 - self.rate) * 2**32)
    if not train or keep == 2**32:
      return x
    shape = (x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1]) if self.maps else x.shape
    kept = hashed_bits(self.make_rng('dropout'), shape) < jnp.uint32(keep)
    return materialize(jnp.where(kept, x * (2**32 / keep), 0))


def average_pool_same(x):
  """2x2 mean, stride 1, SAME, without counting the padding (Keras): a shifted sum over edge counts."""
  down = jnp.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0), (0, 0)))
  x = x + down
  right = jnp.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 1), (0, 0)))
  rows = np.where(np.arange(x.shape[1]) == x.shape[1] - 1, 1, 2)
  columns = np.where(np.arange(x.shape[2]) == x.shape[2] - 1, 1, 2)
  return (x + right) * (1 / (rows[:, None, None] * columns[:, None])).astype(np.float32)


def average_pool(x):
  """2x2 mean, stride 2, VALID; reshape-and-mean is faster than a window reduction."""
  return jnp.mean(in_blocks(x), (2, 4))


@jax.custom_vjp
def _larger(pairs):
  """The larger of each pair in `pairs` [..., 2, n]; of equal ones the first takes the gradient (as in PyTorch)."""
  return jnp.maximum(pairs[..., 0, :], pairs[..., 1, :])


def _larger_pull(pairs, grad):
  first = pairs[..., 0, :] >= pairs[..., 1, :]
  return (jnp.stack([jnp.where(first, grad, 0), jnp.where(first, 0, grad)], -2),)


_larger.defvjp(lambda pairs: (_larger(pairs), pairs), _larger_pull)


def max_pool(x):
  """2x2 maximum, stride 2, VALID: whole rows against whole rows first, since their numbers lie side by side."""
  b, h, w, c = x.shape
  x = materialize(x[:, : h // 2 * 2, : w // 2 * 2])
  rows = _larger(x.reshape(b, h // 2, 2, w // 2 * 2 * c))
  return _larger(rows.reshape(b, h // 2, w // 2, 2, c))


def adaptive_average_pool(x, size):
  """PyTorch's AdaptiveAvgPool2d: [B, H, W, c] -> [B, *size, c], as two small matrices of window means.

  Window i of o over n numbers is floor(i * n / o) to ceil((i + 1) * n / o); windows overlap where o does not divide n,
  and repeat numbers where o exceeds n.
  """
  check_map_size(x.shape[1:3])
  if x.shape[1:3] == tuple(size):
    return x

  def means(n, o):
    at, i = np.arange(n), np.arange(o)[:, None]
    inside = (at >= i * n // o) & (at < -(-(i + 1) * n // o))
    return (inside / inside.sum(1, keepdims=True)).astype(np.float32)

  rows, columns = (means(n, o) for n, o in zip(x.shape[1:3], size, strict=True))
  return jnp.einsum('bhwc,ph,qw->bpqc', x, rows, columns)


def check_images(x):
  """Checks that these are images or maps [B, H, W, c].

  Raises:
    ValueError: with the networks for other examples.
  """
  if x.ndim != 4:
    grey = '; grey images are uint8, or have an axis of channels: x[..., None]' if x.ndim == 3 else ''
    raise ValueError(
      f'the network is for images [N, H, W, c], and examples are {x.dtype}{list(x.shape[1:])}; choose MLP for vectors, '
      f'SequenceCNN or Transformer for sequences, these or EmbeddingBag for tokens{grey}'
    )


def check_map_size(size, kernel=(1, 1)):
  """Checks that a map is not smaller than the next kernel.

  Raises:
    ValueError: with the remedy.
  """
  if min(size) < 1 or size[0] < kernel[0] or size[1] < kernel[1]:
    raise ValueError(
      f'groups: the architecture is too deep for images of this size (a {kernel[0]}x{kernel[1]} kernel meets a map of '
      f'{size[0]}x{size[1]}); use larger images or a model with fewer layers'
    )


def flatten(x):
  """[B, ...] -> [B, n]: images [B, H, W, c] as vectors; vectors stay."""
  if x.ndim == 4:
    check_map_size(x.shape[1:3])
  return x.reshape(x.shape[0], -1)
