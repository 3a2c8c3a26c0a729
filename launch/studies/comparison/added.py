"""Somebody else's methods, module:factory: what is refused before anything is trained."""

import inspect
from collections.abc import Callable, Iterable

import jax
import numpy as np

from fedkd.checks import blame, returned
from fedkd.checks.kinds import what_is
from fedkd.checks.method import check_method
from fedkd.errors import ConfigError, check_known, in_a_sentence, reason_of
from fedkd.models.base import class_of
from fedkd.types import Method
from launch.studies.comparison import budget, problem, programs, runs, theirs
from launch.studies.comparison.settings import TUNED_ON

BUDGET = {'steps': 'mini-batches per client update', 'batch': 'examples per mini-batch'}
OTHERS = ('epochs', 'learning_rate', 'decay', 'drop_at')  # arguments that mean what the benchmark sets for everybody


def check(places: Iterable[runs.Place], method: str) -> None:
  """Checks that a method can be trained in these places: it is built and its rounds are traced, as the runs do it.

  Raises:
    ConfigError: in one sentence, with the line of whichever of its functions failed.
  """
  function, known = theirs.factory(method)
  traced: set = set()
  for place in places:
    check_arguments(place, method, known)
    world = problem.make(place.astuple(), TUNED_ON)
    shapes = jax.tree.map(np.shape, (world.arrays, world.plan.participants))
    if (key := (place.suite, place.tier, str(shapes))) not in traced:  # settings share their programs
      _trace(place, method, function, world)
      traced.add(key)


def check_arguments(place: runs.Place, method: str, known: dict[str, inspect.Parameter]) -> None:
  """Checks that a factory takes the budget, and that whatever it needs is given to it.

  Args:
    known: its parameters but the optimizer.
  """
  if lacking := next((key for key in BUDGET if key not in known), None):
    raise ConfigError(
      f'{_flag(method)} takes no {lacking}, so that its budget would not be that of the others; give it an argument '
      f'{lacking}, {BUDGET[lacking]}'
    )
  given = budget.fields(*place.astuple(), method)
  if tuned := theirs.tuned(method):
    free = [key for key in known if key not in (*given, *OTHERS)]
    check_known([tuned[0]], free, _flag(method), 'argument to tune')
    _check_values(method, given, *tuned)
    given[tuned[0]] = tuned[1]
  needed = (key for key, parameter in known.items() if parameter.default is inspect.Parameter.empty)
  if lacking := next((key for key in needed if key not in given), None):
    raise ConfigError(f'{_flag(method)} needs a value for {lacking!r}, which nobody gives it here; give it a default')


def _check_values(method, fields, field, values):
  """Checks that a factory takes the values of the argument that is tuned: in the runs they are traced, and not seen."""
  for value in values:
    try:
      programs.method_of(method, fields, {'learning_rate': 0.1, 'decay': 1.0, 'drop_at': 1, field: value})
    except ValueError as error:
      reason = reason_of(error)
      raise ConfigError(f'{_flag(method)}: {field}={value:g} is refused ({reason}); choose others by --tune') from error


def _trace(place, method, function, world) -> None:
  runner = runs.runner_of(programs.Clock(), place, method, budget.grid(method)[0], world, world.variables)
  made = _built(method, function, runner)
  suspects = [('add', function), *returned.suspects(made, [class_of(group.model) for group in world.groups])]
  with in_a_sentence(lambda error: _failed(place, method, error), (ConfigError,)), returned.explained(suspects):
    runner.trace()


def _built(method: str, function: Callable, runner) -> Method:
  """What the factory returns for hyperparameters that are traced, as in the runs."""
  made = []
  with blame.guard('add', function):
    jax.eval_shape(lambda values: made.append(runner.programs.method(values)), runner.values)
  if not isinstance(made[0], Method):
    raise ConfigError(f'{_flag(method)}{blame.place(function)} returned {what_is(made[0])}; let it return a Method')
  with in_a_sentence(lambda error: f'{_flag(method)}: {error}'):
    check_method(made[0])
  return made[0]


def _failed(place, method, error) -> str:
  where = ', '.join((place.suite, place.tier, place.setting))
  return f'{_flag(method)}: in {where} a round fails with {type(error).__name__}: {reason_of(error)}'


def _flag(method) -> str:
  return f'add={theirs.factory_of(method)}'
