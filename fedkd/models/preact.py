"""HeteroFL's network and its sub-networks (Diao et al., 2021): a ResNet of pre-activation blocks, cut by a rate."""

import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Positive, Ratio, Scale, check
from fedkd.models.base import Classifier
from fedkd.models.identity import added
from fedkd.models.torch_layers import (
  STEMS,
  TorchDense,
  max_pool_3x3,
  norm,
  run_stages,
  scaled,
  square_conv,
  torch_kernel,
)


class _Norm(nn.Module):
  """The scaler, BatchNorm, ReLU.

  A sub-network adds up `rate` times as many channels as the whole; the scaler, a division by `rate`, makes up for it.
  HeteroFL's code divides in training only. In training BatchNorm would undo any factor but for epsilon; its running
  statistics are those of divided activations, though, so inference has to divide too (the same at rate 1).
  """

  rate: float

  @nn.compact
  def __call__(self, x, train):
    return jax.nn.relu(norm(name='bn')(x / self.rate, train))


class _Block(nn.Module):
  """Norm and 3x3 convolution, twice, added to the input or, at a stride, to a 1x1 convolution of the normalised."""

  channels: int
  stride: int
  rate: float
  lowering: str

  @nn.compact
  def __call__(self, x, train):
    conv = lambda *shape, name: square_conv(
      self.channels, *shape, kernel_init=torch_kernel, lowering=self.lowering, name=name
    )
    y = _Norm(self.rate, name='n1')(x, train)
    if self.stride > 1 or x.shape[-1] != self.channels:
      x = conv(1, self.stride, name='shortcut')(y)
    y = conv(3, self.stride, name='conv1')(y)
    return x + conv(3, name='conv2')(_Norm(self.rate, name='n2')(y, train))


class PreActResNet(Classifier):
  """HeteroFL's "ResNet26": 17 442 890 weights for ten classes; features are the pooled vector.

  Stem without norm, stages of 64, 128, 256, 512 channels, norm, ReLU, global average pool, linear layer.
  PyTorch's default initialisers.

  blocks: per stage.
  width: factor on all channels; 1.0 is the published network.
  stem: 'cifar' (3x3 of stride 1, no pool), as published, or 'imagenet' (7x7 of stride 2, max pool).
  rate: in (0, 1], the part of the network that this one is: the first ceil(rate * n) of every n channels. Its
    parameters are the leading corners of those at rate 1, in a tree of the same structure.
  """

  blocks: tuple[Positive, ...] = (3, 3, 3, 3)
  width: Scale = 1.0
  stem: str = added('cifar')
  rate: Ratio = 1.0
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    check('rate', self.rate, Ratio)
    channels = [math.ceil(self.rate * scaled(64 * 2**i, self.width)) for i in range(len(self.blocks))]
    check('stem', self.stem, Literal['imagenet', 'cifar'])
    self.conv1 = square_conv(channels[0], *STEMS[self.stem], kernel_init=torch_kernel, lowering=self.lowering)
    for i, count in enumerate(self.blocks):
      strides = [2 if i and not j else 1 for j in range(count)]
      blocks = [_Block(channels[i], stride, self.rate, self.lowering) for stride in strides]
      setattr(self, f'layer{i + 1}', blocks)
    self.n4 = _Norm(self.rate)
    self.linear = TorchDense(self.classes)

  def features(self, x, train):
    x = self.conv1(x)
    x = run_stages(self, len(self.blocks), max_pool_3x3(x, 1) if self.stem == 'imagenet' else x, train)
    return jnp.mean(self.n4(x, train), (1, 2))

  def head(self, f):
    return self.linear(f)
