"""Faults of real processes, each a fork of one that has imported everything: each yields `Trial`s."""

import functools
import os
import random
import resource
import signal
import time

from fedkd.experiment import runner
from launch.tools.crash import trial
from launch.tools.crash.trial import Trial

LIMITS = [(resource.RLIMIT_NOFILE, n) for n in (12, 20, 30, 40, 64)]
LIMITS += [(resource.RLIMIT_FSIZE, n) for n in (900, 4000)]
DAYS = ((86400, 0), (-86400, 4102444800))  # by which the clock is wrong, and the times of files then


def kills(case, made, asked):
  """Killed at up to three operations in a row, then started once more."""

  def run(points):
    trial.restore(case)
    for at in points:
      trial.fork(case, lambda at=at: trial.arm(case, at))()
    return trial.judged(case, made, trial.fork(case)())

  chance = random.Random(asked.seed)
  for number in range(asked.count):
    points = sorted(chance.sample(range(1, made.operations), chance.randint(1, 3)), reverse=True)
    yield Trial(f'{number}: killed at {points}', lambda points=points: run(points))


@functools.cache
def _typical(case) -> float:
  """Seconds of an unbroken run."""
  trial.restore(case)
  return trial.fork(case)().seconds


def timed(case, made, asked):
  """Killed after a while, also while compiling."""

  def run(share):
    after = share * _typical(case)
    trial.restore(case)
    process = trial.fork(case)
    time.sleep(after)
    os.kill(process.process, signal.SIGKILL)
    process()
    return trial.judged(case, made, trial.fork(case)())

  chance = random.Random(asked.seed)
  for number in range(asked.count):
    share = chance.random()
    yield Trial(f'{number}: killed after {100 * share:.0f} % of the time', lambda share=share: run(share))


def paused(case, made, asked):
  """Stopped for three seconds."""

  def run(share):
    after = share * _typical(case)
    trial.restore(case)
    process = trial.fork(case)
    time.sleep(after)
    os.kill(process.process, signal.SIGSTOP)
    time.sleep(3)
    os.kill(process.process, signal.SIGCONT)
    return trial.judged(case, made, process())

  chance = random.Random(asked.seed)
  for number in range(asked.count):
    share = chance.random()
    yield Trial(f'{number}: stopped after {100 * share:.0f} % of the time', lambda share=share: run(share))


def clock(case, made, asked):
  """The wall clock a day ahead, then a day behind, and times of files from 1970 and 2100, between two starts."""

  def run(day, moment):
    trial.restore(case)
    trial.fork(case, lambda: (trial.shim().shim_shift(day), trial.arm(case, made.operations * 2 // 3)))()
    for path in case.work.rglob('*'):
      os.utime(path, (moment, moment))
    return trial.judged(case, made, trial.fork(case, lambda: trial.shim().shim_shift(-day))())

  for day in DAYS[: asked.count]:
    yield Trial(f'{day[0]} s', lambda day=day: run(*day))


def starts(case, made, asked):
  """`asked.count` starts at once on one directory: one runs, the others are refused and told which; then the same, and
  the one is killed: it blocks nobody."""
  yield Trial(f'{asked.count} starts', lambda: _starts(case, made, asked.count, False))
  yield Trial(f'{asked.count} starts, of which the one is killed', lambda: _starts(case, made, asked.count, True))


def _starts(case, made, count, kill) -> tuple:
  trial.restore(case)
  go = case.folder / 'go'
  go.unlink(missing_ok=True)
  begun = {wait.process: wait for wait in [trial.fork(case, lambda: _pause_before_training(go)) for _ in range(count)]}
  holder = _holder(case)
  ended = [wait() for process, wait in begun.items() if process != holder]  # while the one waits
  if kill:
    os.kill(holder, signal.SIGKILL)
    begun[holder]()
    last = trial.fork(case)()
  else:
    go.touch()
    last = begun[holder]()
  verdicts = [_told_of(holder, one) for one in ended]
  return [*verdicts, trial.verdict(case, made, last)], max(one.seconds for one in (*ended, last))


def _pause_before_training(go):
  train = runner._train_and_finish
  runner._train_and_finish = lambda *args: (trial.wait_for(go, 600), train(*args))[1]


def _holder(case) -> int:
  """The process that the lock names."""
  lock = case.directory / 'lock'
  trial.wait_for(lock)
  while not (words := lock.read_text().split()):
    time.sleep(0.05)
  return int(words[1])


def _told_of(holder, ended) -> str:
  told = ended.code == 2 and trial.one_sentence(ended) and f' is in use by process {holder} on ' in ended.said
  return 'refused' if told else trial.told(ended)


def limits(case, made, asked):
  """Few descriptors, and small files: one sentence, or nothing; then without the limit."""

  def run(which, most):
    trial.restore(case)
    first = trial.fork(case, lambda: resource.setrlimit(which, (most, most)))()
    ended = trial.fork(case)()
    if first.code and not trial.one_sentence(first):
      return [trial.told(first)], ended.seconds
    return trial.judged(case, made, ended)

  for limit in LIMITS[: asked.count]:
    yield Trial(f'limit {limit[0]} {limit[1]}', lambda limit=limit: run(*limit))
