"""Points of a sweep as configs, and their names."""

import copy
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from fedkd import config as configs
from fedkd.checks import ranges
from fedkd.config import command_line
from fedkd.config.choices import BLOCKS, factory
from fedkd.config.trees import at, put
from fedkd.errors import ConfigError

LONGEST = 100  # characters of a name


def with_values(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
  """A copy of a config with other values {field: value}, checked.

  Raises:
    ConfigError: for a field that is not there, or a value of another type or outside its range.
  """
  made = copy.deepcopy(config).unlock()
  made = command_line.prepare(made, {field: str(value) for field, value in values.items()})
  for field, value in values.items():
    if not names_a_block(field):
      _set(made, field, value)
  configs.check(configs.migrate(made))
  for field in BLOCKS:
    _check_block(made, field)
  return made


def name_of(point: Mapping[str, Any]) -> str:
  """The name of a point, and of its directory: `alpha=0.1,learning_rate=0.001`, the last word of every field, its whole
  name where two end alike."""
  last = [field.rpartition('.')[2] for field in point]
  short = {field: word if last.count(word) == 1 else field for field, word in zip(point, last, strict=True)}
  whole = ','.join(f'{short[field]}={_text(value)}' for field, value in point.items())
  plain = re.sub(r'[^\w.,=+-]+', '_', whole)
  if plain == whole and len(plain) <= LONGEST:
    return plain
  return f'{plain[:LONGEST]}-{hashlib.sha256(repr(dict(point)).encode()).hexdigest()[:8]}'


def _text(value) -> str:
  return f'{value:g}' if isinstance(value, float) and float(f'{value:g}') == value else str(value)


def names_a_block(field: str) -> bool:
  """Whether a field is the name of a method, plan, optimizer, ..., which decides about its other fields."""
  return field.removesuffix('.name') in BLOCKS and field.endswith('.name')


def _set(config, field, value):
  try:
    put(config, field, configs.freeze(value))
  except (TypeError, ValueError, KeyError) as error:
    whole, inside, _ = field.partition('[')
    if inside:
      raise ConfigError(f'grid: {field} is inside of {whole}; give values of all of {whole}') from error
    known = configs.to_json(at(config, field))
    raise ConfigError(f'grid: {field}={value!r} is of another type than {known!r}, its value in the config') from error


def _check_block(config, field):
  """The arguments of a block against the ranges of its factory, which would refuse them when it is built."""
  block = at(config, field)
  if block is None or ':' in str(block['name']) or callable(block['name']):
    return
  make, _ = factory(configs.KINDS[field], block['name'])
  annotations = ranges.annotations_of(make)
  for key, value in block.items():
    if key != 'name' and key in annotations and not isinstance(value, ConfigDict):
      ranges.check(f'{field}.{key}', value, annotations[key])
