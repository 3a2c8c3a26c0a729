"""One process works on a run directory at a time; who that is or was, and why it ended early."""

import contextlib
import datetime
import errno
import fcntl
import os
import platform
import time
from typing import NamedTuple

from fedkd import files
from fedkd.errors import ConfigError, StoppedError, reason_of

LOOK = 0.05  # seconds, longer than `look` takes


@contextlib.contextmanager
def held(workdir):
  """Holds `workdir/lock`, which the kernel releases however the process ends; only who trains needs it.

  Raises:
    ConfigError: if another process holds it, with what that has written there; or if it cannot be made.
  """
  with contextlib.ExitStack() as opened:
    with files.writing(f'workdir={workdir}'):
      file = opened.enter_context(open(workdir / 'lock', 'ab+', buffering=0, opener=files.opener))
      _take(file, workdir)
      file.truncate(0)
      since = datetime.datetime.now().astimezone().isoformat(' ', 'seconds')
      file.write(f'process {os.getpid()} on {platform.node()} since {since}\n'.encode())
    try:
      yield
    except (Exception, KeyboardInterrupt, SystemExit) as error:
      with contextlib.suppress(OSError):  # such as a full disk, of which the error itself tells
        file.write(_ending(error).encode())
      raise


def _ending(error) -> str:
  """A line on why a process ended early; a kill leaves none."""
  is_stopped = isinstance(error, StoppedError | KeyboardInterrupt | SystemExit)
  return f'{"stopped" if is_stopped else "failed"}: {reason_of(error, 400)}\n'


class Holder(NamedTuple):
  """What a lock says."""

  is_held: bool
  text: str  # of the process that holds it, or held it last: 'process ...'; '' if there was none
  ending: str  # 'stopped: ...' or 'failed: ...'; '' if the process is running, was killed, or came to its end


def look(workdir) -> Holder:
  """Who holds the lock of a directory, or held it last; from another host, too, where the file system tells."""
  try:
    with open(workdir / 'lock', 'rb', buffering=0) as file:
      text, _, ending = file.read(2000).decode(errors='replace').partition('\n')
      return Holder(_is_held(file), text, ending.strip())
  except OSError:
    return Holder(False, '', '')


def _is_held(file) -> bool:
  try:
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except BlockingIOError:
    return True
  return False


def _take(file, workdir):
  try:
    _flock_twice(file)
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


def _flock_twice(file):
  """Once more after a moment: somebody may only be having a `look`."""
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    time.sleep(LOOK)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
