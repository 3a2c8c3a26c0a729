"""`--help` of a config: every field with its value and what it may be."""

from collections.abc import Iterator

from ml_collections import ConfigDict

from fedkd import models
from fedkd.checks import ranges
from fedkd.config.choices import BLOCKS, KINDS, allowed, factory
from fedkd.config.defaults import RANGES
from fedkd.config.migrate import migrate
from fedkd.config.trees import to_json


def described(config: ConfigDict) -> str:
  """One line per field, `--config.rounds=100    a whole number of at least 1`, and per field of the groups' models."""
  lines = [*_fields('', migrate(config), RANGES), *_models(config)]
  width = max((len(left) for left, _ in lines if len(left) < 60), default=0)
  return '\n'.join(f'  {left:{width}}  {right}'.rstrip() for left, right in lines)


def _fields(prefix, values, known) -> Iterator[tuple[str, str]]:
  for key, value in values.items():
    field = f'{prefix}{key}'
    if field in BLOCKS:
      kind = KINDS[field]
      yield f'--config.{field}.name={to_json(value["name"])}', f'one of {", ".join(kind.choices)}, {kind.path}'
      yield from _fields(f'{field}.', {k: v for k, v in value.items() if k != 'name'}, _of_block(kind, value))
    elif isinstance(value, ConfigDict):
      yield from _fields(f'{field}.', value, known)
    elif key != 'groups':
      yield f'--config.{field}={_text(value)}', ranges.describe(known.get(field))


def _of_block(kind, block) -> dict:
  function, parameters = factory(kind, block['name'])
  return {f'{kind.field}.{key}': allowed(kind, function, key, block.get(key)) for key in parameters}


def _models(config) -> Iterator[tuple[str, str]]:
  for name in dict.fromkeys(entry['model'] for entry in config.groups if isinstance(entry.get('model'), str)):
    annotations = ranges.annotations_of(getattr(models, name)) if name in models.__all__ else {}
    for field, annotation in annotations.items():
      if ranges.is_bounded(annotation):
        yield f"groups, 'model': {name!r}, {field!r}", ranges.describe(annotation)


def _text(value) -> str:
  text = str(to_json(value)) if not isinstance(value, tuple) else ','.join(map(str, value))
  return text if len(text) < 40 else f'{text[:36]}...'
