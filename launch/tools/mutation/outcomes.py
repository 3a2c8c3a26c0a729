"""Which tests may notice a mutant, and whether one of them does."""

import collections
import pathlib
import re
import time

from launch.tools.mutation.trials import SECONDS, Trial, module_of, trial

EVERY = ('test_methods', 'test_rules', 'test_simulation')  # tests of all methods, a row each
PASSED = (0, 5)  # codes of pytest: all passed; there were none


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
