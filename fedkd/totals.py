"""What a run accumulates on the host: the ledger, losses and examples of finished rounds, and the rows made of them.

Every value is a list over seeds. Totals are JSON-ready, because a checkpoint carries them.
"""

import numpy as np

from fedkd.plan import client_updates


def start(seeds) -> dict:
  """Totals before round 0. `up` and `down` are {kind: [numbers per seed, bytes per seed]}; `means` is {name: [sum per
  seed, client updates per seed with a defined value]} since the last evaluation; `last` describes the last round."""
  totals = {'examples': [0.0] * seeds, 'seconds': 0.0, 'up': {}, 'down': {}, 'means': {}, 'last': {}, 'metrics': ''}
  return {**totals, **of_phase(seeds)}


def of_phase(seeds) -> dict:
  """The totals that begin anew with each phase: client updates, and the patience state of early stopping."""
  return {'turns': [0] * seeds, 'stop': {}}


def begun(totals, seeds, plan, at) -> dict:
  """Totals at the beginning of a loop over rounds.

  Args:
    totals: of the phase before, or of the checkpoint of round `at`; one older than some of them lacks those.
    plan: of the phase that is resumed, by whose tables an old checkpoint went; None for a phase that begins.
  """
  if plan is None:
    return {**totals, **of_phase(seeds)}
  planned = [int(client_updates(plan)[:at].sum())] * seeds
  return {'turns': planned, 'stop': {}, 'means': {}, **totals}


def _counts(groups) -> dict:
  """{kind: (numbers, bytes)} per group, each [seeds, rounds, m] -> {kind: int64[2, seeds, rounds]}."""
  out: dict = {}
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
  slots = [np.asarray(ids)[:, :count] >= 0 for ids in report.ids]
  infos: dict = {}
  for info, slotted in zip(report.info, slots, strict=True):
    for name, values in info.items():
      values = np.asarray(values, np.float64)[:, :count]
      defined = slotted & ~np.isnan(values)
      both = np.stack([np.sum(values, (1, 2), where=defined), defined.sum((1, 2))])
      infos[name] = infos.get(name, 0) + both
  new = {**totals, 'seconds': totals['seconds'] + seconds, 'last': {}, 'means': dict(totals['means'])}
  new['examples'] = (np.asarray(totals['examples']) + infos.pop('examples', [0])[0]).tolist()
  new['turns'] = (np.asarray(totals['turns']) + sum(s.sum((1, 2)) for s in slots)).tolist()
  for name, both in infos.items():
    new['means'][name] = (np.asarray(totals['means'].get(name, 0.0)) + both).tolist()
  participants = sum(s[:, count - 1].sum(-1) for s in slots)
  for way in ('up', 'down'):
    counted = _counts(getattr(report, way))
    sums = {kind: a[:, :, :count].sum(-1) for kind, a in counted.items()}
    more = {kind: (np.asarray(totals[way].get(kind, 0)) + a).tolist() for kind, a in sums.items()}
    new[way] = {**totals[way], **more}  # an earlier phase may have sent other kinds
    last = sum(a[:, :, count - 1] for a in counted.values()) + np.zeros((2, len(new['examples'])))
    for unit, values in zip(('numbers', 'bytes'), last, strict=True):
      each = zip(values.tolist(), participants.tolist(), strict=True)
      new['last'][f'{unit}_{way}_per_client'] = [value / many if many else None for value, many in each]
  for name, values in report.server.items():
    of_seeds = np.asarray(values)[:, count - 1].astype(float).tolist()
    new['last'][name] = [None if np.isnan(value) else value for value in of_seeds]
  return new


def total(totals, way) -> np.ndarray:
  """Everything sent one way so far, int64[2 (numbers, bytes), seeds]."""
  return sum(np.asarray(a) for a in totals[way].values()) + np.zeros((2, len(totals['examples'])), np.int64)


def first_bad_loss(report, count):
  """(seed index, round of the segment, clients, loss of the first of them) of the first round with losses that are not
  finite, or None. A client that trained on nothing has none."""
  found = []
  for ids, info in zip(report.ids, report.info, strict=True):
    if 'loss' in info:
      trained = np.asarray(info['examples']) > 0 if 'examples' in info else True
      for s, t, slot in np.argwhere((~np.isfinite(np.asarray(info['loss'])) & trained)[:, :count]):
        found.append((t, int(np.asarray(ids)[s, t, slot]), s, float(info['loss'][s, t, slot])))
  if not found:
    return None
  t, _, seed, loss = min(found)
  return int(seed), int(t), sorted({client for at, client, s, _ in found if (at, s) == (t, seed)}), loss


def accuracies(correct, rows, owner, groups) -> dict:
  """The accuracy fields of an evaluation from correct predictions int[seeds, K] on `rows` [seeds] examples; `owner`:
  int[K], the group of each client, out of `groups`. A group without evaluated clients has accuracy None."""
  fraction = correct / rows[:, None]
  nobody = [None] * len(fraction)
  per_group = [fraction[:, owner == g].mean(1).tolist() if np.any(owner == g) else nobody for g in range(groups)]
  return {
    'accuracy': fraction.mean(1).tolist(),
    'accuracy_per_client': fraction.tolist(),
    'accuracy_per_group': [list(row) for row in zip(*per_group, strict=True)],
    'accuracy_std': fraction.std(1).tolist(),
    'accuracy_p10': np.percentile(fraction, 10, axis=1).tolist(),
    'accuracy_worst': fraction.min(1).tolist(),
  }


def of_domains(correct, rows, owner, groups, clients=None) -> dict:
  """`accuracies` of correct predictions [seeds, K, D] on `rows` [seeds, D] examples of D domains; where there are
  several, also on each client's own (`clients`: int[K], its domain; None: 0 to K - 1) and on those of the others."""
  out = accuracies(correct.sum(-1), rows.sum(-1), owner, groups)
  if rows.shape[1] == 1:
    return out
  clients = np.arange(correct.shape[1]) if clients is None else np.asarray(clients)
  own = correct[:, np.arange(len(clients)), clients]
  is_own = clients[:, None] == np.arange(rows.shape[1])
  of_others = np.where(is_own, 0, correct).sum(-1)  # own ones may be NaN
  others = of_others / (rows.sum(-1, keepdims=True) - rows[:, clients])
  return {**out, **mean('accuracy_local', own / rows[:, clients]), **mean('accuracy_others', others)}


def mean(field, fraction) -> dict:
  """The mean over clients of the accuracies [seeds, K], and those of each."""
  return {field: fraction.mean(1).tolist(), f'{field}_per_client': fraction.tolist()}


def by_prediction(correct, fields) -> dict:
  """The fields of every prediction, `fields(correct)` -> {'accuracy...': ...}: those of one with a name begin with
  `accuracy_NAME`."""
  out: dict = {}
  for name, values in correct.items():
    own = f'accuracy_{name}' if name else 'accuracy'
    out |= {field.replace('accuracy', own, 1): value for field, value in fields(values).items()}
  return out


def row(totals) -> dict:
  """The training and ledger fields of a row; losses are means over the client updates since the last evaluation;
  undefined ones are NaN and excluded from means. Server metrics are those of the last round; None: no value."""
  mean = lambda sums, counts: [total / count if count else None for total, count in zip(sums, counts, strict=True)]
  out = {name: mean(*both) for name, both in totals['means'].items()}
  for way in ('up', 'down'):
    for unit, values in zip(('numbers', 'bytes'), total(totals, way), strict=True):
      out[f'{unit}_{way}'] = values.tolist()
  return {**out, **totals['last'], 'examples': totals['examples'], 'seconds': totals['seconds']}
