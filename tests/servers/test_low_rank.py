"""Low-rank changes: when the factors are sent."""

import numpy as np

from fedkd.servers.low_rank import compress, expand


def test_factors_are_not_sent_if_they_and_their_values_are_more_numbers_than_the_matrix():
  """Rank 4: the vectors of [10, 7] are 68 numbers, of [11, 7] 72; four values come on top, and 72 > 70, 76 < 77."""
  random = np.random.default_rng(0)
  for rows, whole in ((10, True), (11, False)):
    left, right = (np.linalg.qr(random.normal(size=(n, 4)))[0] for n in (rows, 7))
    matrix = np.asarray(left @ right.T, np.float32)
    message = compress({'kernel': matrix}, 0.9)
    assert bool(message['kernel'].whole.valid) == whole
    np.testing.assert_allclose(expand(message)['kernel'], matrix, atol=1e-5)
