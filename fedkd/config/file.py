"""Config files, which are Python: they are imported here, and what keeps one from it is said in a sentence."""

import ast
import importlib.machinery
import importlib.util
import pathlib
import sys
import traceback
import types
from typing import Any

from ml_collections import ConfigDict

from fedkd.checks.kinds import what_is
from fedkd.errors import ConfigError
from fedkd.files import with_string

NAME = 'config_config'  # of the module that a file becomes, as `ml_collections` would call it
REMEDY = 'give one with a function get_config, such as configs/quickstart.py'


def load(path: str) -> ConfigDict:
  """The config that a file makes; `path`: 'FILE' or 'FILE:STRING', which is handed to its `get_config`.

  Raises:
    ConfigError: if there is no such file, it is no Python, it raises, or what it makes is no config.
  """
  name, colon, text = with_string(path)
  string = [text] if colon else []
  docstring(name)
  module = _guarded(name, 'raises', _imported, name)
  get_config = getattr(module, 'get_config', None)
  if not callable(get_config):
    raise ConfigError(f'config={name} has no function get_config; {REMEDY}')
  config = _guarded(name, f'get_config({", ".join(map(repr, string))}) raises', get_config, *string)
  if not isinstance(config, ConfigDict):
    raise ConfigError(f'config={name}: get_config returned {what_is(config)}; let it return a ConfigDict')
  return config


def docstring(name: str) -> str:
  """The docstring of a config file, which is not imported for it; '' if it has none.

  Raises:
    ConfigError: if there is no such file, or it is no Python.
  """
  try:
    return ast.get_docstring(ast.parse(pathlib.Path(name).read_bytes())) or ''
  except OSError as error:
    raise ConfigError(f'config={name} names no file {name} ({error.strerror}); {REMEDY}') from error
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
    line = f'line {error.lineno}: ' if isinstance(error, SyntaxError) and error.lineno else ''
    said = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
    raise ConfigError(f'config={name} is no Python ({line}{said}); {REMEDY}') from error


def _imported(name) -> types.ModuleType:
  loader = importlib.machinery.SourceFileLoader(NAME, name)
  module = importlib.util.module_from_spec(importlib.util.spec_from_loader(NAME, loader))  # type: ignore[arg-type]
  sys.modules[NAME] = module
  loader.exec_module(module)
  return module


def _guarded(name, what, function, *args) -> Any:
  """What a function of a config file returns; the file is somebody's own, and may raise anything, or exit."""
  try:
    return function(*args)
  except ConfigError:
    raise
  except (Exception, SystemExit) as error:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    line = f', line {lines[-1]}' if lines else ''
    said = ' '.join(str(error).split()) or 'no message'
    raise ConfigError(f'config={name}{line}: {what} {type(error).__name__}: {said}; mend the file') from error
