"""Exit codes: an error of fedkd ends a program with one sentence and a code."""

import contextlib
import errno
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from fedkd import errors


def refuse(error: Exception | str, code: int = 2) -> NoReturn:
  """Ends the program with one sentence, in which nothing is longer than a line or two, such as a name that is wrong."""
  text = re.sub(r'\S{400,}', lambda word: f'{word[0][:80]}... ({len(word[0])} characters)', str(error))
  print(f'fedkd: {text}', file=sys.stderr, flush=True)
  if 'jax' in sys.modules and sys.modules['jax'].distributed.is_initialized():
    os._exit(code)  # JAX would wait for the other hosts to shut down
  gc.freeze()  # Python's last collection would go through all that was imported: a fifth of the time of a refusal
  sys.exit(code)


@contextlib.contextmanager
def codes() -> Iterator[None]:
  """2 refused before training, 3 stopped while training (checkpoint kept), 130 or 143 on a signal; 1 where the reader
  of a list goes away first, as in `fedkd reproduce --list | head`."""
  try:
    yield
    sys.stdout.flush()
  except BrokenPipeError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would report it once more at its end
    sys.exit(1)
  except errors.ConfigError as error:
    refuse(error)
  except (errors.DivergedError, errors.HostError, errors.StoreError) as error:
    refuse(error, 3)
  except errors.StoppedError as error:
    refuse(error, 128 + error.signum)
  except KeyboardInterrupt:
    refuse('interrupted', 130)
  except OSError as error:
    if error.errno != errno.ENAMETOOLONG:
      raise
    refuse(f'{error.filename} cannot be the name of a file (it is too long); shorten it')


def check_once(words: Sequence[str]) -> None:
  """Checks that no flag is given twice, nor both `--flag` and `--noflag`: the last would count, without a word.

  Raises:
    ConfigError: with both.
  """
  given = {}
  for word in words:
    if flag := re.match(r'--?(?:no)?([a-z][^=]*)', word, re.DOTALL):
      if flag[1] in given:
        raise errors.ConfigError(f'{given[flag[1]]} and {word} are one flag; give it once')
      given[flag[1]] = word


def parse(argv: Sequence[str]) -> list:
  """Parses absl's flags and returns the other arguments. An unknown flag, an invalid value or a flag given twice ends
  the program."""
  from absl import flags

  try:
    check_once(argv[1:])
    return flags.FLAGS(argv)
  except (flags.Error, errors.ConfigError) as error:
    return refuse(' '.join(str(error).split()))


def parsed(words: Sequence[str] | None, values: Any) -> list:
  """Parses the words of a command line (None: this program's) into absl flags of a command's own, and returns the other
  arguments.

  Raises:
    ConfigError: for an unknown flag or an invalid value.
  """
  from absl import flags

  try:
    return values(['fedkd', *(sys.argv[1:] if words is None else words)])[1:]
  except flags.Error as error:
    raise errors.ConfigError(' '.join(str(error).split())) from error
