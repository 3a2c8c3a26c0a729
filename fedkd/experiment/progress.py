"""What a run reports while it trains: TensorBoard events, and a progress bar, lines, or calls of the caller's own."""

import contextlib
import pathlib
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedkd import files


def tensorboard(workdir, step) -> pathlib.Path:
  """A new file of TensorBoard events, at whose beginning TensorBoard discards the events after `step`, in rounds since
  the start of the run."""
  proto = _tensorboardX().proto.event_pb2
  path = workdir / 'tensorboard' / f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}'
  path.parent.mkdir(exist_ok=True)
  session = proto.SessionLog(status=proto.SessionLog.START)
  _write(path, proto.Event(file_version='brain.Event:2'), proto.Event(step=step + 1, session_log=session))
  return path


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


def events(path, row, step):
  """Logs the mean over seeds of every metric that is one number per seed, or None."""
  tensorboardX, means = _tensorboardX(), {}
  for name, values in row.items():
    if isinstance(values, list) and np.ndim(values) == 1:
      known = [value for value in values if value is not None]
      if known:
        means[name] = float(np.mean(known))
  summaries = [tensorboardX.summary.scalar(name, value) for name, value in means.items()]
  _write(path, *(tensorboardX.proto.event_pb2.Event(step=step, summary=each) for each in summaries))


def _write(path, *events):
  """Appends events in this thread: that of tensorboardX's own writer would die of a full disk with a traceback."""
  framed = []
  for event in events:
    event.wall_time = time.time()
    data = event.SerializeToString()
    for part, form in ((struct.pack('<Q', len(data)), '<8sI'), (data, f'<{len(data)}sI')):
      framed.append(struct.pack(form, part, _tensorboardX().record_writer.masked_crc32c(part)))
  files.extend(path, b''.join(framed))


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
