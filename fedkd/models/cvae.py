"""Velo's conditional variational autoencoder of feature vectors (specified by the paper as four dense layers).

Widths, the label's code, the latent size and BatchNorm follow the authors' published code.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.models.torch_layers import TorchDense, norm


class CVAE(nn.Module):
  """Features s [B, width] of labels int[B] to a normal distribution over z [B, latent], and back.

  1 579 008 weights for width 512 and ten classes. PyTorch's default initialisers.

  latent: numbers in z; None is `width`.
  relu: between the decoder's dense layers, where the authors have nothing, so that their decoder is linear.
  """

  width: int
  classes: int
  latent: int | None = None
  relu: bool = False

  def setup(self):
    self.code = nn.Embed(self.classes, self.width // 2, embedding_init=nn.initializers.normal(1.0))
    self.encoder = TorchDense(self.width)
    self.bn = norm()
    self.moments = TorchDense(2 * (self.latent or self.width))
    self.decoder = TorchDense(self.width)
    self.output = TorchDense(self.width)

  def _labelled(self, x, label):
    return jnp.concatenate([x, self.code(label)], -1)

  def encode(self, s, label, train):
    """The mean and the logarithm of the variance of z, [B, latent] each, given s [B, width]."""
    hidden = jax.nn.relu(self.bn(self.encoder(self._labelled(s, label)), train))
    return tuple(jnp.split(self.moments(hidden), 2, -1))

  def decode(self, z, label):
    """s [B, width] from z [B, latent]."""
    hidden = self.decoder(self._labelled(z, label))
    return self.output(jax.nn.relu(hidden) if self.relu else hidden)

  def __call__(self, s, label, key, train):
    """(reconstruction [B, width], mean, log-variance [B, latent]); z is mean + deviation * noise drawn with `key`."""
    mean, log_variance = self.encode(s, label, train)
    z = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape)
    return self.decode(z, label), mean, log_variance
