"""What came of a sweep: one row for each point, best first."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedkd.sweep.points import name_of

PER_CENT = {'validation': 'validation %', 'test': 'test %', 'worst': 'worst client %'}


def score(outcomes: Sequence[Mapping[str, Any]]) -> float:
  """The mean validation accuracy over seeds, by which points are ranked."""
  return float(np.mean([one['validation'] for one in outcomes]))


def of(points: Mapping[int, Mapping], outcomes: Mapping[int, Sequence[Mapping]], failed: Mapping[int, str]):
  """The table: fields, accuracies in per cent as mean over seeds, half the range between seeds of validation, seeds,
  and why a point failed. Points are ranked by validation; test accuracy is shown and ranks nothing."""
  rows = [_row(n, points[n], outcomes.get(n, ()), failed.get(n, '')) for n in points]
  frame = pd.DataFrame(rows)
  return frame.sort_values(['validation %', 'point'], ascending=[False, True], kind='stable').reset_index(drop=True)


def _row(number, point, outcomes, reason) -> dict:
  row: dict[str, Any] = {'point': name_of(point), **{f: v if _plain(v) else str(v) for f, v in point.items()}}
  for key, title in PER_CENT.items():
    values = [100 * one[key] for one in outcomes]
    row[title] = round(float(np.mean(values)), 2) if values and not reason else np.nan
    if key == 'validation':
      row['±'] = round((max(values) - min(values)) / 2, 2) if values and not reason else np.nan
  return {**row, 'seeds': len(outcomes), 'number': number, 'failed': reason}


def _plain(value) -> bool:
  return isinstance(value, int | float | str | bool)
