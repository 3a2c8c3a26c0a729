"""NNX modules of tests; a config names them as 'nnx_nets:Net'."""

import jax
from flax import nnx

WIDTH, CLASSES = 3, 3


class Net(nnx.Module):
  """With BatchNorm, Dropout, a list of layers, and features."""

  def __init__(self, width=6, inputs=WIDTH, classes=CLASSES, *, rngs):
    self.width = width
    self.hidden, self.norm = nnx.Linear(inputs, width, rngs=rngs), nnx.BatchNorm(width, rngs=rngs)
    self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs)])
    self.drop = nnx.Dropout(0.2, rngs=rngs)
    self.head = nnx.Linear(width, classes, rngs=rngs)

  def features(self, x):
    hidden = jax.nn.relu(self.norm(self.hidden(x.reshape(len(x), -1))))
    return self.drop(jax.nn.relu(self.layers[0](hidden)))

  def __call__(self, x):
    return self.head(self.features(x))


class Plain(nnx.Module):
  """Two layers that draw nothing."""

  def __init__(self, rngs):
    self.hidden, self.output = nnx.Linear(WIDTH, 5, rngs=rngs), nnx.Linear(5, CLASSES, rngs=rngs)

  def __call__(self, x):
    return self.output(jax.nn.relu(self.hidden(x)))


def fixed(classes, *, rngs):
  """Heeds no number of classes."""
  return Net(inputs=144, classes=2, rngs=rngs)
