"""Faults inside one process, where the run is traced and compiled once: each yields `Trial`s."""

import ctypes
import errno
import random
import shutil

from launch.tools.crash import readers, trial
from launch.tools.crash.trial import Trial

ERRORS = {'full': errno.ENOSPC, 'read-only': errno.EROFS, 'broken': errno.EIO}
DAMAGES = ('flip', 'cut', 'empty', 'swap', 'delete')
FIRST = ('config.json', 'metrics.jsonl', 'summary.json', 'split.npz')


def whole(case, every) -> trial.Made:
  """An unbroken run; leaves copies of its directory before one of `every` operations in `case.folder`/copies, and of
  what it ends with."""
  trial.restore(case)
  trial.attempt(case, case.run)  # compiles
  trial.restore(case)
  copies = case.folder / 'copies'
  shutil.rmtree(copies, ignore_errors=True)
  copies.mkdir()
  trial.arm(case)
  trial.shim().shim_copy(str(copies).encode(), ctypes.c_long(every))
  ended = trial.attempt(case, case.run)
  operations = trial.disarm()
  if ended.code:
    raise RuntimeError(ended.said)
  shutil.copytree(case.work, copies / 'end')
  return trial.Made(trial.contents(case), operations)


def killed(case, made, asked):
  """The directory as a process leaves it that is killed at an operation, and the run started again on it."""

  def run(at):
    trial.restore(case, case.folder / 'copies' / str(at))
    return trial.judged(case, made, trial.attempt(case, case.run))

  for at in range(1, made.operations + 1, asked.every):
    yield Trial(str(at), lambda at=at: run(at))


def seen(case, made, asked):
  """The directory as somebody finds it before an operation who only reads."""
  intact = readers.intact(case)

  def run(at):
    trial.restore(case, case.folder / 'copies' / str(at))
    said = []
    ended = trial.attempt(case, lambda: said.extend(readers.look(case.directory, intact)))
    return said if ended.code == 0 and 'Traceback' not in ended.said else [trial.told(ended)], ended.seconds

  for at in range(1, made.operations + 1, asked.every):
    yield Trial(str(at), lambda at=at: run(at))


def failing(case, made, asked, kind):
  """From an operation on all fail: one sentence. Then there is room again: the run ends as if nothing had happened."""

  def run(at):
    trial.restore(case)
    trial.arm(case, at, ERRORS[kind])
    ended = trial.attempt(case, case.run)
    trial.disarm()
    if ended.code and not trial.one_sentence(ended):
      return [trial.told(ended)], ended.seconds
    return trial.judged(case, made, trial.attempt(case, case.run))

  for at in range(1, made.operations + 1, asked.every):
    yield Trial(str(at), lambda at=at: run(at))


def damaged(case, made, asked):
  """Files of the finished and of an interrupted directory, damaged in every way; readers first, then a start.

  `asked.count`: files damaged in each of the two; at least the small ones in every way.
  """
  other, intact, late = _another(case), readers.intact(case), made.operations * 3 // 4

  def run(kept, path, how, looks):
    trial.restore(case, kept)
    if not _damage(case.work / path, how, other / path, random.Random(f'{asked.seed}{path}{how}')):
      return None
    looked = []
    if looks:
      read = trial.attempt(case, lambda: looked.extend(readers.look(case.directory, intact, whole=True)))
      looked = looked if read.code == 0 and 'Traceback' not in read.said else [f'a reader: {trial.told(read)}']
    (verdict,), seconds = trial.judged(case, made, trial.attempt(case, case.run))
    worst = [said for said in (*looked, verdict) if said not in ('equal', 'refused')]
    return worst[:1] or ['refused' if 'refused' in (*looked, verdict) else 'equal'], seconds

  for state, kept in (('finished', 'end'), ('interrupted', str(late - (late - 1) % asked.every))):
    kept = case.folder / 'copies' / kept
    here = [path.relative_to(kept) for path in sorted(kept.rglob('*')) if path.is_file()]
    every = [(path, how) for path in here for how in DAMAGES]
    small = [one for one in every if one[0].name in FIRST]
    rest = [one for one in every if one not in small]
    rest = random.Random(asked.seed).sample(rest, min(len(rest), max(0, asked.count - len(small))))
    for path, how in small + rest:
      args = kept, path, how, state == 'finished'
      yield Trial(f'{state} {path} {how}', lambda args=args: run(*args))


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
