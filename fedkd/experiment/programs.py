"""How a phase's functions become compiled programs: seeds mapped, arguments in one `Inputs`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedkd import evaluation
from fedkd.federation import Federation
from fedkd.plan import Plan
from fedkd.sharding import mapped_at_once
from fedkd.types import Method, Pool, PyTree


class ExecutionOptions(NamedTuple):
  """How to run, not what."""

  seed_axis: str  # map, vmap, auto
  clients_per_vmap: int  # 0: what is fastest
  eval_every: int
  eval_batch: int


class Task(NamedTuple):
  """What a phase is to do."""

  label: str
  method: Method
  plan: Plan
  rounds: int
  keys: jax.Array  # [seeds], the run's keys of this phase
  federation: Federation  # with tables [seeds, ...]
  evaluated: np.ndarray  # int[K], the clients to evaluate
  before: PyTree  # the variables it starts from, or their shapes
  trained: bool  # whether these are the clients' own, of an earlier phase
  options: ExecutionOptions
  numbers: Any = ()  # {field: value} of the config that programs take as arguments
  remade: Callable | None = None  # numbers -> the method with them, where there are any


class Inputs(NamedTuple):
  """What a program takes besides the state. Fields in `PER_SEED` have a leading axis [seeds]; the others have none."""

  pool: Pool
  key: jax.Array  # the run's keys of the phase
  rows: tuple  # the tables of a `Federation`: private, everyone, shared, public
  variables: PyTree = ()  # what the phase starts from
  participants: tuple = ()  # per group int32[rounds, m]
  start: Any = 0  # int32[]
  count: Any = 0  # type: ignore[assignment]  # int32[]; hides tuple.count
  new: tuple = ()  # per group bool[k], clients that have never taken part and so have no state
  numbers: Any = ()  # those of the task

  def federation(self, groups) -> Federation:
    """The federation of one seed, inside a program."""
    return Federation(groups, self.pool, *self.rows)


def of_evaluation(numbers: Any) -> Inputs:
  """The inputs of a program that only evaluates; `numbers`: those of its task."""
  nothing: Any = None
  return Inputs(nothing, nothing, nothing, numbers=numbers)


PER_SEED = ('key', 'rows', 'variables')


def rows_of(federation: Federation) -> tuple:
  """The tables of a federation, for `Inputs`."""
  return federation.private, federation.everyone, federation.shared, federation.public


def over_seeds(function: Callable, axis: str, per_seed=PER_SEED) -> Callable:
  """Maps `function(inputs, *trees)` over the seeds of the fields `per_seed` and of all trees: 'vmap', or 'map', one
  after the other (bit-equal to single runs)."""

  def mapped(inputs, *trees):
    seeds = {name: getattr(inputs, name) for name in per_seed}
    one = lambda of_seed: function(inputs._replace(**of_seed[0]), *of_seed[1])
    if jax.tree.leaves((seeds, trees))[0].shape[0] == 1:  # no loop, so that a donated state is updated in place
      only = jax.tree.map(lambda a: jax.lax.squeeze(a, (0,)), (seeds, trees))  # takes less tracing than indexing
      return jax.tree.map(lambda a: a[None], one(only))
    return jax.vmap(one)((seeds, trees)) if axis == 'vmap' else jax.lax.map(one, (seeds, trees))

  return mapped


def program(function: Callable, options: ExecutionOptions, per_seed=PER_SEED, **how) -> Callable:
  """`over_seeds`, jitted: a program (inputs, *trees) -> trees, with the name of `function` in JAX's logs and traces."""
  mapped = over_seeds(function, seed_axis(options), per_seed)
  mapped.__name__ = getattr(function, 'func', function).__name__
  return jax.jit(mapped, **how)


def method_in(task: Task, inputs: Inputs) -> Method:
  """The method of a phase inside a program, where its numbers are traced."""
  return task.remade(inputs.numbers) if task.remade else task.method


def correct_of(task: Task, alone: bool = False) -> Callable:
  """(Inputs, State, x, y) -> correct predictions of the clients to evaluate, by name; `alone`: whether the states are
  theirs alone."""
  groups, batch = task.federation.groups, task.options.eval_batch

  def correct(inputs, state, x, y):
    method = method_in(task, inputs)
    models = method, groups, task.evaluated, batch
    return evaluation.correct_of_clients(*models, state, x, y, evaluation.predictions(method), alone)

  return correct


def try_evaluation(task: Task, correct: Callable, ready: Callable) -> None:
  """Traces an evaluation of two examples by somebody else's functions: what they return fails here, not after training.

  Args:
    correct: the program of `correct_of`.
    ready: () -> the shapes of the state that it is given.
  """
  if evaluation.tried(task.method):
    two = lambda a: jax.ShapeDtypeStruct((len(task.keys), 2, *a.shape[1:]), a.dtype)
    jax.eval_shape(correct, of_evaluation(task.numbers), ready(), *map(two, task.federation.pool))


def seed_axis(options: ExecutionOptions) -> str:
  """How seeds are mapped, 'map' or 'vmap'."""
  automatic = 'map' if jax.default_backend() == 'cpu' else 'vmap'
  return automatic if options.seed_axis == 'auto' else options.seed_axis


def clients_per_vmap(options: ExecutionOptions, variables) -> int:
  """Clients mapped at once, for models with such variables (or their shapes), leaves [seeds, n, ...]."""
  return options.clients_per_vmap or mapped_at_once([v['params'] for v in variables], axes=2)
