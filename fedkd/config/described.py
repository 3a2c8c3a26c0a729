"""`--help` of a config: every field with its value, what it means and what it may be."""

import textwrap
from collections.abc import Iterator

from ml_collections import ConfigDict

from fedkd import models
from fedkd.checks import ranges
from fedkd.config.choices import BLOCKS, KINDS, allowed, factory
from fedkd.config.defaults import RANGES
from fedkd.config.meanings import arguments, of_fields
from fedkd.config.migrate import migrate
from fedkd.config.trees import to_json

WIDTH = 120  # of a line, in characters
COLUMN = 44  # where what a field means begins


def described(config: ConfigDict) -> str:
  """A paragraph per field, `--config.rounds=100    of the last phase (a whole number of at least 1)`, and per field
  of the groups' models."""
  lines = [*_fields('', migrate(config), RANGES, of_fields()), *_models(config)]
  return '\n'.join(_line(f'  {left}', *right) for left, *right in lines)


def allowed_in(config: ConfigDict, field: str) -> str:
  """What a field of a config may be, in words; '' where nothing is said."""
  start, lines = f'--config.{field}=', _fields('', config, RANGES, {})
  return next((allowed for left, _, allowed in lines if left.startswith(start)), '')


def _line(left, meaning, allowed) -> str:
  text = f'{meaning.rstrip(".")} ({allowed})' if meaning and allowed else meaning or allowed
  indent = ' ' * COLUMN
  begun = f'{left:{COLUMN - 1}} ' if len(left) < COLUMN else f'{left}\n{indent}'
  return begun + textwrap.fill(text, WIDTH - COLUMN, break_on_hyphens=False).replace('\n', f'\n{indent}')


def _fields(prefix, values, known, said) -> Iterator[tuple[str, str, str]]:
  for key, value in values.items():
    field = f'{prefix}{key}'
    if field in BLOCKS:
      kind = KINDS[field]
      choices = f'one of {", ".join(kind.choices)}, {kind.path}'
      yield f'--config.{field}.name={to_json(value["name"])}', said.get(field, ''), choices
      own = {k: v for k, v in value.items() if k != 'name'}
      yield from _fields(f'{field}.', own, *_of_block(kind, value))
    elif isinstance(value, ConfigDict):
      yield from _fields(f'{field}.', value, known, said)
    elif key != 'groups':
      meaning = said.get(field, said.get(prefix.rstrip('.'), ''))
      yield f'--config.{field}={_text(value)}', meaning, ranges.describe(known.get(field))


def _of_block(kind, block) -> tuple[dict, dict]:
  """({field: what it may be}, {field: what it means})."""
  function, parameters = factory(kind, block['name'])
  said = arguments(function.__doc__)
  ranges_of = {f'{kind.field}.{key}': allowed(kind, function, key, block.get(key)) for key in parameters}
  return ranges_of, {f'{kind.field}.{key}': said.get(key, '') for key in parameters}


def _models(config) -> Iterator[tuple[str, str, str]]:
  for name in dict.fromkeys(entry['model'] for entry in config.groups if isinstance(entry.get('model'), str)):
    annotations = ranges.annotations_of(getattr(models, name)) if name in models.__all__ else {}
    for field, annotation in annotations.items():
      if ranges.is_bounded(annotation):
        yield f"groups, 'model': {name!r}, {field!r}", '', ranges.describe(annotation)


def _text(value) -> str:
  text = str(to_json(value)) if not isinstance(value, tuple) else ','.join(map(str, value))
  return text if len(text) < 40 else f'{text[:36]}...'
