"""Exit codes: an error of fedkd ends a program with one sentence and a code."""

import contextlib
import os
import sys

from fedkd import errors


def refuse(error, code=2):
  """Ends the program with one sentence."""
  print(f'fedkd: {error}', file=sys.stderr, flush=True)
  if 'jax' in sys.modules and sys.modules['jax'].distributed.is_initialized():
    os._exit(code)  # JAX would wait for the other hosts to shut down
  sys.exit(code)


@contextlib.contextmanager
def codes():
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


def parse(argv) -> list:
  """Parses absl's flags and returns the other arguments. An unknown flag or an invalid value ends the program."""
  from absl import flags

  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    return refuse(' '.join(str(error).split()))
