"""The laws of the layout: imports run down only, and the core is quick to import, silent and without files."""

import ast
import functools
import graphlib
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'fedkd'
# Rooms from the bottom to the top; a file imports what stands before its own room, and its neighbours inside.
ROOMS = (
  'errors', 'types', 'checks', 'keys', 'rows', 'losses', 'schedules', 'optimizers', 'examples', 'parts', 'sharding',
  'models', 'inference', 'aggregate', 'plan', 'totals', 'ledger', 'codecs', 'local', 'distillation', 'round', 'servers',
  'methods', 'summary', 'federation', 'states', 'evaluation', 'readout', 'simulation', 'files', 'data', 'config',
  'analysis', 'experiment', 'sweep', 'report', 'watch', 'clock', 'history', 'training', 'cli', '__main__',
)  # fmt: skip
ABOVE = (
  'config',
  'files',
  'data',
  'analysis',
  'experiment',
  'sweep',
  'report',
  'watch',
  'clock',
  'history',
  'training',
  'cli',
  '__main__',
)  # the core is all else
HEAVY = {'matplotlib', 'pandas', 'orbax', 'tensorflow_datasets', 'rich', 'tensorboardX', 'absl', 'ml_collections'}
# Models from files that a researcher has: the core's readers, of the path that they are given.
READERS = {'fedkd.models.pretrained', 'fedkd.checks.npz'}
FILES = {'open', 'print', 'input', 'load', 'save', 'savez', 'savez_compressed', 'memmap', 'read_text', 'read_bytes'}
FILES |= {'write_text', 'write_bytes', 'mkdir', 'unlink', 'load_file'}


def module_of(path) -> str:
  parts = path.relative_to(ROOT).with_suffix('').parts
  return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


MODULES = {module_of(path): path for path in PACKAGE.rglob('*.py')}
CORE = sorted(name for name in MODULES if name != 'fedkd' and name.split('.')[1] not in ABOVE)


@functools.cache
def tree(name):
  return ast.parse(MODULES[name].read_text())


def imported(name) -> set:
  """Modules of fedkd that a module imports, anywhere in its code."""
  found = set()
  for node in ast.walk(tree(name)):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      inside = {f'{node.module}.{alias.name}' for alias in node.names}
      found |= {one if one in MODULES else node.module for one in inside}
  return {one for one in found if one in MODULES} - {'fedkd'}  # the package itself; the runner reads its version


def room(name) -> str:
  return name.split('.')[1]


def test_every_room_is_in_the_drawing():
  assert {room(name) for name in MODULES if name != 'fedkd'} == set(ROOMS)


@pytest.mark.parametrize('name', [name for name in MODULES if name != 'fedkd'])
def test_imports_run_down(name):
  up = {other for other in imported(name) if ROOMS.index(room(other)) > ROOMS.index(room(name))}
  assert not up, f'{name} is below {sorted(up)}'


def test_no_circle():
  """Nor inside a room, of files: `static_order` raises CycleError, which names it."""
  order = graphlib.TopologicalSorter({name: imported(name) for name in MODULES}).static_order()
  assert set(order) == set(MODULES)


def test_the_core_loads_nothing_heavy():
  """Beside what JAX, Flax, Optax and Chex load themselves (some of them rich and absl), in a fresh process."""
  program = f"""
import importlib, json, sys
import jax, flax.linen, optax, chex
before = set(sys.modules)
for name in ['fedkd', *{CORE}]:
  importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True, check=True)
  loaded = json.loads(done.stdout.splitlines()[-1])
  assert set(CORE) <= set(loaded)  # it did import them
  assert not {name for name in loaded if name.split('.')[0] in HEAVY}
  assert done.stdout.count('\n') == 1  # and they were silent
  assert not done.stderr


def calls(name) -> set:
  """Names of what a module calls: `print`, or `read_text` of `path.read_text()`."""
  called = [node.func for node in ast.walk(tree(name)) if isinstance(node, ast.Call)]
  return {func.attr if isinstance(func, ast.Attribute) else getattr(func, 'id', '') for func in called}


@pytest.mark.parametrize('name', CORE)
def test_the_core_neither_prints_nor_reads_nor_writes(name):
  if name in READERS:
    assert calls(name) & FILES  # or it is no exception any more
  else:
    assert not calls(name) & FILES
    assert not {'os', 'io', 'pathlib', 'tempfile', 'logging'} & modules_named(name)


def modules_named(name) -> set:
  found = set()
  for node in ast.walk(tree(name)):
    found |= {alias.name.split('.')[0] for alias in node.names} if isinstance(node, ast.Import) else set()
    found |= {node.module.split('.')[0]} if isinstance(node, ast.ImportFrom) else set()
  return found


def test_starting_loads_nothing_that_comes_later():
  """A config is read, and may be refused, before anything of figures, checkpoints, events and tables is loaded."""
  later = HEAVY - {'rich', 'absl', 'ml_collections'} | {'torch', 'scipy.stats'}
  program = f"""
import sys
import fedkd.experiment.runner, fedkd.analysis.statistics
from configs import quickstart
quickstart.get_config('smoke')
print(sorted(set(sys.modules) & {later}))
"""
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True, check=True)
  assert done.stdout == '[]\n'
