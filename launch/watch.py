"""Shows runs while they train; also the command `fedkd watch`.

python -m launch.watch DIR [--once]

Exit code 3 if a run has failed or was stopped before its end.
"""

import sys
from collections.abc import Sequence

from absl import app, flags

from fedkd.errors import ConfigError
from launch import exits


def define_flags() -> None:
  """The command line. Called only if this is the main program: others have flags of the same names."""
  flags.DEFINE_bool('once', False, 'Print one table and end.')


def main(argv: Sequence[str]) -> None:
  """Shows, and ends when nothing is running, or on Ctrl-C, which is no error of the runs."""
  with exits.codes():
    if len(argv) != 2:
      raise ConfigError('give one folder of runs, as in fedkd watch runs')
    from fedkd.watch import view

    try:
      sys.exit(view.exit_code(view.watch(argv[1], flags.FLAGS.once)))
    except KeyboardInterrupt:
      sys.exit(130)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
