"""What clients' predictions are like: confusion, accuracy per class, calibration, disagreement, own and others' rows.

Of the logits [..., N, C] or classes [..., N] that `Simulation.logits` and `Simulation.predict` give for N examples;
leading axes are clients, or seeds and clients.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from fedkd.checks.kinds import check_one_each
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
    ConfigError: for another number of true classes than of predictions, or a class outside 0 .. C-1.
  """
  predicted, y = np.asarray(predicted), np.asarray(y)
  check_one_each('y', y, predicted.shape[-1], 'predictions')
  for field, values in (('predicted', predicted), ('y', y)):
    if len(outside := values[(values < 0) | (values >= classes)]):
      raise ConfigError(f'{field} has class {outside[0]} of classes={classes}; give classes from 0 to {classes - 1}')
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
  """
  logits, y = np.asarray(logits, float), np.asarray(y)
  check_one_each('y', y, logits.shape[-2], 'predictions')
  confidence = softmax(logits, -1).max(-1)
  gap = (logits.argmax(-1) == y) - confidence
  place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
  member = place[..., None] == np.arange(bins)  # [..., N, bins]
  return np.abs((gap[..., None] * member).sum(-2)).sum(-1) / len(y)


def disagreement(predicted: ArrayLike) -> np.ndarray:
  """The share of examples of which two clients predict different classes, float[..., K, K], of int[..., K, N]."""
  predicted = np.asarray(predicted)
  return np.mean(predicted[..., :, None, :] != predicted[..., None, :, :], -1)


def across(predicted: ArrayLike, y: ArrayLike, owner: ArrayLike) -> np.ndarray:
  """Accuracy of every client (rows) on the examples that each owns (columns): own examples on the diagonal.

  Args:
    predicted: int[..., K, N].
    y: int[N].
    owner: int[N], the client that owns each example, 0 .. K-1; -1 is nobody.

  Returns:
    float[..., K, K], NaN in the column of a client without examples.
  """
  predicted, y, owner = np.asarray(predicted), np.asarray(y), np.asarray(owner)
  for field, values in (('y', y), ('owner', owner)):
    check_one_each(field, values, predicted.shape[-1], 'predictions')
  member = (owner[:, None] == np.arange(predicted.shape[-2])).astype(float)  # [N, K]
  with np.errstate(invalid='ignore'):
    return (predicted == y) @ member / member.sum(0)
