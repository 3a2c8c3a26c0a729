"""The offloaded phase: clients' states are on disk (`client_store`); only those of the current slots are in memory.

The rounds are cut into windows. The records of its participants are read before a window and written after it; while
the device works, those of the next window are prefetched. A client without a record starts from `Client.init`. The
numbers are those of a phase in memory, bit for bit.
"""

import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import evaluation, round
from fedkd.experiment.phase import MOST_ROUNDS
from fedkd.experiment.programs import (
  Inputs,
  Task,
  clients_per_vmap,
  correct_of,
  method_in,
  of_evaluation,
  program,
  rows_of,
  try_evaluation,
)
from fedkd.experiment.storage import checkpoint, client_store, key_data
from fedkd.federation import Federation
from fedkd.plan import Plan
from fedkd.rows import aligned
from fedkd.states import calibrated, first_clients, first_server
from fedkd.types import Method, State

SLOTS = 256  # client updates per window, about: enough to keep the device busy, few enough for memory


class ClientStates(NamedTuple):
  """The clients' states of all groups, in files. Lists have an entry per group; states are of some clients, leaves
  [seeds, k, ...]."""

  records: list  # of client_store.Records
  like: list  # one client's state, ShapeDtypeStruct [seeds, ...]

  def read(self, tables, rows, out, wanted=None):
    """Puts the states of the clients in `rows`, or of those with `wanted` (bool), into their places in `out`."""
    wanted = wanted or [np.ones(len(chosen), bool) for chosen in rows]
    for record, table, chosen, states, mask in zip(self.records, tables, rows, out, wanted, strict=True):
      record.read(table, chosen[mask], states, np.flatnonzero(mask))

  def write(self, tables, rows, states) -> list:
    """The tables after writing the states of the clients in `rows`."""
    return [
      record.write(table, chosen, held)
      for record, table, chosen, held in zip(self.records, tables, rows, states, strict=True)
    ]

  def room(self, many) -> list:
    """Zeros for the states of `many` clients, per group."""
    zeros = lambda n: lambda s: np.zeros((s.shape[0], n, *s.shape[1:]), s.dtype)
    return [jax.tree.map(zeros(n), like) for n, like in zip(many, self.like, strict=True)]

  def clear(self):
    """Starts over, without records."""
    for record in self.records:
      record.clear()

  def keep(self, state):
    """Makes the records that the tables of `state` refer to durable; returns `state`."""
    for record, table in zip(self.records, state.client, strict=True):
      record.keep(table)
    return state

  def resume(self, saved):
    """Resumes from a state that an earlier process saved; returns it."""
    for record, table in zip(self.records, saved.client, strict=True):
      record.resume(table)
    return saved


class Programs(NamedTuple):
  """What is compiled: (Inputs, ...) -> trees with a leading axis of seeds. `Inputs.new` marks the clients without
  a record, whose entries in the state are ignored. Keys come and go as `KeyData`, except in what `ready` returns."""

  server: Callable  # Inputs -> the server's state before the first round
  clients: Callable  # Inputs -> the clients' states before their first update, per group
  work: Callable  # (Inputs, State) -> (State, Report) after a window
  ready: Callable  # (Inputs, State) -> State whose models may be evaluated
  correct: Callable  # (Inputs, State, x, y) -> {name of a prediction: bool}


def _programs(task, window) -> Programs:
  """`window`: rounds of one call of `work`."""
  groups, evaluated, options = task.federation.groups, task.evaluated, task.options
  width = clients_per_vmap(options, task.before)

  def clients(inputs):
    method = method_in(task, inputs)
    return key_data.unwrapped(first_clients(inputs.key, method, inputs.federation(groups), inputs.variables))

  def server(inputs):
    method = method_in(task, inputs)
    return key_data.unwrapped(
      first_server(inputs.key, method, inputs.federation(groups), inputs.variables, task.trained)
    )

  def with_new(inputs, state):
    """The state, keys as such, with those of the new clients as before their first update."""
    choose = lambda mask: lambda a, b: jnp.where(aligned(mask, a), a, b)
    groups_of = zip(inputs.new, clients(inputs), state.client, strict=True)
    held = tuple(jax.tree.map(choose(mask), first, held) for mask, first, held in groups_of)
    return key_data.wrapped(state._replace(client=held))

  def work(inputs, state):
    data, state = inputs.federation(groups).data(), with_new(inputs, state)
    step = round.step(method_in(task, inputs), groups, width)
    rounds = inputs.key, inputs.start, inputs.count, window
    state, report = round.run(*rounds, step, state, data, inputs.participants, inputs.start)
    return key_data.unwrapped(state), report

  def ready(inputs, state):
    groups_evaluated = np.unique(evaluation.evaluated_in(groups, evaluated)).tolist()
    method = method_in(task, inputs)
    return calibrated(method, inputs.federation(groups), with_new(inputs, state), groups_evaluated)

  return Programs(
    program(server, options),
    program(clients, options),
    program(work, options, donate_argnums=1),
    program(ready, options),
    program(correct_of(task, alone=True), options, ()),
  )


class Windows(NamedTuple):
  """Inputs of the programs for the clients of a window. Lists have an entry per group."""

  plan: Plan
  federation: Federation  # with tables [seeds, ...] as NumPy arrays
  inputs: Inputs  # of all clients; `of` selects some
  rounds: int  # of a window
  places: list  # most clients of a window

  def of(self, rows) -> Inputs:
    """The inputs for the clients in `rows`."""
    federation = self.federation
    pick = lambda group, own: jax.tree.map(lambda a: a[:, own], group)
    some = lambda each: None if each is None else tuple(map(pick, each, rows))
    chosen = federation._replace(private=tuple(map(pick, federation.private, rows)), shared=some(federation.shared))
    return self.inputs._replace(rows=rows_of(chosen))

  def inputs_of(self, start, count, rows, new) -> Inputs:
    """The inputs of the program for rounds of a window, with the clients in `rows`, padded to `places`."""
    tables = [table[start : start + self.rounds] for table in self.plan.participants]
    participants = tuple(_local(table, own, self.rounds) for table, own in zip(tables, rows, strict=True))
    pad = lambda each: tuple(np.pad(a, (0, most - len(a))) for a, most in zip(each, self.places, strict=True))
    inputs = self.of(pad(rows))
    return inputs._replace(participants=participants, start=np.int32(start), count=np.int32(count), new=pad(new))

  def empty(self) -> Inputs:
    """The inputs of a window of no rounds."""
    nobody = [np.zeros(0, np.int32) for _ in self.places]
    return self.inputs_of(0, 0, nobody, [np.zeros(0, bool) for _ in self.places])

  def participating(self, start, end) -> list:
    """The rows that have a slot in these rounds, of a window at most."""
    present = [np.unique(table[start : min(start + self.rounds, end)]) for table in self.plan.participants]
    return [rows[rows >= 0] for rows in present]


class OffloadedPhase(NamedTuple):
  """A `Phase` whose clients' states are in files. Between calls, a `State` has tables in their place, and keys as
  `KeyData`. It has no `handover`: a config with a `client_store` has one phase (`config.checks`).

  Lists have an entry per group.
  """

  label: str
  method: Method
  plan: Plan
  rounds: int
  length: int
  state: State
  saved: State
  groups: tuple
  evaluated: np.ndarray
  programs: Programs
  states: ClientStates
  windows: Windows

  def init(self, variables) -> State:
    self.states.clear()
    nobody = tuple(client_store.blank(len(g.ids)) for g in self.groups)
    return State(nobody, self.programs.server(self.windows.inputs._replace(variables=variables)))

  def run(self, state, start, count, stopped=None):
    del stopped  # early stopping cannot be combined with a store
    windows, tables, server, reports, end = self.windows, list(state.client), state.server, [], start + count
    rows, held = windows.participating(start, end), self.states.room(windows.places)
    self.states.read(tables, rows, held)
    with ThreadPoolExecutor(1) as reader:
      while True:
        length = min(windows.rounds, end - start)
        inputs = windows.inputs_of(start, length, rows, _without_record(tables, rows))
        out, report = self.programs.work(inputs, State(tuple(held), server))
        # While the device works: read clients of the next window that are not in this one.
        following, ahead = windows.participating(start + length, end), self.states.room(windows.places)
        busy = [np.isin(*each) for each in zip(following, rows, strict=True)]
        reading = reader.submit(self.states.read, tables, following, ahead, [~mask for mask in busy])
        reports.append(jax.tree.map(lambda a, n=length: a[:, :n], jax.device_get(report)))
        held, server = jax.device_get(out.client), out.server
        reading.result()
        tables = self.states.write(tables, rows, held)
        start += length
        if start >= end:
          return State(tuple(tables), server), jax.tree.map(lambda *a: np.concatenate(a, 1), *reports)
        self.states.read(tables, following, ahead, busy)
        rows, held = following, ahead

  def lower(self):
    return self.programs.work.lower(self.windows.empty(), self.state)

  def correct(self, state, x, y):
    return self.programs.correct(of_evaluation(self.windows.inputs.numbers), state, x, y)

  def ready(self, state) -> State:
    rows = _evaluated(self.groups, self.evaluated)
    held, new = self.states.room(map(len, rows)), _without_record(state.client, rows)
    self.states.read(state.client, rows, held)
    return self.programs.ready(self.windows.of(rows)._replace(new=new), State(tuple(held), state.server))

  def pack(self, state) -> State:
    return self.states.keep(state)

  def unpack(self, saved) -> State:
    return self.states.resume(saved)

  def checksum(self, state) -> str:
    """Of all states, wherever their records are; the records enter by their CRCs."""
    have = [np.flatnonzero(table.place >= 0) for table in state.client]
    sums = [table.sum[rows] for table, rows in zip(state.client, have, strict=True)]
    return checkpoint.checksum((have, sums, state.server))


def make(task: Task, folder) -> OffloadedPhase:
  """The programs of a phase with its clients' states in `folder`.

  Raises:
    ValueError: as `phase.make`; or for a stale plan, whose inbox would be as large as the clients' states.
  """
  plan, federation, options = task.plan, task.federation, task.options
  if plan.stale:
    raise ValueError("client_store has no room for every client's last download; set plan.stale=False")
  groups, slots = federation.groups, [table.shape[1] for table in plan.participants]
  window = max(1, min(options.eval_every, SLOTS // max(sum(slots), 1)))  # rounds; not fewer in a shorter run
  programs = _programs(task, window)
  on_host = jax.tree.map(np.asarray, {'private': federation.private, 'shared': federation.shared})
  windows = Windows(
    plan=plan,
    federation=federation._replace(**on_host),
    inputs=Inputs(federation.pool, task.keys, rows_of(federation), task.before, numbers=task.numbers),
    rounds=window,
    places=[max(1, min(len(g.ids), window * width)) for g, width in zip(groups, slots, strict=True)],
  )
  # A whole round in shapes, as in `phase.make`.
  clients = jax.eval_shape(programs.clients, windows.of([np.zeros(size, np.int32) for size in windows.places]))
  server = jax.eval_shape(programs.server, windows.inputs)
  jax.eval_shape(programs.work, windows.empty(), State(clients, server))

  def evaluated():
    rows = _evaluated(groups, task.evaluated)
    inputs = windows.of(rows)._replace(new=tuple(np.ones(len(own), bool) for own in rows))
    return jax.eval_shape(programs.ready, inputs, State(jax.eval_shape(programs.clients, inputs), server))

  try_evaluation(task, programs.correct, evaluated)
  like = [jax.tree.map(lambda s: jax.ShapeDtypeStruct((s.shape[0], *s.shape[2:]), s.dtype), c) for c in clients]
  records = [client_store.Records(pathlib.Path(folder) / f'group{g}', each) for g, each in enumerate(like)]
  tables = tuple(client_store.blank(len(g.ids)) for g in groups)
  return OffloadedPhase(
    label=task.label,
    method=task.method,
    plan=plan,
    rounds=task.rounds,
    length=min(options.eval_every, task.rounds, MOST_ROUNDS),
    state=State(clients, server),
    saved=jax.eval_shape(lambda: State(jax.tree.map(jnp.asarray, tables), server)),
    groups=groups,
    evaluated=task.evaluated,
    programs=programs,
    states=ClientStates(records, like),
    windows=windows,
  )


def _evaluated(groups, clients) -> list:
  """Rows of the clients that are evaluated; where there is none in a group, its first, so that no group is empty."""
  rows = evaluation.evaluated_rows(groups, clients)
  return [own if len(own) else np.zeros(1, np.int32) for own in rows]


def _without_record(tables, rows) -> tuple:
  """bool[k] per group: which of the clients in `rows` have never taken part."""
  return tuple(table.place[own] < 0 for table, own in zip(tables, rows, strict=True))


def _local(participants, rows, window):
  """Slots int32[window, m] as places among `rows`; -1 for empty ones, and beyond the plan's end."""
  out = np.full((window, participants.shape[1]), -1, np.int32)
  out[: len(participants)] = np.where(participants >= 0, np.searchsorted(rows, np.maximum(participants, 0)), -1)
  return out
