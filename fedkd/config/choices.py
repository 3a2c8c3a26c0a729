"""Blocks of a config that name a factory: `config.method`, `plan`, `optimizer` and `schedule`.

`name` chooses the factory, the other fields are its arguments. Names are looked up in the `__all__` of a module, and
'module:function' reaches everything else on the Python path.
"""

import collections.abc
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import optax
from ml_collections import ConfigDict, config_dict

from fedkd import aggregate, losses, methods, schedules
from fedkd import plan as plans
from fedkd.config.trees import to_json
from fedkd.errors import ConfigError, check_known

OPTAX = (
  *('adabelief', 'adadelta', 'adafactor', 'adagrad', 'adam', 'adamax', 'adamaxw', 'adamw', 'adan', 'amsgrad'),
  *('fromage', 'lamb', 'lars', 'lion', 'noisy_sgd', 'novograd', 'optimistic_adam', 'optimistic_gradient_descent'),
  *('radam', 'rmsprop', 'rprop', 'sgd', 'sign_sgd', 'sm3', 'yogi'),
)
OPTAX_SCHEDULES = (
  *('cosine_decay_schedule', 'cosine_onecycle_schedule', 'exponential_decay', 'linear_onecycle_schedule'),
  *('linear_schedule', 'polynomial_schedule', 'warmup_constant_schedule', 'warmup_cosine_decay_schedule'),
  'warmup_exponential_decay_schedule',
)


class Kind(NamedTuple):
  """A block of the config: its field, the choices for its name, and the arguments that the runner passes by
  position."""

  field: str
  choices: dict[str, Callable]
  passed: tuple[str, ...] = ()


def functions(module: types.ModuleType) -> dict[str, Callable]:
  """The choices that a module offers by plain name: its `__all__`, or without one its public functions."""
  if names := getattr(module, '__all__', None):
    return {name: getattr(module, name) for name in names}
  return {n: f for n, f in vars(module).items() if n[0] != '_' and inspect.isfunction(f)}


KINDS = {
  kind.field: kind
  for kind in (
    Kind('method', functions(methods), ('tx',)),
    Kind('plan', functions(plans)),
    Kind('optimizer', {name: getattr(optax, name) for name in OPTAX if hasattr(optax, name)}),
    Kind('schedule', functions(schedules) | {name: getattr(optax, name) for name in OPTAX_SCHEDULES}),
  )
}


def resolve(name: Any, choices: dict[str, Callable], field: str) -> Callable:
  """A function by value, by plain name, or by dotted path 'module:function'.

  Args:
    name: the value in the config.
    choices: by plain name.
    field: of the config, for the message.

  Raises:
    ConfigError: if there is none of that name.
  """
  if callable(name):
    return name
  if ':' in str(name):
    path, _, attribute = name.partition(':')
    try:
      return getattr(importlib.import_module(path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
      raise ConfigError(
        f'{field}={name!r} cannot be loaded ({error}); give module:function on the Python path'
      ) from error
  if name not in choices:
    known = f'choose one of {", ".join(sorted(choices))}, or' if choices else 'give'
    raise ConfigError(f'{field}={name!r} is unknown; {known} module:function')
  return choices[name]


def _signature(function) -> dict[str, inspect.Parameter]:
  try:
    parameters = inspect.signature(function, eval_str=True).parameters
  except (NameError, TypeError, SyntaxError):  # annotations imported for type checkers only
    parameters = inspect.signature(function).parameters
  named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
  return {name: p for name, p in parameters.items() if p.kind in named}


def fields(function: Callable, exclude: tuple[str, ...] = ()) -> dict[str, Any]:
  """The arguments of a factory and their defaults (`inspect.Parameter.empty` where there is none)."""
  return {name: p.default for name, p in _signature(function).items() if name not in exclude}


def factory(kind: Kind, name: Any) -> tuple[Callable, dict[str, inspect.Parameter]]:
  """The factory that a block names, and those of its parameters that are fields of the block.

  Raises:
    ConfigError: for an unknown name, or a factory that does not take what the runner passes.
  """
  function = resolve(name, kind.choices, f'{kind.field}.name')
  if not callable(function):
    raise ConfigError(f'{kind.field}.name={name!r} is no function; give a factory')
  parameters = _signature(function)
  if tuple(parameters)[: len(kind.passed)] != kind.passed:
    raise ConfigError(
      f'{kind.field}.name={to_json(name)!r}: let its first parameter be {kind.passed[0]}, the optimizer'
    )
  return function, {k: p for k, p in parameters.items() if k not in kind.passed}


def method(name: Any, **values: Any) -> ConfigDict:
  """The config block of a method: its name and every hyperparameter, with defaults; others likewise.

  Raises:
    ConfigError: for an unknown name, a value that the factory does not take, or one that is missing.
  """
  return block(KINDS['method'], name, values)


def plan(name: Any, **values: Any) -> ConfigDict:
  """The config block of a plan, as `method`."""
  return block(KINDS['plan'], name, values)


def optimizer(name: Any, **values: Any) -> ConfigDict:
  """The config block of an optimizer, as `method`: one of optax by plain name, ours as 'fedkd.optimizers:NAME'."""
  return block(KINDS['optimizer'], name, values)


def schedule(name: Any, **values: Any) -> ConfigDict:
  """The config block of a schedule, as `method`: one of `fedkd.schedules` or of optax by plain name."""
  return block(KINDS['schedule'], name, values)


def block(kind: Kind, name: Any, values: dict, missing: bool = False) -> ConfigDict:
  """A config block, as `method`. `missing`: whether a value without default may be given later."""
  _, parameters = factory(kind, name)
  check_known(values, parameters, f'{kind.field} {_own_name(name)}')
  out = ConfigDict({'name': name}, convert_dict=False)
  for key, parameter in parameters.items():
    value = values.get(key, parameter.default)
    if value is inspect.Parameter.empty and not missing:
      raise ConfigError(f'{kind.field} {_own_name(name)} needs a value for {key!r}')
    if _takes_function(parameter) and not isinstance(value, int | float):
      named = value.__name__ if key not in values and callable(value) else value
      value = config_dict.FieldReference(named, field_type=object)
    elif value is None or value is inspect.Parameter.empty:
      value = config_dict.placeholder(_type(parameter))
    out[key] = value
  return out


def _type(parameter) -> type:
  """The type of an optional argument, from its annotation (`int | None`); any, where that leaves it open."""
  annotation = parameter.annotation
  known = {a for a in (annotation, *typing.get_args(annotation)) if a in (int, float, str, bool)}
  return known.pop() if len(known) == 1 else object


def _takes_function(parameter) -> bool:
  """Whether an argument is a rule, a loss, an optimizer or another function, by its default or its annotation."""
  return (
    inspect.isfunction(parameter.default)
    or _takes_optimizer(parameter)
    or any(_is_callable_type(a) for a in _alternatives(parameter))
  )


def _takes_optimizer(parameter) -> bool:
  return optax.GradientTransformation in _alternatives(parameter)


def _alternatives(parameter) -> tuple:
  annotation = parameter.annotation
  return typing.get_args(annotation) if _is_union(annotation) else (annotation,)


def _is_union(annotation) -> bool:
  return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _is_callable_type(annotation) -> bool:
  if annotation is Callable or typing.get_origin(annotation) is collections.abc.Callable:
    return True
  return bool(getattr(annotation, '_is_protocol', False)) and '__call__' in vars(annotation)


def build(field: str, values: Any, *passed: Any) -> Any:
  """Calls the factory that a config block names.

  Args:
    field: 'method', 'plan', 'optimizer' or 'schedule'.
    values: the block, or a dict like it.
    *passed: what the runner passes: the optimizer of a method.

  Raises:
    ConfigError: for an unknown name or field, a value that is missing or that the factory refuses.
  """
  values = dict(values)
  if 'name' not in values:
    raise ConfigError(f'{field}={to_json(values)!r} has no name; choose one of {", ".join(KINDS[field].choices)}')
  name = values.pop('name')
  make, parameters = factory(KINDS[field], name)
  what = f'{field} {_own_name(name)}'
  check_known(values, parameters, what)
  for key, parameter in parameters.items():
    if parameter.default is inspect.Parameter.empty and values.get(key) is None:
      raise ConfigError(f'{what} needs a value for {key!r}; set {field}.{key}')
    if key in values:
      values[key] = _argument(field, key, values[key], parameter)
  try:
    return make(*passed, **values)
  except ConfigError:
    raise
  except (TypeError, ValueError) as error:
    raise ConfigError(f'{what} cannot be built: {error}') from error


def _argument(field, key, value, parameter):
  """What a factory takes for the value of a field: the function that text names, the optimizer that a block names."""
  if isinstance(value, str) and _takes_function(parameter):
    found = resolve(value, _functions_for(field, parameter), f'{field}.{key}')
    if not callable(found) and not isinstance(found, tuple):  # a tuple: a stateful rule
      raise ConfigError(f'{field}.{key}={value!r} is a {type(found).__name__}; give the path of a function')
    return found
  if isinstance(value, dict | ConfigDict) and optax.GradientTransformation in typing.get_args(parameter.annotation):
    return build('optimizer', value)
  return value


def _functions_for(field, parameter) -> dict[str, Callable]:
  """What plain text may name: the default's own neighbours, else for a method all rules and losses."""
  if _takes_optimizer(parameter):
    return {}
  if not inspect.isfunction(parameter.default):
    return functions(aggregate) | functions(losses) if field == 'method' else {}
  return functions(sys.modules[parameter.default.__module__]) | {parameter.default.__name__: parameter.default}


def _own_name(name) -> str:
  return to_json(name).rpartition(':')[2]


def label(values: Any) -> str:
  """The name of a config block for tables and figures: a function's own name, without its module."""
  return _own_name(values['name'])
