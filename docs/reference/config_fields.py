"""All fields of a config: meaning, default and range, from `fedkd/config/defaults.py` and the factories' docstrings."""

import ast
import inspect

from ml_collections import ConfigDict

from fedkd.checks import ranges
from fedkd.config import choices, defaults
from fedkd.config.trees import to_json
from reference import fields
from reference.markdown import arguments, first_sentence, flow, table

TEXT = """# Config fields

Every field of a config, as `--config.FIELD=VALUE` sets it on the command line. What a field has in an experiment, with
the fields of its method, is printed by `fedkd run NAME --help`. [Configs and runs](../running/configs.md) explains
config strings, phases and groups.
"""
# Blocks: `--config.FIELD.name=NAME` chooses among functions, whose arguments become fields.
BLOCK = '`--config.{field}.name=NAME` chooses; the fields beside it are the arguments of what was chosen.'
OPTIMIZERS = (
  'An optimizer of optax by its name, with its arguments as fields: {names}. Ours by path, such as '
  '`fedkd.optimizers:amsgrad` ([fedkd.optimizers](fedkd.optimizers.md)).'
)
METHODS = 'A method by its name, with its arguments as fields: see [its page](../methods/index.md).'
HEADER = ('field', 'default', 'range', 'meaning')


def page() -> str:
  """The page."""
  said = _meanings()
  parts = [TEXT]
  for title, rows in _sections(defaults.default()):
    meaning = lambda field: said.get(field) or said.get(field.rpartition('.')[0], '')  # of a whole block
    parts += [f'## {title}', table(HEADER, [_row(field, value, meaning(field)) for field, value in rows])]
  for field in choices.BLOCKS:
    parts += [f'## The block {field}', *_block(choices.KINDS[field])]
  return '\n\n'.join(parts) + '\n'


def _meanings() -> dict[str, str]:
  """{field: comment} of the assignments in `default`."""
  source = inspect.getsource(defaults.default)
  said = fields.comments(source)
  found = {}
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Assign) and node.end_lineno in said:
      found[ast.unparse(node.targets[0]).removeprefix('config.')] = said[node.end_lineno]
  return found


def _sections(config) -> list[tuple[str, list]]:
  """(title, (field, value) pairs): those of the run and those of its data."""
  top, data = [], []
  for key, value in config.items():
    if key == 'data':
      data = [(f'data.{inner}', of) for inner, of in value.items()]
    elif isinstance(value, ConfigDict) and key not in choices.BLOCKS:
      top += [(f'{key}.{inner}', of) for inner, of in value.items()]
    else:
      top.append((key, value))
  return [('The run', top), ('Data', data)]


def _row(field, value, meaning) -> tuple[str, ...]:
  return f'`{field}`', _default(field, value), flow(ranges.describe(defaults.RANGES.get(field))), flow(meaning)


def _default(field, value) -> str:
  if isinstance(value, ConfigDict):
    anchor = f'the-block-{field.replace(".", "-").replace("_", "-")}'
    return f'[`{value["name"]}`](#{anchor})'
  return _code(value)


def _code(value) -> str:
  return '' if value is inspect.Parameter.empty else f'`{to_json(value)!r}`'


def _block(kind) -> list[str]:
  if kind.field == 'method':
    return [METHODS]
  if kind.field == 'optimizer':
    return [OPTIMIZERS.format(names=', '.join(f'`{name}`' for name in kind.choices))]
  rows = [row for name in kind.choices for row in _choice(kind, name)]
  return [BLOCK.format(field=kind.field), table(('name, fields', 'default', 'range', 'meaning'), rows)]


def _choice(kind, name) -> list[tuple[str, ...]]:
  """A row for a choice, and one for each of its fields."""
  function, parameters = choices.factory(kind, name)
  said = arguments(function.__doc__)
  rows = [(f'**{name}**', '', '', first_sentence(function.__doc__))]
  for key, of in parameters.items():
    bounds = ranges.describe(choices.allowed(kind, function, key, of.default))
    rows.append((f'`{kind.field}.{key}`', _code(of.default), flow(bounds), flow(said.get(key, ''))))
  return rows
