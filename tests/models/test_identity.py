"""Which modules count as one architecture: arrays by value, functions by code and by what they close over."""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import flax.core
import flax.linen as nn
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings

from fedkd import models
from fedkd.models import base, groups
from fedkd.models.identity import identity, name_of

BIG = np.arange(40_000, dtype=np.float32).reshape(200, 200)


class Holding(nn.Module):
  held: Any

  def __call__(self, x):
    return x


def count(*values):
  """How many groups modules that hold these values form."""
  return len(groups.grouped([Holding(v) for v in values], [Holding(v) for v in values]))


HOLDERS: dict[str, Callable] = {
  'itself': lambda a: a,
  'JAX': jnp.asarray,
  'tuple': lambda a: (1, a),
  'list': lambda a: [a, 'b'],
  'dict': lambda a: {'a': a, 'b': 2},
  'FrozenDict': lambda a: flax.core.freeze({'a': {'b': a}}),
  'dict of tuples of dicts': lambda a: {'a': ({'b': a},)},
  'module': lambda a: Holding(a),
  'modules in a tuple': lambda a: (nn.Dense(3), Holding((a,))),
  'partial': lambda a: functools.partial(jnp.add, a),
  'partial by name': lambda a: functools.partial(jnp.where, x=a),
  'closure': lambda a: lambda x: x + a,
  'default': lambda a: lambda x, a=a: x + a,
}
arrays = hnp.arrays(st.sampled_from([np.float32, np.int32, np.uint8, np.bool_]), hnp.array_shapes(max_side=3))


@settings(max_examples=60)
@given(arrays, st.sampled_from(sorted(HOLDERS)), st.data())
def test_arrays_are_compared_by_value(array, holder, data):
  hold = HOLDERS[holder]
  if array.dtype == np.float32:
    array = np.nan_to_num(array)
  other = array.copy()
  place = data.draw(st.integers(0, array.size - 1))
  other.flat[place] = not other.flat[place]
  same = (other.flat[place] == array.flat[place]).item()
  assert count(hold(array), hold(array.copy())) == 1
  assert count(hold(array), hold(other)) == 2 - same
  assert count(hold(array), hold(array[None])) == 2


@pytest.mark.parametrize('holder', HOLDERS)
def test_one_number_in_the_middle_of_a_large_array(holder):
  other = BIG.copy()
  other[100, 100] += 1
  hold = HOLDERS[holder]
  assert count(hold(BIG), hold(other), hold(BIG.copy())) == 2


DIFFERENT = {
  'dtypes': (np.ones(3, np.float32), np.ones(3, np.float64), np.ones(3, np.int32), np.ones(3, bool)),
  'dtypes of equal bytes': (np.zeros(3, np.float32), np.zeros(3, np.int32)),
  'half precisions of equal bytes': (np.zeros(3, np.float16), np.asarray(jnp.zeros(3, jnp.bfloat16))),
  'dtypes of two bytes': tuple(np.asarray(jnp.zeros(2, d)) for d in (jnp.float8_e4m3fn, jnp.float8_e5m2)),
  'half precisions': (np.ones(3, np.float16), np.asarray(jnp.ones(3, jnp.bfloat16))),
  'shapes': (np.ones(6), np.ones((2, 3)), np.ones((3, 2)), np.ones((1, 6))),
  'signs of zero': (np.float32([0.0]), np.float32([-0.0])),
  'masks': (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0]), np.array([1, 2])),
  'array and number': (np.float32(1), 1),
  'truth and number': (True, 1, 'True'),
  'keys': (jax.random.key(0), jax.random.key(1), jax.random.PRNGKey(0)),
  'keys of a mapping': ({'a': BIG}, {'b': BIG}),
  'lengths of a tuple': ((BIG,), (BIG, BIG)),
  'places in a tuple': ((1, BIG), (BIG, 1)),
  'dtypes as fields': (jnp.float32, jnp.bfloat16, np.dtype('int8'), None),
  'fields of a layer': (nn.Dense(3), nn.Dense(4), nn.Dense(3, use_bias=False)),
  'classes of a layer': (nn.LayerNorm(), nn.RMSNorm()),
  'objects': (np.array([1, None], object), np.array([1, 2], object)),
}
EQUAL = {
  'NumPy and JAX': (np.ones(3, np.float32), jnp.ones(3, jnp.float32)),
  'orders in memory': (BIG, np.asfortranarray(BIG), np.repeat(BIG, 2, 1)[:, ::2]),
  'objects in arrays': (np.array([int('1000000'), None], object), np.array([int('1000000'), None], object)),
  'NaN': (np.float32([np.nan]), np.float32([np.nan])),
  'a float that is NaN': (float('nan'), float('nan')),
  'keys': (jax.random.key(0), jax.random.key(0)),
  'orders of a mapping': ({'a': 1, 'b': BIG}, {'b': BIG, 'a': 1}),
  'kinds of mapping': ({'a': BIG}, flax.core.freeze({'a': BIG})),
  'kinds of dtype': (np.float32, jnp.float32, np.dtype('float32')),
  'layers': (nn.Conv(3, (2, 2)), nn.Conv(3, (2, 2))),
}


@pytest.mark.parametrize('case', DIFFERENT)
def test_different(case):
  values = DIFFERENT[case]
  assert len({identity(value) for value in values}) == len(values) == count(*values)


@pytest.mark.parametrize('case', EQUAL)
def test_equal(case):
  assert len({identity(value) for value in EQUAL[case]}) == 1


@pytest.mark.parametrize('options', [{'threshold': 5}, {'precision': 1}, {'formatter': {'float': lambda x: '?'}}])
def test_independent_of_how_numbers_are_printed(options):
  one, other = BIG[0], BIG[0] + 1e-3
  model = base.Preprocessed(Holding(one))
  told = name_of(model), identity(one)
  with np.printoptions(**options):
    assert (name_of(model), identity(one)) == told
    assert count(one, one.copy(), other) == 2
    assert name_of(base.Preprocessed(Holding(other))) != told[0]


class Act:
  def __init__(self, scale):
    self.scale = scale

  def double(self, x):
    return 2 * x * self.scale


def sloped(slope):
  def act(x):
    return jnp.where(x > 0, x, slope * x)

  return act


def endless(slope):
  def act(x, depth=2):
    return act(x, depth - 1) if depth else slope * x

  return act


ACT = Act(1)
MADE: dict[str, Callable] = {  # of a number: equal numbers shall be equal functions
  'lambda': lambda n: lambda x: x * n,
  'function': sloped,
  'function of an array': lambda n: sloped(np.full(2000, n)),
  'function of a function': lambda n: sloped(sloped(n)),
  'function that calls itself': endless,
  'default': lambda n: lambda x, n=n: x * n,
  'default by name': lambda n: lambda x, *, n=n: x * n,
  'partial': lambda n: functools.partial(nn.leaky_relu, negative_slope=n),
  'partial of a partial': lambda n: functools.partial(functools.partial(nn.leaky_relu), negative_slope=n),
  'jitted': lambda n: jax.jit(lambda x: x * n),
  'jitted partial': lambda n: functools.partial(jax.jit(sloped(n)), 2.0),
  'vmapped': lambda n: jax.vmap(lambda x: x * n),
  'bound method': lambda n: nn.Dense(n).__call__,
  'initialiser': lambda n: nn.initializers.normal(n),
  'scaled initialiser': lambda n: nn.initializers.variance_scaling(n, 'fan_in', 'normal'),
  'constant initialiser': lambda n: nn.initializers.constant(n),
  'schedule of optax': lambda n: optax.cosine_decay_schedule(n, 100),
  'optimizer of optax': lambda n: optax.sgd(n, momentum=0.9),
  'Sequential': lambda n: nn.Sequential([nn.Dense(n), lambda x: x, nn.Sequential([nn.relu, nn.Dense(3)])]),
  'Sequential of an initialiser': lambda n: nn.Sequential([nn.Dense(2, kernel_init=nn.initializers.normal(n))]),
}


@pytest.mark.parametrize('case', MADE)
def test_functions_are_compared_by_code_and_values(case):
  make = MADE[case]
  assert count(make(1), make(1)) == 1
  assert count(make(1), make(2), make(2), make(3)) == 3


def test_functions_of_different_code_are_different():
  one, other = (lambda x: x), (lambda y: y + 1)
  assert count(one, other, nn.relu, nn.gelu, jnp.tanh, nn.initializers.zeros, nn.initializers.ones) == 7


def test_an_object_equals_only_itself():
  assert count(ACT.double, ACT.double) == 1
  assert count(ACT.double, Act(1).double) == 2
  assert count(Act(1), Act(1), Act(1)) == 3  # none takes the address of another


def test_a_value_that_is_not_compared_does_not_count():
  class Named(Holding):
    name: str | None = None

  text = identity(Named(1))
  assert text == identity(Named(1).clone(parent=None))
  assert identity(base.Adapted(Holding(1), 3)) != identity(base.Adapted(Holding(1), 4))


NAMES = {  # zlib.crc32 of names that stored runs drew their initial weights by
  3847777373: models.MLP((64,)),
  1702093106: models.MLP((8, 4), classes=3),
  423418560: models.ResNet10(),
  459342350: models.LeNet(),
  2405687965: models.TwoConv((8, 16)),
  458796437: models.AlexNet(),
  461903542: models.VGG11(),
  1045564503: models.MobileNetV2(),
  1450599056: models.GKTClient(),
  332455751: models.PreActResNet(),
}


@pytest.mark.parametrize('lowering', ['auto', 'matmul'])
def test_names_of_the_models_are_those_of_before(lowering):
  for name, net in NAMES.items():
    model = base.Preprocessed(net.clone(lowering=lowering), np.ones((2, 2, 3), np.float32), np.ones(3, np.float32))
    assert zlib.crc32(name_of(model).encode()) == name, type(net).__name__


@pytest.mark.parametrize('net', [models.LeNet((8, 16)), models.LeNet(rate=0.5), models.GKTClient(stem='imagenet')])
def test_the_name_tells_an_added_field_of_another_value(net):
  assert name_of(base.Preprocessed(net)) not in map(name_of, map(base.Preprocessed, NAMES.values()))
  assert repr(net) == name_of(base.Preprocessed(net))


def test_the_name_of_a_large_array_tells_its_middle():
  other = BIG.copy()
  other[100, 100] += 1
  for hold in (HOLDERS[kind] for kind in ('itself', 'JAX', 'tuple', 'list', 'dict', 'FrozenDict', 'module')):
    one, changed, equal = (name_of(base.Preprocessed(Holding(hold(a)))) for a in (BIG, other, BIG.copy()))
    assert one == equal != changed


def test_a_name_has_no_address():
  made = {name_of(base.Preprocessed(Holding(lambda x: x))) for _ in range(3)}
  assert len(made) == 1
  assert '0x' not in made.pop()
