"""VGG11 without BatchNorm as torchvision defines it (Simonyan and Zisserman, 2015, column A), its initialisers too.

For 224 pixels; smaller images, down to 32, through the adaptive average pool.
"""

import flax.linen as nn
import jax

from fedkd.checks.ranges import Scale, Share
from fedkd.models.base import Classifier
from fedkd.models.layers import Dropout, adaptive_average_pool, flatten, max_pool
from fedkd.models.torch_layers import scaled, square_conv

# torchvision's index, channels, a max pool after it.
CONVS = (
  (0, 64, True),
  (3, 128, True),
  (6, 256, False),
  (8, 256, True),
  (11, 512, False),
  (13, 512, True),
  (16, 512, False),
  (18, 512, True),
)


class VGG11(Classifier):
  """128 795 015 weights for seven classes; features are the second dense layer, 4096.

  width: factor on all channels and dense layers; 1.0 is the published network.
  dropout: after both hidden dense layers, in training; the features of a training step are the dropped ones.
  """

  width: Scale = 1.0
  dropout: Share = 0.5
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    for at, channels, _ in CONVS:
      conv = square_conv(scaled(channels, self.width), use_bias=True, lowering=self.lowering)
      setattr(self, f'features_{at}', conv)
    dense = lambda units: nn.Dense(units, kernel_init=nn.initializers.normal(0.01))
    self.classifier_0 = dense(scaled(4096, self.width))
    self.classifier_3 = dense(scaled(4096, self.width))
    self.classifier_6 = dense(self.classes)
    self.drop = Dropout(self.dropout)

  def features(self, x, train):
    for at, _, pooled in CONVS:
      x = getattr(self, f'features_{at}')(x)
      x = jax.nn.relu(max_pool(x) if pooled else x)  # as the other way round, on a quarter of the numbers
    x = flatten(adaptive_average_pool(x, (7, 7)))
    for layer in (self.classifier_0, self.classifier_3):
      x = self.drop(jax.nn.relu(layer(x)), train)
    return x

  def head(self, f):
    return self.classifier_6(f)
