"""Somebody else's methods by name: module:factory, or module:factory@weight=0.1,1.0 where two values of one more
hyperparameter are chosen from."""

import math

from fedkd.errors import ConfigError


def is_added(method: str) -> bool:
  """Whether a method is none of the benchmark's own."""
  return ':' in method


def name_of(factory: str, tune: str) -> str:
  """The method that a factory is with `tune`, 'weight:0.1,1' or ''.

  Raises:
    ConfigError: for anything but an argument's name and two numbers.
  """
  if not tune:
    return factory
  field, _, text = tune.partition(':')
  try:
    values = sorted({float(word) for word in text.split(',')})
  except ValueError:
    values = []
  if not field.isidentifier() or len(values) != 2 or not all(map(math.isfinite, values)):
    raise ConfigError(f'tune={tune!r} is not an argument with two numbers; write --tune=weight:0.1,1')
  return f'{factory}@{field}={values[0]},{values[1]}'


def factory_of(method: str) -> str:
  """Its factory, module:function; of the benchmark's own methods the name."""
  return method.partition('@')[0]


def tuned(method: str) -> tuple[str, tuple] | None:
  """(argument, its two values), where there is one."""
  _, _, tune = method.partition('@')
  field, _, values = tune.partition('=')
  return (field, tuple(map(float, values.split(',')))) if tune else None
