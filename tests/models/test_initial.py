"""Modules that cannot be trained are refused at the door, in one sentence; half precision is trained."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
from fedkd import methods, models
from fedkd.models import groups
from fedkd.servers import low_rank

Y = np.arange(12) % 3
X = np.eye(3, dtype=np.float32)[Y]
PARTS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def returning(call):
  return type('Net', (nn.Module,), {'__call__': nn.compact(call), '__module__': __name__})()


def dense(x):
  return nn.Dense(3)(x)


NOT_LOGITS = 'let it return logits [B, C], alone or as (logits, {'
NO_UNITS = 'a layer has no units, or the model no classes; give each width, and `classes`, at least 1'
REFUSED = {
  'BatchNorm without a flag': ('"use_running_average" must be passed', lambda self, x: dense(nn.BatchNorm()(x))),
  'dropout without a flag': ('"deterministic" must be passed', lambda self, x: dense(nn.Dropout(0.5)(x))),
  'logits and features': (NOT_LOGITS, lambda self, x: (dense(x), x)),
  'logits and None': (NOT_LOGITS, lambda self, x: (dense(x), None)),
  'three outputs': (NOT_LOGITS, lambda self, x: (dense(x), x, {})),
  'an empty tuple': ('let it return logits', lambda self, x: ()),
  'a dict': (NOT_LOGITS, lambda self, x: {'logits': dense(x)}),
  'two dicts': (NOT_LOGITS, lambda self, x: ({'logits': dense(x)}, {})),
  'a list': (NOT_LOGITS, lambda self, x: [dense(x)]),
  'None': (NOT_LOGITS, lambda self, x: None),
  'None and a dict': (NOT_LOGITS, lambda self, x: (None, {})),
  'no parameters': ('models: Net has no parameters', lambda self, x: x),
  'constant logits': ('models: Net has no parameters', lambda self, x: np.zeros((len(x), 3), np.float32)),
  'integer logits': ('models: Net returns logits int32;', lambda self, x: dense(x).astype(jnp.int32)),
  'logits that are true or false': ('models: Net returns logits bool;', lambda self, x: dense(x) > 0),
  'no axis of classes': (
    'models: Net returns [batch], without an axis of classes; return [batch, classes]',
    lambda self, x: dense(x)[:, 0],
  ),
  'complex logits': ('models: Net returns logits complex64;', lambda self, x: dense(x) + 1j),
  'integer parameters': (
    'models: Net has parameters int32 (net/net/count)',
    lambda self, x: dense(x) + self.param('count', lambda key: jnp.arange(3)),
  ),
  'one row for the batch': (
    'models: Net returns logits [1, 3] for 4 examples',
    lambda self, x: dense(x).mean(0, keepdims=True),
  ),
}
OWN = {
  'no classes': (NO_UNITS, models.MLP((4,), classes=0)),
  'no units': (NO_UNITS, models.MLP((0,), classes=3)),
  'fewer than no classes': ('models: MLP 4 cannot take', models.MLP((4,), classes=-1)),
  'half a unit': ('models: MLP 4.5 cannot take', models.MLP((4.5,), classes=3)),
  'no tuple': ('models: MLP cannot take', models.MLP(4, classes=3)),
}


def check(net, reason):
  with pytest.raises(ValueError, match=re.escape(reason)) as error:
    fedkd.federation(X, Y, PARTS, net)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('case', REFUSED)
def test_refused(case):
  reason, call = REFUSED[case]
  check(returning(call), reason)


@pytest.mark.parametrize('case', OWN)
def test_networks_of_the_package_are_refused(case):
  reason, net = OWN[case]
  check(net, reason)


def test_a_group_of_a_sequential_has_a_short_name():
  make = lambda width: nn.Sequential([nn.Dense(width), nn.relu, *[nn.Dense(9)] * 30, nn.Dense(3)])
  names = groups.group_names([make(4), make(5), make(6)])
  assert len(set(names)) == 3
  assert all(name.startswith('Sequential') and '\n' not in name and len(name) <= 64 for name in names)
  assert groups.group_names([make(4)]) == ['Sequential']


class Half(nn.Module):
  def setup(self):
    self.hidden, self.output = nn.Dense(4, param_dtype=jnp.bfloat16), nn.Dense(3, param_dtype=jnp.bfloat16)

  def features(self, x, train):
    return nn.relu(self.hidden(x))

  def head(self, f):
    return self.output(f)

  def __call__(self, x, train):
    return self.head(self.features(x, train))


def test_half_precision_parameters_with_fedh2l():
  made = fedkd.federation(X, Y, PARTS, Half(), shared=[[0, 1], [4, 5]])
  simulation = fedkd.simulation(methods.fedh2l(optax.sgd(0.1), batch=4), made)
  state = jax.eval_shape(simulation.init, jax.random.key(0))
  after, _ = jax.eval_shape(simulation.round, state)
  dtypes = lambda state: [leaf.dtype for leaf in jax.tree.leaves(state)]
  assert dtypes(after) == dtypes(state)
  assert jnp.bfloat16 in dtypes(state)


def test_half_precision_changes_as_a_product_of_two_matrices():
  change = jnp.outer(jnp.arange(8.0), jnp.arange(6.0)).astype(jnp.bfloat16)
  message = low_rank.compress({'a': change}, 0.99)
  assert {part.value.dtype for part in message['a']} == {np.dtype(jnp.bfloat16)}
  assert int(message['a'].scale.valid.sum()) == 1
  np.testing.assert_allclose(low_rank.expand(message)['a'].astype(np.float32), change.astype(np.float32), rtol=0.03)
