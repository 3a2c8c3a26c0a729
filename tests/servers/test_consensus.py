"""The rows that a server draws."""

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.servers import stratified


def test_of_labels_that_are_all_different_every_one_is_drawn_as_often():
  """Three of five: the first of the even steps through the labels is random."""
  keys = jax.random.split(jax.random.key(0), 1000)
  rows = jax.jit(jax.vmap(lambda key: stratified(key, jnp.arange(5), jnp.int32(5), 3)))(keys)
  np.testing.assert_allclose(np.bincount(np.ravel(rows)), 600, atol=5 * np.sqrt(1000 * 0.6 * 0.4))
