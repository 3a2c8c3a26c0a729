"""The round: send, let the participants work, receive. The only loop over clients and rounds; it names no method."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedkd import ledger, sharding
from fedkd.checks import returned
from fedkd.rows import aligned, fetch, fetch_rows, store, store_rows
from fedkd.types import Data, Download, Method, State


class Report(NamedTuple):
  """What a round leaves for the human reader; per group, leaves [m] (a row per slot)."""

  ids: tuple  # int32[m], -1 for an empty slot
  info: tuple  # a client's own dict
  up: tuple  # {kind: (numbers, bytes)}
  down: tuple
  server: dict  # the server's own dict, leaves []


def slot_ids(data, participants):
  """Global numbers int32[m] of the clients in the rows `participants` of a group's `data`, -1 for an empty slot."""
  return jnp.where(participants >= 0, data.private.id[participants], -1)


def of_client(data, row) -> Data:
  """The `Data` of one client of a group, by its row."""
  private, shared = fetch((data.private, data.shared), row)
  return data._replace(private=private, shared=shared)


def client_updates(key, t, client, group, state, view, shared, own, data, participants, clients_per_vmap):
  """The updates of one group's slots: in sequence, `clients_per_vmap` of them at a time.

  A client's row is fetched and stored inside the loop: gathering all rows first would cost two more copies
  of the group. A vmap of empty slots alone is skipped, so that one program serves every sampling pattern.

  Args:
    key: randomness of this round's client updates; a client folds in its global number.
    t: int32[], the round.
    client: `Client`.
    group: `Group`.
    state: its clients' states, leaves [n, ...].
    view: (shared, own row of a slot) -> the `Download` that its client sees.
    shared: what all slots see.
    own: leaves [m, ...].
    data: `Data` of the group.
    participants: int32[m], rows of the group, -1 for an empty slot.
    clients_per_vmap: 1 means no vmap.

  Returns:
    (state, (upload, info, counts up, counts down)), the latter with leaves [m, ...].

  Raises:
    ValueError: if the step returns a state of another structure, shape or dtype.
  """
  slots = participants.shape[0]
  width = max(1, min(clients_per_vmap, slots))
  pad = -slots % width
  participants = jnp.pad(participants, (0, pad), constant_values=-1).reshape(-1, width)
  own = jax.tree.map(lambda a: jnp.pad(a, [(0, pad)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, width, *a.shape[1:]), own)

  @jax.jit  # traced once, for its shapes and for its work
  def update(row, own, state):
    examples, download = of_client(data, row), view(shared, own)
    key_client = jax.random.fold_in(key, examples.private.id)
    after = client.step(key_client, t, group.model, state, download, examples)
    state, upload, info = returned.of_step(client.step, group.name, after)
    return state, (upload, info, ledger.count(upload), ledger.count(download, examples.private.id))

  mapped = jax.jit(jax.vmap(update))  # likewise

  def check_state(before, after):
    who = returned.named_step(client.step, group.name)
    returned.check_state(who, before, after, 'Client.init and Client.step')

  def one_by_one(state, slot):
    participant, own = jax.tree.map(lambda a: a[0], slot)
    row = jnp.maximum(participant, 0)
    fetched = fetch(state, row)
    after, shape = jax.eval_shape(update, row, own, fetched)
    check_state(fetched, after)
    idle = lambda: (fetched, jax.tree.map(jnp.zeros_like, shape))
    changed, out = jax.lax.cond(participant >= 0, lambda: update(row, own, fetched), idle)
    return store(state, row, changed), jax.tree.map(lambda a: a[None], out)

  def together(state, slot):
    participant, own = slot
    row = jnp.maximum(participant, 0)
    fetched = fetch_rows(state, row)
    shape = jax.eval_shape(mapped, row, own, fetched)
    single = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), tree)
    check_state(single(fetched), single(shape[0]))
    idle = lambda: jax.tree.map(jnp.zeros_like, shape)
    changed, out = jax.lax.cond(jnp.any(participant >= 0), lambda: mapped(row, own, fetched), idle)
    state = store_rows(state, participant, changed)
    present = lambda a: jnp.where(aligned(participant >= 0, a), a, jnp.zeros_like(a))
    return state, jax.tree.map(present, out)

  state, out = jax.lax.scan(one_by_one if width == 1 else together, state, (participants, own))
  return state, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:slots], out)


def spread(down, slots) -> Download:
  """A download with its shared part copied to every slot: leaves [m, ...] throughout."""
  return Download(jax.tree.map(lambda a: jnp.broadcast_to(a, (slots, *a.shape)), down.shared), down.own)


def _sent(method, key, t, groups, server, ids, data) -> tuple:
  """What the server sends, a `Download` per group."""
  slots = tuple(of_group.shape[0] for of_group in ids)
  return returned.of_send(method.server.send, Download, slots, method.server.send(key, t, groups, server, ids, data))


def fill_inbox(key, method, groups, server, data):
  """The inbox of a stale plan before round 0: everyone has downloaded once."""
  downs = _sent(method, key, jnp.int32(0), groups, server, tuple(jnp.asarray(g.ids) for g in groups), data)
  return tuple(spread(down, len(g.ids)) for g, down in zip(groups, downs, strict=True))


def round(key, t, method: Method, groups, state: State, data, participants, clients_per_vmap: int = 1, mesh=None):
  """One round.

  Args:
    key: the run's key; everything random in round t follows from fold_in(key, t) and global client numbers.
    t: int32[].
    method: `Method`.
    groups: tuple of `Group`.
    state: `State`.
    data: tuple of `Data`, one per group.
    participants: per group int32[m], rows of the group, -1 for an empty slot.
    clients_per_vmap: as in `client_updates`.
    mesh: devices over which the clients are spread; slots are then in the order of `sharding.assign_slots`.

  Returns:
    (State, Report).
  """
  key_send, key_client, key_receive = jax.random.split(jax.random.fold_in(key, t), 3)
  ids = tuple(slot_ids(d, w) for d, w in zip(data, participants, strict=True))
  downs = _sent(method, key_send, t, groups, state.server, ids, data) if state.inbox is None else state.inbox
  clients, outs, view = [], [], Download if state.inbox is None else _as_kept
  for g, group in enumerate(groups):
    if state.inbox is None:
      shared, own = downs[g].shared, downs[g].own
    else:
      shared, own = (), jax.tree.map(lambda a, rows=participants[g]: a[rows], downs[g])

    def work(key, t, state, shared, own, data, participants, group=group):
      return client_updates(
        key, t, method.client, group, state, view, shared, own, data, participants, clients_per_vmap
      )

    work = sharding.over_clients(mesh, data[g].private.size.shape[0], work)
    client, out = work(key_client, t, state.client[g], shared, own, data[g], participants[g])
    clients.append(client)
    outs.append(out)
  uploads, infos, counts_up, counts_down = zip(*outs, strict=True)
  received = method.server.receive(key_receive, t, groups, state.server, uploads, ids, data)
  server, server_info = returned.of_receive(method.server.receive, state.server, received, infos)
  inbox = state.inbox
  if inbox is not None:
    downs = _sent(method, key_send, t + 1, groups, server, ids, data)
    inbox = tuple(_deliver(box, down, rows) for box, down, rows in zip(inbox, downs, participants, strict=True))
  return State(tuple(clients), server, inbox), Report(ids, infos, counts_up, counts_down, server_info)


def _as_kept(shared, own):
  """The download of a client of a stale plan: its row of the inbox."""
  del shared
  return own


def _deliver(box, down, rows):
  """Stores a download in the inbox of the participants."""
  return store_rows(box, rows, spread(down, rows.shape[0]))


def step(method: Method, groups, clients_per_vmap: int = 1, mesh=None):
  """The round as a jitted (key, t, state, data, participants) -> (State, Report), arguments as of `round`.

  Programs that share it trace it once for all of them.
  """
  return jax.jit(
    lambda key, t, state, data, participants: round(
      key, t, method, groups, state, data, participants, clients_per_vmap, mesh
    )
  )


def run(key, start, count, length: int, step, state: State, data, plan, first=0):
  """Rounds start .. start+count-1 as one program; `start` and `count` may be traced: one compilation serves all.

  Args:
    length: static upper bound of `count`.
    step: the round, from `step`.
    plan: per group int32[rounds, m], from round `first` on; after its last round it starts over.

  Returns:
    (State, Report with a leading axis [length]; entries from `count` on are zeros).
  """
  plan = tuple(map(jnp.asarray, plan))

  def one(t, state):
    return step(key, t, state, data, tuple(table[(t - first) % table.shape[0]] for table in plan))

  def body(i, carry):
    state, reports = carry
    state, report = one(start + i, state)
    return state, store(reports, i, report)

  shape = jax.eval_shape(one, start, state)[1]
  reports = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shape)
  return jax.lax.fori_loop(0, count, body, (state, reports))
