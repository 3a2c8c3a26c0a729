"""What came of a sweep: one row for each point, best first."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedkd.sweep.points import name_of

PER_CENT = {'validation': 'validation %', 'test': 'test %', 'worst': 'worst client %'}


class Tried(NamedTuple):
  """A point, what came of its seeds, why it failed ('' if it did not), and for how many rounds it was trained."""

  point: Mapping[str, Any]
  outcomes: Sequence[Mapping[str, Any]]
  reason: str
  rounds: int


def score(outcomes: Sequence[Mapping[str, Any]]) -> float:
  """The mean validation accuracy over seeds, by which points are ranked."""
  return float(np.mean([one['validation'] for one in outcomes]))


def of(found: Mapping[int, Tried]) -> pd.DataFrame:
  """The table: fields; accuracies in per cent, means over seeds; half the range of validation between seeds; and why a
  point failed. Points are ranked by rounds, then validation; test accuracy is shown and ranks nothing."""
  frame = pd.DataFrame([_row(n, *found[n]) for n in found])
  order = ['rounds', 'validation %', 'point']
  return frame.sort_values(order, ascending=[False, False, True], kind='stable').reset_index(drop=True)


def _row(number, point, outcomes, reason, rounds) -> dict:
  row: dict[str, Any] = {'point': name_of(point), **{f: v if _plain(v) else str(v) for f, v in point.items()}}
  for key, title in PER_CENT.items():
    values = [100 * one[key] for one in outcomes if not reason] or [np.nan]
    row[title] = round(float(np.mean(values)), 2)
    if key == 'validation':
      row['±'] = round((max(values) - min(values)) / 2, 2)
  return {**row, 'seeds': len(outcomes), 'rounds': rounds, 'number': number, 'failed': reason}


def _plain(value) -> bool:
  return isinstance(value, int | float | str | bool)
