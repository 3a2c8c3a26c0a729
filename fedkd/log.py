"""What a run writes while it goes on: `metrics.jsonl`, TensorBoard events, the terminal."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import rich.console
import rich.progress
import tensorboardX

from fedkd.errors import ConfigError


def read(path) -> list[dict]:
  """The evaluations in a metrics file, oldest first; a line cut off by a crash is left out."""
  rows = []
  if path.exists():
    for line in path.read_text().splitlines():
      with contextlib.suppress(json.JSONDecodeError):
        rows.append(json.loads(line))
  return rows


def cut(path, phase, round):
  """Keeps the evaluations up to `round` of `phase`, so that a resumed run writes each exactly once."""
  kept = [row for row in read(path) if (row['phase'], row['round']) <= (phase, round)]
  partial = path.with_suffix('.tmp')
  partial.write_text(''.join(json.dumps(row) + '\n' for row in kept))
  partial.replace(path)


def append(path, row):
  """Adds one evaluation."""
  with path.open('a') as file:
    file.write(json.dumps(row) + '\n')


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


def write_json(path, value):
  """Writes JSON atomically."""
  partial = path.with_name(path.name + '.tmp')
  partial.write_text(json.dumps(value, indent=1) + '\n')
  partial.replace(path)


def make(workdir):
  """Makes the run directory.

  Raises:
    ConfigError: if it cannot be made.
  """
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise ConfigError(f'workdir={workdir} cannot be made ({error.strerror}); choose another') from error


def warn(text):
  """A warning on standard error."""
  print(f'fedkd: warning: {text}', file=sys.stderr, flush=True)
