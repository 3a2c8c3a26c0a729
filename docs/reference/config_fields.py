"""All fields of a config: meaning, default and range, from `fedkd/config/defaults.py` and the factories' docstrings."""

import inspect

from ml_collections import ConfigDict

from fedkd.checks import ranges
from fedkd.config import choices, defaults, meanings
from fedkd.config.trees import at, to_json
from reference.markdown import first_sentence, flow, table

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
HEADER = ('field', 'default', 'what it is, and its range')


def page() -> str:
  """The page."""
  config, said = defaults.default(), meanings.of_fields()
  whole = lambda field: field if field in said else field.rpartition('.')[0]  # of a block that is described as one
  rows = [_row(field, at(config, field), said[whole(field)]) for field in _fields(config, said)]
  run, data = (  # in the order of the source
    [row for row in rows if row[0].startswith('`data.') == is_data] for is_data in (False, True)
  )
  parts = [TEXT, '## The run', table(HEADER, run), '## Data', table(HEADER, data)]
  for field in choices.BLOCKS:
    parts += [f'## The block {field}', *_block(choices.KINDS[field])]
  return '\n\n'.join(parts) + '\n'


def _fields(config, said) -> list[str]:
  """The fields themselves, without the blocks around them."""
  out = []
  for field in said:
    value = at(config, field)
    if not isinstance(value, ConfigDict) or field in choices.BLOCKS:
      out.append(field)
    elif field != 'data':  # whose fields follow by themselves
      out += [f'{field}.{key}' for key in value]
  return out


def _row(field, value, meaning) -> tuple[str, ...]:
  return f'`{field}`', _default(field, value), _with_range(meaning, defaults.RANGES.get(field))


def _with_range(meaning, annotation) -> str:
  words = flow(ranges.describe(annotation))
  return f'{flow(meaning)} ({words})' if words and meaning else flow(meaning) or words


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
  return [BLOCK.format(field=kind.field), table(HEADER, rows)]


def _choice(kind, name) -> list[tuple[str, ...]]:
  """A row for a choice, and one for each of its fields."""
  function, parameters = choices.factory(kind, name)
  said = meanings.arguments(function.__doc__)
  rows = [(f'**{name}**', '', first_sentence(function.__doc__))]
  for key, of in parameters.items():
    annotation = choices.allowed(kind, function, key, of.default)
    rows.append((f'`{kind.field}.{key}`', _code(of.default), _with_range(said.get(key, ''), annotation)))
  return rows
