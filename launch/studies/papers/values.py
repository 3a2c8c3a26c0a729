"""Numbers of results and of papers, in percent."""

import pathlib
import re

import numpy as np

from fedkd import analysis
from fedkd.analysis import results
from launch.studies import papers

PROFILES = papers.PROFILES[:-1]  # smoke runs are too short
NEVER = 3  # percent; models below this have not begun to answer with private classes


def found(out) -> dict:
  """{(id, profile): {row: result}} of everything in `out`, for known ids."""
  everything, known = {}, papers.registry()
  for path in sorted(pathlib.Path(out).glob('*/*/*.json')):
    id, profile, row = path.parts[-3], path.parts[-2], path.stem
    if id in known and profile in PROFILES and row in {r.name for r in known[id].rows}:
      everything.setdefault((id, profile), {})[row] = results.read(path)
  return everything


def last_phase(result) -> list:
  """The evaluations of the last phase; [] where none were kept."""
  curve = result.get('curve') or []
  return [row for row in curve if row['phase'] == curve[-1]['phase']]


def of(result, metric) -> np.ndarray | None:
  """A metric of a result, [seeds]; None where it was not measured. Beside those of a summary:

  'second_half_swing': how far the accuracy of an evaluation in the second half lies from the line between its
    neighbours: the root mean square of second differences, by the square root of 6, so that it is the deviation of
    noise, and 0 for steady progress;
  'largest_drop': how far the accuracy of an evaluation lay below that of an earlier one of the last phase, at most;
  'last_quarter_mean', 'round_N', 'train': of the last phase; 'public': after the first, on the public test set;
  'pooled', 'pooled_ensemble': own test rows of all clients together; by the sum of all models' logits;
  'published', 'published_head': by prototypes and by the head, as `analysis.published` adds them up;
  'start_begun', 'final_begun': the mean over the models that answer with private classes at the start;
  'kind_N': the final accuracy of the N-th kind of clients (`Experiment.kinds`).
  """
  special = SPECIAL.get(metric.rstrip('0123456789'))
  values = special(result, metric) if special else result['per_seed'].get(metric)
  return None if values is None else 100 * np.asarray(values, float)


def _swing(result, metric):
  rows = last_phase(result)
  half = [r['accuracy'] for r in rows if r['round'] > rows[-1]['round'] / 2]
  if result['config'].get('eval_rows'):
    half = half[:-1]  # the last is of all test images
  return np.sqrt(np.mean(np.square(np.diff(half, 2, axis=0)), 0) / 6)


def _largest_drop(result, metric):
  accuracy = np.asarray([row['accuracy'] for row in last_phase(result)])
  return np.max(np.maximum.accumulate(accuracy) - accuracy, 0) if len(accuracy) else None


def _last_quarter(result, metric):
  rows = last_phase(result)
  return np.mean([r['accuracy'] for r in rows if r['round'] > 0.75 * rows[-1]['round']], 0) if rows else None


def _row_of_round(result, metric) -> dict:
  """The evaluation that 'round_N' names; {} where there was none."""
  wanted = int(metric.removeprefix('round_'))
  return next((row for row in last_phase(result) if row['round'] == wanted), {})


def _round(result, metric):
  return _row_of_round(result, metric).get('accuracy')


def _train(result, metric):
  rows = last_phase(result)
  return rows[-1].get('accuracy_train') if rows else None


def _public(result, metric):
  each = _public_per_client(result)
  return None if each is None else np.mean(each, -1)


def _public_per_client(result):
  rows = [row for row in result.get('curve') or [] if row['phase'] == 0]
  return rows[-1].get('accuracy_public_per_client') if rows else None


def _published(result, metric):
  """The mean over users as FedProto's published evaluation adds up; None without its two predictions."""
  head, prototypes = (result['per_seed'].get(f'final_{which}local_per_client') for which in ('head_', ''))
  rows = result['per_seed'].get('test_rows_per_client')
  if head is None or rows is None:
    return None
  hits = [[np.multiply(part, each) for part, each in zip(way, rows, strict=True)] for way in (head, prototypes)]
  both = [analysis.published(*hit, each) for *hit, each in zip(*hits, rows, strict=True)]
  return [means[metric == 'published'][0] for means in both]


def _pooled(result, metric):
  """Hits on the clients' own test rows over these rows."""
  each = result['per_seed'].get('final' + metric.removeprefix('pooled') + '_local_per_client')
  rows = result['per_seed'].get('test_rows_per_client')
  if each is None or rows is None:
    return None
  return [np.average(own, weights=many) for own, many in zip(each, rows, strict=True)]


def begun(result) -> np.ndarray:
  """bool[clients], which models answer with private classes at the start of the last phase."""
  return np.mean(result['per_seed']['start_per_client'], 0) > NEVER / 100


def _of_begun(result, metric):
  each = result['per_seed'].get(metric.removesuffix('_begun') + '_per_client')
  return None if each is None else np.asarray(each)[:, begun(result)].mean(1)


def _kind(result, metric):
  each = result['per_seed'].get('final_per_client')
  _, members = papers.registry()[result['id']].kinds[int(metric.removeprefix('kind_'))]
  return None if each is None else np.asarray(each)[:, list(members)].mean(1)


SPECIAL = {
  'start_begun': _of_begun,
  'final_begun': _of_begun,
  'pooled': _pooled,
  'pooled_ensemble': _pooled,
  'kind_': _kind,
  'published': _published,
  'published_head': _published,
  'second_half_swing': _swing,
  'largest_drop': _largest_drop,
  'last_quarter_mean': _last_quarter,
  'round_': _round,
  'train': _train,
  'public': _public,
}


def per_client(result, metric) -> np.ndarray | None:
  """A metric of a result for every client, [seeds, clients]; None where that was not kept."""
  if metric == 'public':
    each = _public_per_client(result)
  elif metric.startswith('round_'):
    each = _row_of_round(result, metric).get('accuracy_per_client')
  else:
    each = result['per_seed'].get(f'{metric}_per_client')
  return None if each is None else 100 * np.asarray(each, float)


def of_paper(entry, profile, values) -> tuple:
  """What is printed for every client, for those that the profile has."""
  chosen = entry.small if profile == 'small' and entry.small and values else range(len(values))
  return tuple(values[i] for i in chosen)


def printed(entry, profile, row, name) -> float | None:
  """The printed value of a row, by the paper's name of a metric or by 'kind_N'; where one is printed for every client,
  the mean of those that the profile has."""
  if name.startswith('kind_'):
    return row.kinds[int(name.removeprefix('kind_'))] if row.kinds else None
  value = row.printed.get(name)
  if isinstance(value, tuple):
    return float(np.mean(of_paper(entry, profile, value))) if value else None
  return None if value == '' else value


def named(everything, profile, expression) -> dict:
  """{name: its result, or None} of the `id/row` or `id/row:metric` in an expression as `by_seed` takes it."""
  found = {}
  for name in expression.split(' - '):
    id, row = name.partition(':')[0].split('/')
    found[name] = everything.get((id, profile), {}).get(row)
  return found


def by_seed(everything, profile, expression, metric) -> dict | None:
  """{seed: value} of `id/row` or `id/row:metric`, or of the difference of two; None where a row was not run."""
  each = []
  for name, result in named(everything, profile, expression).items():
    values = None if result is None else of(result, name.partition(':')[2] or metric)
    if values is None:
      return None
    each.append(dict(zip(result['seeds'], values, strict=True)))
  return {seed: each[0][seed] - sum(other[seed] for other in each[1:]) for seed in set.intersection(*map(set, each))}


def difference(everything, profile, more, less, metric) -> np.ndarray | None:
  """`more` minus `less`, paired over seeds; None where one of them was not run, or no seed of both."""
  both = [by_seed(everything, profile, side, metric) for side in (more, less)]
  paired = analysis.paired(*both) if all(both) else np.zeros(0)
  return paired if len(paired) else None


def filled(everything, text) -> str:
  """A text with numbers in the place of its braces.

  `{id/row; metric; profile}` is a mean, `{id/row - id/row; metric; profile}` the interval of a difference with its
  sign, and `not run` where a run is missing.
  """
  return re.sub(r'\{([^{};]+); ([^{};]+); ([^{};]+)\}', lambda match: _filled(everything, *match.groups()), text)


def _filled(everything, expression, metric, profile) -> str:
  each = by_seed(everything, profile, expression, metric)
  if not each:
    return 'not run'
  mean, _, high = analysis.interval(list(each.values()))
  if ' - ' not in expression:
    return f'{mean:.1f}'
  around = f' ± {high - mean:.1f}' if len(each) > 2 else f' ({len(each)} seed{"s" * (len(each) > 1)})'
  return f'{mean:+.1f}{around}'
