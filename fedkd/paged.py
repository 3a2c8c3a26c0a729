"""A phase whose clients' states lie on disk (`client_store`); only those of the seats at work are in memory.

The rounds are cut into windows. Before a window the records of its participants are read, after it they are written,
and while the device works the next window's are read already. A client without a record begins as `Client.init` says.
What a client computes does not depend on where its state lies: the numbers are those of a phase in memory, bit for bit.
"""

import functools
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import checkpoint, client_store, phase, round
from fedkd.types import State

SEATS = 256  # about so many turns a window: enough to keep the device busy, few enough to hold


class Pages(NamedTuple):
  """The files of all groups. Lists have an entry per group; states are of some clients, leaves [seeds, k, ...]."""

  records: list  # of client_store.Records
  like: list  # one client's state, ShapeDtypeStruct [seeds, ...]

  def read(self, tables, rows, out, wanted=None):
    """Puts the states of the clients in `rows`, or of those that are `wanted` (bool), into their places in `out`."""
    wanted = wanted or [np.ones(len(mine), bool) for mine in rows]
    for record, table, mine, states, mask in zip(self.records, tables, rows, out, wanted, strict=True):
      record.read(table, mine[mask], states, np.flatnonzero(mask))

  def write(self, tables, rows, states) -> list:
    """The tables after writing the states of the clients in `rows`."""
    return [
      record.write(table, mine, held)
      for record, table, mine, held in zip(self.records, tables, rows, states, strict=True)
    ]

  def room(self, many) -> list:
    """Zeros for the states of so many clients."""
    zeros = lambda n: lambda s: np.zeros((s.shape[0], n, *s.shape[1:]), s.dtype)
    return [jax.tree.map(zeros(n), like) for n, like in zip(many, self.like, strict=True)]


def make(label, method, plan, rounds, keys, world, before, settings, folder) -> phase.Phase:
  """The programs of a phase with its clients' states in `folder`; other arguments as `phase.make`.

  Between calls, a `State` has tables in place of the clients' states.

  Raises:
    ValueError: as `phase.make`; or for a stale plan, whose inbox is as large as the clients' states.
  """
  if plan.stale:
    raise ValueError("client_store has no room for every client's last download; set plan.stale=False")
  groups, chunk = world.groups, phase.chunk_of(settings, before)
  length = min(settings.eval_every, rounds, phase.MOST_ROUNDS)
  seats = [table.shape[1] for table in plan.who]
  window = max(1, min(settings.eval_every, SEATS // max(sum(seats), 1)))  # rounds; not fewer in a shorter run
  places = [max(1, min(len(g.ids), window * many)) for g, many in zip(groups, seats, strict=True)]
  owner = phase.evaluated_in(groups, world.clients)
  looked_at = phase.evaluated_rows(world)
  on_host = jax.tree.map(np.asarray, (world.private, world.shared))

  def data_of(rows):
    """The clients' `Rows` for those in `rows`, and everybody's."""
    pick = lambda group, mine: jax.tree.map(lambda a: a[:, mine], group)
    private, shared = (each and tuple(map(pick, each, rows)) for each in on_host)
    return private, shared, world.everyone, world.public

  def of_clients(pool, key, rows, variables):
    return phase.first_states(key, method, groups, phase.group_data(pool, rows), variables)

  def of_server(pool, key, rows, variables):
    return phase.first_server(key, method, groups, phase.group_data(pool, rows), variables)

  def with_new(pool, new, key, rows, state, variables):
    """The state with those of the `new` clients as before their first turn."""
    first = of_clients(pool, key, rows, variables)
    choose = lambda mask: lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b)
    each = zip(new, first, state.client, strict=True)
    return state._replace(client=tuple(jax.tree.map(choose(mask), f, c) for mask, f, c in each))

  def work(pool, who, new, start, count, key, rows, state, variables):
    data, state = phase.group_data(pool, rows), with_new(pool, new, key, rows, state, variables)
    return round.run(key, start, count, window, method, groups, state, data, who, chunk, first=start)

  def look(pool, new, key, rows, state, variables):
    data, state = phase.group_data(pool, rows), with_new(pool, new, key, rows, state, variables)
    return method.calibrate(groups, state, data, np.unique(owner).tolist()) if method.calibrate else state

  every = [np.arange(len(rows)) for rows in looked_at]
  hits = functools.partial(phase.right_answers, method, groups, world.clients, every, settings.eval_batch)

  program = lambda *args, **how: phase.over_seeds_jitted(phase.seed_axis(settings), *args, **how)
  server_program, hits_program = program(of_server), program(hits, 0)
  work_program, look_program = program(work, 5, donate_argnums=7), program(look, 2)
  everybodys = (world.private, world.shared, world.everyone, world.public)

  def go(start, count, rows, new, state):
    """Rounds of a window for the clients in `rows`, filled up to `places`."""
    who = tuple(_local(t[start : start + window], mine, window) for t, mine in zip(plan.who, rows, strict=True))
    fill = lambda each: tuple(np.pad(a, (0, many - len(a))) for a, many in zip(each, places, strict=True))
    rows, new = fill(rows), fill(new)
    numbers = np.int32(start), np.int32(count)
    return work_program(world.pool, who, new, *numbers, keys, data_of(rows), state, before)

  # A whole round in shapes, as in `phase.make`.
  rows_of_nobody = data_of([np.zeros(many, np.int32) for many in places])
  server = jax.eval_shape(server_program, world.pool, keys, everybodys, before)
  clients = jax.eval_shape(program(of_clients), world.pool, keys, rows_of_nobody, before)
  state = State(clients, server)
  empty = [np.zeros(0, np.int32) for _ in groups]
  jax.eval_shape(lambda state: go(0, 0, empty, [np.zeros(0, bool) for _ in groups], state), state)

  one = lambda s: jax.ShapeDtypeStruct((s.shape[0], *s.shape[2:]), s.dtype)
  like = [jax.tree.map(one, c) for c in clients]
  pages = Pages([client_store.Records(pathlib.Path(folder) / f'group{g}', each) for g, each in enumerate(like)], like)
  reader = ThreadPoolExecutor(1)
  nobody = tuple(client_store.blank(len(g.ids)) for g in groups)

  def seated(start, end):
    """Per group the rows that have a seat in these rounds, of a window at most."""
    found = [np.unique(table[start : min(start + window, end)]) for table in plan.who]
    return [rows[rows >= 0] for rows in found]

  def run(state, start, count):
    tables, server, reports, end = list(state.client), state.server, [], start + count
    rows, held = seated(start, end), pages.room(places)
    pages.read(tables, rows, held)
    while True:
      many = min(window, end - start)
      new = [table.place[mine] < 0 for table, mine in zip(tables, rows, strict=True)]
      out, report = go(start, many, rows, new, State(tuple(held), server))
      # While the device works: those of the next window who are not at work now.
      following, ahead = seated(start + many, end), pages.room(places)
      busy = [np.isin(*each) for each in zip(following, rows, strict=True)]
      reading = reader.submit(pages.read, tables, following, ahead, [~mask for mask in busy])
      reports.append(jax.tree.map(lambda a, n=many: a[:, :n], jax.device_get(report)))
      states, server = jax.device_get(out.client), out.server
      reading.result()
      tables = pages.write(tables, rows, states)
      start += many
      if start >= end:
        return State(tuple(tables), server), jax.tree.map(lambda *a: np.concatenate(a, 1), *reports)
      pages.read(tables, following, ahead, busy)
      rows, held = following, ahead

  def init(variables):
    for record in pages.records:
      record.clear()
    return State(nobody, server_program(world.pool, keys, everybodys, variables))

  def ready(state):
    rows = [mine if len(mine) else np.zeros(1, np.int32) for mine in looked_at]  # no group is empty
    held = pages.room(map(len, rows))
    pages.read(state.client, rows, held)
    new = tuple(table.place[mine] < 0 for table, mine in zip(state.client, rows, strict=True))
    return look_program(world.pool, new, keys, data_of(rows), State(tuple(held), state.server), before)

  def pack(state):
    for record, table in zip(pages.records, state.client, strict=True):
      record.keep(table)
    return state

  def unpack(saved):
    for record, table in zip(pages.records, saved.client, strict=True):
      record.resume(table)
    return saved

  def digest(state):
    # Wherever the records lie; their CRCs stand for them.
    have = [np.flatnonzero(table.place >= 0) for table in state.client]
    return checkpoint.digest(
      (have, [table.sum[rows] for table, rows in zip(state.client, have, strict=True)], state.server)
    )

  saved = jax.eval_shape(lambda: State(jax.tree.map(jnp.asarray, nobody), server))
  return phase.Phase(
    label,
    method,
    plan,
    rounds,
    init=init,
    run=run,
    length=length,
    hits=hits_program,
    ready=ready,
    handover=None,  # a run with a store has one phase
    pack=pack,
    unpack=unpack,
    digest=digest,
    state=state,
    saved=saved,
  )


def _local(who, rows, window):
  """Seats int32[window, m] as places among `rows`; -1 for empty ones, and beyond the plan's end."""
  out = np.full((window, who.shape[1]), -1, np.int32)
  out[: len(who)] = np.where(who >= 0, np.searchsorted(rows, np.maximum(who, 0)), -1)
  return out
