"""A method as three compiled programs, with learning rate and hyperparameters as arguments: one compilation serves all
choices, seeds and settings of a tier."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import config as base
from fedkd import evaluation, optimizers
from fedkd.experiment.phase import handover_variables
from fedkd.federation import Federation
from fedkd.round import run as run_rounds
from fedkd.round import step as round_step
from fedkd.sharding import mapped_at_once
from fedkd.states import calibrated, initial_state
from fedkd.types import Method, clients
from launch.studies.comparison import theirs

SEGMENT = 10  # rounds of one call at most


class Programs(NamedTuple):
  """Of a method with its constants, for the clients of a tier. `values`: {name: number} of its hyperparameters."""

  begin: Callable  # (values, arrays, key, variables) -> State
  train: Callable  # (values, arrays, key, participants [SEGMENT, m], start, count, state) -> (State, Report)
  correct: Callable  # (values, arrays, state, rows [T], label [T]) -> {prediction: float32[K, T]}
  variables: Callable  # (values, arrays, state) -> per group, what a next phase starts from
  method: Callable  # (values) -> Method


def method_of(name: str, fields: dict, values: dict) -> Method:
  """A method from its name (or module:function), constants and possibly traced hyperparameters.

  Args:
    values: `learning_rate` of Adam, multiplied by `decay` from round `drop_at` on, and fields of the method.
  """
  values = dict(values)
  rate, decay, drop_at = (values.pop(key) for key in ('learning_rate', 'decay', 'drop_at'))
  tx = optimizers.scheduled(optax.adam(rate), lambda t: jnp.where(t < drop_at, 1.0, decay))
  factory, known = theirs.factory(name)
  given = {**fields, **values}
  models = {key: base.build('model', value) for key, value in given.items() if key == 'common'}
  return factory(tx, **{key: value for key, value in {**given, **models}.items() if key in known})


def make(name: str, fields: dict, groups: tuple, initial: Any) -> Programs:
  """The programs of a method.

  Args:
    name, fields: of the method, and its constants.
    groups: the clients by architecture.
    initial: their variables, leaves [1, ...] per group.
  """
  width = mapped_at_once([of_group['params'] for of_group in initial], axes=1)
  everybody = np.arange(clients(groups))
  method = functools.partial(method_of, name, fields)

  def begin(values, arrays, key, variables):
    return initial_state(key, method(values), Federation(groups, *arrays), variables)

  def train(values, arrays, key, participants, start, count, state):
    step = round_step(method(values), groups, width)
    data = Federation(groups, *arrays).data()
    return run_rounds(key, start, count, SEGMENT, step, state, data, participants, start)

  def correct(values, arrays, state, rows_of_pool, label):
    made = method(values)
    state = calibrated(made, Federation(groups, *arrays), state, range(len(groups)))
    images = arrays[0].example[rows_of_pool]
    ways = evaluation.predictions(made)
    return evaluation.correct_of_clients(made, groups, everybody, 0, state, images, label, ways)

  def variables(values, arrays, state):
    return handover_variables(method(values), groups, state)

  return Programs(begin, train, correct, variables, method)


class Clock:
  """Processor seconds of this process, on all its cores, those of compilation apart."""

  def __init__(self):
    self.compiling, self.started = 0.0, time.process_time()

  def running(self) -> float:
    """Seconds since the start without compilation."""
    return time.process_time() - self.started - self.compiling


_COMPILED: dict = {}


def call(clock: Clock, identity: Any, function: Callable, *arguments, donated: tuple = ()):
  """`function(*arguments)`, compiled at its first call for such shapes; that time goes to `clock.compiling`.

  Args:
    identity: hashable, what the function is made of.
    donated: numbers of the arguments whose memory it may use.
  """
  shapes = jax.eval_shape(lambda *given: given, *arguments)
  key = identity, function.__name__, jax.tree.structure(shapes), tuple(map(str, jax.tree.leaves(shapes)))
  if key not in _COMPILED:
    begun = time.process_time()
    _COMPILED[key] = jax.jit(function, donate_argnums=donated).lower(*arguments).compile()
    clock.compiling += time.process_time() - begun
  return _COMPILED[key](*arguments)


def clear() -> None:
  """Forgets all programs: hundreds of them would fill the memory."""
  _COMPILED.clear()
  jax.clear_caches()
