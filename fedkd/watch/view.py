"""The live view of runs: a table in a terminal, or one printed once."""

import math
import os
import pathlib
import time

import rich.console
import rich.live
import rich.measure
import rich.progress_bar
import rich.table
import rich.text

from fedkd import files
from fedkd.errors import ConfigError
from fedkd.experiment.storage import lock
from fedkd.watch import states
from fedkd.watch.states import FAILED, FINISHED, RUNNING, STOPPED, State

EVERY = 1.0  # seconds between two looks
PATIENCE = 10.0  # seconds without a running run, after which nothing more is expected: a sweep starts one after another
STYLES = {RUNNING: 'cyan', FINISHED: 'green', STOPPED: 'yellow', FAILED: 'red'}


def watch(
  folder: str | os.PathLike, once: bool = False, console: rich.console.Console | None = None, every: float = EVERY
) -> list[State]:
  """Shows the runs at or below a folder until none is running any more; without a terminal, once.

  Args:
    folder: of runs, or a run.
    once: print one table, and return.
    console: to show it on; None: standard output.
    every: seconds between two looks.

  Returns:
    The last states.

  Raises:
    ConfigError: if the folder holds no run.
  """
  folder = pathlib.Path(folder)
  if not folder.is_dir():
    raise ConfigError(f'watch={folder} is no folder; give one that holds runs, such as runs')
  console = console or rich.console.Console(highlight=False)
  found = states.below(folder)
  if not found and not lock.look(folder).is_held:
    why = files.why_no_run(folder)
    raise ConfigError(f'watch={folder} holds no run ({why}); start one there first, or give another folder')
  if once or not console.is_terminal:
    _print(table(found, is_plain=True), console)
    return found
  return _live(folder, found, console, every)


def _print(plain, console) -> None:
  """Whole lines where they are not for a terminal, but for `grep`."""
  if console.is_terminal:
    console.print(plain)
    return
  console.width = rich.measure.Measurement.get(console, console.options.update(max_width=10**5), plain).maximum
  with console.capture() as captured:
    console.print(plain)
  lines = [line.rstrip() for line in captured.get().splitlines()]
  console.print('\n'.join(lines), markup=False, highlight=False, soft_wrap=True)


def _live(folder, found, console, every) -> list[State]:
  busy = time.monotonic() if _is_busy(folder, found) else -math.inf
  with rich.live.Live(table(found), console=console, auto_refresh=False, vertical_overflow='ellipsis') as live:
    while time.monotonic() - busy < PATIENCE:
      time.sleep(every)
      found = states.below(folder)
      live.update(table(found), refresh=True)
      busy = time.monotonic() if _is_busy(folder, found) else busy
  return found


def _is_busy(folder, found) -> bool:
  """Whether a run is running, or a process that starts them holds the folder."""
  return any(one.state == RUNNING for one in found) or lock.look(folder).is_held


def exit_code(found: list[State]) -> int:
  """3, as of a run that ended while training, if one has failed or was stopped before its end; else 0."""
  return 3 if any(one.state in (FAILED, STOPPED) for one in found) else 0


def table(found: list[State], is_plain: bool = False) -> rich.table.Table:
  """One line per run, those that are running first; a plain one has no bars."""
  counts = {state: sum(one.state == state for one in found) for state in STYLES}
  title = ', '.join(f'{count} {state}' for state, count in counts.items() if count)
  out = rich.table.Table(title=title, title_justify='left', box=None, pad_edge=False)
  out.add_column('run', overflow='fold')
  out.add_column('state')
  if not is_plain:
    out.add_column('', min_width=10, max_width=20)
  for name in ('rounds', 'accuracy %', 'left'):
    out.add_column(name, justify='right', no_wrap=True)
  out.add_column('', overflow='fold')
  for one in sorted(found, key=lambda one: list(STYLES).index(one.state)):
    out.add_row(*_cells(one, is_plain))
  return out


def _cells(one, is_plain) -> list:
  """Names are text: a [bold] in one is no markup, and a control character does nothing to the terminal."""
  plain = lambda text: ''.join(letter if letter.isprintable() else '?' for letter in text)
  bar = rich.progress_bar.ProgressBar(total=max(1, one.rounds), completed=one.round)
  accuracy = '' if one.accuracy is None else f'{100 * one.accuracy:.2f}'
  cells = [rich.text.Text(plain(one.run)), rich.text.Text(one.state, STYLES[one.state]), *([] if is_plain else [bar])]
  numbers = f'{one.round}/{one.rounds}', accuracy, _clock(one.left)
  return [*cells, *map(rich.text.Text, numbers), rich.text.Text(plain(one.why), 'dim')]


def _clock(seconds) -> str:
  if seconds is None:
    return ''
  minutes, rest = divmod(int(seconds), 60)
  return f'{minutes // 60}:{minutes % 60:02d}:{rest:02d}' if minutes >= 60 else f'{minutes}:{rest:02d}'
