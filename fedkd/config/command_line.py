"""`--config=FILE[:STRING]` with `--config.FIELD=VALUE`, where a field may choose by name.

`ml_collections` reads the flags, and locks the fields that a config has. What changes those fields comes first:
`--config.plan.name=sampled` makes the block of that plan, so that `--config.plan.ratio=0.5` finds its field, in
whatever order the flags are typed.
"""

import re
from collections.abc import Mapping, Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from fedkd.checks.kinds import short
from fedkd.config import file
from fedkd.config.choices import BLOCKS, KINDS, check_fields, label
from fedkd.config.described import allowed_in
from fedkd.config.groups import spread
from fedkd.config.migrate import FLAT, migrate
from fedkd.config.strings import choose, number
from fedkd.errors import ConfigError, check_known

KIND_OF = {int: 'a whole number', float: 'a number', bool: 'True or False'}
# Of tuples of dicts.
EXAMPLES = {'before': "({'name': 'private', 'rounds': 5},)", 'groups': "({'model': 'LeNet', 'clients': 2},)"}


class Parser(ConfigFileFlagParser):
  """Loads a config file and prepares the fields that the command line goes on to set."""

  def __init__(self):
    super().__init__('config', lock_config=False)
    self.argv = []  # the whole command line; `ml_collections` reads this list too

  def parse(self, path):
    return prepare(migrate(file.load(path)), overrides(self.argv)).lock()


def define(flag_values: flags.FlagValues = flags.FLAGS) -> flags.FlagHolder:
  """Defines the flag `--config`; `parse` reads it."""
  parser = Parser()
  holder = config_flags.DEFINE_config_file(
    'config', None, 'The experiment, with its profile.', flag_values, False, sys_argv=parser.argv
  )
  flag_values['config'].parser = parser
  return holder


def parse(argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
  """Parses a command line whose flag `--config` was defined by `define`; returns what is not a flag.

  Raises:
    ConfigError: for a config that cannot be made, or a flag that cannot be, in one sentence.
  """
  argv = _config_first([written_out(word) for word in _joined(argv)])
  flag_values['config'].parser.argv[:] = argv  # type: ignore[attr-defined]
  try:
    return flag_values(argv)
  except flags.IllegalFlagValueError as error:
    raise _illegal(error, flag_values['config'].value, overrides(argv)) from error
  except (flags.Error, ValueError, TypeError, KeyError, AttributeError, IndexError, OSError) as error:
    raise _innermost(error) from error


def _joined(argv):
  """`--config.FIELD VALUE` as `--config.FIELD=VALUE`: a flag that takes any value would not look at the next word."""
  out = []
  for word in argv:
    if out and re.fullmatch(r'--?config(\.[^=]+)?', out[-1]) and not word.startswith('--'):
      out[-1] += f'={word}'
    else:
      out.append(word)
  return out


def written_out(word: str) -> str:
  """`--config.data.partition=NAME` and `--config.data.ways=3` as fields of the block."""
  word = re.sub(r'^(--?config\.data\.partition)(?==)', r'\1.name', word)
  return re.sub(rf'^(--?(?:no)?config\.data)\.({"|".join(FLAT)})(?==|$)', r'\1.partition.\2', word)


def _config_first(argv):
  at = next((i for i, word in enumerate(argv) if re.match(r'--?config=', word)), 0)
  return [*argv[:1], argv[at], *argv[1:at], *argv[at + 1 :]] if at else argv


def _illegal(error, config, given) -> ConfigError:
  """Of text that is not what its field holds, what that may be; absl says what Python says of int('text')."""
  found = re.match(r'flag --config\.([^=]+)=', str(error))
  if not found or not isinstance(config, ConfigDict) or found[1] not in given:
    return _innermost(error)
  field, usual = found[1], config
  for part in re.findall(r'\w+', field):
    usual = usual[int(part) if part.isdigit() else part]
  if isinstance(usual, ConfigDict):
    inside = 'name' if 'name' in usual else next(iter(usual))
    return ConfigError(f'{field} is a block; set its fields, for example --config.{field}.{inside}={usual[inside]}')
  may_be = allowed_in(config, field) or KIND_OF.get(type(usual), 'of another kind')
  example = '' if usual is None else f'; write for example --config.{field}={usual}'
  return ConfigError(f'{field}={short(given[field])} must be {may_be}{example}')


def _innermost(error) -> ConfigError:
  """The sentence of fedkd inside what absl and `ml_collections` made of it, else theirs."""
  found, inner = None, error
  while inner is not None:
    found = inner if isinstance(inner, ConfigError) else found
    inner = inner.__cause__ or inner.__context__
  text = str(found or error).rpartition('ConfigError: ')[2]
  return ConfigError(' '.join(text.split()))


def overrides(argv: Sequence[str]) -> dict[str, str]:
  """{field: text} of every `--config.FIELD=VALUE`, `--config.FIELD` and `--noconfig.FIELD`."""
  matches = (re.fullmatch(r'--?(?:no)?config\.([^=]+)=?(.*)', word, re.DOTALL) for word in argv)
  return {match[1]: match[2] for match in matches if match}


def prepare(config: ConfigDict, given: dict[str, str]) -> ConfigDict:
  """The config with the fields that `given` sets: those of the chosen factories, and groups for another `data.clients`.

  Raises:
    ConfigError: for an unknown name, or a field that is not there.
  """
  for field in BLOCKS:
    if name := given.get(f'{field}.name'):
      choose(config, field, name, missing=True)
  for field in given:
    _check_field(config, field)
  for field, text in given.items():
    if text.lstrip().startswith('{') and isinstance(config.get(field), tuple):  # it would become a tuple of its keys
      raise ConfigError(f'{field}={text} must be a tuple; write for example {_example(field)}')
  if 'data.clients' in given and 'groups' not in given and config.groups:
    spread(config, number('data.clients', given['data.clients'], int, least=1))
  return config


def _example(field) -> str:
  """How a tuple is typed."""
  text = EXAMPLES.get(field)
  return f'--config.{field}="{text}"' if text else f'--config.{field}=1,2'


def _check_field(config, field):
  """Checks that a field is there, also one of an entry, such as groups[0].width, which can be set but not added."""
  if entry := re.fullmatch(r'(\w+)\[(\d+)\](?:\.(\w+))?', field):
    of, i, key = entry.groups()
    check_known([of], config, 'config')
    if not isinstance(config[of], tuple):
      raise ConfigError(f'{of} is no tuple, so that --config.{field} names nothing; write --config.{of}=...')
    there = config[of][int(i)] if int(i) < len(config[of]) else None
    if there is None or (key and not (isinstance(there, Mapping | ConfigDict) and key in there)):
      raise ConfigError(f'{field} is not there to be set; write all of {of}, for example {_example(of)}')
  block, what, path = config, 'config', ''
  for part in field.partition('[')[0].split('.'):
    if not isinstance(block, ConfigDict):
      raise ConfigError(f'{what} has no fields, so that --config.{field} names nothing')
    if path == 'data' and part not in block and part in block.partition:  # only those of this package have short forms
      raise ConfigError(f'data has no field {part!r}, its partition has; write --config.data.partition.{part}')
    if path in BLOCKS:
      check_fields(KINDS[path], [part], block, what)
    check_known([part], block, what)
    block = block[part]
    path = f'{path}.{part}'.lstrip('.')
    what = f'{path} {label(block)}' if path in BLOCKS else part
