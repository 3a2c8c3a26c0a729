"""Configs as plain data."""

import functools
import inspect
from typing import Any

from ml_collections import ConfigDict

from fedkd.checks import blame

DEEPEST = 3  # functions inside functions that a name tells of


def to_json(value: Any) -> Any:
  """A config as JSON-ready data: tuples as lists, functions as 'module:name', and so the pairs of them that optimizers
  and rules with memory are, by their second; behind the name what a partial or a closure holds, 'module:name(a=1)'."""
  if isinstance(value, ConfigDict | dict):
    return {key: to_json(v) for key, v in value.items()}
  if is_function(value):
    return _told(value)
  if isinstance(value, tuple | list):
    return [to_json(v) for v in value]
  return value


def is_function(value: Any) -> bool:
  """Whether a value is a function, or a pair of them, as optimizers and rules with memory are."""
  return callable(value) or (hasattr(value, '_fields') and len(value) > 0 and all(map(callable, value)))


def _told(value, depth=0) -> str:
  """A function, or what one holds, as text; '' for anything but functions, numbers and text."""
  if is_function(value):
    function = value if callable(value) else value[-1]
    held = {key: _told(v, depth + 1) for key, v in _held(function).items()} if depth < DEEPEST else {}
    said = ', '.join(f'{key}={text}' for key, text in held.items() if text)
    return blame.name_of(function) + (f'({said})' if said else '')
  if isinstance(value, tuple | list):
    return f'[{", ".join(_told(v, depth) for v in value)}]'
  return repr(value) if isinstance(value, int | float | str | None) else ''


def _held(function) -> dict:
  """The arguments of a partial, and the variables of a closure."""
  partial = function if isinstance(function, functools.partial) else functools.partial(function)
  try:
    closed_over = inspect.getclosurevars(blame.unwrapped(function)).nonlocals
  except (TypeError, ValueError):  # not of Python, or not yet assigned
    closed_over = {}
  return {**closed_over, **dict(enumerate(partial.args)), **partial.keywords}


def freeze(value: Any) -> Any:
  """Lists as tuples, all the way down: JSON has no tuples, and a Flax module takes no lists."""
  if isinstance(value, dict | ConfigDict):
    return {key: freeze(v) for key, v in value.items()}
  if is_function(value) or not isinstance(value, tuple | list):
    return value
  return tuple(freeze(v) for v in value)


def flatten(values: dict, prefix: str = '') -> dict:
  """A nested dict as {'a.b': leaf}."""
  out: dict[str, Any] = {}
  for key, value in values.items():
    out.update(flatten(value, f'{prefix}{key}.') if isinstance(value, dict) else {f'{prefix}{key}': value})
  return out


def at(config: Any, path: str) -> Any:
  """The value of a field by its dotted name; None where there is none."""
  for part in path.split('.'):
    if not isinstance(config, dict | ConfigDict) or part not in config:
      return None
    config = config[part]
  return config


def put(config: Any, path: str, value: Any) -> None:
  """Sets a field by its dotted name."""
  *blocks, last = path.split('.')
  for part in blocks:
    config = config[part]
  config[last] = value
