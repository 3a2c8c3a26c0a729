"""ResNets in torchvision's layout (He et al., 2016, Table 1; the blocks of ResNet14 and 22 are InCo's).

Layers carry torchvision's names, with `_` before an index, so that `pretrained` finds them. Also here: what the other
torchvision networks share with them.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Count, Positive, Scale, check
from fedkd.models.base import Classifier
from fedkd.models.torch_layers import (
  NORMS,
  STEMS,
  TorchDense,
  max_pool_3x3,
  run_stages,
  scaled,
  square_conv,
  stage,
  torch_kernel,
)


class ResNet(Classifier):
  """Stem, stages of 64, 128, 256, 512 channels, global average pool, linear layer; features are the pooled vector.

  blocks: per stage.
  bottleneck: blocks of 1x1, 3x3, 1x1 convolutions with four times the channels, rather than two 3x3.
  width: factor on all channels; 1.0 is the published network.
  stem: 'imagenet' (7x7 of stride 2, max pool) or 'cifar' (3x3 of stride 1, no pool: better on 32 pixels).
  norm: 'batch' or 'group' (`layers.GroupNorm`: no running statistics, so none to average between clients).
  dtype: of convolutions and maps, 'float32' or 'bfloat16'; parameters, statistics, features and head stay float32.
  projection: numbers of the features after one more linear layer without bias, so that nets of different width exchange
    features (Felo's ResNet50 among the others); 0: no such layer.
  """

  blocks: tuple[Positive, ...] = (2, 2, 2, 2)
  bottleneck: bool = False
  width: Scale = 1.0
  stem: str = 'imagenet'
  norm: str = 'batch'
  dtype: str = 'float32'
  projection: Count = 0
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    check('stem', self.stem, Literal['imagenet', 'cifar'])
    check('norm', self.norm, Literal['batch', 'group'])
    check('dtype', self.dtype, Literal['float32', 'bfloat16'])
    self.conv1 = square_conv(scaled(64, self.width), *STEMS[self.stem], lowering=self.lowering)
    self.bn1 = NORMS[self.norm]()
    for i, count in enumerate(self.blocks):
      channels, stride = scaled(64 * 2**i, self.width), 2 if i else 1
      blocks = stage(channels, count, stride, self.bottleneck, lowering=self.lowering, norm=self.norm)
      setattr(self, f'layer{i + 1}', blocks)
    if self.projection:
      self.project = nn.Dense(self.projection, use_bias=False, kernel_init=torch_kernel)
    self.fc = TorchDense(self.classes)

  def features(self, x, train):
    x = self.bn1(self.conv1(x.astype(self.dtype)), train)
    if self.stem == 'imagenet':
      x = max_pool_3x3(x, 1)  # before ReLU, whose numbers it leaves as they are, for a quarter of them
    x = jax.nn.relu(x)
    f = jnp.mean(run_stages(self, len(self.blocks), x, train), (1, 2), dtype=jnp.float32)
    return self.project(f) if self.projection else f

  def head(self, f):
    return self.fc(f)


class ResNet10(ResNet):
  """4 910 922 weights for ten classes."""

  blocks: tuple[Positive, ...] = (1, 1, 1, 1)


class ResNet14(ResNet):
  """10 812 234 weights for ten classes."""

  blocks: tuple[Positive, ...] = (1, 1, 2, 2)


class ResNet18(ResNet):
  """11 181 642 weights for ten classes."""

  blocks: tuple[Positive, ...] = (2, 2, 2, 2)


class ResNet22(ResNet):
  """17 082 954 weights for ten classes."""

  blocks: tuple[Positive, ...] = (2, 2, 3, 3)


class ResNet26(ResNet):
  """17 452 362 weights for ten classes."""

  blocks: tuple[Positive, ...] = (3, 3, 3, 3)


class ResNet34(ResNet):
  """21 289 802 weights for ten classes."""

  blocks: tuple[Positive, ...] = (3, 4, 6, 3)


class ResNet50(ResNet):
  """23 528 522 weights for ten classes; features of 2048."""

  blocks: tuple[Positive, ...] = (3, 4, 6, 3)
  bottleneck: bool = True
