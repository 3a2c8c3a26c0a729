"""Stored configs are data: what is read from a run directory names no code but fedkd's own, unless it is trusted."""

from collections.abc import Iterator
from typing import Any

from fedkd.config.migrate import moved
from fedkd.errors import ConfigError

# Where names are factories, rules, losses and models, none of which touches files.
OWN = (
  *('aggregate', 'codecs', 'losses', 'methods', 'models', 'optimizers', 'plan', 'schedules'),
  *('data.splits', 'data.transforms'),
)
READERS = ('fedkd.models.pretrained',)
TEXT = ('name', 'init_from', 'client_store')  # fields of a config that are never looked up as code
OF_DATA = ('partition', 'protocol', 'normalise')  # the fields of `data` that are
BLOCKS = ('method', 'plan', 'optimizer', 'schedule', 'codec_up', 'codec_down', 'data', 'early_stop')


def check_stored(config: Any, where: Any, trust: bool = False) -> dict:
  """The config of a run directory as JSON, checked for the names it would have looked up and called.

  Args:
    config: what config.json holds.
    where: the run directory, for the message.
    trust: whether names outside fedkd are let through: only for directories as trusted as one's own code.

  Raises:
    ConfigError: that names those outside fedkd, or if it is not a config.
  """
  is_config = isinstance(config, dict) and all(isinstance(config.get(field, {}), dict) for field in BLOCKS)
  if not is_config or _has_dots(config):
    raise ConfigError(f'{where}: config.json is not the config of a run; choose another directory')
  foreign = [] if trust else [found for found in _names(config) if not _is_own(found[1])]
  if foreign:
    told = ', '.join(f'{field}={name!r}' for field, name in foreign[:3])
    raise ConfigError(
      f'{where}: config.json names code outside fedkd ({told}), which would be executed; give trust=True, on the '
      'command line --trust, if you trust that directory as your own code'
    )
  return config


def _has_dots(value) -> bool:
  """Whether a key has a dot in it, which a ConfigDict does not take."""
  if isinstance(value, list):
    return any(map(_has_dots, value))
  return isinstance(value, dict) and any('.' in key or _has_dots(inner) for key, inner in value.items())


def _names(config) -> Iterator[tuple[str, str]]:
  """(field, text) of every text that may name code: those with a colon."""
  for field, value in config.items():
    if field == 'data':
      value = {key: value[key] for key in OF_DATA if key in value}
    elif field == 'groups' and isinstance(value, list):
      value = [{k: v for k, v in g.items() if k != 'weights'} if isinstance(g, dict) else g for g in value]
    if field not in TEXT:
      yield from _texts(field, value)


def _texts(field, value) -> Iterator[tuple[str, str]]:
  if isinstance(value, dict):
    for key, inner in value.items():
      yield from _texts(f'{field}.{key}', inner)
  elif isinstance(value, list):
    for i, inner in enumerate(value):
      yield from _texts(f'{field}[{i}]', inner)
  elif isinstance(value, str) and ':' in value:
    yield field, value


def _is_own(name) -> bool:
  module = moved(name).rpartition(':')[0]
  own = any(module == f'fedkd.{room}' or module.startswith(f'fedkd.{room}.') for room in OWN)
  return own and module not in READERS
