"""How sure a difference is: paired over seeds, corrected within a setting, and over settings."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from fedkd import analysis

REGION = 1.0  # points of accuracy within which two methods are practically equivalent
DRAWS = 10_000
FEWEST = 5  # settings that can be drawn from
PRIOR = 0.5  # strength of the pseudo-observation at 0


def over_settings(by_setting: Sequence[ArrayLike]) -> tuple[float, float, float]:
  """(mean, low, high): the mean over settings of the mean over seeds, and a 95 % interval; of settings that are too few
  to be drawn from, Student's t over their means, and over the seeds of one (`analysis.interval`).

  Args:
    by_setting: per setting the differences [seeds].
  """
  if len(by_setting) >= FEWEST:
    return bootstrap(by_setting)
  return analysis.interval(by_setting[0] if len(by_setting) == 1 else [np.mean(one) for one in by_setting])


def bootstrap(by_setting: Sequence[ArrayLike], draws: int = DRAWS) -> tuple[float, float, float]:
  """(mean, low, high): the mean over settings of the mean over seeds, and a 95 % expanded percentile interval of a
  hierarchical bootstrap: settings are drawn, and seeds within each.

  Percentiles of draws from n settings are too close to each other by sqrt((n - 1) / n), and normal where Student's t is
  right; the expanded ones (Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician,
  2015) are further out by as much. Of settings whose means are normal, 95 % of the intervals hold the truth with 5 of
  them, where 2.5 and 97.5 % do in 87 %.

  Args:
    by_setting: per setting the differences [seeds].
    draws: of the bootstrap.
  """
  groups = [np.asarray(one, float) for one in by_setting]
  rng = np.random.default_rng(0)
  drawn = rng.integers(len(groups), size=(draws, len(groups)))
  means = np.zeros(drawn.shape)
  for s, one in enumerate(groups):
    means[drawn == s] = rng.choice(one, (np.sum(drawn == s), len(one))).mean(-1)
  of_draw = means.mean(1)
  tail = ndtr(np.sqrt(len(groups) / (len(groups) - 1)) * stdtrit(len(groups) - 1, 0.025))
  low, high = np.quantile(of_draw, [tail, 1 - tail])
  return float(np.mean([one.mean() for one in groups])), float(low), float(high)


def signed_rank(means: ArrayLike, region: float = REGION, draws: int = DRAWS) -> tuple[float, float, float]:
  """(P(worse), P(equivalent), P(better)): the Bayesian signed-rank test (Benavoli, Corani, Demsar, Zaffalon, 2017,
  section 4.2) of differences between two methods, one for each setting.

  Every draw of the posterior weighs all pairs of differences, and a prior pseudo-observation of 0, by a Dirichlet
  distribution; a pair counts for the side on which its mean lies.

  Args:
    means: [settings], differences.
    region: of practical equivalence, half its width.
    draws: of the posterior.
  """
  values = np.concatenate([[0.0], np.asarray(means, float)])
  strength = np.concatenate([[PRIOR], np.ones(len(values) - 1)])
  weight = np.random.default_rng(0).dirichlet(strength, draws)
  pairs = values[:, None] + values
  mass = lambda side: np.einsum('di,ij,dj->d', weight, side.astype(float), weight)
  sides = np.stack([mass(pairs < -2 * region), mass(np.abs(pairs) <= 2 * region), mass(pairs > 2 * region)])
  wins = np.bincount(sides.argmax(0), minlength=3) / draws
  return float(wins[0]), float(wins[1]), float(wins[2])


def wins(means: ArrayLike) -> tuple[int, int]:
  """(settings with a positive difference, settings)."""
  return int(np.sum(np.asarray(means) > 0)), len(np.asarray(means))
