"""Peer to peer: who receives whose message."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedkd import servers
from fedkd.types import Masked, PeerMessages
from helpers import assert_same_bits, bound
from lone_servers import KEY, groups_of, received

SILENT = jnp.zeros((), bool)
NOTHING = lambda groups: {'word': Masked(jnp.zeros(2), SILENT), 'number': Masked(jnp.zeros(()), SILENT)}


def spoken(ids, valid=None):
  """What the clients `ids` say: their number, twice and once."""
  ids, valid = jnp.asarray(ids), jnp.asarray(ids) >= 0 if valid is None else jnp.asarray(valid)
  value = ids.astype(jnp.float32)
  return {'word': Masked(jnp.stack([value, value], 1), valid), 'number': Masked(value, valid)}


def conversation(server, *slots, sizes=(2, 3)):
  """The server's state after one round in which the clients `slots` of each group spoke."""
  state = server.init(KEY, groups_of(*sizes), (), ())
  ids = tuple(jnp.array(s, jnp.int32) for s in slots)
  return received(server, state, tuple(spoken(s) for s in ids), ids)


def test_router_sends_all_messages_of_the_last_round_to_every_client():
  server = servers.router(NOTHING)
  state = conversation(server, [1, -1], [4, 2, -1])
  ids = (jnp.array([0]), jnp.array([2, 3]))
  for down in bound(server).send(KEY, 0, state, ids):
    assert down.own == ()
    assert isinstance(down.shared['word'], PeerMessages)
    np.testing.assert_array_equal(down.shared['number'].valid, [False, True, True, False, True])
    np.testing.assert_array_equal(down.shared['word'].valid, down.shared['number'].valid)
    for client in (1, 2, 4):
      np.testing.assert_array_equal(down.shared['word'].value[client], client)
      assert float(down.shared['number'].value[client]) == client
  # A message lasts one round.
  state = received(server, state, (spoken([0]), spoken([3])), (jnp.array([0]), jnp.array([3])))
  np.testing.assert_array_equal(
    bound(server).send(KEY, 1, state, ids)[0].shared['word'].valid, [True, False, False, True, False]
  )


@pytest.mark.parametrize('make', [servers.router, servers.pairs])
def test_peers_without_a_message_are_invalid(make):
  server, ids = make(NOTHING), (jnp.array([0, 1]), jnp.array([2, 3, 4]))
  state = conversation(server, *ids)
  state = received(server, state, tuple(spoken(i, i < 0) for i in ids), ids)
  for down in bound(server).send(KEY, 0, state, ids):
    assert not any(leaf.valid.any() for leaf in (down.shared or down.own['partner']).values())


send_pairs = jax.jit(bound(servers.pairs(NOTHING)).send)


@given(st.integers(0, 2**31 - 1), st.sampled_from([(2, 3), (1, 3), (1, 0), (1, 1)]))
def test_pairs_are_a_matching(seed, sizes):
  server, count = servers.pairs(NOTHING), sum(sizes)
  ids = (np.arange(sizes[0]), np.arange(sizes[0], count))
  state = conversation(server, *ids, sizes=sizes)
  downs = send_pairs(jax.random.key(seed), 0, state, tuple(jnp.array(i, jnp.int32) for i in ids))
  partner = np.concatenate([down.own['partner']['number'].value for down in downs]).astype(int)
  valid = np.concatenate([down.own['partner']['number'].valid for down in downs])
  np.testing.assert_array_equal(partner[partner], np.arange(count))  # an involution
  np.testing.assert_array_equal(valid, partner != np.arange(count))
  assert (~valid).sum() == count % 2  # with an odd number, one hears nobody
  np.testing.assert_array_equal(np.concatenate([down.own['partner']['word'].value for down in downs])[:, 1], partner)
  assert all(down.shared == () for down in downs)


def test_pairs_are_random_and_do_not_depend_on_the_slots():
  server = servers.pairs(NOTHING)
  state = conversation(server, [0, 1], [2, 3, 4])
  send = jax.jit(lambda key, a, b: bound(server).send(key, 0, state, (a, b)))
  met = np.zeros((5, 5), int)
  everyone = jnp.array([0, 1]), jnp.array([2, 3, 4])
  for seed in range(60):
    downs = send(jax.random.key(seed), *everyone)
    met[np.arange(5), np.concatenate([down.own['partner']['number'].value for down in downs]).astype(int)] += 1
  assert (met > 0).all()
  some = bound(server).send(jax.random.key(59), 0, state, (jnp.array([-1, 1]), jnp.array([4])))
  assert_same_bits(some[0].own['partner']['word'].value[1], downs[0].own['partner']['word'].value[1])
  assert_same_bits(some[1].own['partner']['word'].value[0], downs[1].own['partner']['word'].value[2])


def test_a_partner_without_a_message_is_invalid():
  server = servers.pairs(NOTHING)
  state = conversation(server, [0], [-1], sizes=(1, 1))
  downs = bound(server).send(KEY, 0, state, (jnp.array([0]), jnp.array([1])))
  assert not downs[0].own['partner']['number'].valid[0]
  assert downs[1].own['partner']['number'].valid[0]
