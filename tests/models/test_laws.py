"""Modules that train in evaluation mode, or evaluate in training mode, are refused; the others are let in."""

import warnings

import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd.errors import ConfigError
from fedkd.models import MLP, base, laws

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
  monkeypatch.setattr(laws, '_passed', set())


def linen(call):
  return type('Net', (nn.Module,), {'__call__': nn.compact(call), '__module__': __name__})()


def of_nnx(norm=None, drop=None, call=None):
  class Net(nnx.Module):
    def __init__(self, rngs):
      self.norm, self.drop = nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

  Net.__call__ = call
  return nnx.bridge.to_linen(Net)


def check(net):
  laws.check_modes('Net', base.Preprocessed(base.adapted(net, X[:1])), X)


def norm(x, **flag):
  return nn.BatchNorm(**flag)(x)


def drop(x, deterministic, rate=0.5):
  return nn.Dropout(rate, deterministic=deterministic)(x)


NEVER_MOVES = 'models: Net trains with BatchNorm in evaluation mode'
NEVER_DRAWS = 'models: Net trains without its dropout'
DRAWS = 'models: Net draws random numbers in evaluation'
DEPENDS = 'models: Net gives an example other logits in evaluation when the rest of the batch changes'


def attention(self, x, deterministic=True):
  return nn.MultiHeadDotProductAttention(1, dropout_rate=0.5, deterministic=True)(x[:, None])[:, 0]


def own_statistics(self, x, train):
  """Moves its mean in evaluation, too."""
  mean = self.variable('batch_stats', 'mean', lambda: jnp.zeros(3))
  mean.value = x.mean(0)
  return x - mean.value


REFUSED = {
  'BatchNorm that never moves': (NEVER_MOVES, lambda self, x: norm(x, use_running_average=True)),
  'BatchNorm that a word switches': (
    NEVER_MOVES,
    lambda self, x, mode='eval': norm(x, use_running_average=mode == 'eval'),
  ),
  'BatchNorm that an unknown keyword switches': (
    NEVER_MOVES,
    lambda self, x, **given: norm(x, use_running_average=not given.get('learn', False)),
  ),
  'BatchNorm that an unknown flag switches': (
    NEVER_MOVES,
    lambda self, x, learning=False: norm(x, use_running_average=not learning),
  ),
  'BatchNorm, its flag dropped': (NEVER_MOVES, lambda self, x, train: norm(x, use_running_average=True)),
  'BatchNorm, its flag turned round': (NEVER_MOVES, lambda self, x, train: norm(x, use_running_average=train)),
  'two BatchNorms that never move': (
    NEVER_MOVES,
    lambda self, x: norm(norm(x, use_running_average=True), use_running_average=True),
  ),
  'dropout that never draws': (NEVER_DRAWS, lambda self, x: drop(x, True)),
  'dropout, its flag given in the call': (NEVER_DRAWS, lambda self, x, train: nn.Dropout(0.5)(x, True)),
  'dropout that a word switches': (NEVER_DRAWS, lambda self, x, mode='eval': drop(x, mode == 'eval')),
  'dropout of everything that never draws': (NEVER_DRAWS, lambda self, x: drop(x, True, 1.0)),
  'dropout in attention that never draws': (NEVER_DRAWS, attention),
  'dropout in evaluation alone': (NEVER_DRAWS, lambda self, x, train: drop(x, train)),
  'dropout in evaluation, too': (DRAWS, lambda self, x, train: drop(x, False)),
  'noise in evaluation': (
    DRAWS,
    lambda self, x, train: x + jax.random.normal(self.make_rng('dropout'), x.shape),
  ),
  'the statistics of the batch, in evaluation, too': (
    DEPENDS,
    lambda self, x, train: norm(x, use_running_average=False),
  ),
  'minus the mean of the batch': (DEPENDS, lambda self, x: x - x.mean(0)),
  'softmax over the batch': (DEPENDS, lambda self, x: jax.nn.softmax(nn.Dense(3)(x), axis=0)),
  'the example before': (DEPENDS, lambda self, x: nn.Dense(3)(jnp.roll(x, 1, axis=0))),
  'statistics that move in evaluation': (DEPENDS, own_statistics),
}
REFUSED_OF_NNX = {
  'BatchNorm that never moves': (NEVER_MOVES, lambda self, x: self.norm(x, use_running_average=True)),
  'dropout that never draws': (NEVER_DRAWS, lambda self, x: self.drop(self.norm(x), deterministic=True)),
  'dropout in evaluation, too': (DRAWS, lambda self, x: self.drop(self.norm(x), deterministic=False)),
  'the statistics of the batch, in evaluation, too': (
    DEPENDS,
    lambda self, x: self.drop(self.norm(x, use_running_average=False)),
  ),
}
RIGHT = {
  'train': lambda self, x, train: drop(norm(x, use_running_average=not train), not train),
  'deterministic': lambda self, x, deterministic: drop(norm(x, use_running_average=deterministic), deterministic),
  'no dropout at all': lambda self, x: drop(x, True, 0.0),
  'layers without modes': lambda self, x: nn.Dense(3)(nn.LayerNorm()(nn.GroupNorm(1)(x))),
  'large logits': lambda self, x: 1e6 * nn.Dense(3)(x),
  'dropout as one layer of two modes': lambda self, x, train: drop(drop(x, True, 0.0), not train),
  'the same layer twice, once in each mode': lambda self, x, train: [
    (layer := nn.Dropout(0.5))(x, deterministic=not train),
    layer(x, deterministic=True),
  ][0],
}


def refusal(net):
  with pytest.raises(ConfigError) as error:
    check(net)
  line = str(error.value)
  assert '\n' not in line
  return line


@pytest.mark.parametrize('case', REFUSED)
def test_refused(case):
  begins, call = REFUSED[case]
  line = refusal(linen(call))
  assert line.startswith(begins)
  layer = 'use_running_average' if begins in (NEVER_MOVES, DEPENDS) else 'deterministic'
  assert line.endswith(f'give `__call__` (or `features`) an argument `train`, and pass it on as `{layer}=not train`')


def test_probabilities_are_no_logits():
  line = refusal(linen(lambda self, x: nn.softmax(nn.Dense(3)(x))))
  assert line.startswith('models: Net returns probabilities, ')
  assert line.endswith('; return the numbers before softmax')
  check(linen(lambda self, x: nn.log_softmax(nn.Dense(3)(x))))
  check(linen(lambda self, x: nn.sigmoid(nn.Dense(3)(x))))


@pytest.mark.parametrize('case', REFUSED_OF_NNX)
def test_refused_of_nnx(case):
  begins, call = REFUSED_OF_NNX[case]
  assert refusal(of_nnx(call=call)).startswith(begins)


@pytest.mark.parametrize('case', RIGHT)
def test_let_in(case):
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    check(linen(RIGHT[case]))


def test_let_in_of_nnx():
  check(of_nnx(call=lambda self, x: self.drop(self.norm(x))))


def test_layers_are_named():
  def call(self, x):
    for i in range(5):
      x = nn.BatchNorm(use_running_average=True, name=f'norm{i}')(x)
    return x

  assert '(net/net/norm0, net/net/norm1, net/net/norm2, ...)' in refusal(linen(call)).replace('[', '').replace(']', '')


@pytest.mark.parametrize('what', ['BatchNorm', 'dropout'])
def test_where_one_of_two_layers_is_still_it_is_said(what):
  def call(self, x, train):
    if what == 'BatchNorm':
      return norm(norm(x, use_running_average=True), use_running_average=not train)
    return drop(drop(x, True), not train)

  with pytest.warns(UserWarning, match=f'Net trains with.*{what}.*_0.*unless it shall be so'):
    check(linen(call))


def test_what_fails_in_training_alone_is_said_with_its_line():
  def call(self, x, train):
    return x @ jnp.ones((4, 4)) if train else x

  line = refusal(linen(call))
  assert line.startswith('model test_laws:Net (test_laws.py, line ')
  assert 'return x @ jnp.ones((4, 4)) if train else x) raised TypeError: ' in line


def test_it_is_looked_at_once_and_again_for_other_examples(monkeypatch):
  looked = []
  monkeypatch.setattr(laws, '_check_training', lambda *args: looked.append(args[0]))
  monkeypatch.setattr(laws, '_check_evaluation', lambda *args: None)
  net, wide = linen(RIGHT['train']), linen(lambda self, x: x)
  for model in (net, net.clone(), wide, net):
    check(model)
  assert len(looked) == 2
  laws.check_modes('Net', base.Preprocessed(base.adapted(net, X[:1])), np.zeros((2, 7), np.float32))
  assert len(looked) == 3


def test_a_module_that_is_refused_is_refused_again():
  net = linen(REFUSED['dropout that never draws'][1])
  assert refusal(net) == refusal(net)


def test_modules_of_the_package_are_not_looked_at(monkeypatch):
  monkeypatch.setattr(laws, '_check_training', None)
  check(MLP((4,), classes=3))
