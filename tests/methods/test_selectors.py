"""Which rows the density ratio is estimated from, and what noise it is compared with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import models
from fedkd.methods import selectors
from fedkd.types import Data, ExampleIndices, Pool
from helpers import preprocessed


def estimated_from(monkeypatch, known, rows, size, auxiliary=4):
  """(examples, which of them are there, noise, what else is told) of `kulsif` for a client with the first `size` of
  `rows` rows, two floats each: between 10 and 12, and between -7 and -3."""
  example = np.linspace([10, -7], [12, -3], rows, dtype=np.float32)
  own = ExampleIndices(jnp.arange(rows), jnp.int32(size), jnp.int32(0))
  model, told = models.MLP((), classes=2), []
  monkeypatch.setattr(selectors, 'kulsif', lambda *args: told.append(args) or (lambda x: x[:, 0]))
  how = {'known': known, 'auxiliary': auxiliary, 'width': 3.0, 'regulariser': -0.25, 'share': 0.5, 'inputs': 'pixels'}
  data = Data(Pool(jnp.asarray(example), None), own, own)
  bare = preprocessed(model).clone(mean=None)
  selectors.resembling(jax.random.key(0), bare, {}, data, own, own.index, **how)
  ((first, there, noise, *rest),) = told
  return np.asarray(first), np.asarray(there), np.asarray(noise), rest


@pytest.mark.parametrize(
  ('known', 'rows', 'size', 'count', 'most'),
  [
    (0.3, 10, 5, 1, 3),  # of the rows there are, not of those there could be
    (0.29, 100, 100, 29, 29),  # 28.999999999999996 as the host multiplies
    (0.072, 375, 375, 27, 27),  # 26.999998 as 32 bits do
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
