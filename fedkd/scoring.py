"""What a run measures: its clients' models on the shared test set, on each other's test rows, on held-out rows."""

import jax
import numpy as np

from fedkd import metrics
from fedkd.phase import evaluated_in

EVAL_BLOCK = (100, 1000)  # images per call of the evaluation program: at least, where there are as many, and at most


def subset(rows, limit) -> np.ndarray:
  """A fixed random choice of `limit` of so many rows; all of them for 0."""
  order = np.random.default_rng(0).permutation(rows)
  return order[:limit] if 0 < limit < rows else np.arange(rows)


def _block(parts) -> int:
  """Images per call: one number for all that a run evaluates, because every other one would be compiled anew."""
  least, most = EVAL_BLOCK
  tests = [parts.source.test_label, *(rows for split in parts.splits for rows in split.test)]
  longest = max(*map(len, tests), *(sum(map(len, split.validation)) for split in parts.splits))
  return min(most, longest, max(least, parts.config.eval_rows or most))


def _hits(parts, phase, state, image, label) -> np.ndarray:
  """Right answers int[seeds, K] on images [seeds, T, ...] (a leading 1 stands for all seeds); label -1 is padding."""
  seeds, block, hits = jax.tree.leaves(state)[0].shape[0], _block(parts), 0
  for start in range(0, label.shape[1], block):
    x, y = image[:, start : start + block], label[:, start : start + block]
    pad = block - x.shape[1]
    x = np.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2))
    y = np.pad(y, ((0, 0), (0, pad)), constant_values=-1)
    full = lambda a: np.broadcast_to(a, (seeds, *a.shape[1:]))
    hits = hits + np.asarray(phase.hits(state, full(x), full(y)))
  return hits


def _on_rows(parts, phase, state, lists, width):
  """(hits [seeds, K], rows [seeds]) on training rows, one list per seed, padded to `width`."""
  index = np.stack([np.pad(rows, (0, width - len(rows))) for rows in lists])
  label = np.where(np.arange(width) < np.array([[len(rows)] for rows in lists]), parts.source.train_label[index], -1)
  hits = _hits(parts, phase, state, parts.source.train_image[index], label)
  return hits, np.array([len(rows) for rows in lists])


def accuracy(parts, phase, state, limit) -> dict:
  """The accuracy fields on test rows, at most `limit` of them (of each client's own, where clients have their own).

  Clients with test rows of their own (domains) are tested on the rows of all (ACC in FedH2L, Li et al., 2021), on
  their own (BWT), and on those of the others (FWT); each is pooled over images.
  """
  source, clients = parts.source, parts.world.clients
  owner = evaluated_in(parts.groups, clients)
  if len(source.test_label):
    test = subset(len(source.test_label), limit)
    hits = _hits(parts, phase, state, source.test_image[test][None], source.test_label[test][None])
    return {'test_rows': len(test), **metrics.accuracies(hits, np.full(len(hits), len(test)), owner)}
  owners = range(parts.config.data.clients)
  pick = lambda rows: rows[subset(len(rows), limit)]
  lists = [[pick(split.test[k]) for split in parts.splits] for k in owners]
  width = max(len(rows) for each in lists for rows in each)
  found = [_on_rows(parts, phase, state, each, width) for each in lists]
  hits, rows = (np.stack(a, -1) for a in zip(*found, strict=True))  # [seeds, K, owners], [seeds, owners]
  own = hits[:, np.arange(len(clients)), clients]
  out = metrics.accuracies(hits.sum(-1), rows.sum(-1), owner)
  split = {
    'local': own / rows[:, clients],
    'others': (hits.sum(-1) - own) / (rows.sum(-1, keepdims=True) - rows[:, clients]),
  }
  for name, each in split.items():
    out |= {f'accuracy_{name}': each.mean(1).tolist(), f'accuracy_{name}_per_client': each.tolist()}
  return {'test_rows': int(rows.sum(-1).max()), **out}


def validation(parts, phase, state, limit) -> dict:
  """Accuracy on the held-out rows of all clients together, at most `limit` of them; {} if nothing is held out."""
  held = [np.concatenate(split.validation) for split in parts.splits]
  if not min(map(len, held)):
    return {}
  pick = subset(min(map(len, held)), limit)
  lists = [rows[pick] if limit else rows for rows in held]
  hits, rows = _on_rows(parts, phase, state, lists, max(map(len, lists)))
  each = hits / rows[:, None]
  return {'validation_accuracy': each.mean(1).tolist(), 'validation_accuracy_per_client': each.tolist()}
