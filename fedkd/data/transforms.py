"""Normalisation as constants: functions (train_image, name) -> (mean, scale), float32, to be used on raw examples as
(x - mean) * scale, or (None, None). They are applied inside the step (`models.base.Preprocessed`).

Those that know the range of bytes are for images alone, and raise ConfigError for numbers and tokens.
"""

import re

import numpy as np

from fedkd.data.arrays import is_images
from fedkd.errors import ConfigError
from fedkd.models import base

# What a config may name.
__all__ = ['auto', 'imagenet', 'mean_image', 'none', 'standard', 'symmetric', 'unit']

# Per channel, of images scaled to [0, 1]: (mean, standard deviation).
PUBLISHED = {
  # Diao et al., HeteroFL, 2021 (code)
  'cifar10': ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
  # Chan et al., InCo, 2024 (code)
  'cinic10': ((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)),
}
BLOCK = 4096  # images


def auto(train_image, name) -> tuple:
  """What fits: `mean_image` for images, `standard` for numbers, `none` for tokens."""
  if is_images(train_image):
    return mean_image(train_image, name)
  return (none if np.issubdtype(train_image.dtype, np.integer) else standard)(train_image, name)


def none(train_image, name) -> tuple:
  """Leaves examples as they are; (None, None)."""
  del train_image, name
  return None, None


def mean_image(train_image, name) -> tuple:
  """Divides by 255 and subtracts the mean training image (FedMD, Li and Wang, 2019; FedHe, Chan and Ngai, 2021).

  Args:
    train_image: uint8[N, H, W, c].
    name: of the source, for the message.

  Returns:
    Mean float32[H, W, c] in units of 0..255, and scale float32[c], 1/255.
  """
  _check_images(train_image, name, 'mean_image')
  return base.mean_image(train_image)


def standard(train_image, name) -> tuple:
  """Zero mean and unit variance per channel of images or sequences, or per column of vectors, float32[c] each.

  Takes the published constants of CIFAR-10 and CINIC-10 for colour sources of that name; else those of the
  training set.
  """
  if not is_images(train_image):
    return _standard_numbers(train_image, name)
  words = {re.sub(r'[-_ ]', '', word) for word in re.split('[:.]', name.lower().split('/')[-1])}
  known = [PUBLISHED[word] for word in PUBLISHED if word in words and train_image.shape[-1] == 3]
  mean, deviation = known[0] if known else _moments(train_image)
  # A channel without variance is zero after subtraction: any finite scale will do.
  deviation = np.where(np.asarray(deviation) > 0, deviation, 1.0)
  return np.float32(255 * np.asarray(mean)), np.float32(1 / (255 * deviation))


def _standard_numbers(x, name) -> tuple:
  """Of numbers [N, ..., c]; columns that do not vary become zero."""
  if np.issubdtype(x.dtype, np.integer):
    raise ConfigError(
      f"data.normalise='standard' is for images and numbers, and data.name={name} has tokens, {x.dtype}"
      f"{list(x.shape)}; set it to 'none', or store the numbers as float32"
    )
  axes = tuple(range(x.ndim - 1))
  mean = x.mean(axes, dtype=np.float64)
  total = sum(((x[start : start + BLOCK] - mean) ** 2).sum(axes) for start in range(0, len(x), BLOCK))
  deviation = np.sqrt(total / (x.size / x.shape[-1]))
  # Rounding leaves a column of one number with a deviation that is not quite zero.
  varies = deviation > 1e-6 * np.abs(mean)
  return np.float32(mean), np.float32(1 / np.where(varies, deviation, np.maximum(np.abs(mean), 1.0)))


def _check_images(x, name, choice):
  if not is_images(x):
    raise ConfigError(
      f'data.normalise={choice!r} is for images, uint8[N, H, W, c], and data.name={name} has {x.dtype}'
      f"{list(x.shape)}; set it to 'auto'"
    )


def imagenet(train_image, name) -> tuple:
  """Mean and deviation of ImageNet's channels, float32[c], as torchvision's networks expect."""
  _check_images(train_image, name, 'imagenet')
  mean, deviation = (np.resize(a, train_image.shape[-1]) for a in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
  return np.float32(255 * mean), np.float32(1 / (255 * deviation))


def unit(train_image, name) -> tuple:
  """Scales to [0, 1]; mean and scale float32[c]."""
  _check_images(train_image, name, 'unit')
  channels = train_image.shape[-1:]
  return np.zeros(channels, np.float32), np.full(channels, 1 / 255, np.float32)


def symmetric(train_image, name) -> tuple:
  """Scales to [-1, 1] (FedGen, Zhu et al., 2021); mean and scale float32[c]."""
  _check_images(train_image, name, 'symmetric')
  channels = train_image.shape[-1:]
  return np.full(channels, 127.5, np.float32), np.full(channels, 1 / 127.5, np.float32)


def _moments(train_image) -> tuple:
  """Mean and standard deviation per channel in units of [0, 1], float64[c], from sums without rounding."""
  total = np.zeros(train_image.shape[-1], np.int64)
  squares = np.zeros_like(total)
  for start in range(0, len(train_image), BLOCK):
    block = train_image[start : start + BLOCK].astype(np.int64)
    total += block.sum(axis=(0, 1, 2))
    squares += (block**2).sum(axis=(0, 1, 2))
  count = train_image[..., 0].size
  mean = total / count
  return mean / 255, np.sqrt(np.maximum(squares / count - mean**2, 0)) / 255
