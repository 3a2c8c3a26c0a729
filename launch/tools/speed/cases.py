"""The training tasks of `launch.bench`."""

from typing import NamedTuple

import flax.linen as nn
import jax

from fedkd.models import MLP, LeNet, ResNet18, ThreeConv, TwoConv
from fedkd.models.base import Classifier
from fedkd.models.layers import Conv, flatten


class StridedConv(Classifier):
  """Convolutions 3x3 of stride 2 and ReLU, a dense layer: what convolutions alone cost, without BatchNorm, dropout and
  pooling, which `fedkd.models.ThreeConv` has."""

  filters: tuple[int, ...]
  classes: int = 10
  lowering: str = 'auto'

  def setup(self):
    self.convs = [Conv(n, (3, 3), (2, 2), 'VALID', lowering=self.lowering) for n in self.filters]
    self.dense = nn.Dense(self.classes)

  def features(self, x, train):
    del train
    for conv in self.convs:
      x = jax.nn.relu(conv(x))
    return flatten(x)

  def head(self, f):
    return self.dense(f)


FEDMD = (
  *(TwoConv((a, b), rate) for a, b, rate in [(128, 256, 0.2), (128, 384, 0.2), (128, 512, 0.2)]),
  *(TwoConv((256, b), rate) for b, rate in [(256, 0.3), (512, 0.4)]),
  *(ThreeConv(f, 0.2) for f in [(64, 128, 256), (64, 128, 192), (128, 192, 256)]),
  *(ThreeConv(f, 0.3) for f in [(128, 128, 128), (128, 128, 192)]),
)
STRIDED = (StridedConv((128, 128, 192)),)


class Case(NamedTuple):
  """A training task; `bar` is the target ratio to PyTorch, on a CPU with two cores for the CPU's cases and on a GPU for
  the GPU's; 0: no target."""

  title: str
  nets: tuple
  shape: tuple  # of an image
  clients: int  # per net
  batch: int
  steps: int  # batches per client and round
  chunk: int  # slots mapped at once in the rows `chunks`
  bar: float
  method: str = 'private'
  updates: int = 0  # client updates of an asynchronous run; 0: what is measured is a round


CPU = {
  'conv4': Case('3-conv net 128-128-192 of stride 2, 32x32x3, 4 clients', STRIDED, (32, 32, 3), 4, 32, 3, 2, 2.0),
  'conv10': Case('3-conv net 128-128-192 of stride 2, 32x32x3, 10 clients', STRIDED, (32, 32, 3), 10, 32, 3, 2, 2.0),
  'model9': Case("FedMD's model 9 (BN, dropout), 32x32x3, 4 clients", FEDMD[-1:], (32, 32, 3), 4, 32, 3, 2, 1.2),
  'lenet': Case('LeNet, 28x28x1, 100 clients', (LeNet(),), (28, 28, 1), 100, 20, 5, 10, 1.8),
  'fedmd': Case("FedHe's client update, the ten FedMD nets, 28x28x1", FEDMD, (28, 28, 1), 2, 50, 3, 2, 1.2, 'fedhe'),
  'mlp': Case('MLP 32-64-10, 100 clients', (MLP((64,)),), (32, 1, 1), 100, 20, 3, 10, 10.0),
}
_MANY = {
  'conv': ('3-conv net 128-128-192 of stride 2, 32x32x3', STRIDED, (32, 32, 3), 32, 3),
  'lenet': ('LeNet, 28x28x1', (LeNet(),), (28, 28, 1), 20, 5),
  'resnet18': ('ResNet18, 32x32x3', (ResNet18(stem='cifar'),), (32, 32, 3), 32, 3),
}
GPU = {
  f'{name}-{n}': Case(f'{title}, {n} clients', nets, shape, n, batch, steps, max(5, n // 10), bar)
  for name, (title, nets, shape, batch, steps) in _MANY.items()
  for n, bar in ((10, 0.0), (100, 0.0 if name == 'resnet18' else 20.0), (1000, 0.0))
} | {
  'fedhe-async': Case(
    'asynchronous FedHe, 50 000 client updates of the ten FedMD nets, 28x28x1',
    FEDMD,
    (28, 28, 1),
    1,
    50,
    3,
    1,
    0.0,
    'fedhe',
    50_000,
  )
}
CASES = CPU | GPU
SUITES = {'cpu': tuple(CPU), 'gpu': tuple(GPU), 'peers': tuple(CPU), 'seeds': ('lenet-10',)}
