"""Which small changes of the library's losses, servers and codecs would no test notice?

python -m launch.mutate [--only=fedgen,servers] [--match=penalty] [--kinds=term,stop,swap] [--list] [--again]

For every mutant of a file (`launch.mutants`) its tests run, those of the file's name first and the slow ones last,
until one fails; a mutant with which all pass has survived. Nothing is written to the sources: each trial is a process
of its own, forked after everything but the library is imported, that reads the mutant in the file's place. Trials are
kept in `--results`, a line of JSON each, and made once; `--again` repeats those that survived. Mutants in `EQUIVALENT`
are not tried. Exits with 1 if there are survivors.
"""

import argparse
import collections
import importlib.util
import json
import os
import pathlib
import re
import runpy
import signal
import sys
import time
import typing
from typing import NamedTuple

from launch import mutants
from launch.equivalent import EQUIVALENT

FILES = ('methods/*.py', 'servers/*.py', 'aggregate/*.py', 'codecs.py', 'losses.py', 'distillation.py')
EVERY = ('test_methods', 'test_rules', 'test_simulation')  # tests of all methods, a row each
PASSED = (0, 5)  # codes of pytest: all passed; there were none
SECONDS = 600  # for one mutant and one set of tests, so that an endless loop is noticed
OUTCOMES = ('killed', 'equivalent', 'survived')


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


def sets_of_tests(path: pathlib.Path, root: pathlib.Path) -> list[list[str]]:
  """Arguments of pytest, in turn: tests of the file's name; tests that use it and those of methods that do; the rows of
  these methods in the tests of all methods; slow tests of the first two."""
  package, name = path.parent.name, path.parent.name if path.stem == '__init__' else path.stem
  words = '|'.join(re.findall(r'^(?:def|class) ([a-zA-Z]\w*)', path.read_text(), re.M)) or name
  module = rf'\b{name}\.\w|' if package != 'methods' else ''  # `fedkd` is a method and the package
  uses = re.compile(rf'{module}\b{package}[. ](?:import .*)?\b(?:{name}|{words})\b')
  named = lambda test, names: re.fullmatch(rf'test_(?:{"|".join(names)})(_.*)?', test.stem)
  tests = sorted(root.glob('tests/**/test_*.py'))
  methods = {m.stem for m in root.glob('fedkd/methods/[!_]*.py') if uses.search(m.read_text())}
  methods = sorted(methods | {name} if package == 'methods' else methods)
  own = [t for t in tests if named(t, [name])]
  near = [t for t in tests if t not in own and (uses.search(t.read_text()) or named(t, methods or [name]))]
  every = [t for t in tests if t.stem in EVERY and t not in own]
  near = [t for t in near if t not in every]
  rows = [*every, '-k', ' or '.join(methods)] if methods and every else []
  slow = [*own, *near, '-m', 'slow'] if own or near else []
  return [list(map(str, tests)) for tests in (own, near, rows, slow) if tests]


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


def named(path: pathlib.Path, root: pathlib.Path, kinds) -> dict[str, mutants.Mutant]:
  """A file's mutants by names that outlive changes of other lines; the second of two equal ones ends in #2."""
  names, count = {}, collections.Counter()
  for mutant in mutants.mutants(path.read_text(), kinds):
    name = f'{path.relative_to(root / "fedkd")} {mutant.function}: {mutant.was} -> {mutant.becomes}'
    count[name] += 1
    names[name if count[name] == 1 else f'{name} #{count[name]}'] = mutant
  return names


class Tests:
  """The sets of tests of a file, what failed in them, and the seconds of each, measured when they are first needed."""

  def __init__(self, path, root, stages):
    self.path, self.module, self.sets = path, module_of(path, root), sets_of_tests(path, root)[:stages]
    self.kills, self.seconds = collections.Counter(), {}

  def outcome(self, mutant) -> dict:
    """How a mutant ended, as a part of a line of the results."""
    begun, found, i = time.monotonic(), Trial(0, '', {}), -1
    for i in range(len(self.sets)):
      found = self._trial(i, mutant.source)
      if found.code not in PASSED:
        break
    survived = found.code in PASSED
    by = '' if survived else found.failed or ('timeout' if found.code == 'timeout' else 'import')
    self.kills[by] += 1
    line = {'outcome': 'survived' if survived else 'killed', 'by': by, 'sets': i + 1}
    return {**line, 'seconds': round(time.monotonic() - begun, 1)}

  def _trial(self, i, source):
    """All tests must pass without a mutant."""
    if i not in self.seconds:
      found = trial('', self.path, '', self.sets[i], self.kills, {}, 10 * SECONDS)
      self.seconds[i] = found.seconds
      if found.code not in PASSED:
        raise SystemExit(f'{self.path}: {found.failed or self.sets[i]} fails without a mutant')
    return trial(self.module, self.path, source, self.sets[i], self.kills, self.seconds[i])


def table(outcomes: dict[str, str]) -> str:
  """Per file: mutants, killed, equivalent, survived."""
  by_file = collections.defaultdict(collections.Counter)
  for name, outcome in outcomes.items():
    by_file[name.partition(' ')[0]][outcome] += 1
  lines = [f'{"file":<32}{"mutants":>9}' + ''.join(f'{name:>12}' for name in OUTCOMES)]
  for file, counts in [*sorted(by_file.items()), ('all', sum(by_file.values(), collections.Counter()))]:
    lines.append(f'{file:<32}{counts.total():>9}' + ''.join(f'{counts[name]:>12}' for name in OUTCOMES))
  return '\n'.join(lines)


def parsed() -> argparse.Namespace:
  """The command line."""
  words = lambda text: text.split(',')
  parser = argparse.ArgumentParser('python -m launch.mutate', description=__doc__.partition('\n')[0])
  parser.add_argument('--only', type=words, default=[], help='names of files, without .py, or of their folders; or all')
  parser.add_argument('--match', default='', help='a regular expression in the names that --list prints')
  parser.add_argument('--kinds', type=words, default=[*mutants.KINDS, mutants.SWAP], help='kinds of mutants')
  parser.add_argument('--list', action='store_true', help='print the mutants, and try none')
  parser.add_argument('--again', action='store_true', help='try those that survived once more')
  parser.add_argument('--stages', type=int, default=4, help='how many of the sets of tests are tried')
  parser.add_argument('--results', default='runs/mutants.jsonl', help='what was tried, a line each')
  parser.add_argument('--root', default=str(pathlib.Path(__file__).parents[1]), help='the checkout')
  return parser.parse_args()


def main():
  """Prints each mutant with its outcome, and the table."""
  asked = parsed()
  root, store = pathlib.Path(asked.root).resolve(), pathlib.Path(asked.results).absolute()
  store.parent.mkdir(parents=True, exist_ok=True)
  known = {line['key']: line for line in map(json.loads, store.read_text().splitlines())} if store.exists() else {}
  paths = [path for pattern in FILES for path in sorted((root / 'fedkd').glob(pattern))]
  of_path = {path: _chosen(path, root, asked) for path in paths}
  if asked.list:
    print(
      *(f'{mutant.kind:<10}{mutant.line:>4} {key}' for of in of_path.values() for key, mutant in of.items()), sep='\n'
    )
    return
  prepare(paths, root)
  for path, found in of_path.items():
    tests = Tests(path, root, asked.stages)
    for key in (key for key in found if _is_new(key, known, asked.again)):
      line = {'key': key, 'kind': found[key].kind, 'line': found[key].line, **tests.outcome(found[key])}
      known[key] = line
      with store.open('a') as file:
        file.write(json.dumps(line) + '\n')
      print(f'{line["outcome"]:<9}{line["seconds"]:>6} s {line["line"]:>4} {key} {line["by"]}', flush=True)
  told = [key for found in of_path.values() for key in found if key in known or key in EQUIVALENT]
  outcomes = {key: 'equivalent' if key in EQUIVALENT else known[key]['outcome'] for key in told}
  print(table(outcomes))
  sys.exit('survived' in outcomes.values())


def _chosen(path, root, asked) -> dict[str, mutants.Mutant]:
  """The mutants of a file that the command line asks for, by name."""
  names = {path.stem, path.relative_to(root / 'fedkd').parts[0]}
  if asked.only and not names & set(asked.only):
    return {}
  found = named(path, root, tuple(asked.kinds))
  return {key: mutant for key, mutant in found.items() if re.search(asked.match, key)}


def _is_new(key, known, again) -> bool:
  """Whether a mutant is to be tried."""
  again = again and known.get(key, {}).get('outcome') == 'survived'
  return key not in EQUIVALENT and (key not in known or again)


if __name__ == '__main__':
  main()
