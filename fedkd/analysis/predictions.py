"""What clients' predictions are like: confusion, accuracy per class, calibration, disagreement, own and others' rows.

Of the logits [..., N, C] or classes [..., N] that `Simulation.logits` and `Simulation.predict` give for N examples;
leading axes are clients, or seeds and clients.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from fedkd.checks.kinds import check_one_each, is_integer, what_is, whole_number
from fedkd.errors import ConfigError


def confusion(predicted: ArrayLike, y: ArrayLike, classes: int) -> np.ndarray:
  """How many examples of each class (rows) are taken for each class (columns).

  Args:
    predicted: int[..., N].
    y: int[N], the true classes.
    classes: C.

  Returns:
    int64[..., C, C].

  Raises:
    ConfigError: for another number of true classes than of predictions, or what is no class from 0 to C-1.
  """
  classes = whole_number('classes', classes)
  predicted, y = _numbers('predicted', predicted, classes), _numbers('y', y, classes)
  check_one_each('y', y, predicted.shape[-1], 'predictions')
  flat = predicted.reshape(-1, len(y))
  counts = [np.bincount(y * classes + row, minlength=classes**2).reshape(classes, classes) for row in flat]
  return np.reshape(counts, (*predicted.shape[:-1], classes, classes))


def per_class(predicted: ArrayLike, y: ArrayLike, classes: int) -> np.ndarray:
  """The accuracy on the examples of each class, float[..., C], NaN for a class without any; arguments as of
  `confusion`."""
  counts = confusion(predicted, y, classes)
  of_class = counts.sum(-1)
  return np.divide(
    np.diagonal(counts, axis1=-2, axis2=-1), of_class, out=np.full(of_class.shape, np.nan), where=of_class > 0
  )


def calibration_error(logits: ArrayLike, y: ArrayLike, bins: int = 15) -> np.ndarray:
  """The expected calibration error, float[...]: the mean distance between accuracy and confidence (Guo et al., On
  calibration of modern neural networks, 2017, Equation 3).

  Args:
    logits: float[..., N, C].
    y: int[N].
    bins: of confidence, of equal width, each without its lower end.

  Returns:
    NaN for a client of which a logit is NaN.

  Raises:
    ConfigError: for another shape, what is no class, or probabilities, which softmax would make less sure.
  """
  bins, logits = whole_number('bins', bins), np.asarray(logits, float)
  if logits.ndim < 2 or not logits.size:
    raise ConfigError(f'logits is {what_is(logits)}; give float[..., N, C], of at least one example')
  known = logits[~np.isnan(logits).any(-1)]
  if len(known) and (known >= 0).all() and np.allclose(known.sum(-1), 1, rtol=0, atol=1e-3):
    raise ConfigError(
      'logits has probabilities, which are taken for logits; give the numbers before softmax, or log(probabilities)'
    )
  y = _numbers('y', y, logits.shape[-1])
  check_one_each('y', y, logits.shape[-2], 'predictions')
  confidence = softmax(logits, -1).max(-1)
  gap = (logits.argmax(-1) == y) - confidence
  place = np.clip(np.ceil(np.nan_to_num(confidence) * bins).astype(int) - 1, 0, bins - 1)
  member = place[..., None] == np.arange(bins)  # [..., N, bins]
  return np.abs((gap[..., None] * member).sum(-2)).sum(-1) / len(y)


def disagreement(predicted: ArrayLike) -> np.ndarray:
  """The share of examples of which two clients predict different classes, float[..., K, K], of int[..., K, N]."""
  predicted = _numbers('predicted', predicted, axes='K, N')
  out = np.empty((*predicted.shape[:-1], predicted.shape[-2]))
  for client in range(predicted.shape[-2]):  # one at a time: all pairs of 1000 clients on 10 000 examples are 10 GB
    out[..., client] = np.mean(predicted != predicted[..., client, None, :], -1)
  return out


def across(predicted: ArrayLike, y: ArrayLike, owner: ArrayLike) -> np.ndarray:
  """Accuracy of every client (rows) on the examples that each owns (columns): own examples on the diagonal.

  Args:
    predicted: int[..., K, N].
    y: int[N].
    owner: int[N], the client that owns each example, 0 .. K-1; -1 is nobody.

  Returns:
    float[..., K, K], NaN in the column of a client without examples.
  """
  predicted, y = _numbers('predicted', predicted, axes='K, N'), _numbers('y', y)
  owner = _numbers('owner', owner, predicted.shape[-2], kind='client', least=-1)
  for field, values in (('y', y), ('owner', owner)):
    check_one_each(field, values, predicted.shape[-1], 'predictions')
  member = (owner[:, None] == np.arange(predicted.shape[-2])).astype(float)  # [N, K]
  with np.errstate(invalid='ignore'):
    return (predicted == y) @ member / member.sum(0)


def _numbers(field, values, count=None, axes='N', kind='class', least=0) -> np.ndarray:
  """int64[..., axes], classes or clients from `least` to below `count`; int64, for products overflow in a uint8."""
  values = np.asarray(values)
  if not (is_integer(values.dtype) or values.dtype == bool) or values.ndim < len(axes.split(', ')):
    raise ConfigError(f'{field} is {what_is(values)}; give int[..., {axes}]')
  values = values.astype(np.int64)
  if len(outside := values[(values < least) | (values >= (np.inf if count is None else count))]):
    of, most = ('', 'up') if count is None else (f' of {count}', f'to {count - 1}')
    why = ', as predict gives where a logit is NaN' if field == 'predicted' and outside[0] == -1 else ''
    raise ConfigError(f'{field} has {kind} {outside[0]}{of}{why}; give {kind} numbers from {least} {most}')
  return values
