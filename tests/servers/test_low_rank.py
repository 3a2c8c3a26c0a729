"""Low-rank changes: when the factors are sent, and to whom."""

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.servers.low_rank import compress, expand, updates
from helpers import bound
from lone_servers import KEY, groups_of, weights


def test_factors_are_not_sent_if_they_and_their_values_are_more_numbers_than_the_matrix():
  """Rank 4: the vectors of [10, 7] are 68 numbers, of [11, 7] 72; four values come on top, and 72 > 70, 76 < 77."""
  random = np.random.default_rng(0)
  for rows, whole in ((10, True), (11, False)):
    left, right = (np.linalg.qr(random.normal(size=(n, 4)))[0] for n in (rows, 7))
    matrix = np.asarray(left @ right.T, np.float32)
    message = compress({'kernel': matrix}, 0.9)
    assert bool(message['kernel'].whole.valid) == whole
    np.testing.assert_allclose(expand(message)['kernel'], matrix, atol=1e-5)


def test_the_version_counts_the_changes_and_only_who_had_the_last_gets_the_next_alone():
  """Nothing is squeezed; the third client's change is of the version before."""
  server = bound(updates(lambda tree, t: tree))
  receive, send = jax.jit(server.receive), jax.jit(server.send)
  state = server.init(KEY, groups_of(3), (weights([0.0, 0.0]),), ())
  ids = (jnp.arange(3),)
  for t, versions in enumerate(([0, 0, 0], [1, 1, 0], [2, 1, 2])):
    change = weights(np.full((3, 2), t + 1.0))
    upload = {'update': change, 'count': jnp.array([1, 1, 1]), 'index': jnp.array(versions)}
    state, _ = receive(KEY, t, state, (upload,), ids)
    assert int(state.version) == t + 1
    (down,) = send(KEY, t + 1, state, ids)
    current = np.array(versions) == t
    np.testing.assert_array_equal(down.own['index'], [t + 1] * 3)
    np.testing.assert_array_equal(down.own['update']['params']['w'].valid, current)
    np.testing.assert_array_equal(down.own['whole']['params']['w'].valid, ~current)
  np.testing.assert_array_equal(state.variables['params']['w'], [6, 6])
