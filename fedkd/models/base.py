"""The contract of a model, and what surrounds it: preprocessing and augmentation inside the step."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


class Classifier(nn.Module):
  """A network in two parts, `features(x, train) -> f` and `head(f) -> logits`; the contract is in `fedkd.models`."""

  def __call__(self, x, train):
    f = self.features(x, train)
    return self.head(f), {'features': f}


class Preprocessed(nn.Module):
  """A network on raw images: normalisation, and in training augmentation, inside the step.

  Images stay uint8 on the device and in `load`ed models. `mean` and `scale` broadcast against [H, W, c]:
  x -> (x - mean) * scale.
  """

  net: nn.Module
  mean: np.ndarray
  scale: np.ndarray
  crop: int = 0  # random crop after padding by so many pixels
  flip: bool = False  # random horizontal flip

  @property
  def classes(self):
    return self.net.classes

  def prepare(self, x, train):
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


def augment(key, x, crop, flip):
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


def unaugmented(model):
  """The model without random crops and flips."""
  return model.clone(crop=0, flip=False)
