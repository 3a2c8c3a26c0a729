"""What a run shows while it trains: a progress bar, lines, or calls of the caller's own."""

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


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
  first: list[tuple] = []
  accuracy = [float('nan')]

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
