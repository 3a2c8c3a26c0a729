"""The machine that a benchmark runs on: what it is, whether it is idle, and a row measured in a process of its own."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import flax
import jax

from fedkd.experiment import provenance


def description() -> dict:
  """What the numbers depend on: device, versions, commit."""
  cpuinfo = pathlib.Path('/proc/cpuinfo')
  lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
  names = [line.split(':')[1].strip() for line in lines if line.startswith('model name')]
  versions = {'python': platform.python_version(), 'jax': jax.__version__, 'flax': flax.__version__}
  for name in ('torch', 'flwr'):
    with contextlib.suppress(ImportError):
      versions[name] = importlib.metadata.version(name)
  return {
    'device': jax.devices()[0].device_kind,
    'cpu': names[0] if names else platform.processor(),
    'cores': os.cpu_count(),
    'versions': versions,
    **provenance.code(),
    'date': datetime.date.today().isoformat(),
  }


def busy_seconds() -> float | None:
  """CPU seconds that all processes of this machine have used so far; None where /proc/stat is missing."""
  try:
    ticks = [int(word) for word in pathlib.Path('/proc/stat').read_text().split('\n')[0].split()[1:]]
  except OSError:
    return None
  return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf('SC_CLK_TCK')


def wait_for_idle(patience: float = 300) -> None:
  """Returns once other processes used less than a tenth of a core for a second, or after `patience` seconds."""
  end = time.monotonic() + patience
  while time.monotonic() < end and (before := busy_seconds()) is not None:
    time.sleep(1)
    if busy_seconds() - before < 0.1:
      return


def measured(*words: str, limit: float | None = None) -> dict:
  """The row that `python -m words` prints as its last line within `limit` seconds, or a note why there is none."""
  command = [sys.executable, '-m', *words]
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
  except subprocess.TimeoutExpired:
    return {'note': f'not measured: more than {limit} s'}
  lines = done.stdout.strip().splitlines()
  if not done.returncode and lines:
    return json.loads(lines[-1])
  reason = next((line for line in reversed(done.stderr.splitlines()) if 'Error' in line), 'the process died')
  return {'note': f'not measured: {reason[:150]}'}
