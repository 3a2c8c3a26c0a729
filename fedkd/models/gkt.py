"""The two halves of FedGKT's network (He et al., 2020): small clients send maps, a large server continues on them."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Positive, Scale, check
from fedkd.models.base import Classifier
from fedkd.models.identity import added
from fedkd.models.torch_layers import STEMS, TorchDense, max_pool_3x3, norm, run_stages, scaled, square_conv, stage

# Blocks per stage, and the channels of the first; each further stage doubles them.
SERVERS = {'resnet55': ((6, 6, 6), 16), 'resnet50': ((3, 4, 6, 3), 64)}


class GKTClient(Classifier):
  """3x3 convolution, norm, ReLU; then two bottleneck blocks, global average pool, linear layer: "resnet8_56" of
  FedML's code, 10 586 weights for ten classes.

  Features are the map [B, H, W, channels] after the first three, which is sent; the rest is the head.

  channels: of the map and inside the blocks, which end in four times as many; 16 as published, 64 before a server
    'resnet50'.
  width: factor on them.
  stem: 'cifar', as published, or 'imagenet' (7x7 of stride 2, max pool), so that maps are as small as a ResNet's.
  """

  channels: Positive = 16
  width: Scale = 1.0
  stem: str = added('cifar')
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    check('stem', self.stem, Literal['imagenet', 'cifar'])
    channels = scaled(self.channels, self.width)
    self.conv1, self.bn1 = square_conv(channels, *STEMS[self.stem], lowering=self.lowering), norm()
    self.layer1 = stage(channels, 2, 1, True, lowering=self.lowering)
    self.fc = TorchDense(self.classes)

  def features(self, x, train):
    x = self.bn1(self.conv1(x), train)
    return jax.nn.relu(max_pool_3x3(x, 1) if self.stem == 'imagenet' else x)

  def head(self, f, train=False):
    for block in self.layer1:
      f = block(f, train)
    return self.fc(jnp.mean(f, (1, 2)))

  def __call__(self, x, train):
    f = self.features(x, train)
    return self.head(f, train), {'features': f}


class GKTModel(nn.Module):
  """A client's part up to its map, continued by the server's: what FedGKT deploys.

  Variables are those of both under 'client' and 'server'.
  """

  client: nn.Module
  server: nn.Module

  @property
  def classes(self):
    return self.client.classes

  def __call__(self, x, train):
    return self.server(self.client.features(x, train), train)


class GKTServer(Classifier):
  """Stages of bottleneck blocks, global average pool, linear layer, on a client's map [B, H, W, c] instead of images.

  Features are the pooled vector.

  kind: 'resnet55' (6, 6, 6 blocks of 16, 32, 64 channels, times four: 590 858 weights for ten classes) or 'resnet50'
    (3, 4, 6, 3 of 64 to 512, after clients of 64 channels: 23 518 986; our reading of Felo's "ResNet50").
  blocks: per stage, if not those of `kind`.
  width: factor on all channels; 1.0 is the published network.
  """

  kind: str = 'resnet55'
  blocks: tuple[Positive, ...] = ()
  width: Scale = 1.0
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    check('kind', self.kind, Literal['resnet55', 'resnet50'])
    channels = SERVERS[self.kind][1]
    for i, count in enumerate(self.stages()):
      width, stride = scaled(channels * 2**i, self.width), 2 if i else 1
      setattr(self, f'layer{i + 1}', stage(width, count, stride, True, lowering=self.lowering))
    self.fc = TorchDense(self.classes)

  def stages(self):
    return self.blocks or SERVERS[self.kind][0]

  def features(self, x, train):
    return jnp.mean(run_stages(self, len(self.stages()), x, train), (1, 2))

  def head(self, f):
    return self.fc(f)
