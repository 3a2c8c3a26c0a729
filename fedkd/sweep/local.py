"""Runs on this machine: in a process for each core, each one run after the other, or in this one."""

import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from fedkd.sweep import worker as workers
from fedkd.sweep.runs import Run


class Local:
  """Processes that last as long as the sweep: importing JAX and a data set is paid once for each of them."""

  def __init__(self, jobs: int = 0):
    self.jobs = jobs
    self.free: list[subprocess.Popen] = []

  def __enter__(self):
    return self

  def __exit__(self, *error):
    for worker in self.free:
      _end(worker)

  def check(self, workdir: pathlib.Path) -> str:
    """Why a run cannot be built, '' if it can. The first answer tells how many processes are of use: one on an
    accelerator, whose memory the first takes."""
    worker = self.free.pop() if self.free else _start(self._threads())
    said = _ask(worker, {'check': str(workdir)})
    if not said.get('gone'):
      self.free.append(worker)
    self.jobs = self.jobs or (cores() if said.get('backend') == 'cpu' else 1)
    return said.get('reason', '')

  def run(self, runs: Sequence[Run], code: str, done: Callable[[Run, dict], None]) -> None:
    """All runs; `done` is told of each with {'reason'}, {'warning'} or {}, one at a time."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for run in runs:
      waiting.put(run)
    one_at_a_time = threading.Lock()

    def work():
      worker = None
      while True:
        try:
          run = waiting.get_nowait()
        except queue.Empty:
          break
        worker = worker or (self.free.pop() if self.free else _start(self._threads()))
        said = _ask(worker, run.order(code))
        if worker.poll() is not None or said.get('gone'):
          worker = None
        with one_at_a_time:
          done(run, said)
      if worker:
        self.free.append(worker)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.jobs or cores(), len(runs)))]
    for thread in threads:
      thread.start()
    for thread in threads:
      while thread.is_alive():
        thread.join(0.2)  # signals are heard in between

  def _threads(self) -> int:
    return max(1, cores() // (self.jobs or cores()))


class Here:
  """One run after the other in this process, for functions that it alone can import."""

  def __enter__(self):
    return self

  def __exit__(self, *error):
    pass

  def check(self, workdir: pathlib.Path) -> str:
    """Why a run cannot be built, '' if it can."""
    return workers.answer({'check': str(workdir)}).get('reason', '')

  def run(self, runs: Sequence[Run], code: str, done: Callable[[Run, dict], None]) -> None:
    """As `Local.run`.

    Raises:
      StoppedError: on a signal.
    """
    for run in runs:
      done(run, workers.answer(run.order(code), here=True))


def cores() -> int:
  """Cores that this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def _start(threads) -> subprocess.Popen:
  """A worker whose matrix products use so many threads; Python's path is ours, for methods and configs of one's own."""
  path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
  environment = {**os.environ, 'PYTHONPATH': path, 'OMP_NUM_THREADS': str(threads)}
  words = [sys.executable, '-m', 'fedkd.sweep.worker']
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
  return subprocess.Popen(words, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload]


def _ask(worker, order) -> dict:
  try:
    worker.stdin.write(json.dumps(order) + '\n')
    worker.stdin.flush()
    if answer := worker.stdout.readline():
      return json.loads(answer)
  except OSError:
    pass
  return {'gone': True, 'reason': f'its process ended with exit code {worker.wait()}, perhaps for want of memory'}


def _end(worker):
  worker.stdin.close()
  worker.wait()
  worker.stdout.close()
