"""Which small changes of the library's losses, servers and codecs would no test notice?

python -m launch.mutate [--only=fedgen,losses] [--kinds=term,stop,swap] [--list] [--again] [--results=FILE]

For every mutant of a file (`launch.mutants`) its tests run, those of the file's name first, until one fails; a mutant
with which all pass has survived. Nothing is written to the sources: each trial is a process of its own, forked after
everything but the library is imported, that reads the mutant in the file's place. Trials are kept in `--results`, a line
of JSON each, and made once; `--again` repeats those that survived. Exits with 1 if there are survivors that are not in
`EQUIVALENT`.
"""

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
from typing import NamedTuple

from absl import app, flags

from launch import mutants
from launch.equivalent import EQUIVALENT

ROOT = pathlib.Path(__file__).parents[1]
FILES = ('methods/*.py', 'servers/*.py', 'aggregate/*.py', 'codecs.py', 'losses.py', 'distillation.py')
EVERY = ('test_methods', 'test_rules', 'test_simulation')  # tests of all methods, a row each
PASSED = (0, 5)  # codes of pytest: all passed; there were none
SECONDS = 300  # for one mutant and one set of tests; an endless loop is noticed, too

_ONLY = flags.DEFINE_list('only', [], 'Names of files, without .py; default: all.')
_KINDS = flags.DEFINE_list('kinds', [*mutants.KINDS, mutants.SWAP], 'Kinds of mutants.')
_LIST = flags.DEFINE_bool('list', False, 'Print the mutants, and try none.')
_AGAIN = flags.DEFINE_bool('again', False, 'Try those that survived once more.')
_STAGES = flags.DEFINE_integer('stages', 3, 'How many of the sets of tests of `tests_of` are tried.')
_RESULTS = flags.DEFINE_string('results', 'runs/mutants.jsonl', 'What was tried, a line each.')


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


def tests_of(path: pathlib.Path, root: pathlib.Path = ROOT) -> list[list[str]]:
  """Arguments of pytest, in turn: tests of the file's name; tests that use it and those of methods that do; the rows of
  these methods in the tests of all methods."""
  package, name = path.parent.name, path.parent.name if path.stem == '__init__' else path.stem
  words = '|'.join(re.findall(r'^(?:def|class) ([a-zA-Z]\w*)', path.read_text(), re.M)) or name
  module = rf'\b{name}\.\w|' if package != 'methods' else ''  # `fedkd` is a method and the package
  uses = re.compile(rf'{module}\b{package}[. ](?:import .*)?\b(?:{name}|{words})\b')
  named = lambda t, names: re.fullmatch(rf'test_(?:{"|".join(names)})(_.*)?', t.stem)
  tests = sorted(root.glob('tests/**/test_*.py'))
  methods = [m.stem for m in sorted(root.glob('fedkd/methods/[!_]*.py')) if uses.search(m.read_text())]
  methods += [name] * (package == 'methods' and name not in methods)
  own = [t for t in tests if named(t, [name])]
  near = [t for t in tests if t not in own and (uses.search(t.read_text()) or named(t, methods or [name]))]
  every = [t for t in tests if t.stem in EVERY and t not in own]
  stages = [own, [t for t in near if t not in every], [*every, '-k', ' or '.join(methods)] if methods and every else []]
  return [list(map(str, stage)) for stage in stages if stage]


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


def prepare(package: str = 'fedkd'):
  """Imports, once, what every trial needs, except the package: each trial imports that itself."""
  if str(ROOT / 'tests') in sys.path:
    return
  sys.path[:0] = [str(ROOT), str(ROOT / 'tests')]
  os.chdir(ROOT)
  conftest = ROOT / 'tests' / 'conftest.py'
  if conftest.exists():
    runpy.run_path(str(conftest))  # what must be set before JAX is imported
  for name in (
    package,
    f'{package}.methods',
    f'{package}.simulation',
    f'{package}.experiment',
    'pytest',
    '_pytest.python',
  ):
    importlib.import_module(name)
  for name in [name for name in sys.modules if name.partition('.')[0] == package]:
    del sys.modules[name]


def named(path: pathlib.Path, found) -> dict[str, mutants.Mutant]:
  """Mutants by names that outlive changes of other lines; the second of two equal ones ends in #2."""
  names, count = {}, collections.Counter()
  for mutant in found:
    name = f'{path.relative_to(ROOT / "fedkd")} {mutant.function}: {mutant.was} -> {mutant.becomes}'
    count[name] += 1
    names[name if count[name] == 1 else f'{name} #{count[name]}'] = mutant
  return names


class Tests:
  """The sets of tests of a file, what failed in them, and the seconds of each, measured when they are first needed."""

  def __init__(self, path, stages):
    self.path, self.stages, self.kills, self.seconds = path, stages, collections.Counter(), {}
    self.module = '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')

  def try_(self, mutant) -> dict:
    """How the mutant ended, as a part of a line of the results."""
    begun = time.monotonic()
    for i in range(len(self.stages)):
      found = self._stage(i, mutant.source)
      if found.code not in PASSED:
        break
    survived = found.code in PASSED
    by = '' if survived else found.failed or ('timeout' if found.code == 'timeout' else 'import')
    self.kills[by] += 1
    outcome = {'outcome': 'survived' if survived else 'killed', 'by': by, 'stages': i + 1}
    return {**outcome, 'seconds': round(time.monotonic() - begun, 1)}

  def _stage(self, i, source):
    """All tests must pass without a mutant."""
    if i not in self.seconds:
      found = trial('', self.path, '', self.stages[i], self.kills, {}, 10 * SECONDS)
      self.seconds[i] = found.seconds
      if found.code not in PASSED:
        raise SystemExit(f'{self.path}: {found.failed or self.stages[i]} fails without a mutant')
    return trial(self.module, self.path, source, self.stages[i], self.kills, self.seconds[i])


def table(results: list[dict]) -> str:
  """Per file: mutants, killed, equivalent, survived."""
  by_file = collections.defaultdict(collections.Counter)
  for line in results:
    alike = line['outcome'] == 'survived' and line['key'] in EQUIVALENT
    by_file[line['key'].partition(' ')[0]]['equivalent' if alike else line['outcome']] += 1
  names = ('killed', 'equivalent', 'survived')
  lines = [f'{"file":<32}{"mutants":>9}' + ''.join(f'{name:>12}' for name in names)]
  for file, counts in [*sorted(by_file.items()), ('all', sum(by_file.values(), collections.Counter()))]:
    lines.append(f'{file:<32}{counts.total():>9}' + ''.join(f'{counts[name]:>12}' for name in names))
  return '\n'.join(lines)


def main(argv):
  """Prints each mutant with its outcome, and the table."""
  del argv
  store = pathlib.Path(_RESULTS.value).absolute()
  store.parent.mkdir(parents=True, exist_ok=True)
  known = {line['key']: line for line in map(json.loads, store.read_text().splitlines())} if store.exists() else {}
  asked, stems = [], set(_ONLY.value)
  for path in [path for pattern in FILES for path in sorted((ROOT / 'fedkd').glob(pattern))]:
    if stems and path.stem not in stems and path.parent.name not in stems:
      continue
    found = named(path, mutants.mutants(path.read_text(), tuple(_KINDS.value)))
    asked += found
    if _LIST.value:
      print(*(f'{mutant.kind:<10}{mutant.line:>4} {key}\n' for key, mutant in found.items()), sep='', end='')
      continue
    for line in trials(path, {key: found[key] for key in found if wanted(known.get(key))}):
      known[line['key']] = line
      with store.open('a') as file:
        file.write(json.dumps(line) + '\n')
      print(f'{line["outcome"]:<9}{line["seconds"]:>6} s {line["line"]:>4} {line["key"]} {line["by"]}', flush=True)
  results = [known[key] for key in asked if key in known]
  print(table(results))
  sys.exit(any(line['outcome'] == 'survived' and line['key'] not in EQUIVALENT for line in results))


def wanted(line: dict | None) -> bool:
  """Whether a mutant is to be tried, by its line in the results."""
  return line is None or (_AGAIN.value and line['outcome'] == 'survived' and line['key'] not in EQUIVALENT)


def trials(path, found):
  """Yields a line of the results for each mutant."""
  if not found:
    return
  prepare()
  tests = Tests(path, tests_of(path)[: _STAGES.value])
  for key, mutant in found.items():
    yield {'key': key, 'kind': mutant.kind, 'line': mutant.line, **tests.try_(mutant)}


if __name__ == '__main__':
  app.run(main)
