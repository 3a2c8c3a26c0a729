"""Dirichlet label skew where a random half of the official test rows is public, without labels, and the other half is
the test set: the splits of one-shot methods (Li, He, Song, FedKT, 2021)."""

import numpy as np

from fedkd import config as base
from fedkd.data.sources import Source
from fedkd.data.splits.partition import dirichlet
from fedkd.data.splits.split import Split

HALF = 7  # of the draw, beside the seed


def use(config, concentration: float) -> None:
  """Sets partition and protocol of a config."""
  config.data.partition = base.partition('configs.half_of_tests:skewed', concentration=concentration)
  config.data.protocol = 'configs.half_of_tests:public'


def skewed(
  labels: np.ndarray, clients: int, seed: int, test_labels: np.ndarray, concentration: float
) -> tuple[list, list]:
  """(training rows, test rows) per client: `dirichlet`, and an equal part of the tested half, whose numbers follow on
  those of the training rows."""
  first, _ = _halves(len(test_labels), seed)
  tests = np.array_split(first + len(labels), clients)
  return dirichlet(labels, clients, seed, concentration), [np.sort(rows) for rows in tests]


def public(source: Source, parts: list, seed: int, *shares: float) -> Split:
  """All rows of a client are private, the other half of the official test rows is public."""
  del shares  # nothing is held out or shared
  nothing = [part[:0] for part in parts]
  _, second = _halves(source.tested, seed)
  return Split(parts, nothing, nothing, nothing, np.sort(second + len(source.train_label) - source.tested))


def _halves(count, seed):
  order = np.random.default_rng([seed, HALF]).permutation(count)
  return order[: count // 2], order[count // 2 :]
