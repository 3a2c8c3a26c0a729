"""Compares runs: accuracy with interval, paired difference to a reference, worst client, megabytes, seconds.

python -m launch.compare RUN RUN ... [--reference=RUN] [--out=DIR] [--results=results/ID/PROFILE]

The reference defaults to the run whose method is `private`. Differences are paired over seeds. Intervals are 95 %
Student t; below three seeds the range is given instead. Writes table.csv, table.md and figures to --out, and one
JSON per method, to be committed, to --results.
"""

import pathlib

import numpy as np
import pandas as pd
from absl import app, flags

from fedkd import analysis, log, results
from fedkd.errors import ConfigError
from launch import exits

_REFERENCE = flags.DEFINE_string('reference', None, 'Run directory to compare with; default: the private run.')
_RESULTS = flags.DEFINE_string('results', None, 'ID/PROFILE folder for one JSON per method.')
_OUT = flags.DEFINE_string('out', None, 'Where table.csv, table.md and the figures go.')


def table(runs, reference=None) -> pd.DataFrame:
  """One row per run; `runs` is {label: summary}, `reference` a label or None for the private run's."""
  if reference is None:
    reference = next((label for label, run in runs.items() if run['method'] == 'private'), None)
  lines = []
  for label, run in runs.items():
    final = 100 * np.array(run['final'])
    sent = results.sent(run, 'bytes')
    lines.append(
      {
        'run': label,
        'accuracy %': analysis.spread(final),
        'difference': _difference(run, runs.get(reference)) if label != reference else 'reference',
        'worst client %': analysis.spread(100 * np.array(run['worst_client'])),
        'MB up': f'{np.mean(sent["up"]) / 1e6:.3f}',
        'MB down': f'{np.mean(sent["down"]) / 1e6:.3f}',
        'seconds': f'{run["seconds"]:.0f}',
      }
    )
  return pd.DataFrame(lines)


def _difference(run, reference) -> str:
  if reference is None:
    return '-'
  by_seed = lambda r: dict(zip(r['seeds'], r['final'], strict=True))
  difference = 100 * analysis.paired(by_seed(run), by_seed(reference))
  if not len(difference):
    return 'no common seeds'
  return ('+' if difference.mean() >= 0 else '') + analysis.spread(difference)


def main(argv):
  """Prints the table and writes the files."""
  with exits.codes():
    if len(argv) < 2:
      raise ConfigError('no run given; write python -m launch.compare RUN RUN ...')
    paths = {pathlib.Path(p).name: pathlib.Path(p) for p in argv[1:]}
    if _REFERENCE.value:
      paths.setdefault(pathlib.Path(_REFERENCE.value).name, pathlib.Path(_REFERENCE.value))
    runs = {label: results.summary(path) for label, path in paths.items()}
    frame = table(runs, pathlib.Path(_REFERENCE.value).name if _REFERENCE.value else None)
    print(frame.to_string(index=False))
    if _RESULTS.value:
      folder = pathlib.Path(_RESULTS.value)
      log.make(folder)
      for path in paths.values():
        one = results.of_run(path, folder.parent.name, folder.name)
        log.write_json(folder / f'{one["method"]}.json', one)
    if _OUT.value:
      out = pathlib.Path(_OUT.value)
      log.make(out)
      frame.to_csv(out / 'table.csv', index=False)
      (out / 'table.md').write_text(analysis.markdown(frame) + '\n')
      frames = {label: analysis.read(path) for label, path in paths.items()}
      analysis.save(analysis.curves(frames), out / 'accuracy_rounds.png')
      analysis.save(analysis.curves(frames, 'turns', 'client turns'), out / 'accuracy_turns.png')
      analysis.save(analysis.megabytes(frames), out / 'accuracy_megabytes.png')


if __name__ == '__main__':
  app.run(main)
