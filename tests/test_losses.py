import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd.losses import masked_squared_error

OUTPUT = jnp.array([1.0, 2.0, -1.0])
TARGET = jnp.array([0.0, 2.0, 1.0])


def test_is_the_mean_over_the_logits():
  assert masked_squared_error(OUTPUT, TARGET, jnp.array(True)) == pytest.approx((1 + 0 + 4) / 3)


def test_gradient_is_that_of_a_mean_square_and_stops_at_the_target():
  d_output, d_target = jax.grad(masked_squared_error, (0, 1))(OUTPUT, TARGET, jnp.array(True))
  np.testing.assert_allclose(d_output, 2 / 3 * (OUTPUT - TARGET), rtol=1e-6)
  np.testing.assert_array_equal(d_target, 0)


@pytest.mark.parametrize('hole', [0.0, np.nan, np.inf])
def test_without_knowledge_value_and_gradient_are_zero(hole):
  value, gradient = jax.value_and_grad(masked_squared_error)(OUTPUT, jnp.full(3, hole), jnp.array(False))
  assert value == 0
  np.testing.assert_array_equal(gradient, 0)


def test_maps_over_a_batch():
  valid = jnp.array([True, False, True])
  targets = jnp.stack([TARGET, jnp.full(3, jnp.nan), OUTPUT])
  values = jax.vmap(masked_squared_error)(jnp.stack([OUTPUT] * 3), targets, valid)
  np.testing.assert_allclose(values, [5 / 3, 0, 0], rtol=1e-6)


def test_refuses_batches():
  with pytest.raises(AssertionError, match='rank'):
    masked_squared_error(OUTPUT[None], TARGET[None], jnp.array([True]))
