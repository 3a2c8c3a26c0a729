"""Which images a client selects: density ratios, and what they are estimated from."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings

from fedkd import methods, models, plan
from fedkd.methods import selectors
from fedkd.models.base import Preprocessed
from fedkd.types import Data, ExampleIndices, Pool
from helpers import CLASSES, pool, preprocessed, problem
from lone_servers import KEY

LINEAR = models.MLP((), classes=CLASSES)
SGD = optax.sgd(0.1)


def in_numpy(known, auxiliary, x, width, regulariser):
  kernel = lambda a, b: np.exp(-((a[:, None] - b) ** 2).sum(-1) / (2 * width**2))
  n, m = len(auxiliary), len(known)
  penalty = n**regulariser
  right = -kernel(auxiliary, known).sum(1) / (n * m * penalty)
  weight = np.linalg.solve(kernel(auxiliary, auxiliary) / n + penalty * np.eye(n), right)
  return kernel(x, auxiliary) @ weight + kernel(x, known).sum(1) / (m * penalty)


@pytest.mark.parametrize('regulariser', [-0.5, 0.5])
def test_the_ratio_is_that_of_numpy_and_padding_does_not_matter(regulariser):
  rng = np.random.default_rng(0)
  known, auxiliary, x = rng.normal(size=(7, 5)), rng.uniform(-2, 2, (9, 5)), rng.normal(size=(11, 5))
  there = np.arange(7) < 4
  known[4:] = np.nan_to_num(np.inf, posinf=50.0)
  ratio = jax.jit(lambda x: selectors.kulsif(*map(jnp.asarray, (known, there, auxiliary)), 2.0, regulariser)(x))
  np.testing.assert_allclose(ratio(x), in_numpy(known[:4], auxiliary, x, 2.0, regulariser), rtol=1e-3)


def test_of_one_example_and_itself_the_ratio_is_a_half():
  """1 / (1 + l), and l = 1 for one example, whatever the exponent."""
  one = jnp.ones((1, 3))
  np.testing.assert_allclose(selectors.kulsif(one, jnp.ones(1, bool), one)(one), [0.5], rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-3, 3, width=32), min_size=6, max_size=6), st.integers(1, 6), st.sampled_from([0, 0.25, 1]))
def test_quantiles_are_those_of_numpy(values, count, share):
  values, among = np.array(values, np.float32), np.arange(6) >= 6 - count
  found = selectors.quantile(jnp.asarray(values), jnp.asarray(among), share)
  np.testing.assert_allclose(found, np.quantile(values[among], share), rtol=1e-4, atol=1e-5)


def resembling(made, client, share=0.25, inputs='pixels', auxiliary=200, **how):
  data, model = made.data[0], made.groups[0].model
  own = jax.tree.map(lambda a: a[client], data.private)
  how = {'known': 0.3, 'width': 5.0, 'regulariser': -0.5, **how}
  variables = made.method.variables(made.state, 0)
  variables = jax.tree.map(lambda a: a[0], variables)
  return jax.jit(
    lambda rows: selectors.resembling(
      KEY, model, variables, data, own, rows, share=share, inputs=inputs, auxiliary=auxiliary, **how
    )
  )


@pytest.mark.parametrize('inputs', ['pixels', 'features'])
def test_clients_of_one_class_select_images_of_that_class(inputs):
  label = np.asarray(pool().label)
  parts = [np.flatnonzero(label == c)[:20] for c in range(CLASSES)]
  made = problem(methods.private(SGD), [LINEAR], [3], plan.synchronous()([3], 1), parts)
  rows = np.arange(60, 120)
  for c in range(CLASSES):
    found = np.asarray(resembling(made, c, inputs=inputs)(rows))
    assert found[label[rows] == c].mean() > 0.4
    assert found[label[rows] != c].mean() < 0.2


def test_with_the_quantile_0_all_other_own_rows_but_the_least_are_above():
  made = problem(methods.private(SGD), [LINEAR], [2], plan.synchronous()([2], 1), [np.arange(20), np.arange(20, 30)])
  for client, rows in ((0, np.arange(20)), (1, np.arange(20, 30))):
    found = np.asarray(resembling(made, client, share=0.0)(rows))
    others = len(rows) - int(0.3 * len(rows))
    assert others - 1 <= found.sum() < len(rows)  # those that the density is estimated from may be above or below


def test_of_a_client_whose_rows_are_sorted_by_class_all_classes_are_known():
  """The 30 % that its density is estimated from, were they the first of its rows, would be of the first class alone."""
  label = np.asarray(pool().label)
  parts = [np.concatenate([np.flatnonzero(label == c)[:20] for c in range(2)])]
  made = problem(methods.private(SGD), [LINEAR], [1], plan.synchronous()([1], 1), parts)
  rows = np.arange(60, 120)
  found = np.asarray(resembling(made, 0)(rows))
  share = [found[label[rows] == c].mean() for c in range(CLASSES)]
  assert min(share[:2]) > 0.3
  assert share[2] < 0.2


def test_the_box_of_mnist_is_the_published_one():
  model = Preprocessed(LINEAR, np.float32(255 * 0.1307), np.float32(1 / 255 / 0.3081))
  low, high = selectors._box(model, jnp.zeros((1, 2, 2, 1), jnp.uint8), None, None, 'pixels')
  np.testing.assert_allclose([low[0], high[0]], [-0.4242, 2.8215], atol=1e-4)
  assert low.shape == (4,)


class Told(Exception):
  """Carries what `kulsif` is told; the ratios themselves are not needed."""


def estimated_from(monkeypatch, known, rows, size, auxiliary=4):
  """(examples, which of them are there, noise, what else is told) of `kulsif` for a client with the first `size` of
  `rows` rows, two floats each: between 10 and 12, and between -7 and -3."""

  def kulsif(*args):
    raise Told(*args)

  monkeypatch.setattr(selectors, 'kulsif', kulsif)
  example = np.linspace([10, -7], [12, -3], rows, dtype=np.float32)
  own = ExampleIndices(jnp.arange(rows), jnp.int32(size), jnp.int32(0))
  how = {'known': known, 'auxiliary': auxiliary, 'width': 3.0, 'regulariser': -0.25, 'share': 0.5, 'inputs': 'pixels'}
  data = Data(Pool(jnp.asarray(example), None), own, own)
  with pytest.raises(Told) as told:
    selectors.resembling(KEY, preprocessed(LINEAR).clone(mean=None), {}, data, own, own.index, **how)
  first, there, noise, *rest = told.value.args
  return np.asarray(first), np.asarray(there), np.asarray(noise), rest


@pytest.mark.parametrize(
  ('known', 'rows', 'size', 'count', 'most'),
  [
    (0.3, 10, 5, 1, 3),  # of the rows there are, not of those there could be
    (0.29, 100, 100, 29, 29),  # 28.999999999999996 as the host multiplies
    (0.072, 375, 375, 27, 27),  # 26.999998 as 32 bits do
    (0.21, 300, 300, 63, 63),  # 62.99999
    (0.01, 5, 5, 1, 1),  # at least one
  ],
)
def test_the_share_of_its_examples_is_counted_as_on_paper(monkeypatch, known, rows, size, count, most):
  first, there, _, _ = estimated_from(monkeypatch, known, rows, size)
  assert len(first) == len(there) == most
  np.testing.assert_array_equal(there, np.arange(most) < count)


def test_the_noise_fills_the_box_of_all_inputs(monkeypatch):
  _, _, noise, told = estimated_from(monkeypatch, 0.5, 6, 6, auxiliary=400)
  assert noise.shape == (400, 2)
  np.testing.assert_allclose(noise.min(0), [10, -7], atol=0.05)
  np.testing.assert_allclose(noise.max(0), [12, -3], atol=0.05)
  assert (np.abs(noise.mean(0) - [11, -5]) < 5 * np.array([2, 4]) / np.sqrt(12 * 400)).all()
  assert told == [3.0, -0.25]  # the width, then the exponent
