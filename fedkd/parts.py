"""Who owns which rows of one's own arrays, for `fedkd.federation`: natural partitions from a column."""

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from fedkd.checks.kinds import as_array, what_is


def by(column: ArrayLike) -> list[np.ndarray]:
  """The rows of every distinct value of a column, such as the user, the device or the hospital of each example.

  Args:
    column: [N], numbers or text.

  Returns:
    per value, in the order of `numpy.unique(column)`, int64[n] row numbers in ascending order.

  Raises:
    ValueError: for a column that is empty, has another rank, lacks a value (NaN, None, NaT), or has values of types
      that have no order, such as numbers among text.
  """
  values = np.asarray(as_array('column', column, 'one value per example, [N]'))
  if values.ndim != 1 or not len(values):
    raise ValueError(f'column is {what_is(values)}; give one value per example, [N]')
  if isinstance(column, list | tuple):  # of which NumPy has made text or float64, also of what lacks a value
    values = np.array(column, object)
  if values.dtype.kind in 'fcmMO':
    import pandas as pd

    if len(missing := np.flatnonzero(pd.isna(values))):
      row = missing[0]
      raise ValueError(f'column has {values[row]} in row {row}; leave out such rows, or name their owner')
  kinds = {type(value).__name__ for value in values if values.dtype == object}
  if len(kinds) > 1 and not all(isinstance(value, Real) and not isinstance(value, bool) for value in values):
    raise ValueError(f'column has values of several types, {", ".join(sorted(kinds))}; make them all text or numbers')
  _, owner = np.unique(values, return_inverse=True)
  return np.split(np.argsort(owner, kind='stable'), np.cumsum(np.bincount(owner))[:-1])
