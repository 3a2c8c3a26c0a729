"""A consensus on public rows that clients and server cache for a while: what is still valid is neither predicted nor
sent again.

A message up is {'knowledge': `Masked` [M, C]}, valid where predictions were requested. Down go {'last': {'index': the
rows of the consensus}, 'index': `Masked`, the next rows, valid where predictions are requested}, and to each client its
own {'consensus': `Masked` [M, C], valid where it is sent, 'signal': {'index': what to do with it}}.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedkd import aggregate
from fedkd.servers.class_knowledge import unless_empty
from fedkd.servers.consensus import drawn, places, public_rows, uniform
from fedkd.types import Download, Masked, Server, clients

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
    subset: public rows per round; 0 is all.
    rule: of the predictions, float[m, M, C].
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
    public, many = public_rows(data, subset)
    rows, classes = public['index'].shape[0], groups[0].model.classes
    check_caches(clients(groups), rows, classes)
    index = drawn(key, public, many, uniform)
    return {
      'public': public,  # it could be read off the data, but checkpoints of earlier versions could not do without it
      'consensus': jnp.zeros((many, classes)),  # the server's labels of the last rows
      'on': jnp.zeros((), bool),
      'last': index,
      'index': index,
      'rule': checked.init(jnp.zeros((many, classes))),
      'place': places(data[0]),  # of each row of the pool in the caches
      'cache': jnp.zeros((rows, classes)),
      'since': jnp.full(rows, -1, jnp.int32),  # the round of each entry, -1 without one
      'copies': jnp.full((clients(groups), rows), -1, jnp.int32),  # the round of each client's copy
    }

  def requested(state, t, at):
    return (state['since'][at] < 0) | (t - state['since'][at] >= duration)

  def receive(key, t, groups, state, uploads, ids, data):
    every = jnp.concatenate(ids)
    if not every.shape[0]:
      return state, {}
    weight = jnp.where(every >= 0, 1.0, 0.0)
    knowledge = jnp.concatenate([up['knowledge'].value for up in uploads])
    reduced, memory = checked.update(knowledge, weight, state['rule'])
    reduced = sharpen(reduced)
    at, before = (state['place'][state[name]] for name in ('index', 'last'))
    asked, since = requested(state, t, at), state['since'][at]
    fresh, old = since < 0, (since >= 0) & (t - since >= duration + published_off_by_one)
    # Participants now have what there is of the rows that were last when they were sent.
    who = jnp.where(every >= 0, every, state['copies'].shape[0])[:, None]
    have = state['copies'].at[who, before].set(state['since'][before], mode='drop')
    new = {
      'consensus': jnp.where(asked[:, None], reduced, state['cache'][at]),
      'on': jnp.ones((), bool),
      'last': state['index'],
      'index': drawn(key, state['public'], state['index'].shape[0], uniform),
      'cache': state['cache'].at[at].set(jnp.where(fresh[:, None], reduced, state['cache'][at])),
      'since': state['since'].at[at].set(jnp.where(fresh, t, jnp.where(old, -1, since))),
      'copies': jnp.where(state['on'], have, state['copies']),
    }
    new = unless_empty(ids, new, {name: state[name] for name in new})
    return {**state, **new, 'rule': memory}, {'requested_rows': jnp.sum(asked)}

  def send(key, t, groups, state, ids, data):
    last, index = (state['place'][state[name]] for name in ('last', 'index'))
    since, on = state['since'][last], state['on']
    labels = jnp.where(since[:, None] < 0, state['consensus'], state['cache'][last])
    shared = {
      'last': {'index': Masked(state['last'], on)},
      'index': Masked(state['index'], requested(state, t, index)),
    }

    def own(client):
      missing = state['copies'][client, last] != since
      signal = jnp.where(since < 0, DISCARD, jnp.where(missing, STORE, CACHED)).astype(jnp.int32)
      return {'consensus': Masked(labels, on & (signal != CACHED)), 'signal': {'index': Masked(signal, on)}}

    return tuple(Download(shared, jax.vmap(own)(jnp.maximum(slot, 0))) for slot in ids)

  return Server(init, receive, send, asks=True)
