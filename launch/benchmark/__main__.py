"""All methods on the same splits, nets and budgets; also the command `fedkd benchmark`.

  python -m launch.benchmark --suite=digits --profile=small                  # all settings and methods, resumed
  python -m launch.benchmark --suite=digits --settings=skew-0.1 --methods=private,fedavg
  python -m launch.benchmark --list                                          # what is done, and what does not apply
  python -m launch.benchmark --report                                        # docs/benchmark.md from the results

Several processes may share the work, each with its own --settings: a run directory belongs to one at a time.
"""

import gc

from absl import app, flags, logging

from fedkd.errors import ConfigError, DivergedError
from launch import exits
from launch.benchmark import cells
from launch.benchmark.settings import PROFILES, SUITES, reason, settings


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


def run(chosen, out, workdir) -> list:
  """Runs the cells whose result is not there; returns those that diverged.

  Raises:
    ConfigError: for a result of another config, before anything is run.
  """
  import jax

  left, diverged = [cell for cell in chosen if not cells.is_done(cell, out)], []
  print(f'{len(chosen) - len(left)} of {len(chosen)} are there', flush=True)
  for i, cell in enumerate(left, 1):
    print(f'{i}/{len(left)} {cell.setting} {cell.method}', flush=True)
    try:
      cells.run(cell, out, workdir)
    except DivergedError as error:
      print(f'{cell.setting} {cell.method}: {error}', flush=True)
      diverged.append(cell)
    jax.clear_caches()  # hundreds of programs would fill the memory
    gc.collect()
  return diverged


def listing(suite, profile, out):
  """Prints how much of every setting is there, and what does not apply."""
  from fedkd import methods

  for name, setting in settings(suite, profile).items():
    every = cells.cells(suite, profile, [name])
    done = sum(cells.path_of(cell, out).exists() for cell in every)
    print(f'{name:14s} {done} of {len(every)} methods done  {setting.title}')
    for method in methods.__all__:
      if why := reason(method, name):
        print(f'  not {method}: {why}')


def main(argv):
  """The flags, and errors as exit codes."""
  logging.set_verbosity(logging.ERROR)
  given = flags.FLAGS
  with exits.codes():
    if len(argv) > 1:
      raise ConfigError(f'argument {argv[1]!r} is not a flag; write --suite=digits')
    if given.report:
      from launch.benchmark import page

      page.write(given.out, given.page)
    elif given.suite is None:
      raise ConfigError('give --suite=digits or --suite=photos')
    elif given.list:
      listing(given.suite, given.profile, given.out)
    else:
      chosen = cells.cells(given.suite, given.profile, given.settings, given.methods)
      if diverged := run(chosen, given.out, given.workdir):
        raise DivergedError(f'{len(diverged)} of {len(chosen)} diverged; all others are done')


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
