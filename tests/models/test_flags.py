"""Whatever a flag for training is called and wherever it is, a module is given its right value."""

import flax.linen as nn
import flax.nnx as nnx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings

from fedkd.models import base
from fedkd.models.base import Classifier

X = jnp.zeros((1, 3))
TRAIN = {'train', 'training', 'is_training', 'is_train', 'train_mode'}
EVALUATE = {'deterministic', 'use_running_average', 'inference', 'inference_mode', 'is_inference'}
EVALUATE |= {'eval', 'evaluate', 'evaluation', 'eval_mode', 'is_eval', 'test', 'testing', 'is_test'}
SEEN: list = []  # what the modules below were given, a dict per call

defaults = st.dictionaries(st.sampled_from(sorted(TRAIN | EVALUATE)), st.booleans(), min_size=1, max_size=3)
thorough = settings(max_examples=60)


def right(names, train):
  return {name: train == (name in TRAIN) for name in names}


def method(values, before='', read='{}'):
  """f(self, x, a=.., b=..) that notes the values of its flags and returns x; `before`: '*, ' for keywords only."""
  arguments = ''.join(f', {name}={value}' for name, value in values.items()) if read == '{}' else ', **given'
  noted = ', '.join(f'{name!r}: {read.format(name)}' for name in values)
  scope = {'SEEN': SEEN}
  exec(f'def f(self, x{before}{arguments}):\n  SEEN.append({{{noted}}})\n  return x', scope)
  return scope['f']


def module(fields=None, **methods):
  fields = fields or {}
  own = {'__annotations__': dict.fromkeys(fields, bool), '__module__': __name__, **fields, **methods}
  return type('Net', (nn.Module,), own)()


def seen(net, train, method=None):
  """What each function of a module that notes its flags saw, in one pass."""
  model = base.adapted(net, X)
  jax.eval_shape(lambda key: model.init({'params': key, 'dropout': key}, X, False), jax.random.key(0))
  SEEN.clear()
  jax.eval_shape(lambda: model.apply({}, X, train) if method is None else model.apply({}, X, train, method=method))
  return list(SEEN)


@thorough
@given(defaults, st.booleans(), st.sampled_from(['', ', *']))
def test_as_arguments_of_call(values, train, before):
  assert seen(module(__call__=method(values, before)), train) == [right(values, train)]


@given(st.sampled_from(sorted({*TRAIN, *EVALUATE, 'mode', 'learning', 'is_on'})), st.booleans())
def test_as_an_argument_that_must_be_given(name, train):
  scope = {'SEEN': SEEN}
  exec(f'def call(self, x, {name}):\n  SEEN.append({{{name!r}: {name}}})\n  return x', scope)
  expected = right([name], train) if name in TRAIN | EVALUATE else {name: train}
  assert seen(module(__call__=scope['call']), train) == [expected]


@thorough
@given(defaults, defaults, st.booleans())
def test_as_arguments_of_features_and_head(of_features, of_head, train):
  net = module(__call__=method({}), features=method(of_features), head=method(of_head))
  assert seen(net, train) == [right(of_features, train), right(of_head, train)]
  assert seen(net, train, 'features') == [right(of_features, train)]


@given(defaults, st.booleans())
def test_in_one_of_features_and_head_of_a_classifier(values, train):
  fields = {'__annotations__': {'classes': int, 'lowering': str}, 'classes': 3, 'lowering': 'auto'}
  plain = lambda self, x: x
  agreed = lambda self, x, train: x
  for own in (
    {'features': method(values), 'head': plain},
    {'features': plain, 'head': method(values)},
    {'features': agreed, 'head': method(values)},
  ):
    net = type('Net', (Classifier,), {**fields, **own, '__module__': __name__})()
    assert seen(net, train) == [right(values, train)]


@given(defaults)
def test_the_head_alone_is_in_evaluation(values):
  model = base.adapted(module(__call__=method({}), features=method({}), head=method(values)), X)
  SEEN.clear()
  jax.eval_shape(lambda: model.apply({}, X, method='head'))
  assert list(SEEN) == [right(values, False)]


def noting_fields(values):
  scope = {'SEEN': SEEN}
  noted = ', '.join(f'{name!r}: self.{name}' for name in values)
  exec(f'def f(self, x):\n  SEEN.append({{{noted}}})\n  return x', scope)
  return scope['f']


@thorough
@given(defaults, st.booleans(), st.sampled_from(['alone', 'sequential', 'tuple', 'dict', 'field']))
def test_as_fields(values, train, place):
  net = module(values, __call__=noting_fields(values))
  if place == 'sequential':
    net = nn.Sequential([net])
  elif place != 'alone':
    held = {'tuple': (net,), 'dict': {'a': net}, 'field': net}[place]
    inner = {'tuple': lambda self: self.held[0], 'dict': lambda self: self.held['a'], 'field': lambda self: self.held}
    call = lambda self, x: inner[place](self)(x)
    outer = type('Outer', (nn.Module,), {'__annotations__': {'held': object}, '__call__': call, '__module__': __name__})
    net = outer(held)
  before = repr(net)
  assert seen(net, train) == [right(values, train)]
  assert repr(net) == before  # somebody's own module is not written to


@given(st.sampled_from(sorted(TRAIN | EVALUATE)), st.booleans())
def test_as_a_field_that_nobody_has_set(name, train):
  net = module({name: None}, __call__=noting_fields([name]))
  assert seen(net, train) == [right([name], train)]


@pytest.mark.parametrize('train', [True, False])
def test_a_field_that_is_no_flag_stays(train):
  fields = {'train': 3, 'evaluation': 'none', 'width': True}
  assert seen(module(fields, __call__=noting_fields(fields)), train) == [fields]


@thorough
@given(defaults, st.booleans(), st.sampled_from(["given['{}']", "given.get('{}', False)", "given.get('{}', True)"]))
def test_in_keywords_of_any_name(values, train, read):
  assert seen(module(__call__=method(values, read=read)), train) == [right(values, train)]


@given(st.sampled_from(sorted(TRAIN | EVALUATE)), st.booleans())
def test_in_keywords_that_are_passed_on_to_one_layer(name, train):
  scope = {'inner': method({name: not train})}
  exec('def f(self, x, **given):\n  return inner(self, x, **given)', scope)
  assert seen(module(__call__=scope['f']), train) == [right([name], train)]


@thorough
@given(defaults, st.booleans())
def test_in_nnx_modules(values, train):
  net = type('Net', (nnx.Module,), {'__init__': lambda self, rngs: None, '__call__': method(values)})
  assert seen(nnx.bridge.to_linen(net), train) == [right(values, train)]


@pytest.mark.parametrize('train', [True, False])
def test_layers_and_attributes_of_nnx_modules(train):
  class Net(nnx.Module):
    def __init__(self, rngs):
      self.drop, self.norm = nnx.Dropout(0.5, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)
      self.training, self.is_training = not train, not train

    def __call__(self, x):
      given = {'deterministic': self.drop.deterministic, 'use_running_average': self.norm.use_running_average}
      SEEN.append({**given, 'training': self.training, 'is_training': self.is_training})
      return x

  model = base.adapted(nnx.bridge.to_linen(Net), X)
  variables = jax.eval_shape(lambda key: model.init({'params': key, 'dropout': key}, X, False), jax.random.key(0))
  SEEN.clear()
  jax.eval_shape(lambda variables: model.apply(variables, X, train), variables)
  assert list(SEEN) == [right(['deterministic', 'use_running_average', 'training', 'is_training'], train)]
