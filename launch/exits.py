"""How every program here ends: an error of fedkd is one sentence and an exit code."""

import contextlib
import os
import sys

from fedkd import errors


def refuse(error, code=2):
  """Ends the program with one sentence."""
  print(f'fedkd: {error}', file=sys.stderr)
  sys.exit(code)


@contextlib.contextmanager
def codes():
  """2 refused before training, 3 stopped while training (checkpoint kept), 130 or 143 on a signal."""
  try:
    yield
  except errors.ConfigError as error:
    refuse(error)
  except (errors.DivergedError, errors.StoreError) as error:
    refuse(error, 3)
  except errors.HostError as error:
    print(f'fedkd: {error}', file=sys.stderr, flush=True)
    os._exit(3)  # JAX would wait for the other host to say goodbye
  except errors.StoppedError as error:
    refuse(error, 128 + error.signum)
