"""HeFlwr's server, which adds the first rows of an upload to every run of channels."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from fedkd.servers import corners
from helpers import CLASSES, assert_close, problem
from launch.studies.papers import misplaced

TURN = {'epochs': 1, 'batch': 6}
WIDE, HALF = models.MLP((8, 6), classes=CLASSES), models.MLP((4, 3), classes=CLASSES)


def test_places_count_from_the_beginning_of_a_run():
  np.testing.assert_array_equal(misplaced.in_run(jnp.array([2, 3, 7, 9, 10, 11])), [0, 1, 0, 0, 1, 2])


def test_every_run_gets_the_first_rows_of_the_upload():
  """Rows 1, 2, 5 and columns 0, 3 of a matrix, run by run; then two places of three channels, of which 0 and 2."""
  narrow = np.arange(1.0, 7.0).reshape(3, 2)
  expected = np.zeros((6, 4))
  for top, bottom in ((1, 3), (5, 6)):
    for left, right in ((0, 1), (3, 4)):
      expected[top:bottom, left:right] = narrow[: bottom - top, : right - left]
  orders = {6: jnp.array([1, 2, 5, 0, 3, 4]), 4: jnp.array([0, 3, 1, 2]), 3: jnp.array([0, 2, 1])}
  cut = corners.Cut({}, orders.get)
  wrong = misplaced.first_rows(jnp.asarray(narrow), (6, 4), cut)
  np.testing.assert_array_equal(corners.padded(wrong, (6, 4), cut), expected)
  blocks = corners.Cut({(6, 4): 2}, orders.get)
  np.testing.assert_array_equal(misplaced.first_rows(jnp.arange(4.0), (6,), blocks), [0, 0, 2, 2])


def test_one_run_is_averaged_as_it_should_be():
  """The first window of FedRolex is one run; with a stride of half the width the second, too."""
  turns = plan.synchronous()([2, 2], 2)
  made = lambda method: problem(method, [WIDE, HALF], [2, 2], turns).run()[0].server['params'][0]
  sgd = optax.sgd(0.1)
  wrong = lambda stride: made(misplaced.fedrolex(sgd, (1.0, 0.5), stride=stride, **TURN))
  right = lambda stride: made(methods.fedrolex(sgd, masked=False, weighted=True, stride=stride, **TURN))
  assert_close(wrong(0.5), right(0.5))


@pytest.mark.slow
def test_several_runs_are_not():
  turns = plan.synchronous()([2, 2], 2)
  made = lambda method: problem(method, [WIDE, HALF], [2, 2], turns).run()[0].server['params'][0]
  wrong = made(misplaced.federated_dropout(optax.sgd(0.1), (1.0, 0.5), **TURN))
  right = made(methods.federated_dropout(optax.sgd(0.1), masked=False, weighted=True, **TURN))
  kernel = lambda params: np.asarray(params['net']['layers_0']['kernel'])
  assert not np.allclose(kernel(wrong), kernel(right))
