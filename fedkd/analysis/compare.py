"""Runs side by side: accuracy with interval, paired differences, worst client, megabytes."""

import os
import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from fedkd import analysis
from fedkd.analysis import results


def labelled(paths: Iterable[str | os.PathLike]) -> dict:
  """{label: path}, each run once; a label is the shortest end of a path that is unique."""
  unique = list(dict.fromkeys(pathlib.Path(path).absolute() for path in paths))
  for length in range(1, max(len(path.parts) for path in unique) + 1):
    labels = ['/'.join(path.parts[-length:]) for path in unique]
    if len(set(labels)) == len(unique):
      break
  return dict(zip(labels, unique, strict=True))


def table(runs: dict, reference: str | None = None) -> pd.DataFrame:
  """One row per run; `runs` is {label: summary}, `reference` a label or None for the private run's. Further
  predictions of a method (`Method.predictions`) have one column each."""
  if reference is None:
    reference = next((label for label, run in runs.items() if run['method'] == 'private'), None)
  prefix, lines = 'worst_client_', []
  named = dict.fromkeys(key.removeprefix(prefix) for run in runs.values() for key in run if key.startswith(prefix))
  for label, run in runs.items():
    final = 100 * np.array(run['final'])
    sent = results.sent(run, 'bytes')
    lines.append(
      {
        'run': label,
        'accuracy %': analysis.spread(final),
        'difference': _difference(run, runs.get(reference)) if label != reference else 'reference',
        **{f'{name} %': _spread(run.get(f'final_{name}')) for name in named},
        'worst client %': analysis.spread(100 * np.array(run['worst_client'])),
        'MB up': f'{np.mean(sent["up"]) / 1e6:.3f}',
        'MB down': f'{np.mean(sent["down"]) / 1e6:.3f}',
        'seconds': f'{run["seconds"]:.0f}',
      }
    )
  return pd.DataFrame(lines)


def _spread(accuracy) -> str:
  return '-' if accuracy is None else analysis.spread(100 * np.array(accuracy))


def _difference(run, reference) -> str:
  if reference is None:
    return '-'
  by_seed = lambda r: dict(zip(r['seeds'], r['final'], strict=True))
  difference = 100 * analysis.paired(by_seed(run), by_seed(reference))
  if not len(difference):
    return 'no common seeds'
  return ('+' if difference.mean() >= 0 else '') + analysis.spread(difference)
