"""How sure a difference is: paired over seeds, corrected within a setting, and over settings."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

REGION = 1.0  # points of accuracy within which two methods are practically equivalent
DRAWS = 10_000
PRIOR = 0.5  # strength of the pseudo-observation at 0


def bootstrap(by_setting: Sequence[ArrayLike], draws: int = DRAWS) -> tuple[float, float, float]:
  """(mean, low, high): the mean over settings of the mean over seeds, and a 95 % percentile interval of a hierarchical
  bootstrap: settings are drawn, and seeds within each.

  Args:
    by_setting: per setting the differences [seeds].
    draws: of the bootstrap.
  """
  groups = [np.asarray(one, float) for one in by_setting]
  rng = np.random.default_rng(0)
  means = np.stack([rng.choice(one, (draws, len(groups), len(one))).mean(-1) for one in groups])  # [S, draws, S]
  drawn = rng.integers(len(groups), size=(draws, len(groups)))
  of_draw = means[drawn, np.arange(draws)[:, None], np.arange(len(groups))].mean(1)
  low, high = np.percentile(of_draw, [2.5, 97.5])
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
