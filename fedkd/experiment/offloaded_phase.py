"""A phase whose clients' states lie on disk (`client_store`); only those of the slots at work are in memory.

The rounds are cut into windows. Before a window the records of its participants are read, after it they are written,
and while the device works the next window's are read already. A client without a record begins as `Client.init` says.
What a client computes does not depend on where its state lies: the numbers are those of a phase in memory, bit for bit.
"""

import functools
import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import round
from fedkd.experiment import checkpoint, client_store, phase
from fedkd.plan import Plan
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

  def clear(self):
    """Begins anew, with no record."""
    for record in self.records:
      record.clear()

  def keep(self, state):
    """Makes the records that the tables of `state` know survive this process; returns `state`."""
    for record, table in zip(self.records, state.client, strict=True):
      record.keep(table)
    return state

  def resume(self, saved):
    """Goes on from a state that an earlier process kept; returns it."""
    for record, table in zip(self.records, saved.client, strict=True):
      record.resume(table)
    return saved


class Programs(NamedTuple):
  """What is compiled. Arguments from `key` on have a leading axis of seeds; `new`: bool[k] per group, the clients that
  have no record, whatever `state` holds for them."""

  server: Callable  # (pool, key, rows, variables) -> the server's state before round 0
  clients: Callable  # (pool, key, rows, variables) -> the clients' states before their first turn, per group
  work: Callable  # (pool, who, new, start, count, key, rows, state, variables) -> (State, Report) after a window
  look: Callable  # (pool, new, key, rows, state, variables) -> State whose models may be looked at
  correct: Callable  # as `Phase.hits`


def _programs(method, world, before, settings, window) -> Programs:
  """`window`: rounds of one call of `work`."""
  groups, chunk, owner = world.groups, phase.chunk_of(settings, before), phase.evaluated_in(world.groups, world.clients)
  program = functools.partial(phase.over_seeds_jitted, phase.seed_axis(settings))

  def clients(pool, key, rows, variables):
    return phase.first_states(key, method, groups, phase.group_data(pool, rows), variables)

  def server(pool, key, rows, variables):
    return phase.first_server(key, method, groups, phase.group_data(pool, rows), variables)

  def with_new(pool, new, key, rows, state, variables):
    """The state with those of the `new` clients as before their first turn."""
    first = clients(pool, key, rows, variables)
    choose = lambda mask: lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b)
    each = zip(new, first, state.client, strict=True)
    return state._replace(client=tuple(jax.tree.map(choose(mask), f, c) for mask, f, c in each))

  def work(pool, participants, new, start, count, key, rows, state, variables):
    data, state = phase.group_data(pool, rows), with_new(pool, new, key, rows, state, variables)
    return round.run(key, start, count, window, method, groups, state, data, participants, chunk, first=start)

  def look(pool, new, key, rows, state, variables):
    data, state = phase.group_data(pool, rows), with_new(pool, new, key, rows, state, variables)
    return method.calibrate(groups, state, data, np.unique(owner).tolist()) if method.calibrate else state

  every = [np.arange(len(rows)) for rows in phase.evaluated_rows(world)]
  correct = functools.partial(phase.correct_predictions, method, groups, world.clients, every, settings.eval_batch)
  return Programs(
    program(server), program(clients), program(work, 5, donate_argnums=7), program(look, 2), program(correct, 0)
  )


class Windows(NamedTuple):
  """A phase at work: what its programs need, and the loop that reads, computes and writes.

  Between calls, a `State` has tables in place of the clients' states. Lists have an entry per group.
  """

  world: phase.Federation
  plan: Plan
  keys: jax.Array  # [seeds]
  before: tuple  # the variables before the first turn
  programs: Programs
  pages: Pages | None  # None until the shapes of the states are known
  length: int  # rounds of a window
  places: list  # clients that a window has room for
  on_host: tuple  # the clients' private and shared Rows, NumPy

  def start_of_server(self, variables):
    """The server's state before round 0."""
    rows = self.world.private, self.world.shared, self.world.everyone, self.world.public
    return self.programs.server(self.world.pool, self.keys, rows, variables)

  def data_of(self, rows):
    """The clients' `ExampleIndices` for those in `rows`, and everybody's."""
    pick = lambda group, mine: jax.tree.map(lambda a: a[:, mine], group)
    private, shared = (each and tuple(map(pick, each, rows)) for each in self.on_host)
    return private, shared, self.world.everyone, self.world.public

  def arguments(self, start, count, rows, new, state):
    """The arguments of the program for rounds of a window, with the clients in `rows`, filled up to `places`."""
    tables = [table[start : start + self.length] for table in self.plan.participants]
    participants = tuple(_local(table, mine, self.length) for table, mine in zip(tables, rows, strict=True))
    fill = lambda each: tuple(np.pad(a, (0, many - len(a))) for a, many in zip(each, self.places, strict=True))
    numbers, rows = (np.int32(start), np.int32(count)), fill(rows)
    return self.world.pool, participants, fill(new), *numbers, self.keys, self.data_of(rows), state, self.before

  def slotted(self, start, end):
    """The rows that have a slot in these rounds, of a window at most."""
    found = [np.unique(table[start : min(start + self.length, end)]) for table in self.plan.participants]
    return [rows[rows >= 0] for rows in found]

  def init(self, variables) -> State:
    """`Phase.init`."""
    self.pages.clear()
    nobody = tuple(client_store.blank(len(g.ids)) for g in self.world.groups)
    return State(nobody, self.start_of_server(variables))

  def run(self, state, start, count, stopped=None):
    """`Phase.run`; there is no early stopping with a store."""
    del stopped
    tables, server, reports, end, pages = list(state.client), state.server, [], start + count, self.pages
    rows, held = self.slotted(start, end), pages.room(self.places)
    pages.read(tables, rows, held)
    with ThreadPoolExecutor(1) as reader:
      while True:
        many = min(self.length, end - start)
        new, known = _without_record(tables, rows), State(tuple(held), server)
        out, report = self.programs.work(*self.arguments(start, many, rows, new, known))
        # While the device works: those of the next window who are not at work now.
        following, ahead = self.slotted(start + many, end), pages.room(self.places)
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

  def ready(self, state) -> State:
    """`Phase.ready`: of the clients to look at, and no others."""
    looked_at = phase.evaluated_rows(self.world)
    rows = [mine if len(mine) else np.zeros(1, np.int32) for mine in looked_at]  # no group is empty
    held, new = self.pages.room(map(len, rows)), _without_record(state.client, rows)
    self.pages.read(state.client, rows, held)
    state = State(tuple(held), state.server)
    return self.programs.look(self.world.pool, new, self.keys, self.data_of(rows), state, self.before)


def make(label, method, plan, rounds, keys, world, before, settings, folder) -> phase.Phase:
  """The programs of a phase with its clients' states in `folder`; other arguments as `phase.make`.

  Raises:
    ValueError: as `phase.make`; or for a stale plan, whose inbox is as large as the clients' states.
  """
  if plan.stale:
    raise ValueError("client_store has no room for every client's last download; set plan.stale=False")
  groups, slots = world.groups, [table.shape[1] for table in plan.participants]
  window = max(1, min(settings.eval_every, SEATS // max(sum(slots), 1)))  # rounds; not fewer in a shorter run
  places = [max(1, min(len(g.ids), window * many)) for g, many in zip(groups, slots, strict=True)]
  programs = _programs(method, world, before, settings, window)
  on_host = jax.tree.map(np.asarray, (world.private, world.shared))
  windows = Windows(world, plan, keys, before, programs, None, window, places, on_host)

  # A whole round in shapes, as in `phase.make`.
  nobody = [np.zeros(0, np.int32) for _ in groups]
  rows = windows.data_of([np.zeros(many, np.int32) for many in places])
  clients = jax.eval_shape(programs.clients, world.pool, keys, rows, before)
  server = jax.eval_shape(windows.start_of_server, before)
  state = State(clients, server)
  first = windows.arguments(0, 0, nobody, [np.zeros(0, bool) for _ in groups], state)
  jax.eval_shape(programs.work, *first)

  one = lambda s: jax.ShapeDtypeStruct((s.shape[0], *s.shape[2:]), s.dtype)
  like = [jax.tree.map(one, c) for c in clients]
  pages = Pages([client_store.Records(pathlib.Path(folder) / f'group{g}', each) for g, each in enumerate(like)], like)
  windows = windows._replace(pages=pages)
  tables = tuple(client_store.blank(len(g.ids)) for g in groups)
  return phase.Phase(
    label,
    method,
    plan,
    rounds,
    init=windows.init,
    run=windows.run,
    lower=lambda: programs.work.lower(*first),
    length=min(settings.eval_every, rounds, phase.MOST_ROUNDS),
    correct=programs.correct,
    ready=windows.ready,
    handover=None,  # a run with a store has one phase
    pack=pages.keep,
    unpack=pages.resume,
    digest=_digest,
    state=state,
    saved=jax.eval_shape(lambda: State(jax.tree.map(jnp.asarray, tables), server)),
  )


def _without_record(tables, rows) -> tuple:
  """bool[k] per group: which of the clients in `rows` have never taken part."""
  return tuple(table.place[mine] < 0 for table, mine in zip(tables, rows, strict=True))


def _digest(state) -> str:
  """Of all states, wherever their records lie; the records' CRCs stand for them."""
  have = [np.flatnonzero(table.place >= 0) for table in state.client]
  sums = [table.sum[rows] for table, rows in zip(state.client, have, strict=True)]
  return checkpoint.checksum((have, sums, state.server))


def _local(participants, rows, window):
  """Seats int32[window, m] as places among `rows`; -1 for empty ones, and beyond the plan's end."""
  out = np.full((window, participants.shape[1]), -1, np.int32)
  out[: len(participants)] = np.where(participants >= 0, np.searchsorted(rows, np.maximum(participants, 0)), -1)
  return out
