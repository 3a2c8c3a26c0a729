"""Functions by name, and what their signatures say about their arguments."""

import collections.abc
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import flax.linen as nn
import optax

from fedkd.checks.kinds import short
from fedkd.checks.ranges import plain
from fedkd.config.trees import is_function, to_json
from fedkd.errors import ConfigError, is_it
from fedkd.models.nnx_makers import signature_of

SHOWN = 12  # names of a module
TAKE_THEM = (
  'let it take them, or, where it makes such a function, name in its module what it makes, as made = make(...)'
)


def functions(module: types.ModuleType) -> dict[str, Callable]:
  """The choices that a module offers by plain name: its `__all__`, or without one its public functions."""
  if names := getattr(module, '__all__', None):
    return {name: getattr(module, name) for name in names}
  return {n: f for n, f in vars(module).items() if n[0] != '_' and inspect.isfunction(f)}


def resolve(name: Any, choices: dict[str, Callable], field: str, path: str = 'module:function') -> Callable:
  """A function by value, by plain name, or by dotted path 'module:function'.

  Args:
    name: the value in the config.
    choices: by plain name.
    field, path: of the config, and what else may name one, for the message.

  Raises:
    ConfigError: if there is none of that name.
  """
  if callable(name):
    return name
  if isinstance(name, str) and ':' in name:
    path, _, attribute = name.rpartition(':')  # the first may be a drive's
    module = None
    try:
      module = importlib.import_module(path)
      return getattr(module, attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
      remedy = _other_names(module, attribute) or _remedy(path, attribute)
      raise ConfigError(f'{field}={short(name)} cannot be loaded ({short(str(error))}); {remedy}') from error
  if not isinstance(name, str) or name not in choices:
    known = f'choose one of {", ".join(sorted(choices))}, or' if choices else 'give'
    raise ConfigError(f'{field}={short(name)} is unknown; {known} {path}{is_it(name, choices)}')
  return choices[name]


def path_of(value: Any, field: str) -> Any:
  """The 'module:function' of a function, by which another process finds it; any other value as it is.

  Raises:
    ConfigError: for a function that has no name of its own, such as a lambda.
  """
  if not is_function(value):
    return value
  path = to_json(value)
  try:
    found = resolve(path, {}, field)
  except ConfigError:
    found = None
  if found is not value:
    raise ConfigError(
      f'{field} is {path}, which cannot be found by that name; let a module define it, as name = ..., and write '
      "'module:name'"
    )
  return path


def _other_names(module, attribute) -> str:
  """What a module has in place of what it lacks; '' without a module, or for a name that none can have."""
  if module is None or not attribute.isidentifier():
    return ''
  own = lambda made: callable(made) and getattr(made, '__module__', '') == module.__name__
  known = getattr(module, '__all__', None) or [n for n, made in vars(module).items() if n[0] != '_' and own(made)]
  some = [*known[:SHOWN], '...'] if len(known) > SHOWN else known
  return f'the module has {", ".join(some)}{is_it(attribute, known)}' if known else ''


def _remedy(path, attribute) -> str:
  """What to write instead of a module that is not found: it may be the path of a file, of this system or Windows."""
  whole = path if attribute.isidentifier() else f'{path}:{attribute}'
  folder, slash, file = re.findall(r'^(?:(.*)([/\\]))?(.*)$', whole, re.DOTALL)[0]
  if not slash and not file.endswith('.py'):
    return 'give module:function on the Python path'
  function = attribute if attribute.isidentifier() else 'FUNCTION'
  where = f', with {short(folder or slash)} in PYTHONPATH' if slash else ''
  return f'name the module, not its file: {file.removesuffix(".py")}:{function}{where}'


def parameters_of(function: Callable) -> dict[str, inspect.Parameter]:
  """The parameters that may be given by name, their annotations evaluated where that is possible."""
  try:
    parameters = signature_of(function, eval_str=True).parameters
  except (NameError, TypeError, SyntaxError):  # annotations imported for type checkers only
    parameters = signature_of(function).parameters
  named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
  return {name: p.replace(annotation=plain(p.annotation)) for name, p in parameters.items() if p.kind in named}


def type_of(parameter: inspect.Parameter) -> type:
  """The type of an optional argument, from its annotation (`int | None`); any, where that leaves it open."""
  annotation = parameter.annotation
  known = {a for a in (annotation, *typing.get_args(annotation)) if a in (int, float, str, bool)}
  return known.pop() if len(known) == 1 else object


def takes_function(parameter: inspect.Parameter) -> bool:
  """Whether an argument is a rule, a loss, an optimizer, a model or another function, by its default or annotation."""
  return (
    inspect.isfunction(parameter.default)
    or takes_optimizer(parameter)
    or takes_model(parameter)
    or any(_is_callable_type(a) for a in _alternatives(parameter))
  )


def called_with(parameter: inspect.Parameter) -> tuple[str, ...] | None:
  """The positional arguments with which a function that is an argument is called; None where nothing says so."""
  if inspect.isfunction(parameter.default):
    return _required(parameter.default)
  protocols = [a for a in _alternatives(parameter) if getattr(a, '_is_protocol', False)]
  return _required(protocols[0].__call__)[1:] if protocols else None


def _required(function) -> tuple[str, ...]:
  found = inspect.signature(function).parameters.values()
  return tuple(p.name for p in found if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)


def check_call(what: str, function: Any, names: tuple[str, ...] | None, values: Iterable[str] = ()) -> None:
  """Checks that a function can be called with the positional arguments `names`, and `values` by name, before it is.

  Raises:
    ConfigError: that begins with `what` and names the arguments.
  """
  if names is None or not callable(function):
    return
  try:
    inspect.signature(function).bind(*names, **dict.fromkeys(values))
  except TypeError as error:
    raise ConfigError(f'{what} cannot be called with ({", ".join(names)}): {error}; {TAKE_THEM}') from error
  except ValueError as error:  # a builtin that does not say what it takes
    raise ConfigError(f'{what} does not say what it takes; wrap it in a function of ({", ".join(names)})') from error


def takes_optimizer(parameter: inspect.Parameter) -> bool:
  """Whether an argument is an optimizer, by its annotation."""
  return optax.GradientTransformation in _alternatives(parameter)


def takes_model(parameter: inspect.Parameter) -> bool:
  """Whether an argument is a model, by its annotation."""
  return nn.Module in _alternatives(parameter)


def _alternatives(parameter) -> tuple:
  annotation = parameter.annotation
  is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
  return typing.get_args(annotation) if is_union else (annotation,)


def _is_callable_type(annotation) -> bool:
  if annotation is Callable or typing.get_origin(annotation) is collections.abc.Callable:
    return True
  return bool(getattr(annotation, '_is_protocol', False)) and '__call__' in vars(annotation)
