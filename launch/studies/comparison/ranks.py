"""Methods compared over settings: average ranks and their critical difference (Demsar, 2006, section 3.2.2)."""

import numpy as np


def shared(everything, leave_out=()) -> dict:
  """{method: accuracies float[N]} of the methods that have a result in all settings but those left out.

  Args:
    everything: {setting: {method: result}}.
    leave_out: names of settings.
  """
  kept = [each for setting, each in everything.items() if setting not in leave_out]
  common = [name for name in kept[0] if all(name in each for each in kept)] if kept else []
  return {name: np.array([np.mean(each[name]['per_seed']['final']) for each in kept]) for name in common}


def average_ranks(accuracy) -> dict:
  """{method: mean rank over settings}, 1 the most accurate, equals share theirs; the best first.

  Args:
    accuracy: {method: float[N]}, one number per setting.
  """
  from scipy import stats

  means = stats.rankdata(-np.array(list(accuracy.values())), axis=0).mean(1)
  return dict(sorted(zip(accuracy, map(float, means), strict=True), key=lambda pair: pair[1]))


def critical_difference(methods: int, settings: int) -> float:
  """Nemenyi's at 5 %: average ranks of two methods that are closer do not differ significantly."""
  from scipy import stats

  quantile = stats.studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
  return float(quantile * np.sqrt(methods * (methods + 1) / (6 * settings)))
