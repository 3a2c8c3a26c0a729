"""One process works on a run directory at a time."""

import contextlib
import datetime
import errno
import fcntl
import os
import platform

from fedkd import files
from fedkd.errors import ConfigError


@contextlib.contextmanager
def held(workdir):
  """Holds `workdir/lock`, which the kernel releases however the process ends; only who trains needs it.

  Raises:
    ConfigError: if another process holds it, with what that has written there; or if it cannot be made.
  """
  with contextlib.ExitStack() as opened:
    try:
      file = opened.enter_context(open(workdir / 'lock', 'ab+', buffering=0, opener=files.opener))
      _take(file, workdir)
      file.truncate(0)
      since = datetime.datetime.now().astimezone().isoformat(' ', 'seconds')
      file.write(f'process {os.getpid()} on {platform.node()} since {since}\n'.encode())
    except OSError as error:
      raise ConfigError(f'workdir={workdir} cannot be written ({error.strerror}); choose another') from error
    yield


def _take(file, workdir):
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    file.seek(0)
    holder = ' '.join(file.read(200).decode(errors='replace').split()) or 'another process'
    raise ConfigError(
      f'workdir={workdir} is in use by {holder}; wait for that run to end, stop it, or choose another workdir'
    ) from error
  except OSError as error:
    if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
      raise
    files.warn(f'workdir={workdir} is on a file system without locks; start one process on it at a time')
