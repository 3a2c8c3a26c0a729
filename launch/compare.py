"""Compares runs: accuracy with interval, paired difference to a reference, accuracy on own test rows, worst client,
examples, megabytes, seconds; also the command `fedkd compare`.

python -m launch.compare RUN RUN ... [--reference=RUN] [--out=DIR] [--results=results/ID/PROFILE]

The reference defaults to the first run whose method is `private`. Differences are paired over seeds; of a run on other
data, test rows or clients the table says so instead. Intervals are 95 % Student t; below three seeds the range is given
instead. Writes table.csv, table.md and figures to --out, and one JSON per method, to be committed, to --results.
"""

import contextlib
import glob
import pathlib
from collections.abc import Iterable, Iterator, Sequence

from absl import app, flags

from fedkd import analysis, files
from fedkd.analysis import compare, results
from fedkd.analysis.figures import notes
from fedkd.errors import ConfigError
from launch import exits

_REFERENCE = flags.DEFINE_string('reference', None, 'Run directory to compare with; default: the private run.')
_RESULTS = flags.DEFINE_string('results', None, 'ID/PROFILE folder for one JSON per method.')
_OUT = flags.DEFINE_string('out', None, 'Where table.csv, table.md and the figures go.')
NAMED = 3  # runs below a figure, of each reason
LINE = 0.17  # inches


def write_results(paths: Iterable[str], folder: pathlib.Path) -> None:
  """One JSON per run and method.

  Raises:
    ConfigError: for two runs of one method, before anything is written.
  """
  every = [results.of_run(path, folder.parent.name, folder.name) for path in paths]
  names = [one['method'] for one in every]
  if twice := {name for name in names if names.count(name) > 1}:
    raise ConfigError(f'results={folder}: two runs of {sorted(twice)[0]} would be one file; give them one by one')
  files.make(folder, 'results')
  for one in every:
    files.write_json(folder / f'{one["method"]}.json', one)


def write_table(table, tidy, why: dict[str, str], out: pathlib.Path) -> None:
  """The table, and figures of the tidy frame of its runs; `why`: {run: why it is not compared}, said below them."""
  table.to_csv(out / 'table.csv', index=False)
  (out / 'table.md').write_text(analysis.markdown(table) + '\n')
  colours = analysis.colours(tidy)
  for x, name in (('round', 'rounds'), ('updates', 'turns'), ('megabytes', 'megabytes')):
    axes = analysis.curves(tidy, x, colours=colours)
    _say_below(axes, _not_compared(why))
    analysis.save(axes, out / f'accuracy_{name}.png')


def _say_below(axes, lines) -> None:
  """Adds lines below a figure, which is made higher by as many: names at the ends of its lines keep their places."""
  said, figure = axes.get_xlabel(), axes.figure
  text = notes.below(said, *lines)
  axes.set_xlabel(text, parse_math=False)
  figure.set_figheight(figure.get_figheight() + LINE * (text.count('\n') - said.count('\n')))


def _not_compared(why) -> list[str]:
  """For each reason a line with the first runs of which it is true; the table names all."""
  by_reason: dict[str, list[str]] = {}
  for run, reason in why.items():
    by_reason.setdefault(reason, []).append(run)
  more = lambda runs: f' and {len(runs) - NAMED} more' * (len(runs) > NAMED)
  return [
    f'not compared ({reason}): {", ".join(runs[:NAMED])}{more(runs)}' for reason, runs in by_reason.items() if reason
  ]


@contextlib.contextmanager
def folder_of(flag: flags.FlagHolder) -> Iterator[pathlib.Path | None]:
  """The directory that a flag names, made; None without one.

  Raises:
    ConfigError: if it cannot be made, or what is written into it meanwhile cannot.
  """
  folder = flag.value and pathlib.Path(flag.value)
  if folder:
    files.make(folder, flag.name)
  try:
    yield folder
  except OSError as error:
    raise ConfigError(f'{flag.name}={folder}: {error.filename} cannot be written ({error.strerror})') from error


def main(argv: Sequence[str]) -> None:
  """Prints the table and writes the files."""
  with exits.codes():
    if len(argv) < 2:
      raise ConfigError('no run given; name at least one run directory, as in runs/private runs/fedhe')
    paths = compare.labelled([*argv[1:], *([_REFERENCE.value] if _REFERENCE.value else [])])
    runs = {label: results.summary(path) for label, path in paths.items()}
    reference = _REFERENCE.value and pathlib.Path(_REFERENCE.value).absolute()
    with folder_of(_RESULTS) as folder, folder_of(_OUT) as out:  # before the table, which takes a while
      tidy = analysis.runs(glob.escape(str(path)) for path in paths.values())
      base = next((label for label, path in paths.items() if path == reference), None) or compare.usual_reference(runs)
      table = compare.table(runs, tidy, base)
      print(table.to_string(index=False))
      print(compare.tested_on(runs))
      if folder:
        write_results(paths.values(), folder)
      if out:
        write_table(table, tidy, compare.apart(runs, tidy, base) if base else {}, out)


if __name__ == '__main__':
  app.run(main, flags_parser=exits.parse)
