"""What the difference of two rows says about a claim of a paper: one word out of `WORDS`, with its definition."""

import numpy as np

from fedkd import analysis

PUBLISHED = 'paper'  # the profile with the published setting
AGREES, LARGER, SMALLER, SIGN = 'agrees', 'sign only, larger', 'sign only, smaller', 'sign only'
OPEN, INCOMPATIBLE, SCALE, UNDECIDED = 'an open choice decides', 'incompatible', 'scale too small', 'undecided'
WITHIN, NOT_RUN = 'within a margin', 'not run'
WORDS = {
  AGREES: 'the interval lies above 0 and contains the printed difference',
  LARGER: 'the interval lies above 0, and above the printed difference',
  SMALLER: 'the interval lies above 0, and below the printed difference',
  SIGN: 'the interval lies above 0, and no difference is printed',
  WITHIN: 'of a claim that allows for some points less, by our choice: the interval lies above minus that many',
  OPEN: 'the claim holds by one reading of what the paper leaves open, and by another it does not or is undecided',
  INCOMPATIBLE: 'in the published setting the interval lies below 0, or around 0 and below the printed difference',
  SCALE: 'the same in a smaller setting than the published one, so that it says nothing about that',
  UNDECIDED: 'fewer than three seeds, or an interval that contains 0 and does not exclude the printed difference',
  NOT_RUN: 'there is no result for one of the rows',
}
HOLDS = (AGREES, LARGER, SMALLER, SIGN)


def word(
  difference: np.ndarray, printed: float | None, profile: str, margin: float = 0.0, other: np.ndarray | None = None
) -> str:
  """The word for a claim that `difference` is above 0.

  Args:
    difference: [seeds], points, paired.
    printed: the paper's difference, None where none is printed.
    profile: of the runs.
    margin: points by which it may lie below 0, for which what is printed does not count; or, below 0, that it has to
      lie above. In the definitions 0 is then minus that many.
    other: [seeds], the difference by another reading of what the paper leaves open.
  """
  plain = _plain(difference, printed, profile, margin)
  if other is None or len(other) < 3 or len(difference) < 3:
    return plain
  holds = lambda found: analysis.interval(found)[1] > -margin
  return plain if holds(difference) == holds(other) else OPEN


def _plain(difference, printed, profile, margin) -> str:
  if len(difference) < 3:
    return UNDECIDED
  _, low, high = analysis.interval(difference)
  below = printed is not None and high < printed and margin <= 0
  if margin > 0 and low > -margin:
    return WITHIN
  if low > -margin:
    return SIGN if printed is None else SMALLER if below else LARGER if low > printed else AGREES
  if high < -margin or below:
    return INCOMPATIBLE if profile == PUBLISHED else SCALE
  return UNDECIDED


def p_value(difference: np.ndarray, margin: float = 0.0) -> float:
  """Of a paired t test, two-sided, that the mean difference is minus `margin`; NaN below three seeds, or without
  spread."""
  return analysis.p_value(np.asarray(difference) + margin)
