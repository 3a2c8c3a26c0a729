"""Two processes on one run, of which one is killed; then both are started again. Each yields `Trial`s."""

import os
import random
import signal
import socket
import time

from fedkd.experiment.hosts import hosts
from launch.tools.crash import trial


def pair(case, made, asked):
  """One of two hosts killed: the first at an operation on files, the second while the first is at one."""
  whole = []  # the two round otherwise than one process

  def run(who, share):
    if not whole:
      whole.append(_unbroken(case))
    trial.restore(case)
    left = _killed(case, who, max(1, round(share * whole[0].operations)))
    if left:
      return [left], 0.0
    ended = [wait() for wait in _both(case)]
    verdicts = {trial.verdict(case, whole[0], one) for one in ended}
    return [verdicts.pop() if len(verdicts) == 1 else ', '.join(verdicts)], max(one.seconds for one in ended)

  chance = random.Random(asked.seed)
  for number in range(asked.count):
    share = chance.random()
    what = f'{number}: host {number % 2} killed after {100 * share:.0f} % of the operations'
    yield trial.Trial(what, lambda who=number % 2, share=share: run(who, share))


def _unbroken(case) -> trial.Made:
  trial.restore(case)
  ended = [wait() for wait in _both(case)]
  if wrong := [one for one in ended if one.code]:
    raise RuntimeError(wrong[0].said)
  return trial.Made(trial.contents(case), int((case.folder / 'operations').read_text()))


def _both(case, prepare=lambda: None) -> list:
  """The two hosts, started; `prepare` is called in the first one."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    where = f'127.0.0.1:{free.getsockname()[1]}'

  def function(host):
    hosts.join(f'{where},2,{host}')
    (case.folder / f'joined{host}').touch()
    if host == 0:
      trial.arm(case)
      prepare()
    case.run()
    if host == 0:
      (case.folder / 'operations').write_text(str(trial.disarm()))

  for host in (0, 1):
    (case.folder / f'joined{host}').unlink(missing_ok=True)
  return [trial.fork(case, function=lambda host=host: function(host)) for host in (0, 1)]


def _killed(case, who, at) -> str:
  """Kills a host, waits for the other; returns what is wrong with how that ended."""
  if who == 0:
    first, second = _both(case, lambda: trial.arm(case, at))
    first()
    other = second()
    # JAX ends a process whose first host is gone by itself, with a message of its own.
    return '' if other.code == -signal.SIGABRT or _right(other) else trial.told(other)
  reached = case.folder / 'reached'
  reached.unlink(missing_ok=True)
  first, second = _both(case, lambda: _tell(at, reached))
  trial.wait_for(reached)
  os.kill(second.process, signal.SIGKILL)
  second()
  other = first()
  return '' if _right(other) else trial.told(other)


def _right(ended) -> bool:
  """Whether a host whose other is gone ended with a sentence, apart from what JAX logs, or had done everything."""
  ours = [line for line in ended.said.splitlines() if line.startswith('fedkd: ') and 'warning' not in line]
  return ended.code == 0 or (ended.code == 3 and len(ours) == 1 and 'Traceback' not in ended.said)


def _tell(at, path):
  """Makes a file after `at` operations."""
  import threading

  def wait():
    while trial.shim().shim_count(-1) < at:
      time.sleep(0.002)
    path.touch()

  threading.Thread(target=wait, daemon=True).start()
