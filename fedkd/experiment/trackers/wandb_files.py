"""What Weights & Biases has written offline, which it cannot resume by itself: the steps in its transaction logs.

They are logs of LevelDB: after a header of 7 bytes, blocks of 32 KiB of records, each with a checksum, a length and
whether it is whole, the first, a middle or the last piece of one message of `wandb.proto`.
"""

import pathlib
import struct
from collections.abc import Iterator
from typing import Any

HEADER, BLOCK = 7, 32768  # bytes
WHOLE, FIRST, _, LAST = 1, 2, 3, 4


def last_step(folder: pathlib.Path, id: str) -> int:
  """The largest step of a run in a folder `wandb/`; -1 for none."""
  logs = folder.glob(f'offline-run-*-{id}/run-{id}.wandb')
  return max((record.history.step.num for log in logs for record in histories(log)), default=-1)


def histories(log: pathlib.Path) -> Iterator[Any]:
  """The records of a transaction log that hold metrics, oldest first, as far as it was written before a crash."""
  from wandb.proto import wandb_internal_pb2

  for message in _messages(log.read_bytes()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(message)
    if record.WhichOneof('record_type') == 'history':
      yield record


def _messages(content) -> Iterator[bytes]:
  at, message = HEADER, b''
  while at + 7 <= len(content):
    left = BLOCK - at % BLOCK
    if left < 7:  # too little for a record: zeros up to the next block
      at += left
      continue
    _, length, kind = struct.unpack_from('<IHB', content, at)
    piece = content[at + 7 : at + 7 + length]
    if not kind or len(piece) < length:
      return
    message = piece if kind in (WHOLE, FIRST) else message + piece
    if kind in (WHOLE, LAST):
      yield message
    at += 7 + length
