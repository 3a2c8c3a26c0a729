"""Configs as plain data."""

from typing import Any

from ml_collections import ConfigDict


def to_json(value: Any) -> Any:
  """A config as JSON-ready data: tuples as lists, functions as 'module:name', and so the pairs of them that optimizers
  and rules with memory are, by their second."""
  if isinstance(value, ConfigDict | dict):
    return {key: to_json(v) for key, v in value.items()}
  if hasattr(value, '_fields') and all(map(callable, value)):
    return to_json(value[-1])
  if isinstance(value, tuple | list):
    return [to_json(v) for v in value]
  if callable(value):
    return f'{value.__module__}:{value.__qualname__}'
  return value


def freeze(value: Any) -> Any:
  """Lists as tuples, all the way down: JSON has no tuples, and a Flax module takes no lists."""
  if isinstance(value, dict | ConfigDict):
    return {key: freeze(v) for key, v in value.items()}
  return tuple(freeze(v) for v in value) if isinstance(value, tuple | list) else value


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
