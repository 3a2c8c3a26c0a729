"""Softmax regression in NumPy, float64, whole batches at once: what slow twins of methods train."""

import numpy as np

from fedkd import models, plan
from helpers import CLASSES, problem, row, softmax

RATE = 0.1
# Of 16, 8 and 4 rows the last 4, 4 and 2 are shared; batches of 12 hold every other row as often.
PARTS = [np.arange(16), np.arange(40, 48), np.arange(70, 74)]
OWN = [part[:n] for part, n in zip(PARTS, (12, 4, 2), strict=True)]


def made_with(method, clients=3, rounds=3, participants=None):
  """The method with linear clients that own `PARTS`."""
  turns = plan.synchronous()([clients], rounds) if participants is None else plan.Plan((participants,))
  return problem(method, [models.MLP((), classes=CLASSES)], [clients], turns, PARTS[:clients])


def numbers_of(params):
  """[d + 1, C], the last row the bias: the parameters of a linear net."""
  dense = params['net']['output']
  return np.vstack([np.asarray(dense['kernel'], float), np.asarray(dense['bias'], float)[None]])


class Party:
  """A client of one linear layer, trained with `momentum`."""

  momentum, trace = 0.0, 0.0

  def __init__(self, x, learner):
    self.x, self.w = x, numbers_of(learner.params)

  def logits(self, rows):
    return self.x[rows] @ self.w

  def probabilities(self, rows, temperature=1.0):
    return softmax(self.logits(rows) / temperature)

  def descend(self, rows, slope):
    """A step of gradient descent along the gradients [B, C] of the rows' own losses, which are averaged."""
    self.trace = self.momentum * self.trace + self.x[rows].T @ slope / len(rows)
    self.w = self.w - RATE * self.trace

  def restart(self, momentum=0.0):
    """A new optimizer."""
    self.momentum, self.trace = momentum, 0.0

  def train(self, rows, target):
    """A step towards probabilities [B, C]; the cross-entropy before it."""
    p = self.probabilities(rows)
    self.descend(rows, p * target.sum(-1, keepdims=True) - target)
    return -(target * np.log(p)).sum(-1).mean()


def examples_of(made):
  """(x [N, d + 1] with a column of ones, labels [N] one-hot) of a problem."""
  image, label = map(np.asarray, made.data[0].pool)
  x = np.concatenate([(image.reshape(len(image), -1) - 128.0) / 64, np.ones((len(image), 1))], 1)
  return x, np.eye(CLASSES)[label]


def parties(made, learner=lambda client: client):
  """(x [N, d + 1], labels [N], both as `examples_of`, a `Party` per client) of a problem with one group."""
  x, y = examples_of(made)
  count = made.groups[0].ids.shape[0]
  return x, y, [Party(x, learner(row(made.state.client[0], k))) for k in range(count)]


def assert_alike(learners, found):
  """Whether the stacked learners of a group have the parameters of the parties."""
  for k, party in enumerate(found):
    np.testing.assert_allclose(numbers_of(row(learners, k).params), party.w, rtol=1e-4, atol=1e-5)


def slope_of(loss, z, step=1e-5):
  """The gradient of a loss to an array, by central differences."""
  slope = np.zeros_like(z)
  for at in np.ndindex(z.shape):
    away = np.zeros_like(z)
    away[at] = step
    slope[at] = (loss(z + away) - loss(z - away)) / (2 * step)
  return slope
