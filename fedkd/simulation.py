"""A method on a federation as pure functions: the only place where clients, server and plan are put together.

The runner, the tests and the benchmark use it too.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import round, summary
from fedkd.checks import evaluated, kinds, ranges, returned
from fedkd.checks.method import check_method
from fedkd.errors import ConfigError
from fedkd.evaluation import tried
from fedkd.federation import Federation, on_device
from fedkd.models.base import class_of
from fedkd.models.initial import Initial, group_variables
from fedkd.plan import Plan, Planner, tables
from fedkd.readout import readout
from fedkd.round import Report
from fedkd.sharding import mapped_at_once
from fedkd.states import initial_state
from fedkd.types import Group, Method, PyTree, State

HORIZON = 1000  # rounds for which a plan is drawn
FOREIGN = 'give a state of this simulation, and map over several with jax.vmap'


class SimulationState(NamedTuple):
  """The state of a simulation between rounds."""

  key: jax.Array  # the run's key, the same in every round
  round: jax.Array  # int32[], rounds so far
  client: tuple  # per group, leaves [n, ...]
  server: PyTree
  inbox: tuple | None = None  # what each client downloaded last, where the plan is stale

  @property
  def federated(self) -> State:
    """The part of it that methods and servers use."""
    return State(self.client, self.server, self.inbox)

  def __repr__(self):
    return summary.of_state(self)


class Simulation(NamedTuple):
  """Pure functions; all may be jitted, mapped over keys (seeds) and states, and differentiated where clients train for
  a fixed number of steps.

  init: (key, variables=None) -> state before the first round. `variables`: per group, instead of fresh ones; models
    that a server trains begin with fresh ones nevertheless.
  round: state -> (state, Report) after one more round.
  run: (state, rounds) -> (state, Report with leaves [rounds, ...]), as one program; `rounds` is a Python int.
  accuracy: (state, x, y, inference='', domains=None) -> float32[clients], of every client's model on shared examples,
    NaN where logits are; `inference` names one of the method's further `predictions`. With `domains` int[T], the domain
    of every example from 0, or the client whose test example it is, float32[clients, domains].
  logits: (state, x, inference='') -> float32[clients, T, C] of every client's model on raw examples [T, ...].
  predict: as `logits` -> int32[clients, T], the class with the largest, -1 where one is NaN.
  validation_accuracy: (state, inference='') -> float32[clients] on the held-out rows of the federation; [clients,
    domains] if it has domains, NaN for those without held-out rows.
  model: (state, client) -> (module, variables): `module.apply(variables, x, False)` gives (logits, out) for raw
    examples. Where a method predicts with more than one network or by prototypes, these are not those of `logits`.
  models: state -> a tuple of those of all clients.
  method, federation: what it was made of.
  """

  init: Callable[..., SimulationState]
  round: Callable[[SimulationState], tuple[SimulationState, Report]]
  run: Callable[[SimulationState, int], tuple[SimulationState, Report]]
  accuracy: Callable[..., jax.Array]
  logits: Callable[..., jax.Array]
  predict: Callable[..., jax.Array]
  validation_accuracy: Callable[..., jax.Array]
  model: Callable[[SimulationState, int], tuple]
  models: Callable[[SimulationState], tuple]
  method: Method
  federation: Federation

  def __repr__(self):
    state = jax.eval_shape(self.init, jax.eval_shape(jax.random.key, 0))
    return summary.of_simulation(self.method, self.federation, state)


def simulation(
  method: Method,
  federation: Federation,
  plan: Planner | Plan | None = None,
  *,
  clients_per_vmap: int | None = None,
  horizon: int = HORIZON,
  initial: Initial = 'equal',
) -> Simulation:
  """A method on a federation.

  Args:
    method: from `fedkd.methods`, or your own. Its scalar hyperparameters may be traced.
    federation: from `fedkd.federation`.
    plan: from `fedkd.plan`, or a `Plan` of tables; None: all clients in every round.
    clients_per_vmap: clients per vmap; 1 trains them one after the other. None: whatever is fastest for the models on
      this backend.
    horizon: rounds for which the plan is drawn; after them it repeats.
    initial: 'equal', clients of one architecture start from equal weights; 'own', each from its own, and a server of
      weights from those of the first client of each group.

  Raises:
    ValueError: if method, models, data and plan do not fit together, before anything is compiled.
  """
  check_method(method)
  kinds.check_is('federation', federation, Federation, 'what fedkd.federation(x, y, parts, models) returns')
  ranges.check('initial', initial, Initial)
  horizon = kinds.whole_number('horizon', horizon)
  groups = federation.groups
  drawn = tables(plan, groups, horizon)
  # Arguments of the programs, not constants in them: XLA would fold what it can and keep copies.
  arrays = federation[1:], on_device(drawn.participants)
  example = jax.ShapeDtypeStruct(federation.pool.example.shape[1:], federation.pool.example.dtype)
  fresh = jax.jit(lambda key: tuple(group_variables(key, group, example, initial) for group in groups))
  if clients_per_vmap is None:
    clients_per_vmap = mapped_at_once(jax.eval_shape(fresh, jax.random.key(0)), axes=1)
  step = round.step(method, groups, kinds.whole_number('clients_per_vmap', clients_per_vmap))

  @jax.jit
  def begin(arrays, key, variables):
    variables, trained = (fresh(key), False) if variables is None else (variables, True)
    key = jax.random.fold_in(key, 1)
    own = Federation(groups, *arrays[0])
    return SimulationState(key, jnp.int32(0), *initial_state(key, method, own, variables, drawn.stale, trained))

  def rounds(arrays, state, count):
    data = Federation(groups, *arrays[0]).data()
    after, report = round.run(state.key, state.round, count, count, step, state.federated, data, arrays[1])
    return SimulationState(state.key, state.round + count, *after), report

  @jax.jit
  def one(arrays, state):
    state, report = rounds(arrays, state, 1)
    return state, jax.tree.map(lambda a: a[0], report)

  several = jax.jit(rounds, static_argnums=2)

  @functools.cache
  def like(dtype):  # of a state whose key has this dtype
    key = jax.ShapeDtypeStruct((2,) if dtype == np.uint32 else (), dtype)
    return jax.eval_shape(begin, arrays, key, None)

  def own(state):
    """A state of this simulation: JAX would take that of other clients, and clamp what is not there."""
    kinds.check_is('state', state, SimulationState, 'what init returns, or the first of the two that round returns')
    returned.check_like('state is of another simulation,', like(state.key.dtype), state, FOREIGN, dtypes=False)
    return state

  def init(key, variables=None):
    kinds.check_key(key)
    if variables is not None:
      check_variables(groups, jax.eval_shape(fresh, key), variables)
    return begin(arrays, key, on_device(variables))

  made = Simulation(
    init=init,
    round=lambda state: one(arrays, own(state)),
    run=lambda state, rounds: several(arrays, own(state), kinds.whole_number('rounds', rounds)),
    **readout(method, federation, own),
    method=method,
    federation=federation,
  )
  modules = [class_of(group.model) for group in groups]
  with returned.explained(returned.suspects(method, modules)):
    begun = like(jax.random.key(0, impl=kinds.THREEFRY).dtype)
    after, _ = jax.eval_shape(made.round, begun)  # incompatible parts fail here
  with returned.explained(evaluated.suspects(method, modules), traced='an evaluation'):
    for name in tried(method):
      jax.eval_shape(functools.partial(made.logits, x=federation.pool.example[:2], inference=name), after)
  kinds.check_generators('a state of this method or of its optimizer', after)
  return made


def check_variables(groups: Sequence[Group], like: Sequence[dict], variables: Sequence[dict]) -> None:
  """Checks that variables have what those of every group have, for one client or for all of a group.

  Raises:
    ConfigError: if not.
  """
  remedy = 'give a tuple with those of every group, leaves [1, ...] for all clients or [n, ...] for each of n'
  kinds.check_is('variables', variables, tuple | list, remedy.removeprefix('give '))
  of_client = lambda trees: jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf)[1:], jnp.result_type(leaf)), tuple(trees)
  )
  returned.check_like('variables are given', of_client(like), of_client(variables), remedy, dtypes=False)
  for group, of_group in zip(groups, variables, strict=True):
    if (given := {np.shape(leaf)[0] for leaf in jax.tree.leaves(of_group)}) not in ({1}, {len(group.ids)}):
      raise ConfigError(f'variables are of {sorted(given)} clients for the {len(group.ids)} of {group.name}; {remedy}')
