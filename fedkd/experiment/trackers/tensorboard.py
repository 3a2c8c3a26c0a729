"""TensorBoard events in the run directory, without TensorBoard."""

import pathlib
import socket
import struct
import sys
import time

from fedkd import files
from fedkd.experiment.trackers.metrics import means
from fedkd.experiment.trackers.protocol import Run, Tracker


def check() -> None:
  """Nothing is missing: tensorboardX belongs to fedkd."""


def start(run: Run) -> Tracker:
  """A new file of events, at whose beginning TensorBoard discards those after `run.step`."""
  proto = _tensorboardX().proto.event_pb2
  path = run.folder / 'tensorboard' / f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}'
  path.parent.mkdir(exist_ok=True)
  session = proto.SessionLog(status=proto.SessionLog.START)
  _write(path, proto.Event(file_version='brain.Event:2'), proto.Event(step=run.step + 1, session_log=session))
  return Tracker(lambda row, step: _log(path, row, step), lambda summary, figures: None, None)


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


def _log(path: pathlib.Path, row, step):
  tensorboardX = _tensorboardX()
  summaries = [tensorboardX.summary.scalar(name, value) for name, value in means(row).items()]
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
