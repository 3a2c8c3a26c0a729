"""A phase of a run: a method for a number of rounds. Here with all clients' states in memory; `offloaded_phase` keeps
them in files. Both are a `Phase` to the loop."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import evaluation, optimizers, round, sharding
from fedkd.checks import blame
from fedkd.experiment import early_stopping
from fedkd.experiment.hosts import hosts
from fedkd.experiment.programs import (
  PER_SEED,
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
from fedkd.experiment.storage import checkpoint, key_data
from fedkd.local import Learner
from fedkd.plan import Plan
from fedkd.states import calibrated, initial_state
from fedkd.types import Method, State, clients, of_model

MOST_ROUNDS = 1000  # of one call, whose reports are held on the device


class Phase(Protocol):
  """What the loop needs of a phase. States have leaves [seeds, ...]."""

  label: str
  method: Method
  plan: Plan
  rounds: int
  length: int  # most rounds of one call
  state: State  # of ShapeDtypeStruct: clients and server, as the compiled round takes them
  saved: State  # of ShapeDtypeStruct: what `pack` returns

  def init(self, variables) -> State:
    """The state before the first round. `variables`: per group, leaves [seeds, 1 or n, ...]."""
    ...

  def run(self, state, start, count, stopped=None) -> tuple[State, round.Report]:
    """`count` more rounds. `stopped`: bool[seeds, clients], who skips them. Donates the state."""
    ...

  def lower(self) -> Any:
    """The `jax.stages.Lowered` program of `run`; once compiled, calls of `run` reuse it."""
    ...

  def correct(self, state, x, y) -> dict[str, jax.Array]:
    """bool[seeds, clients evaluated, T] by name of `evaluation.predictions`: which are correct on x [seeds, T, ...]."""
    ...

  def ready(self, state) -> State:
    """The state whose models may be evaluated (`Method.calibrate`)."""
    ...

  def handover(self, state) -> tuple:
    """Variables for `init` of the next phase."""
    ...

  def pack(self, state) -> State:
    """The state as it is saved: the same for any number of devices, with keys as `KeyData`."""
    ...

  def unpack(self, saved) -> State:
    """Inverse of `pack`."""
    ...

  def checksum(self, state) -> str:
    """SHA-256 of all states of clients and server."""
    ...


def handover_variables(method: Method, groups, state: State) -> tuple:
  """What the next phase starts from, per group, leaves [1 or n, ...]: models, and with the clients' own models the
  states of the optimizers that trained them, whose schedules begin anew."""

  def of_group(g):
    made = evaluation.variables_of(method, groups, state, g)
    client, found = state.client[g], of_model(made)
    if (left := [name for name in made if name not in found]) and blame.is_foreign(method.variables):
      warnings.warn(
        f'{", ".join(map(repr, left))} of Method.variables {blame.named(method.variables)} stay behind at the end of '
        "the phase: the next one begins with {'params', 'batch_stats'} and the state of the optimizer alone",
        stacklevel=2,
      )
    rows = len(groups[g].ids)
    longest = max(a.shape[0] for a in jax.tree.leaves(found))
    if isinstance(client, Learner) and longest >= rows and (rows > 1 or _has_some_of(found, client)):
      found['opt'] = optimizers.begun_anew(client.opt)
    cut = lambda a: jnp.broadcast_to(a[:rows], (min(longest, rows), *a.shape[1:]))  # all of one length
    return jax.tree.map(cut, found)

  return tuple(of_group(g) for g in range(len(groups)))


def _has_some_of(variables, client) -> bool:
  """Whether variables have arrays of a client's own model: those of a server have one row, too, as a group of one."""
  own = {id(leaf) for leaf in jax.tree.leaves(client.params)}
  return any(id(leaf) in own for leaf in jax.tree.leaves(variables))


def without_padding(groups, state: State) -> State:
  """A state without the rows that pad groups to a multiple of the devices; leaves [seeds, n, ...]."""
  cut = lambda group, states: jax.tree.map(lambda a: a[:, : len(group.ids)], states)
  return state._replace(client=tuple(map(cut, groups, state.client)))


def padded(state: State, like: State) -> State:
  """A state padded with zeros to the shapes of `like`."""
  pad = lambda a, s: a if a.shape == s.shape else np.pad(a, [(0, m - n) for n, m in zip(a.shape, s.shape, strict=True)])
  return jax.tree.map(pad, state, like)


class Programs(NamedTuple):
  """What is compiled: (Inputs, ...) -> trees with a leading axis of seeds."""

  init: Callable  # Inputs -> State
  run: Callable  # (Inputs, State) -> (State, Report)
  correct: Callable  # (Inputs, State, x, y) -> {name of a prediction: bool}
  ready: Callable  # (Inputs, State) -> State
  handover: Callable  # (Inputs, State) -> variables
  cut: Callable  # State -> State `without_padding`
  gather: Callable  # an array of several hosts -> the same, whole, on each


class PhaseInMemory(NamedTuple):
  """A `Phase` with all states on the devices."""

  label: str
  method: Method
  plan: Plan
  rounds: int
  length: int
  state: State
  saved: State
  groups: tuple
  inputs: Inputs
  programs: Programs
  slots: Callable  # (start, stopped) -> participants of a segment as the compiled round takes them
  shardings: State | None  # a prefix of the state; None on one device

  def init(self, variables) -> State:
    return self.programs.init(self.inputs._replace(variables=variables))

  def run(self, state, start, count, stopped=None):
    return self.programs.run(_segment(self.inputs, self.slots(start, stopped), start, count), state)

  def lower(self):
    inputs = _segment(self.inputs, self.slots(0, None), 0, 0)
    return self.programs.run.lower(inputs, _placed(self.state, self.shardings))

  def correct(self, state, x, y):
    return self.programs.correct(of_evaluation(self.inputs.numbers), state, x, y)

  def ready(self, state) -> State:
    return self.programs.ready(self.inputs, state) if self.method.calibrate else state

  def handover(self, state):
    return self.programs.handover(self.inputs, state)

  def pack(self, state) -> State:
    return self._gathered(self.programs.cut(state))

  def _gathered(self, state) -> State:
    state = key_data.unwrapped(state)
    if hosts.count() == 1:
      return state
    # Other hosts' rows are gathered before they are saved; leaf by leaf, so that no device has to hold them all.
    return jax.tree.map(lambda a: np.asarray(self.programs.gather(a)), state)

  def unpack(self, saved) -> State:
    if not self.shardings:
      return key_data.wrapped(saved)
    whole, like = key_data.unwrapped(saved), jax.eval_shape(key_data.unwrapped, self.state)
    return key_data.wrapped(_laid_out(padded(whole, like), self.shardings))

  def checksum(self, state) -> str:
    return checkpoint.checksum(self._gathered(self.programs.cut(state))[:2])


def _laid_out(state, shardings):
  """A state of the host, on the devices; `shardings` is a prefix of it."""
  return jax.tree.map(lambda where, part: jax.tree.map(lambda a: sharding.put(a, where), part), shardings, state)


def _placed(state, shardings):
  """The shapes of a state, as they lie on the devices: arguments placed elsewhere would be traced again."""
  with_place = lambda where: lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where)
  place = lambda where, part: jax.tree.map(with_place(where), part)
  return jax.tree.map(place, shardings, state) if shardings else state


def _participants(plan, groups, sizes, mesh, seeds, stops, length) -> Callable:
  """(start, stopped) -> the slots of `length` rounds as the compiled round takes them: a longer run of the same plan
  finds its program in the compilation cache.

  Slots that differ between seeds need a copy per seed, and under vmap over seeds both branches run: only where clients
  may stop.
  """
  table = [sharding.assign_slots(w, n, mesh) for w, n in zip(plan.participants, sizes, strict=True)]

  def segment(table, start):
    rows = table[..., start : start + length, :]
    missing = [(0, 0)] * (rows.ndim - 2) + [(0, length - rows.shape[-2]), (0, 0)]
    return np.pad(rows, missing, constant_values=-1)

  if not stops:
    return lambda start, stopped: tuple(segment(rows, start) for rows in table)

  @functools.lru_cache(1)
  def left(stopped):
    out = np.frombuffer(stopped, bool).reshape(seeds, -1)
    return tuple(early_stopping.slots(rows, group.ids, out) for rows, group in zip(table, groups, strict=True))

  nobody = np.zeros((seeds, clients(groups)), bool)
  who = lambda stopped: left((nobody if stopped is None else stopped).tobytes())
  return lambda start, stopped: tuple(segment(rows, start) for rows in who(stopped))


def make(task: Task, mesh=None, stops: bool = False) -> PhaseInMemory:
  """The programs of a phase.

  Args:
    task: `Task`.
    mesh: devices over which the clients are spread, or None.
    stops: whether `run` takes `stopped`.

  Raises:
    ValueError: if method, models and data do not fit together.
  """
  method, options, groups = task.method, task.options, task.federation.groups
  length = min(options.eval_every, MOST_ROUNDS)  # whatever `rounds`
  sizes = tuple(private.size.shape[1] for private in task.federation.private)
  places, replicated = sharding.placement(mesh, sizes) if mesh else (None, None)
  shardings = State(places, replicated, replicated) if mesh else None
  programs = _programs(task, length, mesh, stops, shardings, replicated)
  inputs = Inputs(task.federation.pool, task.keys, rows_of(task.federation), numbers=task.numbers)
  slots = _participants(task.plan, groups, sizes, mesh, len(task.keys), stops, length)
  # Traces a whole round: incompatible parts fail here, not after minutes of compilation.
  first = _placed(jax.eval_shape(programs.init, inputs._replace(variables=task.before)), shardings)
  state = jax.eval_shape(lambda state: programs.run(_segment(inputs, slots(0, None), 0, 0), state)[0], first)

  def evaluated():
    """The shapes of a state to evaluate, without padding: what is as long by chance is not a row of its client."""
    ready = jax.eval_shape(programs.ready, inputs, state) if method.calibrate else state
    return jax.eval_shape(programs.cut, ready)

  try_evaluation(task, programs.correct, evaluated)
  return PhaseInMemory(
    label=task.label,
    method=method,
    plan=task.plan,
    rounds=task.rounds,
    length=length,
    state=state,
    saved=jax.eval_shape(lambda state: key_data.unwrapped(programs.cut(state)), state),
    groups=groups,
    inputs=inputs,
    programs=programs,
    slots=slots,
    shardings=shardings,
  )


def _segment(inputs, participants, start, count) -> Inputs:
  """The inputs of a segment; numbers as arrays, so that one program serves all segments."""
  return inputs._replace(participants=participants, start=np.int32(start), count=np.int32(count))


def _programs(task, length, mesh, stops, shardings, replicated) -> Programs:
  """The programs of a phase, whose segments have at most `length` rounds."""
  options, groups = task.options, task.federation.groups
  on_mesh = lambda where: {'out_shardings': where} if mesh else {}
  # A client of several groups is evaluated in the first; the next phase needs them all.
  firsts = tuple(np.unique(evaluation.evaluated_in(groups, np.arange(clients(groups)))).tolist())
  width = clients_per_vmap(options, task.before)

  def init(inputs):
    method = method_in(task, inputs)
    return initial_state(inputs.key, method, inputs.federation(groups), inputs.variables, task.plan.stale, task.trained)

  def run(inputs, state):
    step = round.step(method_in(task, inputs), groups, width, mesh)
    data = inputs.federation(groups).data()
    window = inputs.key, inputs.start, inputs.count, length
    return round.run(*window, step, state, data, inputs.participants, inputs.start)

  def calibrate(inputs, state):
    return calibrated(method_in(task, inputs), inputs.federation(groups), state, firsts)

  def handover(inputs, state):
    method = method_in(task, inputs)
    return handover_variables(method, groups, calibrated(method, inputs.federation(groups), state, range(len(groups))))

  per_seed = (*PER_SEED, 'participants') if stops else PER_SEED
  gathered = on_mesh(replicated) if hosts.count() > 1 else {}
  return Programs(
    init=program(init, options, **on_mesh(shardings)),
    run=program(run, options, per_seed, donate_argnums=1, **on_mesh((shardings, replicated))),
    correct=program(correct_of(task), options, (), **on_mesh(replicated)),
    ready=program(calibrate, options, **on_mesh(shardings)),
    handover=program(handover, options, **gathered),
    cut=jax.jit(functools.partial(without_padding, groups)) if mesh else lambda state: state,
    gather=jax.jit(lambda a: a, **gathered),
  )
