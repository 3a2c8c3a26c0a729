"""A module as plain data, and back: what has to be stored beside its variables to make it again elsewhere."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from fedkd import models
from fedkd.checks.kinds import short, what_is
from fedkd.errors import ConfigError

APART = ('parent', 'name')  # fields that say where a module is, not what it is


def as_data(net: nn.Module) -> tuple[dict, dict[str, np.ndarray]]:
  """(description, arrays) of a module: JSON of classes and fields, and the arrays in its fields by their path.

  Raises:
    ConfigError: for a field that holds something without a name, such as a lambda.
  """
  arrays: dict[str, np.ndarray] = {}
  return _described(net, type(net).__name__, '', arrays), arrays


def _described(value, owner, path, arrays) -> Any:
  inside = lambda held, key: _described(held, owner, f'{path}.{key}' if path else str(key), arrays)
  if value is None or isinstance(value, bool | int | float | str):
    return value
  if isinstance(value, nn.Module):
    kept = {f.name: vars(value).get(f.name) for f in dataclasses.fields(value) if f.name not in APART}
    return {'module': _name(type(value)), 'fields': {name: inside(held, name) for name, held in kept.items()}}
  if isinstance(value, np.ndarray | np.generic | jax.Array):
    arrays[path] = np.asarray(value)
    return {'array': path}
  if isinstance(value, tuple | list):
    return [inside(held, i) for i, held in enumerate(value)]
  if isinstance(value, Mapping):
    return {'mapping': {key: inside(held, key) for key, held in value.items()}}
  if getattr(value, '__module__', None) and _named(_name(value)) is value:
    return {'object': _name(value)}
  raise ConfigError(f'model {owner} has {what_is(value)} as {path}, which cannot be stored; give it a name in a module')


def _name(value) -> str:
  """'module:name' of a class or function, in `fedkd.models` for those that it exports."""
  name = getattr(value, '__qualname__', '')
  return f'fedkd.models:{name}' if getattr(models, name, None) is value else f'{value.__module__}:{name}'


def _named(name) -> Any:
  """What has this name; None if nothing has."""
  module, _, attribute = name.partition(':')
  try:
    return getattr(importlib.import_module(module), attribute, None)
  except (ImportError, ValueError):
    return None


def from_data(description: Any, arrays: Mapping[str, Any], trust: bool = False) -> Any:
  """The module of which `as_data` has made this.

  Args:
    trust: whether it may name classes and functions outside `fedkd.models`, whose modules are then imported.

  Raises:
    ConfigError: for a description that names such code, or is none.
  """
  inside = lambda held: from_data(held, arrays, trust)
  if isinstance(description, list):
    return tuple(map(inside, description))
  if not isinstance(description, dict):
    return description
  if 'mapping' in description:
    return {key: inside(held) for key, held in description['mapping'].items()}
  if 'array' in description:
    if description['array'] not in arrays:
      raise ConfigError(f'the array {short(description["array"])} of the model is missing; export it again')
    return np.asarray(arrays[description['array']])
  found = _known(description.get('module') or description.get('object'), trust)
  if 'module' not in description:
    return found
  if not (isinstance(found, type) and issubclass(found, nn.Module)):
    raise ConfigError(f'{short(description["module"])} is not the class of a model; export it again')
  return found(**{name: inside(held) for name, held in description['fields'].items()})


def _known(name, trust) -> Any:
  if not isinstance(name, str) or ':' not in name:
    raise ConfigError(f'{short(name)} is not the name of a class; export the model again')
  if not trust and not f'{name.partition(":")[0]}.'.startswith('fedkd.models.'):
    raise ConfigError(
      f'the model is {short(name)}, code outside fedkd.models, which would be executed; give trust=True, on the '
      'command line --trust, if you trust it as your own code'
    )
  if (found := _named(name)) is None:
    raise ConfigError(f'the model is {short(name)}, which cannot be imported; put its module on the Python path')
  return found


def flat(variables: Mapping) -> dict[str, jax.Array]:
  """Variables as {'params.layers_0.kernel': array}."""
  return jax.tree.map(jnp.asarray, flatten_dict(dict(variables), sep='.'))


def nested(arrays: Mapping[str, Any]) -> dict:
  """The variables of which `flat` has made this; without BatchNorm their 'batch_stats' are empty."""
  return {'params': {}, 'batch_stats': {}, **unflatten_dict(jax.tree.map(jnp.asarray, dict(arrays)), sep='.')}
