"""What a run measures: its clients' models on the shared test set, on each other's test rows, on held-out rows."""

import jax
import numpy as np

from fedkd import totals
from fedkd.evaluation import evaluated_in

EVAL_BLOCK = (100, 1000)  # images per call of the evaluation program: the least (if there are as many) and the most


def subset(rows, limit) -> np.ndarray:
  """A fixed random choice of `limit` out of `rows` rows; all of them for 0."""
  order = np.random.default_rng(0).permutation(rows)
  return order[:limit] if 0 < limit < rows else np.arange(rows)


def _block(parts) -> int:
  """Images per call: one number for a whole run, because every other one would be compiled again."""
  (least, most), limit, source = EVAL_BLOCK, parts.config.eval_rows, parts.source
  both = [lists for split in parts.splits for lists in (split.test, split.validation)]
  public = len(source.public_test[1]) if source.public_test else 0
  longest = max(len(source.test_label), public, *(sum(map(len, lists)) for lists in both))
  if limit:
    return min(most, longest, max(least, limit))
  return -(-longest // -(-longest // most))  # as few calls as `most` allows, none of them mostly padding


def _correct(parts, phase, state, images, labels, lists) -> tuple:
  """Correct predictions on some rows of images, by who owns the rows.

  Args:
    images, labels: to take rows of.
    lists: per seed, or once for all seeds, O lists of rows.

  Returns:
    (correct {name of a prediction: float[seeds, K, O]}, NaN where logits are, rows int[seeds or 1, O]).
  """
  seeds, block = jax.tree.leaves(state)[0].shape[0], _block(parts)
  sizes = np.array([list(map(len, each)) for each in lists])
  width = -(-sizes.sum(1).max() // block) * block
  fill = lambda rows, value: np.pad(rows, (0, width - len(rows)), constant_values=value)
  index = np.stack([fill(np.concatenate(each), 0) for each in lists])
  owner = np.stack([fill(np.repeat(np.arange(len(n)), n), -1) for n in sizes])
  full = lambda a: np.broadcast_to(a, (seeds, *a.shape[1:]))
  correct: dict = {}
  for start in range(0, width, block):
    rows, owners = index[:, start : start + block], owner[:, start : start + block]
    label = np.where(owners >= 0, labels[rows], -1)  # no prediction is -1
    member = (owners[..., None] == np.arange(sizes.shape[1])).astype(np.float32)
    for name, is_correct in phase.correct(state, full(images[rows]), full(label)).items():
      correct[name] = correct.get(name, 0) + _sums(np.asarray(is_correct), member)
  return correct, sizes


def _sums(is_correct, member) -> np.ndarray:
  """Sums by owner: exact in float32, for which NumPy has a fast matrix product; NaN for owners of a NaN alone."""
  unknown = np.isnan(is_correct)
  if not unknown.any():
    return (is_correct @ member).astype(float)
  sums = np.where(unknown, 0, is_correct) @ member
  return np.where(unknown.astype(np.float32) @ member > 0, np.nan, sums.astype(float))


def accuracy(parts, phase, state, limit) -> dict:
  """The accuracy fields on test rows, at most `limit` of them (of each client's own, where clients have their own).

  Clients with test rows of their own (domains) are tested on the rows of all (ACC in FedH2L, Li et al., 2021), on
  their own (BWT), and on those of the others (FWT); each is pooled over images.
  """
  source, clients, groups = parts.source, parts.evaluated, len(parts.groups)
  owner = evaluated_in(parts.groups, clients)
  if len(source.test_label):
    test = subset(len(source.test_label), limit)
    correct, rows = _correct(parts, phase, state, source.test_image, source.test_label, [[test]])
    shared = lambda correct: totals.accuracies(correct[..., 0], rows[:, 0], owner, groups)
    return {'test_rows': len(test), **totals.by_prediction(correct, shared)}
  pick = lambda rows: rows[subset(len(rows), limit)]
  lists = [list(map(pick, split.test)) for split in parts.splits]
  correct, rows = _correct(parts, phase, state, source.train_image, source.train_label, lists)
  of_one = lambda correct: totals.of_domains(correct, rows, owner, groups, clients)
  return {'test_rows': int(rows.sum(-1).max()), **totals.by_prediction(correct, of_one)}


def training(parts, phase, state, limit) -> dict:
  """Accuracy of every client on private training rows of its own, about `limit` of them over all clients: how far it
  overfits."""
  clients, source = parts.evaluated, parts.source
  share = -(-limit // len(clients))
  pick = lambda rows: rows[subset(len(rows), share)]
  lists = [[pick(split.private[c]) for c in clients] for split in parts.splits]
  correct, rows = _correct(parts, phase, state, source.train_image, source.train_label, lists)
  own = lambda correct: np.diagonal(correct, axis1=1, axis2=2) / rows
  return totals.by_prediction(correct, lambda correct: totals.mean('accuracy_train', own(correct)))


def public(parts, phase, state, limit) -> dict:
  """Accuracy on the test set of the public data, at most `limit` of its rows."""
  images, labels = parts.source.public_test
  correct, rows = _correct(parts, phase, state, images, labels, [[subset(len(labels), limit)]])
  return totals.by_prediction(correct, lambda correct: totals.mean('accuracy_public', correct[..., 0] / rows))


def validation(parts, phase, state, limit) -> dict:
  """Accuracy on the held-out rows of all clients together, at most `limit` of them; {} if nothing is held out."""
  held = [np.concatenate(split.validation) for split in parts.splits]
  if not min(map(len, held)):
    return {}
  lists = [[rows[subset(len(rows), limit)]] for rows in held]
  correct, rows = _correct(parts, phase, state, parts.source.train_image, parts.source.train_label, lists)
  return totals.by_prediction(correct, lambda correct: totals.mean('validation_accuracy', correct[..., 0] / rows))
