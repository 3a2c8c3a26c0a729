"""What a run adds up on the host: the ledger, losses and examples of finished rounds, and the rows made of them.

Every value is a list over seeds. Totals are JSON-ready, because a checkpoint carries them.
"""

import numpy as np


def start(seeds) -> dict:
  """Totals before round 0. `up` and `down` are {kind: [numbers per seed, bytes per seed]}; `means` is {name: [sum per
  seed, client turns per seed that have a value]} since the last evaluation; `last` describes the last round."""
  zeros = [0.0] * seeds
  return {'examples': zeros, 'seconds': 0.0, 'up': {}, 'down': {}, 'means': {}, 'last': {}, **of_phase(seeds)}


def of_phase(seeds) -> dict:
  """The totals that begin anew with each phase: client turns, and what early stopping remembers."""
  return {'turns': [0] * seeds, 'stop': {}}


def _counts(groups) -> dict:
  """{kind: (numbers, bytes)} per group, each [seeds, rounds, m] -> {kind: int64[2, seeds, rounds]}."""
  out = {}
  for group in groups:
    for kind, both in group.items():
      out[kind] = out.get(kind, 0) + np.stack([np.sum(a, -1, dtype=np.int64) for a in both])
  return out


def add(totals, report, count, seconds) -> dict:
  """Totals after `count` more rounds.

  Args:
    totals: before them.
    report: `round.Report` on the host, leaves [seeds, length, m] (server's [seeds, length]).
    count: rounds that were run, of `length`.
    seconds: that they took.
  """
  seats = [np.asarray(ids)[:, :count] >= 0 for ids in report.ids]
  infos = {}
  for info, seated in zip(report.info, seats, strict=True):
    for name, values in info.items():
      values = np.asarray(values, np.float64)[:, :count]
      said = seated & ~np.isnan(values)
      both = np.stack([np.sum(values, (1, 2), where=said), said.sum((1, 2))])
      infos[name] = infos.get(name, 0) + both
  new = {**totals, 'seconds': totals['seconds'] + seconds, 'last': {}, 'means': dict(totals['means'])}
  new['examples'] = (np.asarray(totals['examples']) + infos.pop('examples', [0])[0]).tolist()
  new['turns'] = (np.asarray(totals['turns']) + sum(s.sum((1, 2)) for s in seats)).tolist()
  for name, both in infos.items():
    new['means'][name] = (np.asarray(totals['means'].get(name, 0.0)) + both).tolist()
  speakers = np.maximum(sum(s[:, count - 1].sum(-1) for s in seats), 1)
  for way in ('up', 'down'):
    counted = _counts(getattr(report, way))
    sums = {kind: a[:, :, :count].sum(-1) for kind, a in counted.items()}
    new[way] = {kind: (np.asarray(totals[way].get(kind, 0)) + a).tolist() for kind, a in sums.items()}
    last = sum(a[:, :, count - 1] for a in counted.values()) + np.zeros((2, len(new['examples'])))
    for unit, values in zip(('numbers', 'bytes'), last, strict=True):
      new['last'][f'{unit}_{way}_per_client'] = (values / speakers).tolist()
  for name, values in report.server.items():
    of_seeds = np.asarray(values)[:, count - 1].astype(float).tolist()
    new['last'][name] = [None if np.isnan(value) else value for value in of_seeds]
  return new


def total(totals, way) -> np.ndarray:
  """Everything sent one way so far, int64[2 (numbers, bytes), seeds]."""
  return sum(np.asarray(a) for a in totals[way].values()) + np.zeros((2, len(totals['examples'])), np.int64)


def first_bad_loss(report, count):
  """(seed index, round of the chunk, client, loss) of the first loss that is not finite, or None."""
  found = []
  for ids, info in zip(report.ids, report.info, strict=True):
    if 'loss' in info:
      for s, t, seat in np.argwhere(~np.isfinite(np.asarray(info['loss'])[:, :count])):
        found.append((t, int(np.asarray(ids)[s, t, seat]), s, float(info['loss'][s, t, seat])))
  if not found:
    return None
  t, client, seed, loss = min(found)
  return int(seed), int(t), client, loss


def accuracies(hits, rows, owner, groups) -> dict:
  """The accuracy fields of a row from right answers int[seeds, K] on `rows` [seeds] examples; `owner`: int[K], which of
  so many `groups` each client is in. A group of which nobody is evaluated has no accuracy, None."""
  each = hits / rows[:, None]
  nobody = [None] * len(each)
  per_group = [each[:, owner == g].mean(1).tolist() if np.any(owner == g) else nobody for g in range(groups)]
  return {
    'accuracy': each.mean(1).tolist(),
    'accuracy_per_client': each.tolist(),
    'accuracy_per_group': [list(row) for row in zip(*per_group, strict=True)],
    'accuracy_std': each.std(1).tolist(),
    'accuracy_p10': np.percentile(each, 10, axis=1).tolist(),
    'accuracy_worst': each.min(1).tolist(),
  }


def row(totals) -> dict:
  """The training and ledger fields of a row; losses are means over the client turns since the last evaluation that
  have a value (not NaN), what the server says is of the last round; None for a seed without a value."""
  mean = lambda sums, turns: [total / count if count else None for total, count in zip(sums, turns, strict=True)]
  out = {name: mean(*both) for name, both in totals['means'].items()}
  for way in ('up', 'down'):
    for unit, values in zip(('numbers', 'bytes'), total(totals, way), strict=True):
      out[f'{unit}_{way}'] = values.tolist()
  return {**out, **totals['last'], 'examples': totals['examples'], 'seconds': totals['seconds']}


def summary(rows) -> dict:
  """Headline accuracies per seed of the last phase: at its start and end, at the best validation accuracy of each
  client, mean over the second half; with own test rows also their `local` and `others` parts.

  Ties in validation go to the earlier round. `best` fields are missing without a validation split.
  """
  rows = [row for row in rows if row['phase'] == rows[-1]['phase']]
  seeds = range(len(rows[-1]['accuracy']))
  half = [r for r in rows if r['round'] > rows[-1]['round'] / 2] or rows[-1:]
  out = {
    'start': rows[0]['accuracy'],
    'start_per_client': rows[0]['accuracy_per_client'],
    'worst_client': rows[-1]['accuracy_worst'],
    'second_half_mean': [float(np.mean([r['accuracy'][s] for r in half])) for s in seeds],
    'second_half_mean_per_client': np.mean([r['accuracy_per_client'] for r in half], 0).tolist(),
  }
  kinds = [k for k in ('accuracy', 'accuracy_local', 'accuracy_others') if k in rows[-1]]
  for kind in kinds:
    name = kind.replace('accuracy', 'final')
    out |= {name: rows[-1][kind], f'{name}_per_client': rows[-1][f'{kind}_per_client']}
  if 'validation_accuracy' in rows[-1]:
    score = np.array([r['validation_accuracy_per_client'] for r in rows])  # [evaluations, seeds, K]
    best = score.argmax(0)
    out['best_round'] = np.array([r['round'] for r in rows])[best].tolist()
    for kind in kinds:
      each = np.take_along_axis(np.array([r[f'{kind}_per_client'] for r in rows]), best[None], 0)[0]
      name = kind.replace('accuracy', 'best_on_validation')
      out |= {name: each.mean(1).tolist(), f'{name}_per_client': each.tolist()}
  return out
