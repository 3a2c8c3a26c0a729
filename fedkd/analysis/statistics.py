"""Intervals over seeds, and tables of them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # the quantile of Student's t, without the second that scipy.stats takes to import

FEWEST = 3  # seeds for an interval or a test


def interval(values: Any) -> tuple[float, float, float]:
  """(mean, low, high): a 95 % Student t interval over seeds; with fewer than three seeds the range.

  Raises:
    ValueError: unless there is one number for each seed.
  """
  values = of_seeds(values)
  if not len(values):
    raise ValueError('values is empty; give a number for each seed')
  mean = values.mean()
  if len(values) < FEWEST:
    return mean, values.min(), values.max()
  half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
  return mean, mean - half, mean + half


def of_seeds(values: Any) -> np.ndarray:
  """Numbers [seeds].

  Raises:
    ValueError: for another shape, such as [seeds, clients], over which an interval would be too narrow.
  """
  values = np.asarray(values, float)
  if values.ndim != 1:
    shape = list(values.shape)
    raise ValueError(f'values has shape {shape}; give one number for each seed, such as the mean over its clients')
  return values


def paired(one: dict, other: dict) -> np.ndarray:
  """Differences over the seeds that both have, [common seeds]; `one` and `other` are {seed: value}."""
  return np.array([one[seed] - other[seed] for seed in one if seed in other])


def published(
  head: ArrayLike, prototypes: ArrayLike, rows: ArrayLike
) -> tuple[tuple[float, float], tuple[float, float]]:
  """What the evaluation in FedProto's published code prints (Tan et al., 2022, Table 1): (mean, standard deviation over
  users) of the accuracy by the head, and of that by prototypes.

  Its counters are set to 0 before the loop over users, and both ways of predicting add to them. User i is therefore
  assigned the accuracy of all users up to it by both ways together, so that early users count more, and the deviation
  is far below that of the users' own accuracies.

  Args:
    head, prototypes: int[K], correct predictions of each user.
    rows: int[K], test rows of each user.
  """
  head, prototypes, rows = (np.asarray(values, float) for values in (head, prototypes, rows))
  correct, seen = np.cumsum(head + prototypes), 2 * np.cumsum(rows)
  both = correct / seen
  first = (correct - prototypes) / (seen - rows)
  return (first.mean(), first.std()), (both.mean(), both.std())


def spread(values: Any, unit: str = '') -> str:
  """'mean ± half width', or 'mean [low, high]' for fewer than three seeds."""
  mean, low, high = interval(values)
  if len(values) >= FEWEST:
    return f'{mean:.2f} ± {high - mean:.2f}{unit}'
  return f'{mean:.2f} [{low:.2f}, {high:.2f}]{unit}' if len(values) > 1 else f'{mean:.2f}{unit}'


def markdown(frame: Any) -> str:
  """A DataFrame of strings as a Markdown table, in which a bar inside a cell does not end it."""
  rows = [list(frame.columns), ['---'] * len(frame.columns), *frame.astype(str).values.tolist()]
  cell = lambda text: str(text).replace('|', r'\|')
  return '\n'.join('| ' + ' | '.join(map(cell, row)) + ' |' for row in rows)
