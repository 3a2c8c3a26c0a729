"""Which runs a report is of, and why others are kept out."""

import glob
import os
import pathlib
import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedkd import analysis, files
from fedkd.analysis import compare, differences, results
from fedkd.analysis.figures import values
from fedkd.errors import ConfigError


class Runs(NamedTuple):
  """Finished runs that can be compared, by their labels."""

  paths: dict[str, pathlib.Path]
  summaries: dict[str, dict]
  frame: pd.DataFrame  # tidy
  table: pd.DataFrame  # `analysis.summary`, by run
  base: str  # the reference
  left_out: list[str]  # a sentence for each run that is kept out


def runs(paths: str | os.PathLike | Iterable[str | os.PathLike], reference: str | os.PathLike | None = None) -> Runs:
  """The runs at or below paths or patterns; arguments and errors as of `report`."""
  given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
  if not given and reference is None:
    raise ConfigError('runs is empty; give run directories, or a folder of some')
  directories = [found for path in given for found in _directories(path)]
  if reference is not None and not files.why_no_run(reference):
    directories.append(pathlib.Path(reference))
  finished, left_out = _finished(directories)
  labels, frame = compare.labelled(finished), None
  with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter('always')
    frame = analysis.runs(glob.escape(str(path)) for path in labels.values())
  read = set(frame['run'])
  left_out += [str(warning.message) for warning in told if len(read) < len(labels)]
  known = {label: path for label, path in labels.items() if label in read}
  summaries = {label: results.summary(path) for label, path in known.items()}
  return _compared(Runs(known, summaries, frame, frame, _reference(known, frame, reference), left_out))


def _directories(path) -> list[pathlib.Path]:
  """Run directories at or below a path, or a pattern of paths."""
  matches = [str(path)] if os.path.exists(path) else sorted(glob.glob(str(path), recursive=True))
  found = [directory for match in matches for directory in files.runs_below(match)]
  if not found:
    what = f'holds no run ({files.why_no_run([*matches, path][0])})' if matches else 'does not exist'
    raise ConfigError(f'runs={path} {what}; give run directories, or a folder of some')
  return found


def _finished(directories) -> tuple[list, list]:
  """(those of finished runs; what is wrong with the others)."""
  finished, left_out = [], []
  for path in dict.fromkeys(directory.absolute() for directory in directories):
    try:
      results.summary(path)
      finished.append(path)
    except ConfigError as error:
      left_out.append(str(error))
  if not finished:
    raise ConfigError('no run can be reported: ' + '; '.join(left_out))
  return finished, left_out


def _reference(paths, frame, reference) -> str:
  """The label of the run that the others are compared with."""
  if reference is None:
    return _usual_reference(paths, frame)
  of_path = [label for label, path in paths.items() if path == pathlib.Path(reference).absolute()]
  return of_path[0] if of_path else differences.reference_run(frame, str(reference))


def _usual_reference(paths, frame) -> str:
  """The run of Private, or else any, with which the most runs can be compared; the first of several."""
  last = values.of_metric(frame, 'accuracy').query('client >= 0')
  last = last[last['round'] == last.groupby('run')['round'].transform('max')]
  private = set(last.loc[last['method'] == 'private', 'run'])
  candidates = [label for label in paths if label in private] or list(paths)
  if len(candidates) == 1:
    return candidates[0]
  return max(candidates, key=lambda base: sum(not differences.why_apart(last, run, base) for run in paths))


def _compared(found: Runs) -> Runs:
  """Without the runs that cannot be compared with the reference."""
  table = analysis.summary(found.frame, found.base).set_index('run')
  apart = {run: why for run, why in table['apart'].items() if why}
  told = [f'{run} is not compared with {found.base}: {why}' for run, why in apart.items()]
  if apart and len(table) == len(apart) + 1:
    remedy = 'give runs on the same data, test rows and clients, with a common seed'
    raise ConfigError(f'no run can be compared: {"; ".join(told)}; {remedy}, or another reference')
  keep = lambda by_run: {run: value for run, value in by_run.items() if run not in apart}
  frame = found.frame[~found.frame['run'].isin(list(apart))]
  return Runs(
    keep(found.paths), keep(found.summaries), frame, table.drop(list(apart)), found.base, found.left_out + told
  )


def levels(runs: Runs) -> pd.Series:
  """By which runs are ranked, by run: the gain over the reference in the seeds that both have, as seeds differ by more
  than methods; the mean where the reference has no value. A run with a client that has none is not the best."""
  gain = runs.table['gain']
  return (runs.table['mean'] if gain.isna().all() else gain).fillna(-np.inf)
