"""The errors that end a run in one sentence."""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator


class ConfigError(ValueError):
  """Bad input; the message names the field, the value and the remedy."""


class DivergedError(RuntimeError):
  """A loss became NaN or infinite while training; the last good checkpoint is kept."""


class StoreError(RuntimeError):
  """Clients' states on disk cannot be read or written; the last good checkpoint is kept."""


class HostError(RuntimeError):
  """Another host of the run has exited; the last good checkpoint is kept."""


class StoppedError(RuntimeError):
  """A signal ended the run after its segment; `signum` says which one."""

  def __init__(self, signum: int, message: str):
    super().__init__(message)
    self.signum = signum


@contextlib.contextmanager
def in_a_sentence(sentence: Callable[[Exception], str], through: tuple[type[Exception], ...] = ()) -> Iterator[None]:
  """Around what raises many types for one reason, such as a damaged file: any of them becomes a ConfigError.

  Args:
    sentence: of the exception.
    through: those that stay as they are.
  """
  try:
    yield
  except through:
    raise
  except Exception as error:
    raise ConfigError(sentence(error)) from error


def reason_of(error: BaseException | str, longest: int = 150) -> str:
  """The first line of an exception's message, or else its type, to be put inside a sentence."""
  return (str(error).strip() or type(error).__name__).splitlines()[0][:longest].rstrip('. ')


def check_known(names: Iterable[str], known: Iterable[str], what: str, kind: str = 'field', more: str = '') -> None:
  """Checks that every name is one of `known`.

  Raises:
    ConfigError: for another name, with the closest one and all known ones. `what`: whose names they are; `kind`: of
      what, in the singular; `more`: what is said in place of the closest one.
  """
  known = list(known)
  for name in names:
    if name not in known:
      raise ConfigError(
        f'{what} has no {kind} {str(name)[:60]!r}; it has {", ".join(known) or "none"}{more or is_it(name, known)}'
      )


def is_it(name: object, known: Iterable[str]) -> str:
  """The end of a message about an unknown name: "; is it 'fedhe'?", the closest of the known ones; '' without one."""
  near = difflib.get_close_matches(str(name)[:60], list(known), 1)
  return f'; is it {near[0]!r}?' if near else ''
