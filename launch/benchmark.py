"""All methods on the same splits, nets and budgets; also the command `fedkd benchmark`.

  python -m launch.benchmark --suite=digits                           # all tiers, settings and methods, resumed
  python -m launch.benchmark --suite=digits --tiers=different --settings=skew-0.5 --methods=private,fedhe --seeds=0,1,2
  python -m launch.benchmark --suite=digits --add=my_method:factory   # your method in all settings, beside ours
  python -m launch.benchmark --suite=digits --add=my_method:factory --tune=weight:0.1,1  # two values to choose from
  python -m launch.benchmark --suite=digits --list                    # what is done, and what does not apply
  python -m launch.benchmark --report                                 # docs/benchmark.md from the results

Every run is added to the file of its cell as it ends; what is there is never run again or overwritten. Several
processes may share the work.
"""

from collections.abc import Sequence

from absl import app, flags, logging

from fedkd.errors import ConfigError, DivergedError
from launch import exits
from launch.studies.comparison import added, cells, suite, theirs
from launch.studies.comparison.settings import PROFILES, SIZES, SUITES, TIERS

NARROWING = ('suite', 'tiers', 'settings', 'methods', 'seeds', 'add', 'tune')  # flags that leave something out


def define_flags() -> None:
  """The command line. Called only if this is the main program: others have flags of the same names."""
  flags.DEFINE_enum('suite', None, SUITES, 'Data and nets.')
  flags.DEFINE_enum('profile', 'whole', PROFILES, 'Sizes.')
  flags.DEFINE_list('tiers', None, f'Only these of {", ".join(TIERS)}.')
  flags.DEFINE_list('settings', None, 'Only these settings.')
  flags.DEFINE_list('methods', None, 'Only these methods, in this order.')
  flags.DEFINE_list('seeds', None, 'Only these seeds of the tests.')
  flags.DEFINE_string('add', None, 'A method of yours, module:function, in all settings.')
  flags.DEFINE_string('tune', None, 'Of that method an argument with two values to choose from, as weight:0.1,1.')
  flags.DEFINE_string('out', 'results/benchmark', 'Where the JSON objects go.')
  flags.DEFINE_string('page', 'docs/benchmark.md', 'What --report writes.')
  flags.DEFINE_bool('list', False, 'List the settings.')
  flags.DEFINE_bool('report', False, 'Write the page and its figures.')


def main(argv: Sequence[str]) -> None:
  """The flags, and errors as exit codes."""
  logging.set_verbosity(logging.ERROR)
  given = flags.FLAGS
  with exits.codes():
    if len(argv) > 1:
      raise ConfigError(f'argument {argv[1]!r} is not a flag; write --suite=digits')
    _check_lists(given)
    if given.report:
      if narrowed := [f'--{field}' for field in NARROWING if getattr(given, field) is not None]:
        raise ConfigError(f'the page is of all results in --out; leave out {", ".join(narrowed)}')
      from launch.studies.comparison import page  # which draws figures

      if given.profile != page.PROFILE:
        raise ConfigError(f'profile={given.profile!r}: the page is of results of {page.PROFILE}; leave out --profile')
      page.write(given.out, given.page)
    elif given.suite is None:
      raise ConfigError(f'give --suite={"|".join(SUITES)}')
    elif given.list:
      suite.listing(_chosen(given), given.out, _only(given))
    else:
      _run(given)


def _check_lists(given) -> None:
  """Checks that what is given names something, and nothing twice; an empty list would be taken for all."""
  for field in ('add', 'tune'):
    if getattr(given, field) == '':
      raise ConfigError(f'{field} is empty; give it a value, or leave it out')
  for field in ('tiers', 'settings', 'methods', 'seeds'):
    words = getattr(given, field)
    if words == []:
      raise ConfigError(f'{field} is empty; name some, or leave it out for all')
    if twice := next((word for word in words or () if words.count(word) > 1), None):
      raise ConfigError(f'{field}={",".join(words)!r} has {twice!r} twice; name it once')
  _seeds(given)


def _only(given) -> list | None:
  """The methods that are chosen, somebody's own last; None for all."""
  if given.tune and not given.add:
    raise ConfigError(f'tune={given.tune!r} is of a method of yours; give it with --add=module:function')
  return list(dict.fromkeys([*(given.methods or ()), _added(given)])) if given.add else given.methods


def _added(given) -> str:
  return theirs.name_of(given.add, given.tune or '')


def _chosen(given) -> list:
  if given.add and ('@' in given.add or ':' not in given.add):
    raise ConfigError(
      f'add={given.add!r} is not a path; give module:function, with the module on the Python path; an argument whose '
      'value is chosen is given by --tune'
    )
  if given.add:
    theirs.factory(_added(given))
  return cells.cells(given.suite, given.profile, given.tiers, given.settings, _only(given))


def _run(given) -> None:
  chosen, seeds = _chosen(given), _seeds(given)
  others = [cell for cell in chosen if theirs.is_added(cell.method)]
  _check_added(others, given.out, seeds)
  if first := _references(others, given.out, seeds):
    places = '; '.join(f'{cell.place.tier}, {cell.place.setting}' for cell in first)
    print(f'private, with which {others[0].method} is compared, is run first in {places}', flush=True)
  hopeless = suite.run([*first, *(cell for cell in chosen if cell not in first)], given.out, seeds)
  if given.add:
    from launch.studies.comparison import tables

    print(tables.beside([cell for cell in others if cell.method == _added(given)], given.out))
  if hopeless:
    raise DivergedError(f'every choice diverged in {len(hopeless)} of {len(chosen)} cells; all others are done')


def _is_left(cell: cells.Cell, out: str, seeds: list | None) -> bool:
  private = cells.read(cell._replace(method='private'), out)
  return bool(cells.left(cells.read(cell, out), private, seeds or SIZES[cell.place.profile].seeds))


def _references(others: list, out: str, seeds: list | None) -> list:
  """The cells of Private that lack runs: without them a method of somebody else's has no gain."""
  every = dict.fromkeys(cell._replace(method='private') for cell in others)
  return [cell for cell in every if _is_left(cell, out, seeds)]


def _check_added(others: list, out: str, seeds: list | None) -> None:
  """Checks the methods of somebody else's of which something is still to be run."""
  places: dict = {}
  for cell in others:
    if _is_left(cell, out, seeds):
      places.setdefault(cell.method, []).append(cell.place)
  for method, of_method in places.items():
    added.check(of_method, method)


def _seeds(given) -> list | None:
  known = SIZES[given.profile].seeds
  if given.seeds is None:
    return None
  try:
    seeds = [int(seed) for seed in given.seeds]
  except ValueError:
    seeds = []
  if not seeds or len({*seeds} & {*known}) < len(seeds):
    raise ConfigError(f'seeds={",".join(given.seeds)!r} must be some of {", ".join(map(str, known))}, each once')
  return seeds


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
