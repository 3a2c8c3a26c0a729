"""Servers of peer-to-peer methods: they keep nothing but what was said last, and pass it on."""

import jax
import jax.numpy as jnp

from fedkd.types import Down, Peers, Sent, Server, clients, is_sent


def _everyones(blank, groups):
  """Nothing heard from anybody: `blank(groups)`, the empty message of one client, in a row per client."""
  return jax.tree.map(lambda a: jnp.broadcast_to(a, (clients(groups), *a.shape)), blank(groups))


def _collect(key, t, state, ups, ids):
  """The messages of this round, in a row per client; the others said nothing."""
  del key, t
  state = jax.tree.map(lambda s: s._replace(valid=jnp.zeros_like(s.valid)), state, is_leaf=is_sent)
  for up, seat in zip(ups, ids, strict=True):
    put = lambda a, new, seat=seat: a.at[jnp.where(seat >= 0, seat, a.shape[0])].set(new, mode='drop')
    state = jax.tree.map(put, state, up)
  return state, {}


def router(blank) -> Server:
  """Peer to peer: everybody hears what everybody else said last round. `blank(groups)`: a message with nothing in it,
  a pytree of `Sent` with scalar `valid`."""

  def send(key, t, state, ids):
    del key, t
    return tuple(Down(shared=jax.tree.map(lambda s: Peers(*s), state, is_leaf=is_sent)) for _ in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)


def pairs(blank) -> Server:
  """Peer to peer: everybody hears one partner of a uniformly random matching; with an odd number one hears nobody."""

  def send(key, t, state, ids):
    del t
    count = jax.tree.leaves(state)[0].shape[0]
    order = jax.random.permutation(key, count)
    even = count // 2 * 2
    partner = jnp.arange(count).at[order[:even]].set(order[:even].reshape(-1, 2)[:, ::-1].reshape(-1))

    def of(seat):
      mine, alone = partner[seat], partner[seat] == seat
      pick = lambda s: Sent(s.value[mine], s.valid[mine] & ~alone)
      return Down(own=jax.tree.map(pick, state, is_leaf=is_sent))

    return tuple(of(jnp.maximum(seat, 0)) for seat in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)
