"""The trials of the crash harness: started below the library of `tests/shim.c`, recorded, and counted by fault."""

import collections
import ctypes
import functools
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

SOURCE = pathlib.Path(__file__).parents[3] / 'tests' / 'shim.c'
INSIDE = ('kill', 'seen', 'full', 'read-only', 'broken', 'damage')  # in one process, compiled once
FORKED = ('kills', 'timed', 'paused', 'clock', 'starts', 'limits', 'watched', 'pair')  # in processes of their own


def preload(folder):
  """Starts this program once more, below the library."""
  library = folder / 'shim.so'
  if not SOURCE.exists() or not shutil.which('cc'):
    sys.exit(f'fedkd: the crash harness needs {SOURCE} and a C compiler; start it in a checkout, and install `cc`')
  subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-o', library, SOURCE, '-ldl', '-pthread'], check=True)
  words = [sys.executable, *sys.orig_argv[1:]]
  return subprocess.run(words, env={**os.environ, 'LD_PRELOAD': str(library)}, check=False).returncode


def measure(case, fault, asked, made) -> dict:
  """The figures of a fault: points, and how many of them ended in which way; `other` is what must be 0."""
  from launch.tools.crash import faults, pair, processes, readers

  kinds = {'kill': faults.killed, 'seen': faults.seen, 'damage': faults.damaged}
  kinds |= {kind: functools.partial(faults.failing, kind=kind) for kind in faults.ERRORS}
  kinds |= {'watched': readers.watched, 'pair': pair.pair}
  every = (kinds.get(fault) or getattr(processes, fault))(case, made, asked)
  done, counts, seconds, slowest = recorded(asked.trials, case.name, fault), collections.Counter(), 0.0, 0.0
  for what, run in every:
    one = done[what] if what in done else tried(run)
    if one is None:
      continue
    if what not in done:
      note(asked.trials, {'case': case.name, 'fault': fault, 'what': what, **one})
    counts.update(one['verdicts'])
    seconds, slowest = seconds + one['seconds'], max(slowest, one['slowest'])
    for verdict in one['verdicts'].keys() - {'equal', 'refused'}:
      print(f'{case.name} {fault} {what}: {verdict}', flush=True)
  points, equal, refused = counts.total(), counts['equal'], counts['refused']
  figures = {'operations': made.operations, 'points': points, 'equal': equal, 'refused': refused}
  return {**figures, 'other': points - equal - refused, 'seconds': round(seconds, 1), 'slowest': round(slowest, 2)}


def tried(run) -> dict | None:
  """What a trial gave: how often each verdict, and seconds, also those of the slowest start."""
  begun = time.monotonic()
  given = run()
  if given is None:
    return None
  seconds, slowest = round(time.monotonic() - begun, 2), round(given[1], 2)
  return {'verdicts': dict(collections.Counter(given[0])), 'seconds': seconds, 'slowest': slowest}


def recorded(path, name, fault) -> dict:
  """{what: figures} of the trials in a file."""
  if not path or not os.path.exists(path):
    return {}
  lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
  return {one['what']: one for one in lines if (one['case'], one['fault']) == (name, fault)}


def note(path, one):
  """Adds a trial to a file, in one piece."""
  if path:
    with open(path, 'a') as file:
      file.write(json.dumps(one) + '\n')


def keep(path, name, fault, figures):
  """Adds figures to the JSON file."""
  print(f'{name} {fault}: {figures}', flush=True)
  if path:
    from fedkd import files

    path = pathlib.Path(path)
    found = json.loads(path.read_text()) if path.exists() else {'machine': machine(), 'cases': {}}
    found['cases'].setdefault(name, {})[fault] = figures
    files.write_json(path, found)


def machine() -> str:
  """Where the figures are from."""
  return f'{os.cpu_count()} cores, {platform.system()}'


def case_of(name, folder, asked, wanted):
  """All faults of a case. The first process forks the others, so that it must not start JAX itself."""
  from launch.tools.crash import cases, faults, trial

  case = trial.Case(name, folder / name)
  case.folder.mkdir()
  cases.save_images(case.folder / 'images.npz')
  trial.draw_nothing()

  def inside():
    trial.build_once()
    made = faults.whole(case, asked.every)
    (case.folder / 'made.json').write_text(json.dumps(made))
    for fault in [one for one in INSIDE if one in wanted]:
      keep(asked.json, name, fault, measure(case, fault, asked, made))

  process = os.fork()
  if not process:
    code = 1
    try:
      inside()
      code = 0
    except Exception:
      traceback.print_exc()
    finally:
      sys.stdout.flush()
      os._exit(code)
  if os.waitpid(process, 0)[1]:
    raise RuntimeError(f'{name}: the harness failed')
  made = trial.Made(*json.loads((case.folder / 'made.json').read_text()))
  for fault in [one for one in FORKED if one in wanted]:
    keep(asked.json, name, fault, measure(case, fault, asked, made))


def run(asked):
  """All faults that are asked for, of all cases; the process must have been started below the library."""
  folder = pathlib.Path(tempfile.mkdtemp())  # a TemporaryDirectory would be removed by the exit of every fork
  try:
    if not hasattr(ctypes.CDLL(None), 'shim_arm'):
      sys.exit(preload(folder))
    warnings.simplefilter('ignore')  # JAX warns of forks; here they come before it has threads
    import matplotlib.figure  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    import tensorboardX  # noqa: F401

    from launch.tools.crash import cases

    for name in asked.cases.split(',') if asked.cases else cases.NAMES:
      case_of(name, folder, asked, asked.faults.split(',') if asked.faults else INSIDE + FORKED)
  finally:
    shutil.rmtree(folder)
