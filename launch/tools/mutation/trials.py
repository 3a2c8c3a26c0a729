"""Runs tests in a fork in which one module of the library is a mutant."""

import collections
import importlib.util
import json
import os
import pathlib
import runpy
import signal
import sys
import typing
from typing import NamedTuple

SECONDS = 600  # for one mutant and one set of tests, so that an endless loop is noticed


class Trial(NamedTuple):
  """How a set of tests ended: pytest's code, or 'timeout', with the test that failed and the seconds of each."""

  code: int | str
  failed: str
  seconds: dict


class Order:
  """A plugin of pytest: first the tests that have failed most often, then the quick ones; notes what happens."""

  def __init__(self, kills, seconds):
    self.kills, self.before, self.seconds, self.failed = kills, seconds, collections.Counter(), ''

  def pytest_collection_modifyitems(self, items):
    items.sort(key=lambda item: (-self.kills[item.nodeid], self.before.get(item.nodeid, 1.0)))

  def pytest_runtest_logreport(self, report):
    self.seconds[report.nodeid] += report.duration
    if report.failed:
      self.failed = self.failed or report.nodeid


def trial(module: str, path: pathlib.Path, source: str, arguments: list[str], kills, seconds, limit=SECONDS) -> Trial:
  """Runs tests in a fork in which `module` is `source`."""
  ours, theirs = os.pipe()
  child = os.fork()
  if not child:
    signal.alarm(limit)
    os.close(ours)
    code, order = 3, Order(kills, seconds)
    try:
      code = _tested(module, path, source, arguments, order)
    finally:
      os.write(theirs, json.dumps([int(code), order.failed, order.seconds]).encode())
      os._exit(0)
  os.close(theirs)
  with open(ours) as pipe:
    said = pipe.read()
  os.waitpid(child, 0)
  return Trial(*json.loads(said)) if said else Trial('timeout', '', {})


def _tested(module, path, source, arguments, order):
  """In the fork: pytest's code."""
  import pytest

  nothing = os.open(os.devnull, os.O_WRONLY)
  os.dup2(nothing, 1)
  os.dup2(nothing, 2)
  sys.meta_path.insert(0, _Mutated(module, path, source))
  return pytest.main([*arguments, '-x', '-p', 'no:cacheprovider', '-p', 'no:xdist'], plugins=[order])


class _Mutated(importlib.machinery.SourceFileLoader):
  """Finds and loads one module, from a text in place of its file."""

  def __init__(self, module, path, source):
    super().__init__(module, str(path))
    self.source = source

  def find_spec(self, name, path=None, target=None):
    return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

  def get_code(self, name):
    return compile(self.source, self.path, 'exec')


def module_of(path: pathlib.Path, root: pathlib.Path) -> str:
  """The module's name."""
  return '.'.join(path.relative_to(root).with_suffix('').parts).removesuffix('.__init__')


def prepare(paths: list[pathlib.Path], root: pathlib.Path):
  """Imports what the trials need except the library, which each imports itself; no backend of JAX starts."""
  sys.path[:0] = [str(root), str(root / 'tests')]
  os.chdir(root)
  conftest = root / 'tests' / 'conftest.py'
  if conftest.exists():
    runpy.run_path(str(conftest))  # what must be set before JAX is imported
  for name in ('pytest', '_pytest.python', *(module_of(path, root) for path in paths)):
    importlib.import_module(name)
  for name in [name for name in sys.modules if name.partition('.')[0] == 'fedkd']:
    del sys.modules[name]
  for clear in typing._cleanups:  # cached unions of annotations equal those of the next import
    clear()
