"""Kinds of faults: each yields (what was done, verdict, seconds of the start after it)."""

import errno
import os
import random
import resource
import shutil
import signal
import time

import numpy as np

from fedkd import analysis, experiment
from fedkd.analysis import results
from fedkd.errors import ConfigError
from launch.crash import trial

ERRORS = {'full': errno.ENOSPC, 'read-only': errno.EROFS, 'broken': errno.EIO}
DAMAGES = ('flip', 'cut', 'empty', 'swap', 'delete')
FIRST = ('config.json', 'metrics.jsonl', 'summary.json', 'split.npz')


def whole(case) -> tuple:
  """(contents, operations) of an unbroken run; leaves copies of its directory before each of its operations in
  `case.folder`/copies, the last being what it ends with."""
  trial.restore(case)
  trial.attempt(case, case.run)  # compiles
  trial.restore(case)
  copies = case.folder / 'copies'
  shutil.rmtree(copies, ignore_errors=True)
  copies.mkdir()
  trial.arm(case)
  trial.shim().shim_copy(str(copies).encode())
  ended = trial.attempt(case, case.run)
  operations = trial.disarm()
  if ended.code:
    raise RuntimeError(ended.said)
  shutil.copytree(case.work, copies / 'end')
  return trial.contents(case), operations


def killed(case, expected, operations, every):
  """The directory as a process leaves it that is killed at an operation, and the run started again on it."""
  for at in range(1, operations + 1, every):
    trial.restore(case, case.folder / 'copies' / str(at))
    ended = trial.attempt(case, case.run)
    yield at, trial.verdict(case, expected, ended), ended.seconds


def failing(case, expected, operations, every, kind):
  """From an operation on all fail: one sentence. Then there is room again: the run ends as if nothing had happened."""
  for at in range(1, operations + 1, every):
    trial.restore(case)
    trial.arm(case, at, ERRORS[kind])
    ended = trial.attempt(case, case.run)
    trial.disarm()
    if ended.code and not trial.one_sentence(ended):
      yield at, f'exit {ended.code}: {ended.said[-3000:]}', ended.seconds
      continue
    ended = trial.attempt(case, case.run)
    yield at, trial.verdict(case, expected, ended), ended.seconds


def damaged(case, expected, operations, count, seed=0):
  """Files of the finished and of an interrupted directory, damaged in every way; readers first, then a start.

  Args:
    count: files damaged in each of the two; at least the small ones in every way.
  """
  other = _another(case)
  for state, kept in (('finished', 'end'), ('interrupted', str(operations * 3 // 4))):
    kept = case.folder / 'copies' / kept
    trial.restore(case, kept)
    intact = _looks(case) if state == 'finished' else None
    here = [path.relative_to(case.work) for path in sorted(case.work.rglob('*')) if path.is_file()]
    every = [(path, how) for path in here for how in DAMAGES]
    small = [one for one in every if one[0].name in FIRST]
    rest = [one for one in every if one not in small]
    rest = random.Random(seed).sample(rest, min(len(rest), max(0, count - len(small))))
    for path, how in small + rest:
      trial.restore(case, kept)
      if not _damage(case.work / path, how, other / path, random.Random(f'{seed}{path}{how}')):
        continue
      looked = [] if intact is None else _compare(case, intact)
      ended = trial.attempt(case, case.run)
      wrong = [said for said in (*looked, trial.verdict(case, expected, ended)) if said not in ('equal', 'refused')]
      verdict = wrong[0] if wrong else 'equal' if ended.code == 0 and 'refused' not in looked else 'refused'
      yield f'{state} {path} {how}', verdict, ended.seconds


def _another(case):
  """The directory of a run with another seed."""
  folder = case.folder / 'other'
  if not folder.exists():
    trial.restore(case)
    ended = trial.attempt(case, lambda: case.run(seeds=(1,)))
    if ended.code:
      raise RuntimeError(ended.said)
    shutil.copytree(case.work, folder)
  return folder


def _damage(path, how, other, chance) -> bool:
  """Whether the file is another one now."""
  content = path.read_bytes()
  if how == 'delete':
    path.unlink()
    return True
  if how == 'swap':
    if not other.exists():  # Orbax names its data at random: the file of the same place
      there = sorted(p for p in other.parent.glob('*') if p.is_file()) if other.parent.exists() else []
      if not there:
        return False
      other = there[0]
    changed = other.read_bytes()
  elif how == 'flip' and content:
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
  else:
    changed = content[: len(content) // 2] if how == 'cut' else b''
  path.write_bytes(changed)
  return bytes(changed) != content


def _looks(case) -> list:
  """What those say that only read a run: a comparison, a frame, a model; ConfigErrors as None."""
  return [_look(function, case.directory) for function in (_summary, _frame, _model)]


def _look(function, directory):
  try:
    return function(directory)
  except ConfigError:
    return None


def _summary(directory):
  return repr(results.of_run(directory, 'id', 'small'))


def _frame(directory):
  return analysis.read(directory).to_json()


def _model(directory):
  leaves = np.concatenate([np.ravel(leaf) for leaf in _leaves(experiment.load(directory, 1)[1])])
  return leaves.tobytes()


def _leaves(variables):
  import jax

  return [np.asarray(leaf) for leaf in jax.tree.leaves(variables)]


def _compare(case, intact) -> list:
  found = []
  ended = trial.attempt(case, lambda: found.extend(_looks(case)))
  if ended.code or 'Traceback' in ended.said:
    return [f'a reader: {ended.said[-3000:]}']
  said = ['refused' if now is None else 'equal' if now == before else 'a reader has another result'
          for now, before in zip(found, intact, strict=True)]  # fmt: skip
  return said


def kills(case, expected, operations, count, seed=0):
  """Real processes, killed at up to three operations in a row, then started once more."""
  chance = random.Random(seed)
  for _ in range(count):
    trial.restore(case)
    points = sorted(chance.sample(range(1, operations), chance.randint(1, 3)), reverse=True)
    for at in points:
      trial.fork(case, lambda at=at: trial.arm(case, at))()
    ended = trial.fork(case)()
    yield f'killed at {points}', trial.verdict(case, expected, ended), ended.seconds


def timed(case, expected, operations, count, seed=0):
  """Real processes, killed after a while, also while they compile."""
  chance = random.Random(seed)
  trial.restore(case)
  typical = trial.fork(case)().seconds
  for _ in range(count):
    trial.restore(case)
    after = chance.uniform(0.05, typical)
    process = trial.fork(case)
    time.sleep(after)
    os.kill(process.process, signal.SIGKILL)
    process()
    ended = trial.fork(case)()
    yield f'killed after {after:.2f} s', trial.verdict(case, expected, ended), ended.seconds


def paused(case, expected, operations, count, seed=0):
  """Stopped for three seconds."""
  chance = random.Random(seed)
  for _ in range(count):
    trial.restore(case)
    process = trial.fork(case)
    time.sleep(chance.uniform(0.5, 4))
    os.kill(process.process, signal.SIGSTOP)
    time.sleep(3)
    os.kill(process.process, signal.SIGCONT)
    ended = process()
    yield 'paused', trial.verdict(case, expected, ended), ended.seconds


def clock(case, expected, operations, count, seed=0):
  """The wall clock a day ahead, then a day behind, and times of files from 1970 and 2100, between two starts."""
  for day, moment in ((86400, 0), (-86400, 4102444800))[:count]:
    trial.restore(case)
    trial.fork(case, lambda day=day: (trial.shim().shim_shift(day), trial.arm(case, operations * 2 // 3)))()
    for path in case.work.rglob('*'):
      os.utime(path, (moment, moment))
    ended = trial.fork(case, lambda day=day: trial.shim().shim_shift(-day))()
    yield f'{day} s', trial.verdict(case, expected, ended), ended.seconds


def starts(case, expected, operations, count, seed=0):
  """`count` starts at once on one directory: one runs, the others are refused; a killed holder blocks nobody."""
  trial.restore(case)
  begun = [trial.fork(case) for _ in range(count)]
  ended = [wait() for wait in begun]
  ran = [one for one in ended if one.code == 0]
  held = [one for one in ended if trial.one_sentence(one) and 'is in use by process' in one.said]
  right = ran and len(ran) + len(held) == count and trial.contents(case) == expected
  wrong = [one for one in ended if one not in ran and one not in held]
  yield f'{count} starts', 'equal' if right else f'{len(ran)} ran; {wrong[:1]}', max(one.seconds for one in ended)


def limits(case, expected, operations, count, seed=0):
  """Few descriptors, and small files: one sentence, or nothing; then without the limit."""
  rooms = [(resource.RLIMIT_NOFILE, n) for n in (12, 20, 30, 40, 64)] + [
    (resource.RLIMIT_FSIZE, n) for n in (900, 4000)
  ]
  for which, most in rooms[:count]:
    trial.restore(case)
    first = trial.fork(case, lambda which=which, most=most: resource.setrlimit(which, (most, most)))()
    ended = trial.fork(case)()
    right = first.code == 0 or trial.one_sentence(first)
    said = trial.verdict(case, expected, ended) if right else f'exit {first.code}: {first.said[-3000:]}'
    yield f'limit {which} {most}', said, ended.seconds
