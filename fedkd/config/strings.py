"""Config strings: what follows the colon of `--config=configs/FILE.py:small,method=fedhe`."""

import inspect
import math
from typing import Any

from ml_collections import ConfigDict

from fedkd.config.choices import KINDS, block, factory
from fedkd.config.groups import spread
from fedkd.config.migrate import migrate
from fedkd.config.trees import at, put
from fedkd.errors import ConfigError, is_it


def parse(arg: str | None, profiles: tuple[str, ...] = ('paper', 'small', 'smoke'), **choices: Any) -> ConfigDict:
  """Reads a config string such as 'small,method=private,zoo=homo'.

  Args:
    arg: the string; None or '' for the defaults.
    profiles: allowed bare words, the first is the default.
    **choices: what may be set, with defaults; a tuple lists the words that are allowed, its first is the default.

  Returns:
    ConfigDict with `profile`, every choice, and `optimizer`, '' for the file's own (see `finish`).

  Raises:
    ConfigError: for any other word, and for a second word on one thing.
  """
  choices = {**choices, 'optimizer': ''}
  words = {key: known for key, known in choices.items() if isinstance(known, tuple)}
  out = ConfigDict({'profile': profiles[0], **choices, **{key: known[0] for key, known in words.items()}})
  said: dict[str, str] = {}
  for word in filter(None, (arg or '').split(',')):
    key, equals, value = word.partition('=')
    if not equals and key in profiles:
      key, value = 'profile', key
    elif not equals or key not in choices:
      raise ConfigError(
        f'config string has {word!r}; use a profile ({", ".join(profiles)}) or {", ".join(f"{k}=..." for k in choices)}'
        f'{is_it(key, [*profiles, *choices])}'
      )
    if key in said:
      raise ConfigError(f'config string has {said[key]!r} and {word!r}; give one of them, once')
    said[key], out[key] = word, value
  for key, known in words.items():
    if out[key] not in known:
      told, near = ', '.join(filter(None, known)), is_it(out[key], known)
      raise ConfigError(f'{key}={out[key]!r} is unknown; choose one of {told}{near}')
  return out


def number(field: str, text: Any, kind: type = float, least: float = -math.inf) -> Any:
  """A finite number of a config string.

  Raises:
    ConfigError: for any other text, or a number below `least`.
  """
  try:
    value = kind(text)
    if math.isfinite(value) and value >= least:
      return value
  except (ValueError, OverflowError):
    pass
  what = 'whole number' if kind is int else 'number'
  more = '' if least == -math.inf else f' of at least {least}'
  raise ConfigError(f'{field}={text!r} is not a {what}{more}; write for example {field}=1')


def finish(config: ConfigDict, choice: ConfigDict) -> ConfigDict:
  """Applies the choices that every config string has: `optimizer=NAME`, and `clients=N` where the file takes it."""
  if choice.get('clients') and (clients := number('clients', choice.clients, int, least=1)) != config.data.clients:
    spread(config, clients)
  if choice.optimizer:
    choose(config, 'optimizer', choice.optimizer)
  return migrate(config)


def choose(config: ConfigDict, field: str, name: str, missing: bool = False) -> None:
  """Sets the name of a block; its other fields become the new factory's, with their defaults.

  An argument without default keeps the value that it has in the block (the learning rate of an optimizer). `missing`:
  whether one that the block lacks may be set later.

  Raises:
    ConfigError: for an unknown name, or an argument without default that the block lacks.
  """
  old = at(config, field)
  if old['name'] == name:
    return
  _, parameters = factory(KINDS[field], name)
  needed = [key for key, p in parameters.items() if p.default is inspect.Parameter.empty]
  put(config, field, block(KINDS[field], name, {key: old[key] for key in needed if key in old}, missing))
