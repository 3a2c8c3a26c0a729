"""FedTGP's generator of prototypes (Zhang, Liu, Hua, Cao, 2024), as in the authors' code."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.models.torch_layers import TorchDense


class PrototypeGenerator(nn.Module):
  """One prototype per class [C, width]: a normal vector of its own through two dense layers with a ReLU between.

  C * width + 2 (width^2 + width) weights, which never travel. PyTorch's default initialisers.
  """

  classes: int
  width: int

  @nn.compact
  def __call__(self):
    code = nn.Embed(self.classes, self.width, embedding_init=nn.initializers.normal(1.0))(jnp.arange(self.classes))
    return TorchDense(self.width)(jax.nn.relu(TorchDense(self.width)(code)))
