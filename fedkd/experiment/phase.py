"""One phase of a run, a method for so many rounds, as compiled programs; with `build`, the only place that jits.

Every program takes and returns trees whose leaves have a leading axis of seeds.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import inference, round, sharding
from fedkd.experiment import checkpoint, early_stopping, hosts
from fedkd.local import Learner
from fedkd.plan import Plan
from fedkd.types import Data, ExampleIndices, Method, Pool, State, clients

# The winners of `launch/bench.py` (without `--quick`): clients mapped at once, by backend and kind of network.
AUTO_CHUNK = {('cpu', 'convolution'): 1, ('cpu', 'dense'): 10}
ACCELERATOR_CHUNK = 100
MOST_ROUNDS = 1000  # of one call; its reports are kept on the device


class Federation(NamedTuple):
  """What all phases of a run share. Rows have leaves [seeds, ...]."""

  groups: tuple  # of Group
  pool: Pool
  private: tuple  # per group Rows [seeds, n, ...]
  shared: tuple  # per group Rows [seeds, n, ...], or None
  everyone: ExampleIndices
  public: ExampleIndices | None
  clients: np.ndarray  # int[], those to evaluate


class ExecutionOptions(NamedTuple):
  """How to run, not what."""

  seed_axis: str  # map, vmap, auto
  chunk: int  # clients mapped at once, 0: AUTO_CHUNK
  eval_every: int
  eval_batch: int


class Phase(NamedTuple):
  """A method, its plan, and its programs."""

  label: str
  method: Method
  plan: Plan
  rounds: int
  init: Callable  # (variables per group, leaves [seeds, 1 or n, ...]) -> State
  # (State, start, count, who has stopped bool[seeds, clients] or None) -> (State, Report with leaves [seeds, length,
  # ...]); takes the State over
  run: Callable
  lower: Callable  # () -> jax.stages.Lowered: the program of `run`; once compiled, its calls find it
  length: int  # most rounds of one call
  correct: Callable  # (State, image uint8[seeds, T, ...], label) -> bool[seeds, clients evaluated, T]
  ready: Callable  # State -> State whose models may be looked at (`Method.calibrate`)
  handover: Callable  # State -> variables for `init` of the next phase
  pack: Callable  # State -> State as it is saved, the same for any number of devices
  unpack: Callable  # and back
  digest: Callable  # State -> SHA-256 of all states of clients and server
  state: State  # of ShapeDtypeStruct: clients and server, as the compiled round takes them
  saved: State  # of ShapeDtypeStruct: what `pack` returns


def evaluated_in(groups, clients) -> np.ndarray:
  """The group int[K] in which each of `clients` is evaluated: the first that holds it."""
  return np.argmax([np.isin(clients, g.ids) for g in groups], 0)


def _only(a):
  """The one row of an array, without the time that tracing an index takes."""
  return jax.lax.squeeze(a, (0,))


def over_seeds(function, axis):
  """Maps a function over the leading axis of seeds: 'vmap', or 'map' one after the other (bit-equal to single runs)."""

  def mapped(*args):
    if jax.tree.leaves(args)[0].shape[0] == 1:  # no loop, so that a donated state is updated in place
      return jax.tree.map(lambda a: a[None], function(*jax.tree.map(_only, args)))
    return jax.vmap(function)(*args) if axis == 'vmap' else jax.lax.map(lambda a: function(*a), args)

  return mapped


def over_seeds_jitted(axis, function, shared=1, **how):
  """A function jitted, and mapped over the seeds of all its arguments but the first `shared`."""
  mapped = lambda *args: over_seeds(functools.partial(function, *args[:shared]), axis)(*args[shared:])
  mapped.__name__ = getattr(function, 'func', function).__name__  # in JAX's logs and traces
  return jax.jit(mapped, **how)


def seed_axis(settings) -> str:
  """How seeds are mapped, 'map' or 'vmap'."""
  automatic = 'map' if jax.default_backend() == 'cpu' else 'vmap'
  return automatic if settings.seed_axis == 'auto' else settings.seed_axis


def chunk_of(settings, variables) -> int:
  """Clients mapped at once, for models with these variables (or their shapes)."""
  kernels = jax.tree.leaves([v['params'] for v in variables])
  kind = 'convolution' if any(leaf.ndim == 6 for leaf in kernels) else 'dense'  # a kernel, the clients, the seeds
  return settings.chunk or AUTO_CHUNK.get((jax.default_backend(), kind), ACCELERATOR_CHUNK)


def group_data(pool, rows) -> tuple:
  """`Data` of every group, from the `World`'s (private, shared, everyone, public)."""
  private, shared, everyone, public = rows
  shared = shared or (None,) * len(private)
  return tuple(Data(pool, mine, everyone, given, public) for mine, given in zip(private, shared, strict=True))


def first_states(key, method, groups, data, variables) -> tuple:
  """The clients' states before their first turn, per group; arguments as `initial_state`."""
  key_client = jax.random.split(key, 3)[0]

  def of_group(group, data, variables):
    def one(row, mine):
      own = round.of_client(data, row)
      return method.client.init(jax.random.fold_in(key_client, own.private.id), group.model, own, mine)

    rows, given = data.private.size.shape[0], jax.tree.leaves(variables)[0].shape[0]
    if given == 1:
      return jax.vmap(one, (0, None))(jnp.arange(rows), jax.tree.map(_only, variables))
    if given < rows:  # clients that only fill up the devices begin like the last
      variables = jax.tree.map(lambda a: jnp.take(a, np.minimum(np.arange(rows), given - 1), 0), variables)
    return jax.vmap(one)(jnp.arange(rows), variables)

  return tuple(of_group(*each) for each in zip(groups, data, variables, strict=True))


def first_server(key, method, groups, data, variables):
  """The server's state before round 0; arguments as `initial_state`."""
  first = tuple(jax.tree.map(lambda a: jax.lax.index_in_dim(a, 0, keepdims=False), v) for v in variables)
  return method.server.init(jax.random.split(key, 3)[1], groups, first, data)


def initial_state(key, method, groups, data, variables, stale) -> State:
  """The state before round 0. `variables`: per group, leaves [1, ...] (all clients alike) or [n, ...]."""
  states = first_states(key, method, groups, data, variables)
  server = first_server(key, method, groups, data, variables)
  key_inbox = jax.random.split(key, 3)[2]
  return State(states, server, round.fill_inbox(key_inbox, method, groups, server) if stale else None)


def handover(method, groups, state) -> tuple:
  """What the next phase starts from, per group, leaves [1 or n, ...]."""

  def of_group(g):
    client = state.client[g]
    found = {**method.variables(state, g), **({'opt': client.opt} if isinstance(client, Learner) else {})}
    return jax.tree.map(lambda a: a[: len(groups[g].ids)], found)

  return tuple(of_group(g) for g in range(len(groups)))


def without_filling(groups, state) -> State:
  """A state without the rows that make groups of clients a multiple of the devices."""
  cut = lambda group, states: jax.tree.map(lambda a: a[:, : len(group.ids)], states)
  return state._replace(client=tuple(map(cut, groups, state.client)))


def filled(state, like) -> State:
  """A state with those rows, zeros, up to the shapes of `like`."""
  fill = lambda a, s: (
    a if a.shape == s.shape else np.pad(a, [(0, m - n) for n, m in zip(a.shape, s.shape, strict=True)])
  )
  return jax.tree.map(fill, state, like)


def _laid_out(state, lie):
  """A state of the host, on the devices as `lie`, a tree of shardings that is a prefix of it."""
  return jax.tree.map(lambda where, part: jax.tree.map(lambda a: sharding.put(a, where), part), lie, state)


def _placed(state, lie):
  """The shapes of a state, as they lie on the devices; arguments as `_laid_out`."""
  with_place = lambda where: lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where)
  return jax.tree.map(lambda where, part: jax.tree.map(with_place(where), part), lie, state)


def evaluated_rows(world) -> list:
  """Per group int[k], the rows of the clients that are evaluated in it."""
  owner = evaluated_in(world.groups, world.clients)
  return [np.searchsorted(group.ids, world.clients[owner == g]) for g, group in enumerate(world.groups)]


def correct_predictions(method, groups, clients, rows, batch, state, image, label):
  """`evaluate.hits` of the `clients`, in their order; `rows`: where those of each group lie in `state`."""
  found = jnp.concatenate(inference.correct_predictions(method, groups, state, image, label, rows, batch))
  return found[np.argsort(np.argsort(evaluated_in(groups, clients), kind='stable'))]


def make(label, method, plan, rounds, keys, world, before, settings, mesh=None, stops=False) -> Phase:
  """The programs of a phase.

  Args:
    keys: [seeds], the run's keys of this phase.
    world: `World`.
    before: variables that `init` will get, or their shapes.
    settings: `Settings`.
    mesh: devices over which the clients are spread, or None.
    stops: whether `run` can be told who has stopped.

  Raises:
    ValueError: if method, models and data do not fit together.
  """
  groups, chunk = world.groups, chunk_of(settings, before)
  program = functools.partial(over_seeds_jitted, seed_axis(settings))
  length = min(settings.eval_every, rounds, MOST_ROUNDS)
  sizes = tuple(private.size.shape[1] for private in world.private)
  table = [sharding.assign_slots(w, n, mesh) for w, n in zip(plan.participants, sizes, strict=True)]
  participants, slotted = tuple(map(jnp.asarray, table)), {}
  clients_lie, others_lie = sharding.placement(mesh, sizes) if mesh else (None, None)
  pool, rows = world.pool, (world.private, world.shared, world.everyone, world.public)

  def init(pool, key, rows, variables):
    return initial_state(key, method, groups, group_data(pool, rows), variables, plan.stale)

  def left(stopped):
    """The slots of every seed, without those of the clients that have stopped; made when somebody has."""
    stopped = np.zeros((len(keys), clients(groups)), bool) if stopped is None else stopped
    if stopped.tobytes() not in slotted:
      slotted.clear()
      each = zip(table, groups, strict=True)
      slotted[stopped.tobytes()] = tuple(early_stopping.slots(w, group.ids, stopped) for w, group in each)
    return slotted[stopped.tobytes()]

  def run(pool, start, count, participants, key, rows, state):
    return round.run(
      key, start, count, length, method, groups, state, group_data(pool, rows), participants, chunk, mesh
    )

  def calibrate(which, pool, rows, state):
    return method.calibrate(groups, state, group_data(pool, rows), which) if method.calibrate else state

  correct = functools.partial(
    correct_predictions, method, groups, world.clients, evaluated_rows(world), settings.eval_batch
  )

  def hand_over(pool, rows, state):
    return handover(method, groups, calibrate(range(len(groups)), pool, rows, state))

  lie = State(clients_lie, others_lie, others_lie)
  to = lambda where: {'out_shardings': where} if mesh else {}
  start_program = program(init, **to(lie))
  # Seats that differ between seeds cost their own copy, and vmap over seeds its branches: only where clients may stop.
  run_program = program(run, 3 if stops else 4, donate_argnums=6, **to((lie, others_lie)))
  # A client that sits in several groups is looked at in the first; the next phase needs them all.
  firsts = tuple(np.unique(evaluated_in(groups, np.arange(clients(groups)))).tolist())
  ready_program = program(functools.partial(calibrate, firsts), **to(lie))
  # Other hosts' rows have to come here before they can be saved.
  gathered = to(others_lie) if hosts.count() > 1 else {}
  hand_program = program(hand_over, **gathered)

  begin = lambda variables: start_program(pool, keys, rows, variables)

  def arguments(state, start, count, stopped=None):
    return pool, np.int32(start), np.int32(count), left(stopped) if stops else participants, keys, rows, state

  go = lambda *args: run_program(*arguments(*args))

  # A whole round in shapes: what does not fit together ends here, not after minutes of compilation.
  placed = lambda state: _placed(state, lie) if mesh else state  # arguments that lie elsewhere are traced anew
  state = jax.eval_shape(lambda state: go(state, 0, 0)[0], placed(jax.eval_shape(begin, before)))
  cut = jax.jit(functools.partial(without_filling, groups)) if mesh else lambda state: state
  fetch = jax.jit(lambda a: a, **gathered)
  # Leaf by leaf, so that no device needs room for all clients.
  pack = (lambda state: jax.tree.map(lambda a: np.asarray(fetch(a)), cut(state))) if gathered else cut
  return Phase(
    label,
    method,
    plan,
    rounds,
    init=begin,
    run=go,
    lower=lambda: run_program.lower(*arguments(placed(state), 0, 0)),
    length=length,
    correct=program(correct, 0, **to(others_lie)),
    ready=lambda state: ready_program(pool, rows, state) if method.calibrate else state,
    handover=lambda state: hand_program(pool, rows, state),
    pack=pack,
    unpack=lambda saved: _laid_out(filled(saved, state), lie) if mesh else saved,
    digest=lambda state: checkpoint.checksum(pack(state)[:2]),
    state=state,
    saved=jax.eval_shape(cut, state),
  )
