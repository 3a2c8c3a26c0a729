"""Servers of peer-to-peer methods: they keep nothing but what was said last, and pass it on."""

import jax
import jax.numpy as jnp

from fedkd.types import Download, Masked, PeerMessages, Server, clients, is_masked


def _everyones(blank, groups):
  """Nothing heard from anybody: `blank(groups)`, the empty message of one client, in a row per client."""
  return jax.tree.map(lambda a: jnp.broadcast_to(a, (clients(groups), *a.shape)), blank(groups))


def _collect(key, t, state, uploads, ids):
  """The messages of this round, in a row per client; the others said nothing."""
  del key, t
  state = jax.tree.map(lambda s: s._replace(valid=jnp.zeros_like(s.valid)), state, is_leaf=is_masked)
  for up, slot in zip(uploads, ids, strict=True):
    put = lambda a, new, slot=slot: a.at[jnp.where(slot >= 0, slot, a.shape[0])].set(new, mode='drop')
    state = jax.tree.map(put, state, up)
  return state, {}


def router(blank) -> Server:
  """Peer to peer: everybody hears what everybody else said last round. `blank(groups)`: a message with nothing in it,
  a pytree of `Masked` with scalar `valid`."""

  def send(key, t, state, ids):
    del key, t
    return tuple(Download(shared=jax.tree.map(lambda s: PeerMessages(*s), state, is_leaf=is_masked)) for _ in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)


def pairs(blank) -> Server:
  """Peer to peer: everybody hears one partner of a uniformly random matching; with an odd number one hears nobody."""

  def send(key, t, state, ids):
    del t
    count = jax.tree.leaves(state)[0].shape[0]
    order = jax.random.permutation(key, count)
    even = count // 2 * 2
    partner = jnp.arange(count).at[order[:even]].set(order[:even].reshape(-1, 2)[:, ::-1].reshape(-1))

    def of(slot):
      mine, alone = partner[slot], partner[slot] == slot
      pick = lambda s: Masked(s.value[mine], s.valid[mine] & ~alone)
      return Download(own=jax.tree.map(pick, state, is_leaf=is_masked))

    return tuple(of(jnp.maximum(slot, 0)) for slot in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)
