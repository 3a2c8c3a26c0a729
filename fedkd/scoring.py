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
  (least, most), limit = EVAL_BLOCK, parts.config.eval_rows
  both = [lists for split in parts.splits for lists in (split.test, split.validation)]
  longest = max(len(parts.source.test_label), *(sum(map(len, lists)) for lists in both))
  if limit:
    return min(most, longest, max(least, limit))
  return -(-longest // -(-longest // most))  # as few calls as `most` allows, none of them mostly padding


def _hits(parts, phase, state, image, label) -> np.ndarray:
  """Which answers are right, bool[seeds, K, T], on images [seeds, T, ...] (a leading 1 stands for all seeds); of those
  with the label -1 none is."""
  seeds, block, hits = jax.tree.leaves(state)[0].shape[0], _block(parts), []
  for start in range(0, label.shape[1], block):
    x, y = image[:, start : start + block], label[:, start : start + block]
    pad = block - x.shape[1]
    x = np.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2))
    y = np.pad(y, ((0, 0), (0, pad)), constant_values=-1)
    full = lambda a: np.broadcast_to(a, (seeds, *a.shape[1:]))
    hits.append(np.asarray(phase.hits(state, full(x), full(y))))
  return np.concatenate(hits, -1)[..., : label.shape[1]]


def _on_rows(parts, phase, state, lists):
  """(hits [seeds, K, O], rows [seeds, O]) on training rows: `lists[seed]` are O lists of them."""
  owner = [np.repeat(np.arange(len(each)), list(map(len, each))) for each in lists]
  width = max(map(len, owner))
  padded = lambda rows, value=0: np.stack([np.pad(r, (0, width - len(r)), constant_values=value) for r in rows])
  index, owner = padded(list(map(np.concatenate, lists))), padded(owner, -1)
  label = np.where(owner >= 0, parts.source.train_label[index], -1)
  hits = _hits(parts, phase, state, parts.source.train_image[index], label)
  owned = owner[..., None] == np.arange(len(lists[0]))
  return hits.astype(int) @ owned.astype(int), owned.sum(1)


def accuracy(parts, phase, state, limit) -> dict:
  """The accuracy fields on test rows, at most `limit` of them (of each client's own, where clients have their own).

  Clients with test rows of their own (domains) are tested on the rows of all (ACC in FedH2L, Li et al., 2021), on
  their own (BWT), and on those of the others (FWT); each is pooled over images.
  """
  source, clients = parts.source, parts.world.clients
  owner = evaluated_in(parts.groups, clients)
  if len(source.test_label):
    test = subset(len(source.test_label), limit)
    hits = _hits(parts, phase, state, source.test_image[test][None], source.test_label[test][None]).sum(-1)
    return {'test_rows': len(test), **metrics.accuracies(hits, np.full(len(hits), len(test)), owner)}
  pick = lambda rows: rows[subset(len(rows), limit)]
  hits, rows = _on_rows(parts, phase, state, [list(map(pick, split.test)) for split in parts.splits])
  own = hits[:, np.arange(len(clients)), clients]
  out = metrics.accuracies(hits.sum(-1), rows.sum(-1), owner)
  split = {
    'local': own / rows[:, clients],
    'others': (hits.sum(-1) - own) / (rows.sum(-1, keepdims=True) - rows[:, clients]),
  }
  for name, each in split.items():
    out |= {f'accuracy_{name}': each.mean(1).tolist(), f'accuracy_{name}_per_client': each.tolist()}
  return {'test_rows': int(rows.sum(-1).max()), **out}


def public(parts, phase, state, limit) -> dict:
  """Accuracy on the test set of the public data, at most `limit` of its rows."""
  image, label = parts.source.public_test
  pick = subset(len(label), limit)
  each = _hits(parts, phase, state, image[pick][None], label[pick][None]).mean(-1)
  return {'accuracy_public': each.mean(1).tolist(), 'accuracy_public_per_client': each.tolist()}


def validation(parts, phase, state, limit) -> dict:
  """Accuracy on the held-out rows of all clients together, at most `limit` of them; {} if nothing is held out."""
  held = [np.concatenate(split.validation) for split in parts.splits]
  if not min(map(len, held)):
    return {}
  pick = subset(min(map(len, held)), limit)
  lists = [rows[pick] if limit else rows for rows in held]
  hits, rows = _on_rows(parts, phase, state, [[rows] for rows in lists])
  each = hits[..., 0] / rows
  return {'validation_accuracy': each.mean(1).tolist(), 'validation_accuracy_per_client': each.tolist()}
