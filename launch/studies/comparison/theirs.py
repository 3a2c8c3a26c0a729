"""Somebody else's methods by name: module:factory, or module:factory@weight=0.1,1.0 where two values of one more
hyperparameter are chosen from; and a checksum of their code, which no commit of this repository tells."""

import functools
import hashlib
import importlib
import inspect
import math
import pathlib
from collections.abc import Callable

from fedkd import config as base
from fedkd.checks import blame
from fedkd.config import choices
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


def factory(method: str) -> tuple[Callable, dict[str, inspect.Parameter]]:
  """The factory of a method, and its parameters but the optimizer.

  Raises:
    ConfigError: for one that cannot be imported, or takes no optimizer; it names the flag.
  """
  kind = base.KINDS['method']
  return choices.factory(kind._replace(field='add') if is_added(method) else kind, factory_of(method))


def tuned(method: str) -> tuple[str, tuple] | None:
  """(argument, its two values), where there is one."""
  _, _, tune = method.partition('@')
  field, _, values = tune.partition('=')
  return (field, tuple(map(float, values.split(',')))) if tune else None


@functools.cache  # as it was imported: the file may change while the runs take hours
def checksum(path: str) -> str:
  """Of the files in which somebody's factory is named and written, which differ for a partial or what is imported;
  '' of code in this repository, whose runs have its commit, and where there is no source. What else these files import
  is not looked at."""
  if path.startswith(('launch.', 'fedkd.')):
    return ''
  function, _ = factory(path)
  try:
    parts = importlib.import_module(path.partition(':')[0]), blame.unwrapped(function)
    sources = dict.fromkeys(inspect.getsourcefile(part) or '' for part in parts)
    return hashlib.sha256(b''.join(pathlib.Path(file).read_bytes() for file in sources)).hexdigest()[:16]
  except (TypeError, OSError):
    return ''
