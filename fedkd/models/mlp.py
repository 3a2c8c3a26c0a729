"""A fully connected network: FedMD's weak member, and the smallest network to test with."""

import flax.linen as nn
import jax

from fedkd.checks.ranges import Positive
from fedkd.models.base import Classifier
from fedkd.models.layers import flatten


class MLP(Classifier):
  """Flatten, dense layers of the widths `hidden` with ReLU, dense `classes`."""

  hidden: tuple[Positive, ...] = (64,)
  classes: int = 10
  lowering: str = 'auto'  # nothing to lower; every model has the field

  def setup(self):
    self.layers = [nn.Dense(units) for units in self.hidden]
    self.output = nn.Dense(self.classes)

  def features(self, x, train):
    del train
    x = flatten(x)
    for layer in self.layers:
      x = jax.nn.relu(layer(x))
    return x
