"""Client architectures, as Flax modules.

The contract: fields `classes` and `lowering`; `features(x, train) -> f`, `head(f) -> logits`,
`__call__(x, train) -> (logits, {'features': f})`, where 'penalty' may be added to the features, a term of every loss;
variables {'params', 'batch_stats'}, or {'params'} alone without BatchNorm. `base.Classifier` is its base class.
`from_nnx.FromNNX` brings Flax NNX modules under it.

`MLP` takes examples of any shape, `EmbeddingBag` tokens, `SequenceCNN` and `Transformer` sequences of tokens or
numbers, all others images.

Features are a vector per example, in `GKTClient` a map [H, W, c]. Models of the server alone are not exported:
`gkt.GKTServer` on such maps, `cvae.CVAE` on feature vectors.
"""

from fedkd.models.alexnet import AlexNet
from fedkd.models.cnn import FourConv, ThreeConv, TwoConv
from fedkd.models.embedding_bag import EmbeddingBag
from fedkd.models.fedgen_cnn import FedGenCNN
from fedkd.models.gkt import GKTClient
from fedkd.models.lenet import LeNet
from fedkd.models.mlp import MLP
from fedkd.models.mnist_cnn import MnistCNN
from fedkd.models.mobilenet import MobileNetV2
from fedkd.models.preact import PreActResNet
from fedkd.models.resnet import ResNet10, ResNet14, ResNet18, ResNet22, ResNet26, ResNet34, ResNet50
from fedkd.models.sequence_cnn import SequenceCNN
from fedkd.models.transformer import Transformer
from fedkd.models.vgg import VGG11

__all__ = [
  'MLP',
  'VGG11',
  'AlexNet',
  'EmbeddingBag',
  'FedGenCNN',
  'FourConv',
  'GKTClient',
  'LeNet',
  'MnistCNN',
  'MobileNetV2',
  'PreActResNet',
  'ResNet10',
  'ResNet14',
  'ResNet18',
  'ResNet22',
  'ResNet26',
  'ResNet34',
  'ResNet50',
  'SequenceCNN',
  'ThreeConv',
  'Transformer',
  'TwoConv',
]
