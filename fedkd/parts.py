"""Who owns which rows of one's own arrays, for `fedkd.federation`: natural partitions from a column."""

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
    ValueError: for a column that is empty, has another rank, or holds NaN.
  """
  values = np.asarray(as_array('column', column, 'one value per example, [N]'))
  if values.ndim != 1 or not len(values):
    raise ValueError(f'column is {what_is(values)}; give one value per example, [N]')
  if values.dtype.kind == 'f' and np.isnan(values).any():
    raise ValueError(f'column has NaN in row {int(np.isnan(values).argmax())}; leave out its rows, or name their owner')
  _, owner = np.unique(values, return_inverse=True)
  return np.split(np.argsort(owner, kind='stable'), np.cumsum(np.bincount(owner))[:-1])
