"""Reruns the tables of the papers and sets our numbers beside the published ones; also the command `fedkd reproduce`.

  python -m launch.reproduce --list                                    # ids, cost, what is done
  python -m launch.reproduce --id=ID --profile=small --seeds=0,1,2     # every row of a table, resumed where it stopped
  python -m launch.reproduce --id=ID --out=DIR                         # also those whose results are in results/
  python -m launch.reproduce --id=ID --check                           # builds every row and counts its messages
  python -m launch.reproduce --report                                  # RESULTS.md and docs/results/

Each row of a table is a run in --workdir/ID/PROFILE/ROW and ends as one JSON object in --out/ID/PROFILE/ROW.json.
"""

from collections.abc import Sequence

from absl import app, flags, logging

from fedkd.errors import ConfigError
from launch import exits
from launch.studies import papers, reproduction


def define_flags() -> None:
  """The command line. Called only if this is the main program: others have flags of the same names."""
  flags.DEFINE_string('id', None, 'The experiment; see --list.')
  flags.DEFINE_enum('profile', 'small', papers.PROFILES, 'Settings; not every id has a light one.')
  flags.DEFINE_list('seeds', None, 'Seeds; default: those of the config.')
  flags.DEFINE_list('rows', None, 'Only these rows of the table.')
  flags.DEFINE_string('out', 'results', 'Where the JSON objects go.')
  flags.DEFINE_string('workdir', 'runs/reproduce', 'Where the runs go.')
  flags.DEFINE_bool('check', False, 'Build the rows, evaluate a round in shapes, count its messages; no training.')
  flags.DEFINE_bool('list', False, 'List the ids.')
  flags.DEFINE_bool('report', False, 'Write RESULTS.md and docs/results/.')


def main(argv: Sequence[str]) -> None:
  """The flags, and errors as exit codes."""
  logging.set_verbosity(logging.ERROR)
  given = flags.FLAGS
  with exits.codes():
    if len(argv) > 1:
      raise ConfigError(f'argument {argv[1]!r} is not a flag; write --id={argv[1]}')
    if given.list:
      reproduction.listing(given.out)
    elif given.report:
      from launch.studies.papers import report  # which draws figures

      report.write(given.out, 'RESULTS.md')
    elif given.id is None:
      raise ConfigError('give --id=ID, or --list to see which there are')
    elif given.check:
      reproduction.check(given.id, given.profile, seeds_of(given.seeds))
    else:
      reproduction.run(given.id, given.profile, seeds_of(given.seeds), given.rows, given.workdir, given.out)


def seeds_of(words: Sequence[str] | None) -> list | None:
  """The seeds asked for.

  Raises:
    ConfigError: if they are not numbers.
  """
  try:
    return [int(word) for word in words] if words else None
  except ValueError as error:
    raise ConfigError(f'seeds={words} must be whole numbers, as in --seeds=0,1,2') from error


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
