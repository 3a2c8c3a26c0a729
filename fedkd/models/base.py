"""The contract of a model, and what surrounds it: preprocessing and augmentation inside the step."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedkd.checks import blame
from fedkd.checks.kinds import what_is
from fedkd.errors import ConfigError
from fedkd.models import flags


class Classifier(nn.Module):
  """A network in two parts, `features(x, train) -> f` and `head(f) -> logits`; the contract is in `fedkd.models`.

  The head is the layer `output`, where a subclass has no other.
  """

  def head(self, f):
    return self.output(f)

  def __call__(self, x, train):
    f = self.features(x, train)
    return self.head(f), {'features': f}


class Adapted(nn.Module):
  """Adapts any other module to the contract.

  It may return logits [B, C] alone or (logits, dict), and its flag for training may have any of the names of
  `flags.NAMES`, as an argument or a field, or be missing. With methods `features` and `head` it has features, too;
  `head` alone runs in evaluation mode.
  """

  net: nn.Module
  classes: int
  through: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # flags in the **kwargs of `net`

  def __call__(self, x, train):
    if has_features(self.net) and (type(self.net).__call__ is Classifier.__call__ or not has_contract(self.net)):
      f = self.features(x, train)
      return flags.run(self.net, 'head', train, f, self.through), {'features': f}
    return _as_pair(flags.run(self.net, '__call__', train, x, self.through), self.net)

  def features(self, x, train):
    check_features(self.net)
    return flags.run(self.net, 'features', train, x, self.through)

  def head(self, f):
    check_features(self.net)
    return flags.run(self.net, 'head', False, f, self.through)


def _as_pair(output, net) -> tuple:
  """(logits, dict) of what a module returned.

  Raises:
    ConfigError: for anything else.
  """
  logits, *more = output if isinstance(output, tuple) and output else (output,)
  if isinstance(logits, jax.Array | np.ndarray) and (not more or (len(more) == 1 and isinstance(more[0], Mapping))):
    return logits, dict(*more)
  several = f' of {", ".join(map(what_is, output))}' if isinstance(output, tuple) and output else ''
  raise ConfigError(
    f'model {blame.name_of(_target(net))} returned {what_is(output)}{several}; let it return logits [B, C], alone or '
    "as (logits, {'features': f})"
  )


def _inner(net):
  """A module without what surrounds it here."""
  while isinstance(net, Preprocessed | Adapted):
    net = net.net
  return net


def class_of(net: nn.Module) -> type:
  """The class that somebody wrote, without what surrounds a module here."""
  return _target(_inner(net))


def _target(net):
  return getattr(net, 'nnx_class', type(net))  # what `nnx.bridge.to_linen` wraps


def is_nnx(net: nn.Module) -> bool:
  """Whether a module is one of NNX inside, without what surrounds it here."""
  return flags.is_nnx(_inner(net))


def has_features(net: Any) -> bool:
  """Whether a module has the two methods for features."""
  return callable(getattr(net, 'features', None)) and callable(getattr(net, 'head', None))


def check_features(net: Any) -> None:
  """Checks that a module has features, for a method that needs them.

  Raises:
    ValueError: for a module that returns logits alone, with the two methods to add.
  """
  if not has_features(_inner(net)):
    raise ValueError(
      f'models: {class_of(net).__name__} returns logits alone, but this method needs the features and the head of '
      'a network apart; add the methods `features(self, x, train)`, all layers but the last, and `head(self, f)`, the '
      'last one'
    )


def features_in(out: Mapping, model: Any) -> jax.Array:
  """The features [B, ...] that a model has returned beside its logits, in `out`.

  Raises:
    ConfigError: for a model that returned none, with what to add.
  """
  if 'features' not in out:
    check_features(model)
    raise ConfigError(
      f'models: {class_of(model).__name__} returns no features beside its logits, but this method needs them; let '
      "`__call__` return (self.head(f), {'features': f})"
    )
  return out['features']


def has_contract(net: Any) -> bool:
  """Whether a module has the methods and fields of the contract."""
  return has_features(net) and hasattr(net, 'classes') and hasattr(net, 'lowering')


def adapted(net: nn.Module, x: Any) -> nn.Module:
  """A module that follows the contract: `net` itself, or `net` in an `Adapted`. `x`: an example [1, ...].

  Raises:
    ConfigError: for a module that raises an error or returns something else than logits.
  """
  if has_contract(net) and not flags.is_nnx(net) and _has_agreed_flags(net):
    return net
  through: tuple[str, ...] = ()
  if flags.takes_any(_target(net).__call__) and not isinstance(net, nn.Sequential) and _target(net) != nnx.Sequential:
    ways = (tuple(flags.NAMES), *((name,) for name in flags.NAMES), ())
    through = next((way for way in ways if _takes(net, x, way)), ())
  try:
    with blame.guard('model', _target(net)):
      logits = _logits(net, x, through)
  except ConfigError as error:  # the frames of JAX and Flax say nothing to whoever wrote the module
    raise error.with_traceback(None) from None
  if not logits.ndim:
    raise ConfigError(f'model {blame.name_of(_target(net))} returns one number; let it return logits [B, C]')
  return Adapted(net, logits.shape[-1], through)


def _has_agreed_flags(net) -> bool:
  kind = type(net)
  agreed = flags.is_agreed(kind.features) and flags.is_agreed(kind.__call__)
  return agreed and not flags.arguments(kind.head, True) and not flags.in_fields(net)


def _takes(net, x, through) -> bool:
  """Whether a module takes these flags, whatever other error it raises."""
  try:
    _logits(net, x, through)
  except Exception as error:
    return not isinstance(error, TypeError)
  return True


def _logits(net, x, through) -> jax.ShapeDtypeStruct:
  """The shape of the logits of a module."""
  probe, key = Adapted(net, 0, through), jax.random.key(0)
  return jax.eval_shape(lambda: probe.init_with_output({'params': key, 'dropout': key}, x, False)[0][0])


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

  def augmented(self, x):
    """(logits, out) in inference mode, of examples that are cropped and flipped as in training."""
    return self.net(self.prepare(x, True), False)


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
