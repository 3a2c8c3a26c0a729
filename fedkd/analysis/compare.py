"""Runs side by side: accuracy with interval, paired differences, worst client, examples, megabytes."""

import os
import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from fedkd import analysis
from fedkd.analysis import differences, results

OWN = 'own rows %'  # of each client's accuracy on test rows of its own, mean over clients


def labelled(paths: Iterable[str | os.PathLike]) -> dict:
  """{label: path}, each run once; a label is the shortest end of a path that is unique."""
  unique = list(dict.fromkeys(pathlib.Path(path).absolute() for path in paths))
  for length in range(1, max(len(path.parts) for path in unique) + 1):
    labels = ['/'.join(path.parts[-length:]) for path in unique]
    if len(set(labels)) == len(unique):
      break
  return dict(zip(labels, unique, strict=True))


def table(runs: dict, frame: pd.DataFrame, reference: str | None = None) -> pd.DataFrame:
  """One row per run. Further predictions of a method (`Method.predictions`) have one column each, and so has the
  accuracy on each client's own test rows where a run has such (`tested_on` says which rows the others are on). A run
  that is not compared with the reference says why instead of the difference.

  Args:
    runs: {label: summary}.
    frame: tidy, of the same runs.
    reference: a label; None: the first run whose method is `private`.
  """
  reference = reference or usual_reference(runs)
  why = apart(runs, frame, reference) if reference and reference in runs else {}
  prefix, lines = 'worst_client_', []
  named = dict.fromkeys(key.removeprefix(prefix) for run in runs.values() for key in run if key.startswith(prefix))
  columns = {f'{name} %': f'final_{name}' for name in named} | ({OWN: 'final_local'} if _has_own(runs) else {})
  for label, run in runs.items():
    final = 100 * np.array(run['final'])
    sent = results.sent(run, 'bytes')
    lines.append(
      {
        'run': label,
        'accuracy %': analysis.spread(final),
        'difference': _difference(run, runs.get(reference), why.get(label)) if label != reference else 'reference',
        **{column: _spread(run.get(field)) for column, field in columns.items()},
        'worst client %': analysis.spread(100 * np.array(run['worst_client'])),
        'examples': f'{np.mean(run["examples"]):,.0f}' if 'examples' in run else '-',
        'MB up': megabytes(np.mean(sent['up'])),
        'MB down': megabytes(np.mean(sent['down'])),
        'seconds': f'{run["seconds"]:.0f}',
      }
    )
  return pd.DataFrame(lines)


def tested_on(runs: dict) -> str:
  """On whose test rows the accuracies of `table` are, in a sentence; `runs`: as there."""
  shared = ' or '.join(dict.fromkeys(map(results.tested_on, runs.values())))
  own = f', for {OWN} on its own alone' if _has_own(runs) else ''
  return f'Every client is tested on {shared}{own}.'


def _has_own(runs) -> bool:
  return any('final_local' in run for run in runs.values())


def megabytes(sent: float, digits: int = 3) -> str:
  """Bytes as megabytes, with digits after the point; below 0.001 three significant ones, for a method that sends a
  little is none that sends nothing, '0'."""
  if 0 < sent < 1e3:
    return np.format_float_positional(sent / 1e6, 3, unique=False, fractional=False)
  return f'{sent / 1e6:.{digits}f}' if sent else '0'


def usual_reference(runs: dict) -> str | None:
  """The label of the first run whose method is `private`."""
  return next((label for label, run in runs.items() if run['method'] == 'private'), None)


def apart(runs: dict, frame: pd.DataFrame, reference: str) -> dict[str, str]:
  """{label: why it is not compared with the reference, '' if it is}; arguments as `table`."""
  unread = dict.fromkeys(runs, 'evaluations cannot be read')
  return unread | differences.apart(frame, reference) if any(frame['run'] == reference) else unread


def _spread(accuracy) -> str:
  return '-' if accuracy is None else analysis.spread(100 * np.array(accuracy))


def _difference(run, reference, why) -> str:
  if reference is None:
    return '-'
  if why:
    return f'not compared: {why}'
  by_seed = lambda r: dict(zip(r['seeds'], r['final'], strict=True))
  difference = 100 * analysis.paired(by_seed(run), by_seed(reference))
  return ('+' if difference.mean() >= 0 else '') + analysis.spread(difference)
