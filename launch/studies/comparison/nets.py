"""The narrow networks of the benchmark: ten architectures of similar cost, all with features of one width."""

import jax
import jax.numpy as jnp

from fedkd.models.base import Classifier
from fedkd.models.mobilenet import DepthwiseConv
from fedkd.models.torch_layers import TorchDense, norm, square_conv

WIDTH = 84  # of the features of every net: FedProto, FedGH, FedTGP and methods that share heads need one width


class MobileLike(Classifier):
  """MobileNet's idea (Howard et al., 2017) at the size of LeNet: a strided 3x3 stem, three depthwise-separable blocks.

  channels: of the stem and of the 1x1 convolutions.
  width: of the features, a dense layer behind the pooled vector.
  """

  channels: tuple[int, ...] = (12, 24, 48, 48)
  width: int = WIDTH
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    conv = lambda channels, *shape: square_conv(channels, *shape, lowering=self.lowering)
    self.stem, self.stem_norm = conv(self.channels[0], 3, 2), norm()
    strides = [2, *[1] * (len(self.channels) - 2)]
    self.depthwise = [DepthwiseConv(stride) for stride in strides]
    self.pointwise = [conv(channels, 1) for channels in self.channels[1:]]
    self.norms = [norm() for _ in strides]
    self.hidden, self.output = TorchDense(self.width), TorchDense(self.classes)

  def features(self, x, train):
    x = jax.nn.relu(self.stem_norm(self.stem(x), train))
    for depthwise, pointwise, normalised in zip(self.depthwise, self.pointwise, self.norms, strict=True):
      x = jax.nn.relu(normalised(pointwise(depthwise(x)), train))
    return jax.nn.relu(self.hidden(jnp.mean(x, (1, 2))))

  def head(self, f):
    return self.output(f)


LENET = {'model': 'LeNet'}
PERCEPTRON = {'model': 'MLP', 'hidden': (128, WIDTH)}
STRIDED = {'model': 'FedGenCNN', 'channels': (16, 32), 'width': WIDTH}
RESIDUAL = {'model': 'ResNet10', 'blocks': (1, 1, 1), 'width': 0.125, 'projection': WIDTH}  # a ResNet8
MOBILE = {'model': 'launch.studies.comparison.nets:MobileLike'}
DIFFERENT: tuple[dict, ...] = (
  LENET,
  PERCEPTRON,
  STRIDED,
  RESIDUAL,
  MOBILE,
  {'model': 'FedGenCNN', 'channels': (6, 16), 'width': WIDTH},
  {'model': 'MnistCNN', 'channels': (10, 20), 'width': WIDTH, 'dropout': 0.25},
  {'model': 'MnistCNN', 'channels': (6, 12), 'width': WIDTH, 'dropout': 0.0},
  {'model': 'ResNet10', 'blocks': (1, 1), 'width': 0.25, 'norm': 'group', 'projection': WIDTH},
  {'model': 'MLP', 'hidden': (64, 64, WIDTH)},
)
PHOTOS: tuple[dict, ...] = (  # for 96 pixels
  {'model': 'ResNet10', 'width': 0.125},
  {'model': 'ResNet10', 'width': 0.125, 'norm': 'group'},
  {'model': 'ResNet14', 'width': 0.125},
  {'model': 'ResNet18', 'width': 0.125},
)
