"""Those that only read a run directory, perhaps while it is written: what they find is right, or refused."""

import argparse
import json
import random
import shutil
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from fedkd import analysis, experiment, files
from fedkd.analysis import results
from fedkd.errors import ConfigError
from launch.tools.crash import trial

HERTZ = 20
DELAY = 20_000  # microseconds before every operation of a run that is looked at, or it would be over in a second
NOT_COMPARED = ('seconds', 'digests', 'commit', 'commits', 'dirty')


class Intact(NamedTuple):
  """What there is to find in the directory of a case."""

  result: dict
  rows: list  # of every evaluation
  models: list  # bytes of a client's variables in every checkpoint, newest first


def intact(case: trial.Case) -> Intact:
  """Of the unbroken run, whose copy is put into its place."""
  trial.restore(case, case.folder / 'copies' / 'end')
  directory = case.directory
  return Intact(_result(directory), _rows(directory), _models(case, directory))


def look(directory, intact, whole=False) -> list:
  """'equal', 'refused' or what is wrong, of those that read a result, a frame and a model.

  Args:
    directory: of a run that may not be finished.
    intact: what there is to find.
    whole: whether the run is finished, so that the first evaluations or an older model are not enough.
  """
  same = lambda found, wanted: found == wanted if whole else found == wanted[: len(found)]
  return [
    _judged(lambda: _result(directory) == intact.result, 'result'),
    _judged(lambda: same(_rows(directory), intact.rows), 'frame'),
    _judged(lambda: _model(directory) in (intact.models[:1] if whole else intact.models), 'model'),
  ]


def _judged(right, what) -> str:
  try:
    return 'equal' if right() else f'a reader has another {what}'
  except ConfigError as error:
    return 'refused' if '\n' not in str(error) else f'no sentence: {error}'


def _result(directory) -> dict:
  result = results.of_run(directory, 'id', 'small')
  return json.loads(json.dumps({k: v for k, v in result.items() if k not in NOT_COMPARED}))


def _rows(directory) -> list:
  """The rows of the frame as text; a number that a phase does not have is NaN there, as soon as another has it."""
  frame = analysis.read(directory, every_phase=True).drop(columns=list(NOT_COMPARED), errors='ignore')
  plain = lambda v: v if isinstance(v, (str, list)) else float(v)  # a column with gaps has no integers
  return [repr(sorted((k, plain(v)) for k, v in row.items() if v == v)) for row in frame.to_dict('records')]


def _model(directory) -> bytes:
  leaves = jax.tree.leaves(experiment.load(directory, 1)[1])
  return np.concatenate([np.ravel(leaf) for leaf in leaves]).tobytes()


def _models(case, directory) -> list:
  """Of every checkpoint, by deleting one after the other in a copy of the directory."""
  copy, found = case.folder / 'older', []
  shutil.rmtree(copy, ignore_errors=True)
  shutil.copytree(directory, copy)
  (copy / 'summary.json').unlink()
  steps = sorted((copy / 'checkpoints').glob('[0-9]*'), key=lambda path: -int(path.name))
  for path in steps:
    found.append(_model(copy))
    shutil.rmtree(path)
  return found


def watched(case: trial.Case, made: trial.Made, asked: argparse.Namespace) -> Iterator:
  """A reader at 20 Hz alongside a run that is slow, killed once or twice and started again."""
  chance = random.Random(asked.seed)
  for number in range(asked.count):
    points = sorted(chance.sample(range(1, made.operations), chance.randint(1, 2)), reverse=True)
    yield trial.Trial(f'{number}: killed at {points}', lambda points=points: _watch(case, made, points))


def _watch(case, made, points) -> tuple:
  said = case.folder / 'looks.json'
  for name in ('looks.json', 'ready', 'enough'):
    (case.folder / name).unlink(missing_ok=True)
  reader = trial.fork(case, function=lambda: _read_on(case, said))
  trial.wait_for(case.folder / 'ready')
  for at in points:
    trial.fork(case, lambda at=at: (trial.shim().shim_delay(DELAY), trial.arm(case, at)))()
  ended = trial.fork(case, lambda: (trial.shim().shim_delay(DELAY), trial.arm(case)))()
  (case.folder / 'enough').touch()
  read = reader()
  looks = json.loads(said.read_text()) if read.code == 0 and 'Traceback' not in read.said else [trial.told(read)]
  return [*looks, trial.verdict(case, made, ended)], ended.seconds


def _read_on(case, path):
  """Looks until it is told that it is enough, and writes what it saw."""
  trial.build_once()
  there, looks = intact(case), []
  trial.restore(case)
  (case.folder / 'ready').touch()
  while not (case.folder / 'enough').exists():
    begun = time.monotonic()
    looks += look(case.directory, there)
    time.sleep(max(0.0, 1 / HERTZ - (time.monotonic() - begun)))
  looks += look(case.directory, there, whole=True)
  files.write(path, json.dumps(looks).encode())
