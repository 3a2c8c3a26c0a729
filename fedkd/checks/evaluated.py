"""What functions of a method return that an evaluation calls, looked at as `returned` does with those of a round."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from fedkd.checks import blame, returned
from fedkd.checks.kinds import what_is
from fedkd.errors import ConfigError
from fedkd.types import Data, Group, Method, State

OF_MODEL = "{'params', 'batch_stats'}"


def of_variables(method: Method, state: State, g: int, group: str, count: int, lengths: Collection[int]) -> dict:
  """What `Method.variables` returns for the group numbered `g`, called `group`, of `count` clients.

  Args:
    lengths: those that the first axis of its leaves may have, besides 1.

  Raises:
    ConfigError: for anything but variables with such an axis, from which the rows of others might be read.
  """
  made, who = _called('Method.variables', method.variables, state, g)
  if not isinstance(made, Mapping) or 'params' not in made:
    what = f'a dict of {", ".join(map(str, made)) or "nothing"}' if isinstance(made, Mapping) else what_is(made)
    raise ConfigError(f'{who} {what} for {group}; let it return {OF_MODEL}, and further entries beside them')
  returned.check_arrays(f'{who} for {group}', 'variables', made)
  for path, leaf in jax.tree_util.tree_leaves_with_path(made):
    if np.shape(leaf)[:1] not in {(length,) for length in (1, *lengths)}:
      raise ConfigError(
        f'{who} {list(np.shape(leaf))} at {jax.tree_util.keystr(path)} for {group} of {count} clients; let leaves be '
        f'[1, ...], one for all, or [{count}, ...], rows of its clients: of [K, ...], fedkd.rows.fetch_rows takes them '
        'by the data.private.id that clients keep in their states'
      )
  return dict(made)


def of_deployed(method: Method, model: nn.Module, variables: dict, server_state: Any, g: int) -> tuple:
  """(module, variables) of `Method.deployed`, arguments as of `types.Deployed`.

  Raises:
    ConfigError: for anything else.
  """
  pair, who = _called('Method.deployed', method.deployed, model, variables, server_state, g)
  returned.check_tuple(who, pair, 2, f'(module, {OF_MODEL})')
  if not isinstance(pair[0], nn.Module) or not isinstance(pair[1], Mapping):
    raise ConfigError(f'{who} {what_is(pair[0])} and {what_is(pair[1])}; let it return (module, {OF_MODEL})')
  return pair


def of_calibrate(method: Method, groups: Sequence[Group], state: State, data: Sequence[Data], which: Sequence[int]):
  """The state of `Method.calibrate`, arguments as of `types.Calibrate`.

  Raises:
    ConfigError: for anything else.
  """
  after, who = _called('Method.calibrate', method.calibrate, groups, state, data, which)
  if not isinstance(after, State) or len(after.client) != len(groups):
    raise ConfigError(f'{who} {what_is(after)}; let it return the state, changed by state._replace(...)')
  return after


def suspects(method: Method, modules: Iterable[type]) -> list[tuple[str, Any]]:
  """The functions of a method that an evaluation calls, and the classes of its models."""
  parts = [(f'Method.{name}', getattr(method, name)) for name in ('variables', 'deployed', 'calibrate')]
  ways = [('predict', method.predict), *(('predict', way) for _, way in method.predictions)]
  models = [('model', module) for module in modules]
  return [(what, function) for what, function in (*parts, *ways, *models) if function]


def _called(what: str, function: Any, *arguments: Any) -> tuple[Any, str]:
  """(what a function returns, how a sentence about it begins)."""
  made = blame.call(what, function, *arguments) if blame.is_foreign(function) else function(*arguments)
  return made, f'{what} {blame.named(function)} returned'
