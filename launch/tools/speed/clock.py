"""Durations and time limits of `launch.bench`."""

import contextlib
import json
import os
import threading
import time

CAP = 60  # seconds that compiling or the first round of one net may take
COMPILING = {'cpu': CAP, 'gpu': 3 * CAP}  # on a GPU every matmul and convolution is also tried in several ways
BUDGET = 6  # seconds of repetitions per net
ROW_LIMIT = 1800  # seconds, the time limit of a row's process


def timed(one_round, budget):
  """Seconds of at least three repetitions of `one_round`, after one that warms up."""
  seconds = []
  one_round()
  while len(seconds) < 3 or (sum(seconds) < budget and len(seconds) < 50):
    start = time.perf_counter()
    one_round()
    seconds.append(time.perf_counter() - start)
  return seconds


@contextlib.contextmanager
def deadline(row, what, seconds=CAP):
  """Prints the row with a note and ends this process where the block takes more than `seconds`."""

  def late():
    print(json.dumps({**row, 'note': f'{what} > {seconds} s'}), flush=True)
    os._exit(0)

  timer = threading.Timer(seconds, late)
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


def timed_in_time(one_round, budget, row):
  """`timed`, with a limit on the first round."""
  with deadline(row, 'the first round'):
    one_round()
  return timed(one_round, budget)
