"""FedGen's generator of features (Zhu, Hong, Zhou, 2021), as in the authors' code."""

import flax.linen as nn
import jax
import jax.numpy as jnp

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
