"""A consensus on public data with a soft-label cache on both sides: what is still valid is neither predicted nor sent.

A message up is {'knowledge': `Masked` [M, C]}, valid where predictions were requested. Down go {'last': {'index': the
rows of the consensus}, 'index': `Masked`, the next rows, valid where predictions are requested}, and to each client its
own {'consensus': `Masked` [M, C], valid where it is sent, 'signal': {'index': what to do with it}}.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedkd import aggregate
from fedkd.servers.class_knowledge import unless_empty
from fedkd.servers.consensus import drawn, places, public_rows, uniform
from fedkd.types import Download, Masked, PyTree, Server, clients

CACHED, STORE, DISCARD = range(3)  # the signals: use your copy; use what is sent and keep it; use it and keep nothing
MOST = 10**9  # numbers in the clients' caches together


def check_caches(clients: int, rows: int, classes: int):
  """Raises ValueError where the clients' caches would not fit into memory."""
  if clients * rows * classes > MOST:
    raise ValueError(
      f'caches of {rows:,} public rows for {clients:,} clients and {classes} classes are '
      f'{clients * rows * classes:,} numbers, more than {MOST:,}; have fewer public rows or clients (in a '
      'config lower data.public_rows, data.public_share or data.clients)'
    )


class CachedState(NamedTuple):
  """The caches of N public rows, and the consensus [M, C] as in `consensus.ConsensusState`."""

  cache: jax.Array  # [N, C], the server's
  consensus: jax.Array  # the server's labels of the last rows
  copies: jax.Array  # int32[K, N], the round of each client's copy
  next_rows: jax.Array
  consensus_rows: jax.Array
  has_consensus: jax.Array
  place: jax.Array  # of each row of the pool in the caches
  public: dict  # it could be read off the data, but checkpoints of earlier versions could not do without it
  rule: PyTree
  since: jax.Array  # int32[N], the round of each entry, -1 without one


def cached_consensus(
  subset: int,
  rule: aggregate.AnyRule,
  *,
  duration: int,
  published_off_by_one: bool = False,
  sharpen: Callable[[jax.Array], jax.Array] = lambda p: p,
) -> Server:
  """Predictions of a uniform subset of the public rows, reduced by `rule` and kept for `duration` rounds (SCARLET).

  A row is requested unless the server has an entry for it that is younger than `duration` rounds. A row without an
  entry gets one; an entry that has expired is emptied, and the row's new label is sent but not kept. The server knows
  which entry each client has a copy of, and sends one that a client has missed when its row comes up again.

  Args:
    subset: public rows per round; 0, or more than there are, is all.
    rule: of the predictions, float[m, M, C]; of rows that are not requested they are the labels in the cache.
    duration: rounds for which an entry is valid; 0: nothing is ever reused.
    published_off_by_one: as in the published code, which at an age of exactly `duration` rounds requests a row and uses
      its new label on the server, while the clients keep using their copy.
    sharpen: of what `rule` returns, [M, C], as `sharpening` makes it.

  Raises:
    ValueError: at init, as in `consensus`, or where the clients' caches would not fit into memory.
  """
  checked = aggregate.as_rule(rule)

  def init(key, groups, variables, data):
    del variables
    public, count = public_rows(data, subset)
    available, classes = public['index'].shape[0], groups[0].model.classes
    check_caches(clients(groups), available, classes)
    index, blank = drawn(key, public, count, uniform), jnp.zeros((count, classes))
    return CachedState(
      cache=jnp.zeros((available, classes)),
      consensus=blank,
      copies=jnp.full((clients(groups), available), -1, jnp.int32),
      next_rows=index,
      consensus_rows=index,
      has_consensus=jnp.zeros((), bool),
      place=places(data[0]),
      public=public,
      rule=checked.init(blank),
      since=jnp.full(available, -1, jnp.int32),
    )

  def requested(state, t, at):
    return (state.since[at] < 0) | (t - state.since[at] >= duration)

  def receive(key, t, groups, state, uploads, ids, data):
    every = jnp.concatenate(ids)
    if not every.shape[0]:
      return state, {}
    weight = jnp.where(every >= 0, 1.0, 0.0)
    at, before = state.place[state.next_rows], state.place[state.consensus_rows]
    knowledge = jax.tree.map(lambda *each: jnp.concatenate(each), *(up['knowledge'] for up in uploads))
    # A rule that looks at a whole upload sees labels that everybody has in the place of those that nobody sends.
    filled = jnp.where(knowledge.valid[..., None], knowledge.value, state.cache[at])
    reduced, memory = checked.update(filled, weight, state.rule)
    reduced = sharpen(reduced)
    asked, since = requested(state, t, at), state.since[at]
    fresh, old = since < 0, (since >= 0) & (t - since >= duration + published_off_by_one)
    # Participants now hold the entries sent to them.
    who = jnp.where(every >= 0, every, state.copies.shape[0])[:, None]
    have = state.copies.at[who, before].set(state.since[before], mode='drop')
    new = state._replace(
      cache=state.cache.at[at].set(jnp.where(fresh[:, None], reduced, state.cache[at])),
      consensus=jnp.where(asked[:, None], reduced, state.cache[at]),
      copies=jnp.where(state.has_consensus, have, state.copies),
      next_rows=drawn(key, state.public, state.next_rows.shape[0], uniform),
      consensus_rows=state.next_rows,
      has_consensus=jnp.ones((), bool),
      since=state.since.at[at].set(jnp.where(fresh, t, jnp.where(old, -1, since))),
    )
    return unless_empty(ids, new, state)._replace(rule=memory), {'requested_rows': jnp.sum(asked)}

  def send(key, t, groups, state, ids, data):
    last, index = state.place[state.consensus_rows], state.place[state.next_rows]
    since, on = state.since[last], state.has_consensus
    labels = jnp.where(since[:, None] < 0, state.consensus, state.cache[last])
    shared = {
      'last': {'index': Masked(state.consensus_rows, on)},
      'index': Masked(state.next_rows, requested(state, t, index)),
    }

    def own(client):
      missing = state.copies[client, last] != since
      signal = jnp.where(since < 0, DISCARD, jnp.where(missing, STORE, CACHED)).astype(jnp.int32)
      return {'consensus': Masked(labels, on & (signal != CACHED)), 'signal': {'index': Masked(signal, on)}}

    return tuple(Download(shared, jax.vmap(own)(jnp.maximum(slot, 0))) for slot in ids)

  return Server(init, receive, send, asks=True)
