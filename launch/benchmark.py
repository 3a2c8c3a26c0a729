"""All methods on the same splits, nets and budgets; also the command `fedkd benchmark`.

  python -m launch.benchmark --suite=digits --profile=small                  # all settings and methods, resumed
  python -m launch.benchmark --suite=digits --settings=skew-0.1 --methods=private,fedavg
  python -m launch.benchmark --list                                          # what is done, and what does not apply
  python -m launch.benchmark --report                                        # docs/benchmark.md from the results

Several processes may share the work, each with its own --settings: a run directory belongs to one at a time.
"""

from absl import app, flags, logging

from fedkd.errors import ConfigError, DivergedError
from launch import exits
from launch.studies.comparison import cells, suite
from launch.studies.comparison.settings import PROFILES, SUITES


def define_flags():
  """The command line. Called only if this is the main program: others have flags of the same names."""
  flags.DEFINE_enum('suite', None, SUITES, 'Data and nets.')
  flags.DEFINE_enum('profile', 'small', PROFILES, 'Sizes.')
  flags.DEFINE_list('settings', None, 'Only these settings.')
  flags.DEFINE_list('methods', None, 'Only these methods.')
  flags.DEFINE_string('out', 'results/benchmark', 'Where the JSON objects go.')
  flags.DEFINE_string('workdir', 'runs/benchmark', 'Where the runs go, until their result is written.')
  flags.DEFINE_string('page', 'docs/benchmark.md', 'What --report writes.')
  flags.DEFINE_bool('list', False, 'List the settings.')
  flags.DEFINE_bool('report', False, 'Write the page and its figures.')


def main(argv):
  """The flags, and errors as exit codes."""
  logging.set_verbosity(logging.ERROR)
  given = flags.FLAGS
  with exits.codes():
    if len(argv) > 1:
      raise ConfigError(f'argument {argv[1]!r} is not a flag; write --suite=digits')
    if given.report:
      from launch.studies.comparison import page  # which draws figures

      page.write(given.out, given.page)
    elif given.suite is None:
      raise ConfigError('give --suite=digits or --suite=photos')
    elif given.list:
      suite.listing(given.suite, given.profile, given.out)
    else:
      chosen = cells.cells(given.suite, given.profile, given.settings, given.methods)
      if diverged := suite.run(chosen, given.out, given.workdir):
        raise DivergedError(f'{len(diverged)} of {len(chosen)} diverged; all others are done')


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
