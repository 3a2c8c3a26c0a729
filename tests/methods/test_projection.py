"""FedH2L's projection: the exact cases of the paper's formula, its laws, and a generic solver."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from fedkd.methods import projection
from helpers import assert_close, assert_same_bits

qp, pcgrad, none = (jax.jit(f) for f in (projection.qp, projection.pcgrad, projection.none))
every_projection = pytest.mark.parametrize('project', [qp, pcgrad, none], ids=['qp', 'pcgrad', 'none'])
WIDTH = 6  # one shape, one compilation
seeds = st.integers(0, 2**31 - 1)


def pair(seed, width=WIDTH):
  """A random gradient and a random reference, of different lengths."""
  rng = np.random.default_rng(seed)
  return rng.normal(size=width).astype(np.float32), 3 * rng.normal(size=width).astype(np.float32)


def tree(vector):
  """Six numbers as several leaves."""
  return {'a': {'kernel': vector[:4].reshape(2, 2), 'bias': vector[4:5]}, 'b': vector[5]}


@pytest.mark.parametrize(
  ('reference', 'grad', 'dual', 'direction'),
  [
    ((1, 0), (-1, 1), 1, (0, 1)),
    ((2, 0), (-1, 1), 0.5, (0, 1)),
    ((1, 0), (1, 1), 0, (1, 1)),
    ((1, 0), (0, 1), 0, (0, 1)),
    ((0, 0), (-1, 1), 0, (-1, 1)),
    ((1, -2), (-1, 2), 1, (0, 0)),
    ((0, 0), (0, 0), 0, (0, 0)),
    ((1, 2), (0, 0), 0, (0, 0)),
  ],
)
def test_exact_cases(reference, grad, dual, direction):
  found, info = projection.qp(jnp.array(grad, jnp.float32), jnp.array(reference, jnp.float32))
  np.testing.assert_array_equal(found, direction)
  assert float(info['dual']) == dual
  assert float(info['violated']) == (np.dot(reference, grad) < 0)


@every_projection
@given(seeds)
def test_info_is_of_the_two_gradients(project, seed):
  grad, reference = pair(seed)
  info = project(grad, reference)[1]
  inner, cosine = grad @ reference, grad @ reference / np.linalg.norm(grad) / np.linalg.norm(reference)
  assert set(info) == {'cosine', 'violated', 'dual'}
  np.testing.assert_allclose(info['cosine'], cosine, atol=1e-5)
  assert float(info['violated']) == (inner < 0)
  dual = 0 if project is none else max(0, -inner / (reference @ reference))
  np.testing.assert_allclose(info['dual'], dual, rtol=1e-4, atol=1e-6)


@given(seeds)
def test_never_works_against_the_reference(seed):
  grad, reference = pair(seed)
  direction = np.asarray(qp(grad, reference)[0])
  tolerance = 1e-5 * np.linalg.norm(grad) * np.linalg.norm(reference)
  if grad @ reference < 0:
    assert abs(direction @ reference) < tolerance
  else:
    np.testing.assert_array_equal(direction, grad)


@given(seeds)
def test_is_idempotent(seed):
  grad, reference = pair(seed)
  once = qp(grad, reference)[0]
  np.testing.assert_allclose(qp(once, reference)[0], once, atol=1e-5)


@given(seeds, st.floats(1e-3, 1e3))
def test_does_not_see_the_length_of_the_reference(seed, scale):
  grad, reference = pair(seed)
  np.testing.assert_allclose(qp(grad, np.float32(scale) * reference)[0], qp(grad, reference)[0], rtol=1e-4, atol=1e-5)


@given(seeds, seeds)
def test_no_feasible_point_is_nearer(seed, other):
  grad, reference = pair(seed)
  point = pair(other)[0]
  point += max(0, -(point @ reference) / (reference @ reference)) * reference  # feasible
  nearest = np.linalg.norm(np.asarray(qp(grad, reference)[0]) - grad)
  assert nearest <= np.linalg.norm(point - grad) + 1e-5


@given(seeds)
def test_equals_a_generic_solver(seed):
  grad, reference = (v.astype(float) for v in pair(seed))
  found = minimize(
    lambda g: (g - grad) @ (g - grad) / 2,
    np.zeros(WIDTH),
    jac=lambda g: g - grad,
    constraints={'type': 'ineq', 'fun': lambda g: g @ reference, 'jac': lambda g: reference},
    method='SLSQP',
    options={'ftol': 1e-12},
  )
  assert found.success
  np.testing.assert_allclose(qp(*pair(seed))[0], found.x, atol=1e-4)


@given(seeds)
def test_pcgrad_is_the_formula_of_its_authors(seed):
  """PCGrad's loop over both tasks: each gradient loses its part along the other where they disagree, then the sum."""
  first, second = (v.astype(float) for v in pair(seed))
  inner = first @ second
  expected = first - min(inner, 0) / (second @ second) * second + second - min(inner, 0) / (first @ first) * first
  np.testing.assert_allclose(pcgrad(*pair(seed))[0], expected, rtol=1e-4, atol=1e-5)


@given(seeds)
def test_qp_is_pcgrads_projection_of_the_first_gradient(seed):
  grad, reference = pair(seed)
  assume(grad @ reference < 0)
  expected = grad - (grad @ reference) / (reference @ reference) * reference
  np.testing.assert_allclose(qp(grad, reference)[0], expected, rtol=1e-4, atol=1e-5)


def test_none_changes_nothing():
  grad, reference = jnp.array([-1.0, 1.0]), jnp.array([2.0, 0.0])
  direction, info = projection.none(grad, reference)
  assert_same_bits(direction, grad)
  assert (float(info['dual']), float(info['violated'])) == (0, 1)
  np.testing.assert_allclose(info['cosine'], -np.sqrt(0.5), rtol=1e-6)


@pytest.mark.parametrize(
  ('grad', 'margin', 'ridge', 'dual'),
  [
    ((-1.0, 1.0), 0.0, 1.0, 1 / 2),  # -<g, m> / (|m|^2 + ridge)
    ((-1.0, 1.0), 0.5, 1e-3, 1 / 1.001),
    ((1.0, 1.0), 0.5, 1e-3, 0.5),  # GEM's margin acts on gradients that agree, too
    ((-0.1, 1.0), 0.5, 1e-3, 0.5),
  ],
)
def test_margin_and_ridge_of_gem(grad, margin, ridge, dual):
  direction, info = projection.qp(jnp.array(grad), jnp.array([1.0, 0.0]), margin, ridge)
  np.testing.assert_allclose(info['dual'], dual, rtol=1e-6)
  np.testing.assert_allclose(direction, np.array(grad) + dual * np.array([1, 0]), rtol=1e-6, atol=1e-7)


def test_a_reference_of_zero_constrains_nothing_even_with_a_margin():
  direction, info = projection.qp(jnp.array([-1.0, 1.0]), jnp.zeros(2), 0.5, 1e-3)
  np.testing.assert_array_equal(direction, [-1, 1])
  assert float(info['dual']) == 0


@every_projection
@given(seeds)
def test_all_leaves_are_one_vector(project, seed):
  grad, reference = pair(seed)
  whole, expected = project(grad, reference)
  found, info = project(tree(grad), tree(reference))
  assert jax.tree.structure(found) == jax.tree.structure(tree(grad))
  assert_close(found, tree(whole))
  assert_close(info, expected)


def test_leaves_that_disagree_alone_may_agree_together():
  grad, reference = {'a': jnp.array([-1.0]), 'b': jnp.array([2.0])}, {'a': jnp.array([1.0]), 'b': jnp.array([1.0])}
  assert_same_bits(projection.qp(grad, reference)[0], grad)


@every_projection
@pytest.mark.parametrize('grad', [(-1.0, 1.0), (0.0, 0.0)])
@pytest.mark.parametrize('reference', [(0.0, 0.0), (1.0, 0.0)])
def test_values_and_gradients_are_finite(project, grad, reference):
  def everything(grad, reference):
    direction, info = project(grad, reference)
    return jnp.sum(direction) + info['dual'] + info['violated']

  arguments = jnp.array(grad), jnp.array(reference)
  value, slopes = jax.value_and_grad(everything, (0, 1))(*arguments)
  assert np.isfinite(value)
  assert np.isfinite(ravel_pytree(slopes)[0]).all()
  assert np.isfinite(project(*arguments)[1]['cosine'])
  if reference == (0, 0):
    np.testing.assert_array_equal(slopes[0], 1)  # the identity
