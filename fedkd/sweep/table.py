"""What came of a sweep: one row for each point, best first."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedkd.sweep.points import name_of

PER_CENT = {'validation': 'validation %', 'test': 'test %', 'worst': 'worst client %'}


class Tried(NamedTuple):
  """A point, what came of its seeds, why it failed ('' if it did not), and how many rounds it was given."""

  point: Mapping[str, Any]
  outcomes: Sequence[Mapping[str, Any]]
  reason: str
  rounds: int


def score(one: Tried) -> float | None:
  """The mean validation accuracy over seeds, by which points are ranked; None for one that failed or predicts NaN."""
  mean = math.nan if one.reason else float(np.mean([outcome['validation'] for outcome in one.outcomes]))
  return None if math.isnan(mean) else mean


def best(found: Mapping[int, Tried]) -> int | None:
  """The number of the point that is best by validation, the first of equals, among those that were trained for the most
  rounds; None if none of these has a score."""
  longest = max(one.rounds for one in found.values())
  scores = {n: value for n, one in found.items() if one.rounds == longest and (value := score(one)) is not None}
  return max(scores, key=lambda n: (scores[n], -n), default=None)


def of(found: Mapping[int, Tried]) -> pd.DataFrame:
  """The table: fields; accuracies in per cent, means over seeds; half the range of validation between seeds; and why a
  point failed. Points are ranked by rounds, then validation, then number; test accuracy is shown and ranks nothing."""
  last = lambda value: math.inf if value is None else -value
  rank = lambda n: (-found[n].rounds, last(score(found[n])), n)
  return pd.DataFrame([_row(n, *found[n]) for n in sorted(found, key=rank)])


def _row(number, point, outcomes, reason, rounds) -> dict:
  row: dict[str, Any] = {'point': name_of(point), **{f: v if _plain(v) else str(v) for f, v in point.items()}}
  for key, title in PER_CENT.items():
    values = [100 * one[key] for one in outcomes if not reason] or [np.nan]
    row[title] = round(float(np.mean(values)), 2)
    if key == 'validation':
      row['half range'] = round((max(values) - min(values)) / 2, 2)
  rounds = point.get('rounds', rounds)  # where these are searched
  return {**row, 'seeds': len(outcomes), 'rounds': rounds, 'number': number, 'failed': reason}


def _plain(value) -> bool:
  return isinstance(value, int | float | str | bool)
