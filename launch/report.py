"""Reports on runs, as one page or for an appendix; also the command `fedkd report`.

python -m launch.report RUN RUN ... --out=report.html [--format=html|md] [--reference=RUN] [--question=TEXT]
"""

from collections.abc import Sequence

from absl import app, flags

from fedkd.errors import ConfigError
from launch import exits


def define_flags() -> None:
  """The command line. Called only if this is the main program: others have flags of the same names."""
  flags.DEFINE_string('out', None, 'The file.')
  flags.DEFINE_enum('format', None, ('html', 'md'), 'Default: that of the name of --out.')
  flags.DEFINE_string('reference', None, 'Run directory, or method, to compare with; default: the private run.')
  flags.DEFINE_string('question', '', 'That the runs answer, in a sentence.')


def main(argv: Sequence[str]) -> None:
  """Writes the report, and names the runs that are kept out of it."""
  with exits.codes():
    values = flags.FLAGS
    if len(argv) < 2:
      raise ConfigError('no run given; name run directories or a folder of some, as in runs/private runs/fedhe')
    if not values.out:
      raise ConfigError('give --out, the file of the report, as in --out=report.html')
    from fedkd.report import chosen, write

    form = write.chosen_format(values.out, values.format)
    found = chosen.runs(argv[1:], values.reference)
    size = len(write.written(found, values.out, form, values.question).encode())
    for sentence in found.left_out:
      print(f'kept out: {sentence}')
    count = len(found.paths)
    print(f'{values.out}: {count} run{"s" * (count > 1)}, {size / 1e6:.1f} MB')


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
