"""AlexNet as torchvision defines it (Krizhevsky, 2014, one column), with PyTorch's default initialisers.

For 224 pixels; smaller images, down to 63, through the adaptive average pool.
"""

import jax

from fedkd.checks.ranges import Scale, Share
from fedkd.models.base import Classifier
from fedkd.models.layers import Dropout, adaptive_average_pool, check_map_size, flatten
from fedkd.models.torch_layers import TorchDense, max_pool_3x3, scaled, square_conv, torch_bias, torch_kernel

# torchvision's index, channels, kernel, stride, padding, a max pool after it.
CONVS = (
  (0, 64, 11, 4, 2, True),
  (3, 192, 5, 1, 2, True),
  (6, 384, 3, 1, 1, False),
  (8, 256, 3, 1, 1, False),
  (10, 256, 3, 1, 1, True),
)


class AlexNet(Classifier):
  """57 032 519 weights for seven classes; features are the second dense layer, 4096.

  width: factor on all channels and dense layers; 1.0 is the published network.
  dropout: before both hidden dense layers, in training.
  """

  width: Scale = 1.0
  dropout: Share = 0.5
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    for at, channels, *shape, _ in CONVS:
      conv = square_conv(
        scaled(channels, self.width),
        *shape,
        use_bias=True,
        lowering=self.lowering,
        kernel_init=torch_kernel,
        bias_init=torch_bias,
      )
      setattr(self, f'features_{at}', conv)
    self.classifier_1 = TorchDense(scaled(4096, self.width))
    self.classifier_4 = TorchDense(scaled(4096, self.width))
    self.classifier_6 = TorchDense(self.classes)
    self.drop = Dropout(self.dropout)

  def features(self, x, train):
    check_map_size([n + 4 for n in x.shape[1:3]], (11, 11))
    for at, *_, pooled in CONVS:
      x = getattr(self, f'features_{at}')(x)
      x = jax.nn.relu(max_pool_3x3(x, 0) if pooled else x)  # as the other way round, on a quarter of the numbers
    x = flatten(adaptive_average_pool(x, (6, 6)))
    for layer in (self.classifier_1, self.classifier_4):
      x = jax.nn.relu(layer(self.drop(x, train)))
    return x

  def head(self, f):
    return self.classifier_6(f)
