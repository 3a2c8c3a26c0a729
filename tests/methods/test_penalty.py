"""A model's own term is in the loss of every step of every method, once."""

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from helpers import CLASSES, problem

SGD = optax.sgd(0.5)
TURN = {'steps': 2, 'batch': 4}
MAPS = models.GKTClient(channels=4, classes=CLASSES)
PUBLIC = {**TURN, 'epochs': None, 'subset': 4, 'digest_batch': 4}
# name -> method, rounds, the steps of a client in them
TABLE = {
  'private': (methods.private(SGD, **TURN), 1, 2),
  'fd': (methods.fd(SGD, **TURN), 1, 2),
  'fedhe': (methods.fedhe(SGD, **TURN), 1, 2),
  'fedproto': (methods.fedproto(SGD, epochs=None, **TURN), 1, 2),
  'felo': (methods.felo(SGD, epochs=None, initial=2, **TURN), 1, 2),
  'fedgen': (methods.fedgen(SGD, hidden=2, server_steps=1, server_batch=2, **TURN), 1, 2),
  'heterofl': (methods.heterofl(SGD, epochs=None, **TURN), 1, 2),
  'fedmd': (methods.fedmd(SGD, **PUBLIC), 2, 2 + 1),  # its first round is a report
  'rhfl': (methods.rhfl(SGD, **PUBLIC), 2, 2 * 2 + 1),
  'fccl': (methods.fccl(SGD, **PUBLIC), 2, 2 * 2 + 1),
  'fedh2l': (methods.fedh2l(SGD, batch=4, project='none'), 2, 1 + 1),  # shown before the second local step
  'fedgkt': (methods.fedgkt(SGD, epochs=None, server_blocks=(1,), server_width=0.125, server_epochs=1, **TURN), 1, 2),
}


class Counter(nn.Module):
  """A number, in an array like other parameters."""

  @nn.compact
  def __call__(self):
    return self.param('number', nn.initializers.zeros, (1,))[0]


class Counted(nn.Module):
  """A net with a number that is in its own term only, so that every step adds the same to it."""

  net: nn.Module
  classes: int = CLASSES
  lowering: str = 'auto'

  def setup(self):
    self.counter = Counter()

  def __call__(self, x, train):
    logits, out = self.net(x, train)
    return logits, {**out, 'penalty': self.counter()}

  def features(self, x, train):
    return self.net.features(x, train)

  def head(self, f):
    return self.net.head(f)


@pytest.mark.parametrize('name', TABLE)
def test_every_step_adds_the_models_own_term(name):
  method, rounds, steps = TABLE[name]
  net = MAPS if name == 'fedgkt' else models.MLP((), classes=CLASSES)
  made = problem(method, [Counted(net)], [2], plan.synchronous()([2], rounds), [np.arange(8), np.arange(8, 16)])
  variables = made.method.variables(made.run()[0], 0)
  counters = [a for path, a in jax.tree_util.tree_leaves_with_path(variables) if 'counter' in str(path)]
  assert len(counters) == 1
  np.testing.assert_array_equal(np.ravel(counters[0]), -0.5 * steps)
