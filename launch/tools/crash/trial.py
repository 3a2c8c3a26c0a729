"""One start of a run, hindered on its way, in this process or in a fork, and the verdict on what it left."""

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import os
import pathlib
import shutil
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from fedkd import config as configs
from fedkd import experiment, files
from fedkd.analysis import figures, frames
from fedkd.experiment import runner
from fedkd.experiment.storage import loading
from launch import exits
from launch.tools.crash import cases


class Case(NamedTuple):
  """Where a case of `cases` runs: in `folder`/work, whose operations on files the library counts."""

  name: str
  folder: pathlib.Path

  @property
  def work(self):
    return self.folder / 'work'

  @property
  def directory(self):
    return self.work / 'run'

  def run(self, seeds=(0,)):
    """Starts the run, or continues it."""
    config = cases.config(self.name, self.folder)
    config.seeds = seeds
    return experiment.run(config, self.directory, show=False)


class Made(NamedTuple):
  """An unbroken run."""

  contents: tuple
  operations: int  # on files


class Trial(NamedTuple):
  """A point of a fault."""

  what: str  # is done; the same whenever the harness is started
  run: Callable  # () -> ([verdict, ...], seconds of the start after it), or None where nothing could be done


class Ended(NamedTuple):
  """How a start ended."""

  code: int  # of exit; negative: the signal
  said: str  # on standard error
  seconds: float


def shim():
  """The preloaded library."""
  return ctypes.CDLL(None)


def arm(case, at=0, error=0):
  """From now on operations on files count; `at` that number something happens, `error` (errno) or the end."""
  shim().shim_arm(str(case.work).encode(), ctypes.c_long(at), error)


def disarm() -> int:
  """Operations do not count any more; returns how many there were."""
  count = shim().shim_count(-1)
  shim().shim_arm(b'', ctypes.c_long(0), 0)
  return count


def restore(case, kept=None):
  """Puts the copy of a working directory into its place, an empty one without a copy."""
  shutil.rmtree(case.work, ignore_errors=True)
  if kept:
    shutil.copytree(kept, case.work, symlinks=True)
  else:
    case.work.mkdir(parents=True)


def attempt(case, function) -> Ended:
  """Calls a function as the command line would, in this process; what it says is caught."""
  said, begun = case.folder / 'said', time.monotonic()
  with contextlib.ExitStack() as stack:
    for stream in (1, 2):
      stack.callback(os.close, kept := os.dup(stream))
      stack.callback(os.dup2, kept, stream)
    _redirect(said)
    code = _exit_code(function)
    gc.collect()  # files that are closed only now may complain
  return Ended(code, said.read_text(errors='replace'), time.monotonic() - begun)


def _redirect(path):
  opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
  for stream in (1, 2):
    os.dup2(opened, stream)
  os.close(opened)


def _exit_code(function) -> int:
  try:
    with exits.codes():
      function()
  except SystemExit as left:
    return left.code or 0
  except BaseException:
    traceback.print_exc()
    return 1
  return 0


def fork(case, prepare=lambda: None, function=None) -> Callable:
  """As `attempt` in a fork, which `prepare` is called in first; returns () -> Ended, which waits, with `process`."""
  said, begun = case.folder / f'said-{time.monotonic_ns()}', time.monotonic()
  process = os.fork()
  if not process:
    code = 1
    try:
      _redirect(said)
      prepare()
      code = _exit_code(function or case.run)
      gc.collect()
      atexit._run_exitfuncs()
    finally:
      os._exit(code)

  def wait() -> Ended:
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    text = said.read_text(errors='replace') if said.exists() else ''
    said.unlink(missing_ok=True)
    return Ended(code, text, time.monotonic() - begun)

  wait.process = process
  return wait


def wait_for(path, seconds=300):
  """Waits until another process has made a file."""
  until = time.monotonic() + seconds
  while not path.exists():
    if time.monotonic() > until:
      raise TimeoutError(f'{path} was not made in {seconds} seconds')
    time.sleep(0.05)


def one_sentence(ended) -> bool:
  """Whether a start was refused or stopped as promised: exit 2 or 3, and one sentence after warnings of one."""
  lines = [line for line in ended.said.splitlines() if line.strip() and not line.startswith('fedkd: warning: ')]
  return ended.code in (2, 3) and len(lines) == 1 and lines[0].startswith('fedkd: ')


def contents(case) -> tuple:
  """What must not differ between runs: the summary but for clock and commit, the evaluations but for the clock."""
  summary = files.read_sealed(case.directory / 'summary.json')
  others = ('seconds', 'digests', 'commit', 'commits', 'dirty')
  rows = [{k: v for k, v in row.items() if k != 'seconds'} for row in files.read(case.directory / 'metrics.jsonl')]
  return json.loads(json.dumps(({k: v for k, v in summary.items() if k not in others}, rows)))


def verdict(case, made, ended) -> str:
  """'equal' to the unbroken run, 'refused' in a sentence, or what is wrong."""
  if ended.code == 0 and 'Traceback' not in ended.said:
    return 'equal' if contents(case) == made.contents else 'another result'
  return 'refused' if one_sentence(ended) else told(ended)


def told(ended) -> str:
  """How a start ended, for the reader of a finding."""
  return f'exit {ended.code}: {ended.said[-3000:]}'


def judged(case, made, ended) -> tuple:
  """What a trial returns that ends with a start."""
  return [verdict(case, made, ended)], ended.seconds


def draw_nothing():
  """Figures without Matplotlib, which takes longer than the run; their files are written as ever."""

  class Blank:
    savefig = staticmethod(lambda file, **options: file.write(b'PNG'))

  def save_figures(workdir, *args):
    frames.read(workdir)
    for name in ('accuracy_rounds', 'accuracy_megabytes', 'accuracy_clients', 'labels'):
      figures.save(Blank, pathlib.Path(workdir) / 'figures' / f'{name}.png')

  figures.save_figures = save_figures


def build_once():
  """An experiment of one config is traced and compiled once in this process, since it starts it over and over."""
  real, made = runner.build, {}

  @functools.wraps(real)
  def build(config, *args, **options):
    key = repr((configs.to_json(config), options.get('dry'), options.get('evaluate')))
    if key not in made:
      made[key] = real(config, *args, **options)
    return made[key]

  runner.build = loading.build = build
