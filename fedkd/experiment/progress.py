"""What a run writes while it goes on: `metrics.jsonl`, TensorBoard events, the terminal."""

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import rich.console
import rich.progress
import tensorboardX


def tensorboard(workdir, step):
  """A TensorBoard writer that forgets what was logged after `step`, rounds since the run began."""
  return tensorboardX.SummaryWriter(str(workdir / 'tensorboard'), purge_step=step + 1)


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


@contextlib.contextmanager
def display(name, rounds, show=True):
  """A live progress bar on a terminal, plain lines elsewhere, nothing unless `show`."""
  if not show:
    yield Display(lambda *args: None, lambda text: None)
    return
  console = rich.console.Console(stderr=False, highlight=False, soft_wrap=True)
  first, accuracy = [], [float('nan')]

  def describe(round, rate, row):
    if not first:  # what came before, restoring and compiling, comes once
      first.append((round, time.monotonic()))
    accuracy.append(np.mean(row['accuracy']) if row else accuracy[-1])
    text = f'accuracy {accuracy[-1]:.3f}  {rate:,.0f} examples/s'
    begun, since = first[0]
    if round == begun:
      return text
    left = (time.monotonic() - since) / (round - begun) * (rounds - round)
    return f'{text}  {int(left) // 60}:{int(left) % 60:02d} left'

  if console.is_terminal:
    columns = [rich.progress.TextColumn('{task.description}'), rich.progress.BarColumn()]
    columns += [rich.progress.MofNCompleteColumn(), rich.progress.TextColumn('{task.fields[text]}')]
    with rich.progress.Progress(*columns, console=console) as bar:
      task = bar.add_task(name, total=rounds, text='')

      update = lambda round, rate, row=None: bar.update(task, completed=round, text=describe(round, rate, row))
      yield Display(update, bar.console.print)
  else:

    def line(round, rate, row=None):
      text = describe(round, rate, row)
      if row:
        print(f'{name}  round {round}/{rounds}  {text}', flush=True)

    yield Display(line, lambda text: print(text, flush=True))
