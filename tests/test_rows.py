"""Rows of stacked trees."""

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import rows


def test_rows_are_stored_in_their_places_and_those_of_empty_slots_nowhere():
  old = {'w': np.arange(15.0).reshape(5, 3), 'n': np.arange(5)}
  new = {'w': -np.ones((4, 3)), 'n': np.array([90, 91, 92, 93])}
  at = [3, -1, 0, -1]
  stored = jax.jit(rows.store_rows)(jax.tree.map(jnp.asarray, old), jnp.array(at), jax.tree.map(jnp.asarray, new))
  for name, leaf in old.items():
    leaf[[3, 0]] = new[name][[0, 2]]
    np.testing.assert_array_equal(stored[name], leaf)
