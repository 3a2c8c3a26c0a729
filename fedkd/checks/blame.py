"""Whose function failed, and on which line: the beginning of an error message about a user's rule, method or model."""

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax

from fedkd.errors import ConfigError

# What to write where a value is known only when the compiled program runs.
TRACED = {
  jax.errors.TracerArrayConversionError: 'use functions of jax.numpy in place of NumPy',
  jax.errors.TracerBoolConversionError: 'use jax.numpy.where in place of `if`',
}
PACKAGE = __file__.rsplit('/', 2)[0] + '/'


def name_of(function: Any) -> str:
  """'module:name' of a function or class."""
  function = unwrapped(function)
  name = getattr(function, '__qualname__', type(function).__qualname__)
  return f'{getattr(function, "__module__", None) or type(function).__module__}:{name}'


def unwrapped(function: Any) -> Any:
  """The Python function behind partial arguments, `jit` and the like."""
  while isinstance(function, functools.partial):
    function = function.func
  return inspect.unwrap(function) if callable(function) else function


def is_foreign(function: Callable) -> bool:
  """Whether a function is not one of this package's."""
  return not _file(function).startswith(PACKAGE)


def raised_in(function: Any, error: BaseException) -> bool:
  """Whether an error left the file of a function."""
  return any(frame.filename == _file(function) for frame in traceback.extract_tb(error.__traceback__))


def passed_through(function: Any, error: BaseException) -> bool:
  """Whether an error left a function itself, where that can be told, or else its file."""
  code = getattr(unwrapped(function), '__code__', None)
  if code is None:
    return raised_in(function, error)
  return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def is_refusal(error: BaseException) -> bool:
  """Whether this package has raised an error itself, in whose text it says what is at fault."""
  *_, last = [None, *traceback.extract_tb(error.__traceback__)]
  return last is not None and last.filename.startswith(PACKAGE) and (last.line or '').startswith('raise ')


def place(function: Any, error: BaseException | None = None) -> str:
  """' (file.py, line 12: its text)', where an error left the file of a function; else where the function begins; ''
  where there is no source.

  The last line in the function's own file, since what it calls is seldom at fault.
  """
  file = _file(function)
  frames = traceback.extract_tb(error.__traceback__) if error else []
  if frame := next((f for f in reversed(frames) if f.filename == file), None):
    return f' ({file.rpartition("/")[2]}, line {frame.lineno}: {frame.line})'
  code = getattr(unwrapped(function), '__code__', None)
  return f' ({file.rpartition("/")[2]}, line {code.co_firstlineno})' if code else ''


def named(function: Any) -> str:
  """'module:name (file.py, line 12)'."""
  return f'{name_of(function)}{place(function)}'


@contextlib.contextmanager
def guard(what: str, function: Any, failed: str = '', through: tuple[type[Exception], ...] = ()) -> Iterator[None]:
  """Around a call of a function that a user may have written.

  Args:
    what: the argument or field that names it.
    function: whose line is told, if it is not this package's.
    failed: of one of this package's, how the sentence about an unfit value begins, 'plan sampled cannot be built'; '':
      the function is told, as that of a user.
    through: exceptions that are let through.

  Raises:
    ConfigError: for an error in it, in one sentence with its line.
  """
  let_through: tuple[type[Exception], ...] = (ConfigError, *through)
  try:
    yield
  except let_through:
    raise
  except Exception as error:  # what somebody's function raises can be anything
    if is_foreign(function) or not failed:
      raise ConfigError(raised(what, function, error)) from error
    if not isinstance(error, TypeError | ValueError | ArithmeticError):
      raise
    raise ConfigError(f'{failed}: {str(error).splitlines()[0] if str(error) else error}') from error


def call(what: str, function: Callable, *args: Any, **values: Any) -> Any:
  """What a function returns; errors as in `guard`."""
  with guard(what, function):
    return function(*args, **values)


def raised(what: str, function: Any, error: BaseException) -> str:
  """'rule my_rules:damped (my_rules.py, line 12: text) raised KeyError: ...'."""
  text = (str(error).strip() or 'no message').splitlines()[0]
  remedy = next((f'; {remedy}' for kind, remedy in TRACED.items() if isinstance(error, kind)), '')
  return f'{what} {name_of(function)}{place(function, error)} raised {type(error).__name__}: {text}{remedy}'


def _file(function) -> str:
  try:
    return inspect.getsourcefile(unwrapped(function)) or ''
  except (TypeError, OSError):  # a builtin; a class that was typed in
    return ''
