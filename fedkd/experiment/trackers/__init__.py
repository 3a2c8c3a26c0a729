"""Trackers: who is told of a run while it trains. One file per tracker, each `check()` and `start(run) -> Tracker`.

`metrics.jsonl` is the truth, and a tracker a copy of it: of what a killed process did not get to it, it is told again,
and of no step twice.
"""

import contextlib
import importlib
import pathlib
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from fedkd import config as configs
from fedkd import files
from fedkd.config.lookup import check_call, resolve
from fedkd.errors import ConfigError, in_a_sentence, reason_of
from fedkd.experiment.trackers.protocol import Run, Start, Tracker

SILENT = Tracker(lambda row, step: None, lambda summary, figures: None)
__all__ = ['SILENT', 'Run', 'Start', 'Tracker', 'check', 'name_of', 'run_id', 'tracking']


def check(tracker: Any) -> None:
  """Checks that a tracker, by name, path or value, can be started, before anything is.

  Raises:
    ConfigError: if it is unknown, not installed or not logged in.
  """
  if tracker in configs.TRACKERS:
    _module(tracker).check()
  else:
    configs.check_tracker(tracker)
    _start(tracker)


def _module(name) -> Any:
  return importlib.import_module(f'{__name__}.{name}')


def _start(tracker) -> Start:
  if tracker in configs.TRACKERS:
    return _module(tracker).start
  start = resolve(tracker, {}, 'tracker')
  check_call(f'tracker={configs.to_json(tracker)!r}', start, ('run',))
  return start


@contextlib.contextmanager
def tracking(tracker: Any, run: Run, kept: Iterable[tuple[dict, int]] = ()) -> Iterator[Tracker]:
  """The tracker of a run, which is told if the run is stopped.

  Args:
    tracker: name, path or function of a run.
    kept: (row, step) of the evaluations before `run.step`, of which it is told those that it does not have.
  """
  name = configs.to_json(tracker)
  with in_a_sentence(lambda error: f'tracker={name!r} cannot start ({reason_of(error)})', through=(ConfigError,)):
    made = _start(tracker)(run)
  told = made if made.last is None else _once(made, name)
  for row, step in () if made.last is None else kept:
    told.log(row, step)
  try:
    yield told
  except BaseException:
    told.finish(None, ())
    raise


def _once(tracker, name) -> Tracker:
  """A tracker that is told of no step twice, and whose errors, such as a network that is gone, do not end the run."""
  last = [tracker.last]

  def log(row, step):
    if step > last[0]:
      with _warned(name):
        tracker.log(row, step)
        last[0] = step

  def finish(summary, figures):
    with _warned(name):
      tracker.finish(summary, figures)

  return Tracker(log, finish, tracker.last)


@contextlib.contextmanager
def _warned(name):
  try:
    yield
  except Exception as error:
    files.warn(f'tracker={name!r}: {type(error).__name__}: {error}; training goes on, and keeps its numbers itself')


def name_of(workdir: pathlib.Path) -> str:
  """How trackers call a run: by its directory, and by the one around it where that says the seed alone, as in a sweep:
  'alpha=0.1,learning_rate=0.001 seed0'."""
  name = workdir.absolute().name
  return f'{workdir.absolute().parent.name} {name}' if re.fullmatch(r'seed\d+', name) else name


def run_id(workdir: pathlib.Path) -> str:
  """The id of a run, drawn when it is first asked for and kept in its directory."""
  path = workdir / 'tracker.json'
  if not path.exists():
    files.write_sealed(path, {'id': secrets.token_hex(8)})
  return files.read_sealed(path)['id']
