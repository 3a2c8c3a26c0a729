"""How far runs are, read from their own files, which may be written meanwhile."""

import functools
import os
import pathlib
import time
from typing import NamedTuple

import numpy as np

from fedkd import files
from fedkd.errors import ConfigError, reason_of
from fedkd.experiment.storage import lock

FOREVER = 1e9  # seconds: no time that is left
RUNNING, STOPPED, FINISHED, FAILED = 'running', 'stopped', 'finished', 'failed'


class State(NamedTuple):
  """How far a run is."""

  run: str
  state: str  # one of the four
  round: int = 0  # since its start, over all phases, at the last evaluation
  rounds: int = 0
  accuracy: float | None = None  # of the last evaluation, mean over clients and seeds
  left: float | None = None  # seconds of training, while it is running
  why: str = ''  # it failed or was stopped; of a run on another path, who runs it


class Reached(NamedTuple):
  """What `metrics.jsonl` says."""

  phase: int = 0
  round: int = 0
  accuracy: float | None = None
  seconds: float = 0.0  # of training
  damage: str = ''


def below(folder: pathlib.Path) -> list[State]:
  """Of every run at or below a folder."""
  return [of_run(path, str(path.relative_to(folder))) for path in files.runs_below(folder)]


def of_run(path: pathlib.Path, name: str) -> State:
  """Of one run, whatever is missing or cut off."""
  try:
    holder, config = lock.look(path), files.read_sealed(path / 'config.json')
    reached = _reached(path / 'metrics.jsonl')
    before = [phase.get('rounds', 1) for phase in config.get('before', [])]
    rounds, done = sum(before) + config['rounds'], sum(before[: reached.phase]) + reached.round
    state, why = _state(path, config, holder, reached)
    left = _left(path, reached, done, rounds) if state == RUNNING else None
  except ConfigError as error:
    return State(name, FAILED, why=str(error))
  except (KeyError, TypeError, AttributeError, ValueError, OverflowError, OSError) as error:  # other JSON than a run's
    return State(name, FAILED, why=f'damaged ({type(error).__name__}: {reason_of(error)})')
  return State(name, state, done, rounds, reached.accuracy, left, why)


def _state(path, config, holder, reached) -> tuple[str, str]:
  """(state, why)."""
  if holder.is_held:
    return RUNNING, ''
  if reached.damage:
    return FAILED, f'metrics.jsonl is damaged ({reached.damage})'
  summary = files.read_sealed(path / 'summary.json') if (path / 'summary.json').exists() else {}
  if changed := files.changed(path, summary.get('digests', {}), _checksum):
    return FAILED, f'{changed} is damaged or has changed since the run was finished'
  if summary and summary['rounds'] == config['rounds']:
    return FINISHED, ''
  kind, _, why = holder.ending.partition(': ')
  if kind == FAILED:
    return FAILED, why
  begun = holder.text or (path / 'metrics.jsonl').exists()
  return STOPPED, why or ('ended without a word, as by a kill' if begun else 'has not begun')


def _checksum(path) -> str:
  return _checksum_of(path, *_version(path))


@functools.lru_cache(maxsize=4096)
def _checksum_of(path, *version) -> str:
  del version
  return files.checksum(path)


def _version(path) -> tuple:
  """By which a file that has changed is told, so that others are not read again; () without a file."""
  try:
    found = os.stat(path)
  except OSError:
    return ()
  return found.st_mtime_ns, found.st_size


def _reached(path) -> Reached:
  """Of the last evaluation."""
  version = _version(path)
  return _read(path, *version) if version else Reached()


@functools.lru_cache(maxsize=4096)
def _read(path, *version) -> Reached:
  del version
  found = files.evaluations(path)
  if not found.rows:
    return Reached(damage=found.damage)
  last = found.rows[-1]
  accuracy = [value for value in last.get('accuracy', []) if value is not None]
  mean = float(np.mean(accuracy)) if accuracy else None
  return Reached(last['phase'], last['round'], mean, last.get('seconds', 0.0), found.damage)


def _left(path, reached, done, rounds) -> float | None:
  """Seconds of training that are left at the pace so far, without those since the last evaluation."""
  if not done or not reached.seconds:
    return None
  since = time.time() - (path / 'metrics.jsonl').stat().st_mtime
  left = max(0.0, reached.seconds / done * (rounds - done) - since)
  return left if left < FOREVER else None
