"""What a run reports while it trains: TensorBoard events, and a progress bar, lines, or calls of the caller's own."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def tensorboard(workdir, step):
  """A TensorBoard writer that discards events after `step`, in rounds since the start of the run."""
  return _tensorboardX().SummaryWriter(str(workdir / 'tensorboard'), purge_step=step + 1)


def _tensorboardX():
  """tensorboardX without PyTorch, which it imports where that is installed: which takes seconds, for tensors that we
  never log."""
  hide = 'torch' not in sys.modules
  if hide:
    sys.modules['torch'] = None
  try:
    import tensorboardX
  finally:
    if hide:
      del sys.modules['torch']
  return tensorboardX


def events(writer, row, step):
  """Logs the mean over seeds of every metric that is one number per seed, or None."""
  for name, values in row.items():
    if isinstance(values, list) and np.ndim(values) == 1:
      known = [value for value in values if value is not None]
      if known:
        writer.add_scalar(name, float(np.mean(known)), step)
  writer.flush()


class Display(NamedTuple):
  """update(round, examples per second, row of an evaluation or None), and say(text)."""

  update: Callable
  say: Callable


SILENT = Display(lambda *args: None, lambda text: None)


@contextlib.contextmanager
def display(name, rounds, show=True):
  """The `Display` that `show` is; for True a progress bar on a terminal and lines elsewhere, for False nothing."""
  if not show or isinstance(show, Display):
    yield show or SILENT
    return
  import rich.console

  console = rich.console.Console(stderr=False, highlight=False, soft_wrap=True)
  if console.is_terminal:
    with _bar(console, name, rounds) as bar:
      yield bar
  else:
    yield _lines(name, rounds)


@contextlib.contextmanager
def _bar(console, name, rounds):
  from rich import progress

  columns = [progress.TextColumn('{task.description}'), progress.BarColumn()]
  columns += [progress.MofNCompleteColumn(), progress.TextColumn('{task.fields[text]}')]
  describe = _description(rounds)
  with progress.Progress(*columns, console=console) as bar:
    task = bar.add_task(name, total=rounds, text='')
    update = lambda round, rate, row=None: bar.update(task, completed=round, text=describe(round, rate, row))
    yield Display(update, bar.console.print)


def _lines(name, rounds) -> Display:
  """A line for every evaluation."""
  describe = _description(rounds)

  def line(round, rate, row=None):
    text = describe(round, rate, row)
    if row:
      print(f'{name}  round {round}/{rounds}  {text}', flush=True)

  return Display(line, lambda text: print(text, flush=True))


def _description(rounds) -> Callable:
  """(round, rate, row) -> the last accuracy, the rate, and the time left by the pace since the first call."""
  first, accuracy = [], [float('nan')]

  def describe(round, rate, row):
    if not first:  # without the time of restoring and compiling
      first.append((round, time.monotonic()))
    accuracy.append(np.mean(row['accuracy']) if row else accuracy[-1])
    text = f'accuracy {accuracy[-1]:.3f}  {rate:,.0f} examples/s'
    begun, since = first[0]
    if round == begun:
      return text
    left = (time.monotonic() - since) / (round - begun) * (rounds - round)
    return f'{text}  {int(left) // 60}:{int(left) % 60:02d} left'

  return describe
