"""Tries random inputs of a target in a worker process, and judges what it makes of them."""

import collections
import json
import multiprocessing
import os
import pathlib
import random
import resource
import tempfile
import time
import traceback
import warnings

from fedkd import files

SECONDS = 10
BYTES = 4 * 2**30
STARTING = 180  # seconds to import everything
MOST_FINDINGS = 20  # of a target, after which it is given up


def targets() -> dict:
  """Of files and words, and of directories."""
  from launch.tools.fuzz import directories
  from launch.tools.fuzz import targets as others

  return {**others.TARGETS, **directories.TARGETS}


def judged(target, text_of) -> str:
  """'taken', 'refused', or what is wrong with how an input was refused."""
  from fedkd.errors import ConfigError

  try:
    target()
  except ConfigError as error:
    text = str(error)
    return 'refused' if '\n' not in text and 0 < len(text) < 4000 else f'no sentence: {text[:300]!r}'
  except (Exception, SystemExit) as error:  # a finding; KeyboardInterrupt is the user's
    at = traceback.extract_tb(error.__traceback__)[-1]
    own = [f for f in traceback.extract_tb(error.__traceback__) if '/fedkd/' in f.filename or '/launch/' in f.filename]
    where = ', '.join(f'{pathlib.Path(f.filename).name}:{f.lineno}' for f in [*own[-2:], at])
    return f'{type(error).__name__}: {str(error)[:150]!r} at {where}; input {text_of()[:200]!r}'
  return 'taken'


def work(name, seed, first, count, pipe):
  """The worker: tries inputs `first`, `first` + 1, ... and sends (number, outcome) after each."""
  warnings.simplefilter('ignore')  # of Pillow, about tags
  with tempfile.TemporaryDirectory() as folder:
    os.environ['FEDKD_CACHE'] = folder + '/cache'
    target = targets()[name](pathlib.Path(folder))
    judged(*target(random.Random(f'{name} {seed}')))  # whatever is imported when it is first needed
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + BYTES, pages + BYTES))
    pipe.send((-1, 'started'))
    for number in range(first, first + count):
      rng = random.Random(f'{name} {seed} {number}')
      trial, text_of = target(rng)
      pipe.send((number, judged(trial, text_of)))
    pipe.send((-2, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def fuzz(name, inputs, seed=0, first=0) -> dict:
  """Tries inputs of one target.

  Returns:
    {'inputs', 'taken', 'refused', 'findings': [(number, text)], 'slowest' seconds, 'peak' bytes}.
  """
  counts, findings, slowest, peak, at, end = collections.Counter(), [], 0.0, 0, first, first + inputs
  while at < end and len(findings) < MOST_FINDINGS:
    context = multiprocessing.get_context('spawn')
    ours, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=work, args=(name, seed, at, end - at, theirs), daemon=True)
    worker.start()
    theirs.close()
    patience = STARTING
    while at < end or patience:
      begun = time.monotonic()
      try:
        if not ours.poll(patience):
          raise TimeoutError(f'no answer after {patience} s')
        number, outcome = ours.recv()
      except (TimeoutError, EOFError) as error:
        worker.join(0.1)
        died = f'the worker ended with code {worker.exitcode}' if isinstance(error, EOFError) else str(error)
        findings.append((at, died))
        at += 1
        break
      patience = SECONDS
      if number == -2:
        peak = max(peak, outcome)
        break
      if number >= 0:
        slowest, at = max(slowest, time.monotonic() - begun), number + 1
        counts[outcome if outcome in ('taken', 'refused') else 'finding'] += 1
        if outcome not in ('taken', 'refused'):
          findings.append((number, outcome))
    worker.kill()
    worker.join()
  tried = {'inputs': at - first, 'taken': counts['taken'], 'refused': counts['refused']}
  return {**tried, 'findings': findings, 'slowest': round(slowest, 2), 'peak': peak}


def write(path, found):
  """Puts {target: its counts and findings} into a file; what it has of other targets stays."""
  before = json.loads(path.read_text())['targets'] if path.exists() else {}
  files.write_json(path, {'targets': {**before, **found}})
