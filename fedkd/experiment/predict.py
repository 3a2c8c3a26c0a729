"""What a trained client takes images in files for."""

import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import flax.linen as nn
import jax
import numpy as np
from scipy.special import softmax

from fedkd import files
from fedkd.data.folders import MODES, upright
from fedkd.errors import ConfigError, in_a_sentence
from fedkd.experiment.export import reading
from fedkd.experiment.export.trained import trained
from fedkd.inference import in_batches

FORMS = {1: 'L', 3: 'RGB'}  # Pillow's, by the channels of a model


class Prediction(NamedTuple):
  """Of one image: its file, the most probable class, and its probability by softmax."""

  path: str
  label: str
  probability: float


def predict(
  path: str | os.PathLike,
  images: Iterable[str | os.PathLike],
  client: int = 0,
  seed: int | None = None,
  resize: bool = False,
  trust: bool = False,
) -> list[Prediction]:
  """The classes of image files.

  Args:
    path: of a finished run, or of what `fedkd.export` has written; of the latter client and seed are fixed.
    images: files that Pillow reads, of the size that the model takes; grey or coloured ones are converted to its
      channels.
    client, seed, trust: as in `experiment.load`.
    resize: whether images of another size are resized (Pillow's box filter), rather than refused.

  Raises:
    ConfigError: for a run that is not finished, an unknown client, a model that takes other numbers than bytes, a file
      that is not an image or of another size.
  """
  paths = [pathlib.Path(image) for image in images]
  if not paths:
    raise ConfigError('no image given; name at least one file')
  module, variables, shape, dtype, names = _model(path, client, seed, trust)
  if len(shape) != 3 or shape[-1] not in FORMS:
    raise ConfigError(f'{path}: the model takes examples of shape {list(shape)}, not grey or coloured images')
  if dtype != 'uint8':
    raise ConfigError(
      f'{path}: the model takes images of {dtype}, and nothing says how they were made of bytes; train on uint8, or '
      'ask it by fedkd.experiment.logits or fedkd.load_exported'
    )
  pixels = np.stack([_pixels(image, shape, resize) for image in paths])
  shares = softmax(np.asarray(_logits(module, variables, pixels), float), 1)
  best = shares.argmax(1)
  return [Prediction(str(at), names[c], float(own[c])) for at, c, own in zip(paths, best, shares, strict=True)]


def _model(path, client, seed, trust) -> tuple[nn.Module, dict, tuple[int, ...], str, tuple[str, ...]]:
  """(module, variables, shape of an example, its dtype, names of the classes)."""
  if not files.is_exported(path):
    one = trained(path, client, seed, trust)
    return one.module, one.variables, one.shape, str(one.dtype), one.class_names
  path = pathlib.Path(path)
  return *reading.load_exported(path, trust), *reading.examples(path, reading.read_config(path))


def _logits(module, variables, pixels) -> jax.Array:
  return jax.jit(lambda x: in_batches(lambda x: module.apply(variables, x, False)[0], x))(pixels)


def _pixels(path, shape, resize) -> np.ndarray:
  """uint8[H, W, channels] of an image file."""
  from PIL import Image

  height, width, channels = shape
  unreadable = lambda error: f'{path} is not an image that can be read ({error}); name a PNG, JPEG or the like'
  with in_a_sentence(unreadable, through=(ConfigError,)), Image.open(path) as opened:
    if opened.mode not in MODES:
      raise ConfigError(f'{path} has pixels of mode {opened.mode}, more than 8 bits per channel; save it with 8 bits')
    image = upright(opened)
    if image.size != (width, height) and not resize:
      raise ConfigError(
        f'{path} is {image.size[0]}x{image.size[1]} pixels and the model takes {width}x{height}; give images of that '
        'size, or have them resized (--resize, resize=True)'
      )
    image = image.convert(FORMS[channels]).resize((width, height), Image.Resampling.BOX)
    return np.asarray(image).reshape(shape)
