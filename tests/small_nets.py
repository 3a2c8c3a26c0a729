"""Nets and rows of clients that several tests of methods share."""

import jax
import numpy as np

from fedkd import models, plan
from fedkd.models.base import Classifier
from fedkd.models.layers import flatten
from fedkd.models.torch_layers import TorchDense, norm
from helpers import problem

NET = models.MLP((5,), classes=3)
NARROW = models.MLP((4,), classes=3)
# Batches of 12 hold every row as often. All classes (0, 1, 2 in turn); 0 and 2; 1 alone.
PARTS = [np.arange(12), np.array([20, 21, 23, 24, 26, 27]), np.array([40, 43, 46])]


class Normed(Classifier):
  """A dense layer with BatchNorm, which has statistics."""

  classes: int = 3
  lowering: str = 'auto'

  def setup(self):
    self.first, self.bn, self.last = TorchDense(4), norm(), TorchDense(self.classes)

  def features(self, x, train):
    return jax.nn.relu(self.bn(self.first(flatten(x)), train))

  def head(self, f):
    return self.last(f)


def made_with(method, clients=3, rounds=2, net=NET, participants=None):
  """The method with clients of one architecture that own `PARTS`."""
  plans = plan.synchronous()([clients], rounds) if participants is None else plan.Plan((np.asarray(participants),))
  return problem(method, [net], [clients], plans, PARTS[:clients])


def in_vectors(made):
  """(x [N, pixels] as the nets see it, labels [N]) in float64."""
  image, label = map(np.asarray, made.data[0].pool)
  return (image.reshape(len(image), -1) - 128.0) / 64, label
