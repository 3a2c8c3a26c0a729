"""How much a parameter changes a net's logits."""

import functools
import types

import jax.numpy as jnp
import numpy as np

from fedkd.servers import corners


def test_every_kernel_of_a_deep_net_has_the_influence_of_a_factor():
  """Of a product a^1 b^1 ... the sum of a times the slope in a is the product itself; no activation may underflow."""
  width, depth = 128, 22
  product = lambda variables, x, train: (functools.reduce(jnp.matmul, variables['params'], x),)
  kernels = [np.zeros((width, width))] * depth
  influence = corners._influence(types.SimpleNamespace(apply=product), kernels, {}, np.zeros((1, width), np.float32))
  inside = [np.ones((width, width), bool)] * depth
  for leaf in influence(inside):
    assert 1 / 1.5 < leaf.sum() < 1 / 0.5  # weights are between 0.5 and 1.5


def test_rows_of_a_kernel_are_outside_if_nothing_that_they_multiply_is_inside():
  """Of a convolution's, the last axis but one; of biases, none."""
  inside = np.zeros((2, 3, 4, 5), bool)
  inside[:, :, :3, :2] = True
  found = corners._rows_outside(inside)
  assert found[:, :, 3].all()
  assert not found[:, :, :3].any()
  assert not corners._rows_outside(np.array([True, False])).any()
