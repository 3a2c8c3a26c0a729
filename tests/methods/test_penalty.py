"""A model's own term is in the loss of every step of every method, once."""

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from helpers import CLASSES, cases, problem

OF = {'classes': CLASSES}


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


SGD = optax.sgd(0.5)
TURN = {'steps': 2, 'batch': 4}
ONCE = {'epochs': 1, 'batch': 3, 'server_tx': SGD, 'server_batch': 4, 'server_rounds': 2, 'latent': 2, 'width': 2}
PUBLIC = {**TURN, 'epochs': None, 'subset': 4, 'digest_batch': 4}
NET, OTHER, MAPS = map(Counted, (models.MLP((), **OF), models.MLP((2,), **OF), models.GKTClient(channels=4, **OF)))
# name -> method, rounds, the steps of a client in them
TABLE = {
  'private': (methods.private(SGD, **TURN), 1, 2),
  'fd': (methods.fd(SGD, **TURN), 1, 2),
  'fedhe': (methods.fedhe(SGD, **TURN), 1, 2),
  'fedproto': (methods.fedproto(SGD, epochs=None, **TURN), 1, 2),
  'felo': (methods.felo(SGD, epochs=None, initial=2, **TURN), 1, 2),
  'fedgen': (methods.fedgen(SGD, hidden=2, server_steps=1, server_batch=2, **TURN), 1, 2),
  'fml': (methods.fml(SGD, OTHER, epochs=None, **TURN), 1, 2),
  'fedapen': (methods.fedapen(SGD, OTHER, epochs=None, **TURN), 1, 2),
  'fedmrl': (methods.fedmrl(SGD, OTHER, epochs=None, **TURN), 1, 2),
  'fedkd': (methods.fedkd(SGD, OTHER, epochs=None, **TURN), 1, 2),
  'heterofl': (methods.heterofl(SGD, epochs=None, **TURN), 1, 2),
  'moon': (methods.moon(SGD, **TURN), 2, 2 * 2),
  'fedkt': (methods.fedkt(SGD, teachers=1, epochs=1, student_epochs=1, final_epochs=1, batch=4), 2, 2 * 2),
  'dense': (methods.dense(SGD, bn=0, generator_steps=1, **ONCE), 2, 1 + 2),  # of the server, on more images each
  'coboosting': (methods.coboosting(SGD, generator_steps=1, **ONCE), 2, 1 + 2),  # as many as of a client: 8 rows
  'fedmd': (methods.fedmd(SGD, **PUBLIC), 2, 2 + 1),  # its first round is a report
  'rhfl': (methods.rhfl(SGD, **PUBLIC), 2, 2 * 2 + 1),
  'fccl': (methods.fccl(SGD, **PUBLIC), 2, 2 * 2 + 1),
  'fedh2l': (methods.fedh2l(SGD, batch=4, project='none'), 2, 1 + 1),  # shown before the second local step
  'fedgkt': (methods.fedgkt(SGD, epochs=None, server_blocks=(1,), server_width=0.125, server_epochs=1, **TURN), 1, 2),
}


# One of each way to train: own and public rows, a common net beside one's own, an optimizer of two phases, a server.
FAST = ('private', 'fedproto', 'fedgen', 'fml', 'fedkd', 'heterofl', 'fedkt', 'fedmd', 'fedh2l')


@pytest.mark.parametrize('name', cases(TABLE, fast=FAST))
def test_every_step_adds_the_models_own_term(name):
  method, rounds, steps = TABLE[name]
  net = MAPS if name == 'fedgkt' else NET
  made = problem(method, [net], [2], plan.synchronous()([2], rounds), [np.arange(8), np.arange(8, 16)])
  state = made.run()[0]
  learned = (made.method.variables(state, 0), state.server)
  counters = [
    np.ravel(a)
    for path, a in jax.tree_util.tree_leaves_with_path(learned)
    if 'counter' in str(path) and a.dtype == np.float32
  ]
  assert len(counters) > (name in ('fml', 'fedapen', 'fedmrl', 'fedkd'))  # of a common net, too
  np.testing.assert_array_equal(np.concatenate(counters), -0.5 * steps)
