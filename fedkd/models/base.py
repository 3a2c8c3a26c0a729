"""The contract of a model, and what surrounds it: preprocessing and augmentation inside the step."""

import inspect
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedkd.checks import blame
from fedkd.errors import ConfigError


class Classifier(nn.Module):
  """A network in two parts, `features(x, train) -> f` and `head(f) -> logits`; the contract is in `fedkd.models`."""

  def __call__(self, x, train):
    f = self.features(x, train)
    return self.head(f), {'features': f}


class Adapted(nn.Module):
  """Adapts any other module to the contract.

  It may return logits [B, C] alone or (logits, dict), and its flag for training may be called `train`, `training`,
  `deterministic` or `use_running_average`, or be missing. With methods `features` and `head` it has features, too.
  """

  net: nn.Module
  classes: int

  def __call__(self, x, train):
    if has_features(self.net):
      f = self.features(x, train)
      return self.head(f), {'features': f}
    output = self.net(x, **_training(_target(self.net).__call__, train))
    return output if isinstance(output, tuple) else (output, {})

  def features(self, x, train):
    check_features(self.net)
    return self.net.features(x, **_training(type(self.net).features, train))

  def head(self, f):
    check_features(self.net)
    return self.net.head(f)


def class_of(net: nn.Module) -> type:
  """The class that somebody wrote, without what surrounds a module here."""
  while isinstance(net, Preprocessed | Adapted):
    net = net.net
  return _target(net)


def _target(net):
  return getattr(net, 'nnx_class', type(net))  # what `nnx.bridge.to_linen` wraps


def _training(function, train) -> dict:
  """The training flag of a function, as a keyword argument; {} if it has none."""
  names = inspect.signature(function).parameters
  flags = {'train': train, 'training': train, 'deterministic': not train, 'use_running_average': not train}
  return next(({name: value} for name, value in flags.items() if name in names), {})


def is_linen(model: Any) -> bool:
  """Whether this is an instance of a Flax linen module."""
  return isinstance(model, nn.Module)


def has_features(net: Any) -> bool:
  """Whether a module has the two methods for features."""
  return callable(getattr(net, 'features', None)) and callable(getattr(net, 'head', None))


def check_features(net: Any) -> None:
  """Checks that a module has features, for a method that needs them.

  Raises:
    ValueError: for a module that returns logits alone, with the two methods to add.
  """
  net = net.net if isinstance(net, Preprocessed) else net
  net = net.net if isinstance(net, Adapted) else net
  if not has_features(net):
    raise ValueError(
      f'models: {_target(net).__name__} returns logits alone, but this method needs the features and the head of '
      'a network apart; add the methods `features(self, x, train)`, all layers but the last, and `head(self, f)`, the '
      'last one'
    )


def adapted(net: nn.Module, x: Any) -> nn.Module:
  """A module that follows the contract: `net` itself, or `net` in an `Adapted`. `x`: an example [1, ...]."""
  if isinstance(net, Classifier) or (has_features(net) and hasattr(net, 'classes') and hasattr(net, 'lowering')):
    return net
  probe = Adapted(net, 0)
  key = jax.random.key(0)
  try:
    logits = jax.eval_shape(lambda: probe.init_with_output({'params': key, 'dropout': key}, x, False)[0][0])
  except Exception as error:
    raise ConfigError(blame.raised('model', _target(net), error)) from None
  if not logits.ndim:
    raise ConfigError(f'model {blame.name_of(_target(net))} returns one number; let it return logits [B, C]')
  return Adapted(net, logits.shape[-1])


class Preprocessed(nn.Module):
  """A network on raw examples: normalisation, and in training augmentation, inside the step.

  Images stay uint8 on the device and in `load`ed models. `mean` and `scale` broadcast against an example:
  x -> (x - mean) * scale; None leaves examples as they are (float vectors, tokens).
  """

  net: nn.Module
  mean: np.ndarray | None = None
  scale: np.ndarray | None = None
  crop: int = 0  # pixels of padding before a random crop
  flip: bool = False  # random horizontal flip

  @property
  def classes(self):
    return self.net.classes

  def prepare(self, x, train):
    if self.mean is not None:
      x = (x.astype(jnp.float32) - self.mean) * self.scale
    if train and (self.crop or self.flip):
      x = augment(self.make_rng('augment'), x, self.crop, self.flip)
    return x

  def features(self, x, train):
    return self.net.features(self.prepare(x, train), train)

  def head(self, f):
    return self.net.head(f)

  def __call__(self, x, train):
    return self.net(self.prepare(x, train), train)


def augment(key: jax.Array, x: jax.Array, crop: int, flip: bool) -> jax.Array:
  """Random crop (after zero padding by `crop` pixels) and horizontal flip of [B, H, W, c], each image its own."""
  key_crop, key_flip = jax.random.split(key)
  if flip:
    turned = jax.random.bernoulli(key_flip, 0.5, (x.shape[0], 1, 1, 1))
    x = jnp.where(turned, x[:, :, ::-1], x)
  if crop:
    padded = jnp.pad(x, ((0, 0), (crop, crop), (crop, crop), (0, 0)))
    corner = jax.random.randint(key_crop, (x.shape[0], 2), 0, 2 * crop + 1)
    cut = lambda image, at: jax.lax.dynamic_slice(image, (at[0], at[1], 0), x.shape[1:])
    x = jax.vmap(cut)(padded, corner)
  return x


def unaugmented(model: Any) -> Any:
  """The model without random crops and flips."""
  return model.clone(crop=0, flip=False) if is_augmented(model) else model


def is_augmented(model: Any) -> bool:
  """Whether a model crops or flips its images in training."""
  return bool(getattr(model, 'crop', 0) or getattr(model, 'flip', False))


def mean_image(x: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
  """(mean, scale) that subtract the mean of raw uint8 images [N, H, W, c] and divide by 255.

  Returns:
    Mean float32[H, W, c] in units of 0..255, and scale float32[c].
  """
  x = np.asarray(x)
  total = x.sum(axis=0, dtype=np.uint64)  # exact, and NumPy converts it piece by piece
  return (total / len(x)).astype(np.float32), np.full(x.shape[-1:], 1 / 255, np.float32)
