"""What trackers show of an evaluation and of a summary: numbers by name."""

from collections.abc import Sequence

import numpy as np


def means(row: dict) -> dict[str, float]:
  """The mean over seeds of every metric that is one number per seed, or None in some; not of the seeds themselves."""
  found = {}
  for name, values in row.items():
    if name == 'seeds':
      continue
    known = [value for value in values if value is not None] if isinstance(values, list) else []
    if known and all(isinstance(value, int | float) for value in known):
      found[name] = float(np.mean(known))
  return found


def per_client(row: dict) -> dict[str, np.ndarray]:
  """{'accuracy': float[clients]}, the mean over seeds of every metric that is a number per client."""
  suffix = '_per_client'
  found = {name.removesuffix(suffix): _numbers(values) for name, values in row.items() if name.endswith(suffix)}
  return {name: values.mean(0) for name, values in found.items() if values.ndim == 2 and np.isfinite(values).all()}


def _numbers(values) -> np.ndarray:
  """float[seeds, clients], NaN where there is no value; without axes for what is no such table."""
  try:
    return np.asarray(values, float)
  except (TypeError, ValueError):  # of another number of clients in each seed
    return np.array(np.nan)


def table(row: dict, clients: Sequence[int]) -> tuple[list[str], list[list]]:
  """(columns, lines): a line per client, with every metric of `per_client`."""
  found = {name: values for name, values in per_client(row).items() if len(values) == len(clients)}
  lines = [[int(client), *(float(values[i]) for values in found.values())] for i, client in enumerate(clients)]
  return ['client', *found], lines


def headline(summary: dict) -> dict[str, float | str]:
  """The numbers and words of a summary, those of seeds as their mean."""
  plain = {name: value for name, value in summary.items() if isinstance(value, int | float | str)}
  return plain | means(summary)
