"""The errors that end a run in one sentence."""


class ConfigError(ValueError):
  """Bad input; the message names the field, the value and the remedy."""


class DivergedError(RuntimeError):
  """A loss became NaN or infinite while training; the last good checkpoint is kept."""


class StoreError(RuntimeError):
  """Clients' states on disk cannot be read or written; the last good checkpoint is kept."""


class HostError(RuntimeError):
  """Another host of the run has ended; the last good checkpoint is kept."""


class StoppedError(RuntimeError):
  """A signal ended the run after its chunk; `signum` says which one."""

  def __init__(self, signum, message):
    super().__init__(message)
    self.signum = signum


def check_choice(field, value, choices):
  """Refuses a value that is none of `choices`.

  Raises:
    ValueError: with the field, the value and the choices.
  """
  if value not in choices:
    raise ValueError(f'{field}={value!r} is unknown; choose one of {", ".join(choices)}')
