"""Which mutants are tried, by names that outlive other changes, and the table of what became of them."""

import argparse
import collections
import json
import pathlib
import re

from launch.tools.mutation import mutants
from launch.tools.mutation.equivalent import EQUIVALENT
from launch.tools.mutation.outcomes import Tests
from launch.tools.mutation.trials import prepare

FILES = ('methods/*.py', 'servers/*.py', 'aggregate/*.py', 'codecs/*.py', 'losses.py', 'distillation.py')
OUTCOMES = ('killed', 'equivalent', 'survived')


def named(path: pathlib.Path, root: pathlib.Path, kinds: tuple[str, ...]) -> dict[str, mutants.Mutant]:
  """A file's mutants by names that outlive changes of other lines; the second of two equal ones ends in #2."""
  names, count = {}, collections.Counter()
  for mutant in mutants.mutants(path.read_text(), kinds):
    name = f'{path.relative_to(root / "fedkd")} {mutant.function}: {mutant.was} -> {mutant.becomes}'
    count[name] += 1
    names[name if count[name] == 1 else f'{name} #{count[name]}'] = mutant
  return names


def chosen(path: pathlib.Path, root: pathlib.Path, asked: argparse.Namespace) -> dict[str, mutants.Mutant]:
  """The mutants of a file that the command line asks for, by name."""
  names = {path.stem, path.relative_to(root / 'fedkd').parts[0]}
  if asked.only and not names & set(asked.only):
    return {}
  found = named(path, root, tuple(asked.kinds))
  return {key: mutant for key, mutant in found.items() if re.search(asked.match, key)}


def is_new(key: str, known: dict, again: bool) -> bool:
  """Whether a mutant is to be tried."""
  again = again and known.get(key, {}).get('outcome') == 'survived'
  return key not in EQUIVALENT and (key not in known or again)


def table(outcomes: dict[str, str]) -> str:
  """Per file: mutants, killed, equivalent, survived."""
  by_file = collections.defaultdict(collections.Counter)
  for name, outcome in outcomes.items():
    by_file[name.partition(' ')[0]][outcome] += 1
  lines = [f'{"file":<32}{"mutants":>9}' + ''.join(f'{name:>12}' for name in OUTCOMES)]
  for file, counts in [*sorted(by_file.items()), ('all', sum(by_file.values(), collections.Counter()))]:
    lines.append(f'{file:<32}{counts.total():>9}' + ''.join(f'{counts[name]:>12}' for name in OUTCOMES))
  return '\n'.join(lines)


def run(asked: argparse.Namespace) -> bool:
  """Tries the mutants that are asked for, and prints each with its outcome, and the table; whether one survived."""
  root, store = pathlib.Path(asked.root).resolve(), pathlib.Path(asked.results).absolute()
  store.parent.mkdir(parents=True, exist_ok=True)
  known = {line['key']: line for line in map(json.loads, store.read_text().splitlines())} if store.exists() else {}
  paths = [path for pattern in FILES for path in sorted((root / 'fedkd').glob(pattern))]
  of_path = {path: chosen(path, root, asked) for path in paths}
  if asked.list:
    print(
      *(f'{mutant.kind:<10}{mutant.line:>4} {key}' for of in of_path.values() for key, mutant in of.items()), sep='\n'
    )
    return False
  prepare(paths, root)
  for path, found in of_path.items():
    tests = Tests(path, root, asked.stages)
    for key in (key for key in found if is_new(key, known, asked.again)):
      line = {'key': key, 'kind': found[key].kind, 'line': found[key].line, **tests.outcome(found[key])}
      known[key] = line
      with store.open('a') as file:
        file.write(json.dumps(line) + '\n')
      print(f'{line["outcome"]:<9}{line["seconds"]:>6} s {line["line"]:>4} {key} {line["by"]}', flush=True)
  told = [key for found in of_path.values() for key in found if key in known or key in EQUIVALENT]
  outcomes = {key: 'equivalent' if key in EQUIVALENT else known[key]['outcome'] for key in told}
  print(table(outcomes))
  return 'survived' in outcomes.values()
