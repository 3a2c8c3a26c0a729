"""What a sweep varies: `method.alpha=0.1,0.3,1;optimizer.learning_rate=log:1e-4:1e-2:4`."""

import ast
import copy
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from ml_collections import ConfigDict

from fedkd.checks import ranges
from fedkd.checks.kinds import check_is
from fedkd.config import command_line
from fedkd.config.choices import BLOCKS, KINDS, allowed, factory
from fedkd.config.lookup import path_of
from fedkd.config.trees import at
from fedkd.errors import ConfigError

COUNT = 3  # values of an interval that says no number of its own
EXAMPLE = 'write for example method.alpha=0.1,0.3,1;optimizer.learning_rate=log:1e-4:1e-2'


class Axis(NamedTuple):
  """One field: its `values`, or an interval from `low` to `high`, of which a grid takes `values`."""

  field: str
  values: tuple
  low: float | None = None
  high: float | None = None
  logarithmic: bool = False
  size: int = 0  # of an interval: how many values, before equal ones are one


def parse(grid: str | Mapping[str, Any]) -> tuple[Axis, ...]:
  """The axes of a grid as text, or as {field: values, or the text of an interval}.

  Raises:
    ConfigError: for a grid that says nothing, a field given twice, an interval that is none, or a function without a
      name.
  """
  check_is('grid', grid, str | Mapping, "text such as 'method.alpha=0.1,1', or {field: values}")
  pairs = _pairs(grid) if isinstance(grid, str) else list(grid.items())
  axes = tuple(_axis(_whole_name(field), values) for field, values in pairs)
  fields = [axis.field for axis in axes]
  if not axes:
    raise ConfigError(f'grid is empty; {EXAMPLE}')
  if twice := [field for field in fields if fields.count(field) > 1]:
    raise ConfigError(f'grid has {twice[0]} twice; give all its values at once')
  if 'seeds' in fields:
    raise ConfigError('grid has the field seeds; give --seeds, as in --seeds=0:3')
  return axes


def typed(axes: Sequence[Axis], config: ConfigDict) -> tuple[Axis, ...]:
  """The axes as the fields of a config have them: of a field that holds a number with a decimal point an interval has
  numbers between whole ones, however its ends are written, as in `method.alpha=linear:0:1`.

  Raises:
    ConfigError: for a field that is not there.
  """
  known = command_line.prepare(copy.deepcopy(config).unlock(), {axis.field: str(axis.values[0]) for axis in axes})
  return tuple(_spaced(a, float) if a.low is not None and _is_float(known, a.field, a.low) else a for a in axes)


def _is_float(config, field, value) -> bool:
  """By the type of the field, or, where it is empty and may be anything, by what the factory of its block takes."""
  block, _, key = field.rpartition('.')
  values = at(config, block) if block else config
  if not isinstance(values, ConfigDict):  # an entry of a tuple, which is refused when it is set
    return False
  if block not in BLOCKS or values.get_type(key) is float:
    return values.get_type(key) is float
  make, _ = factory(KINDS[block], values['name'])
  taken = ranges.plain(allowed(KINDS[block], make, key, value))
  takes_float = float in (taken, *get_args(taken))
  if takes_float and values.get_type(key) is int:
    raise ConfigError(f'{field}={values[key]} is a whole number in the config, which refuses others; write it with .0')
  return takes_float


def points(axes: Sequence[Axis]) -> list[dict[str, Any]]:
  """Every combination of the values, the last field varying fastest."""
  return [
    dict(zip([a.field for a in axes], values, strict=True)) for values in itertools.product(*(a.values for a in axes))
  ]


def numbers(text: str, name: str) -> tuple[int, ...]:
  """Seeds as text: `0:3` for 0, 1, 2, or `0,1,2`.

  Raises:
    ConfigError: for other text, or no seed at all.
  """
  found: tuple[int, ...] = ()
  if match := re.fullmatch(r'(\d+):(\d+)', text):
    found = tuple(range(int(match[1]), min(int(match[2]), int(match[1]) + 10_000)))
  elif re.fullmatch(r'\d+(,\d+)*,?', text):
    found = tuple(int(part) for part in text.split(',') if part)
  if not found or len(set(found)) < len(found):
    raise ConfigError(f'{name}={text!r} is no list of distinct seeds; write {name}=0:3 or {name}=0,1,2')
  return found


def _pairs(text) -> list:
  pairs = [part.partition('=') for part in text.split(';') if part.strip()]
  for field, equals, values in pairs:
    if not (field.strip() and equals and values.strip()):
      raise ConfigError(f'grid has {field + equals + values!r}, which is not FIELD=VALUES; {EXAMPLE}')
  return [(field.strip(), values.strip()) for field, _, values in pairs]


def _whole_name(field) -> str:
  """`data.ways` as `data.partition.ways`, as on the command line."""
  return command_line.written_out(f'--config.{field}=')[len('--config.') : -1]


def _axis(field, values) -> Axis:
  if isinstance(values, str):
    if match := re.fullmatch(r'(log|linear):(.*)', values):
      return _interval(field, values, match[1] == 'log', match[2].split(':'))
    values = [_value(part) for part in re.split(r',(?![^(\[{]*[)\]}])', values) if part.strip()]
  check_is(f'grid: {field}', values, Iterable, 'its values, such as [0.1, 1]')
  values = tuple(path_of(value, f'grid: {field}') for value in values)
  if not values or len(set(map(repr, values))) < len(values):
    raise ConfigError(f'grid: {field} has {"a value twice" if values else "no values"}; {EXAMPLE}')
  return Axis(field, values)


def _value(text) -> Any:
  try:
    return ast.literal_eval(text.strip())
  except (ValueError, SyntaxError):
    return text.strip()


def _interval(field, text, logarithmic, parts) -> Axis:
  try:
    low, high = (ast.literal_eval(part) for part in parts[:2])
    count = int(parts[2]) if len(parts) > 2 else COUNT
    fits = low < high and math.isfinite(low) and math.isfinite(high) and (low > 0 or not logarithmic)
    if not (fits and count > 1 and len(parts) < 4):
      raise ValueError
  except (ValueError, TypeError, SyntaxError) as error:
    raise ConfigError(
      f'grid: {field}={text} is no interval; write {field}=log:LOW:HIGH or linear:LOW:HIGH with LOW below HIGH '
      '(log: both above 0), and :COUNT for the number of values in a grid'
    ) from error
  kind = int if isinstance(low, int) and isinstance(high, int) else float
  return _spaced(Axis(field, (), low, high, logarithmic, count), kind)


def _spaced(axis, kind) -> Axis:
  """An interval with so many values, whole numbers or others."""
  low, high = kind(axis.low), kind(axis.high)
  between = lambda s: low * (high / low) ** s if axis.logarithmic else low + (high - low) * s
  found = (between(i / (axis.size - 1)) for i in range(axis.size))
  values = tuple(dict.fromkeys(round(v) if kind is int else float(f'{v:.6g}') for v in found))
  return axis._replace(values=values, low=low, high=high)
