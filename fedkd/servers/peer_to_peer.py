"""Message routing of peer-to-peer methods: the messages of the last round go to all others, or to one partner."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedkd.rows import store_rows
from fedkd.servers.class_knowledge import unless_empty
from fedkd.types import Download, Masked, PeerMessages, PyTree, Server, clients, is_masked


def _everyones(blank, groups):
  """One row per client of the empty message `blank(groups)`."""
  return jax.tree.map(lambda a: jnp.broadcast_to(a, (clients(groups), *a.shape)), blank(groups))


def _collect(key, t, groups, state, uploads, ids, data):
  """The messages of this round, one row per client; those of clients that sent none are invalid, unless no client
  did."""
  new = jax.tree.map(lambda s: s._replace(valid=jnp.zeros_like(s.valid)), state, is_leaf=is_masked)
  for up, slot in zip(uploads, ids, strict=True):
    new = store_rows(new, slot, up)
  return unless_empty(ids, new, state), {}


def router(blank: Callable[[tuple], PyTree]) -> Server:
  """Every client receives the messages that all others sent last round.

  Args:
    blank: groups -> the empty message of one client, a pytree of `Masked` with scalar `valid`.
  """

  def send(key, t, groups, state, ids, data):
    return tuple(Download(shared=jax.tree.map(lambda s: PeerMessages(*s), state, is_leaf=is_masked)) for _ in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)


def pairs(blank: Callable[[tuple], PyTree]) -> Server:
  """Every client receives the message of one partner, by a matching drawn uniformly each round; with an odd
  number of clients one has no partner. `blank` as in `router`."""

  def send(key, t, groups, state, ids, data):
    count = jax.tree.leaves(state)[0].shape[0]
    order = jax.random.permutation(key, count)
    even = count // 2 * 2
    partner = jnp.arange(count).at[order[:even]].set(order[:even].reshape(-1, 2)[:, ::-1].reshape(-1))

    def of(slot):
      other, alone = partner[slot], partner[slot] == slot
      pick = lambda s: Masked(s.value[other], s.valid[other] & ~alone)
      return Download(own={'partner': jax.tree.map(pick, state, is_leaf=is_masked)})  # not the receiver's own

    return tuple(of(jnp.maximum(slot, 0)) for slot in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)
