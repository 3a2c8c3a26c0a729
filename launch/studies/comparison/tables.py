"""Tables of the benchmark: a setting, a tier over its settings, and a method of somebody else's beside ours."""

import os
import pathlib

import numpy as np
import pandas as pd

from fedkd import analysis
from launch.studies import stale
from launch.studies.comparison import cells, evidence, scores
from launch.studies.comparison.budget import SHARED
from launch.studies.comparison.settings import SIZES, applying

REFERENCES = ('private', 'agg')
STOPPED = ' (stopped)'  # what `scores.is_stopped` says
WITHIN = 5.0  # megabytes of all clients, for the view at equal bytes


def found(out, suite: str, profile: str, tier: str, setting: str, more=()) -> dict:
  """{method: (its cell, what is there)} of a setting, of methods with at least one test run.

  Args:
    more: further methods than those that apply.
  """
  place = cells.Place(suite, profile, tier, setting)
  every = [cells.Cell(place, method) for method in (*applying(suite, tier, setting), *more)]
  there = {cell.method: (cell, cells.read(cell, out)) for cell in every}
  return {method: pair for method, pair in there.items() if pair[1]['runs']}


def of_setting(here: dict, out, page: pathlib.Path | None = None) -> str:
  """A row per method, the best on own rows first; `here` is that of `found`. With `page`, names link to results."""
  private = here['private'][1] if 'private' in here else None
  gains = {m: scores.gain(one, private) if private else {} for m, (_, one) in here.items()}
  tested = {m: analysis.p_value(np.array(list(g.values()))) for m, g in gains.items() if m not in REFERENCES}
  adjusted = dict(zip(tested, analysis.holm(np.array(list(tested.values()))), strict=True))
  mean = lambda method: np.mean(list(scores.accuracy(here[method][1], 'own').values()))
  lines = [_line(m, *here[m], private, gains[m], adjusted, out, page) for m in sorted(here, key=mean, reverse=True)]
  return analysis.markdown(pd.DataFrame(lines))


def _line(method, cell, one, private, gained, adjusted, out, page) -> dict:
  sent, with_images = scores.megabytes(one), scores.megabytes(one, public=True)
  is_reference = method == 'private'
  other = lambda values: 'reference' if is_reference else _signed(values)
  lost = scores.losses(one, private) if private else np.zeros(0)
  p = adjusted.get(method, np.nan)
  return {
    'method': _named(method, cell, one, out, page),
    'own rows %': _spread(scores.accuracy(one, 'own')),
    'gain on own rows': other(gained),
    'Holm p': '-' if np.isnan(p) else '< 0.001' if p < 0.001 else f'{p:.3f}',
    'at equal examples': _equal(one, private) if private and not is_reference else other({}),
    'all rows %': _spread(scores.accuracy(one, 'all')),
    'gain on all rows': other(scores.gain(one, private, 'all') if private else {}),
    'clients below private': '-' if is_reference or not len(lost) else _lost(lost),
    'worst client %': _spread(scores.worst_client(one)),
    'MB up, down': f'{sent["up"]:.2f}, {sent["down"]:.2f}',
    'with public images': f'{with_images["up"]:.2f}, {with_images["down"]:.2f}',
    'examples (1000)': f'{scores.examples(one):.0f}',
    'processor s': f'{scores.seconds(one):.0f}',
    'chosen': _choice(one),
  }


def _named(method, cell, one, out, page) -> str:
  marks = []
  if len(one['runs']) < len(SIZES[cell.place.profile].seeds):
    marks.append(f'{len(one["runs"])} of {len(SIZES[cell.place.profile].seeds)} seeds')
  if any(run['diverged'] for run in one['runs']):
    marks.append('diverged')
  if scores.is_at_chance(one, classes_of(cell.place.suite)):
    marks.append('at chance')
  elif dead := sum(map(len, scores.clients_at_chance(one, classes_of(cell.place.suite)).values())):
    marks.append(f'{dead} of {sum(map(len, scores.per_client(one, "all").values()))} clients at chance')
  if any(stale.changes(as_result(one, run)) for run in one['runs']):
    marks.append('stale')
  if any(run['dirty'] for run in one['runs']):
    marks.append('uncommitted code')
  said = f' ({", ".join(marks)})' if marks else ''
  if page is None:
    return f'{method}{said}'
  return f'[{method}]({os.path.relpath(cells.path_of(cell, out), page.parent)}){said}'


def as_result(one: dict, run: dict) -> dict:
  """A run as `stale.changes` takes a result."""
  return {'config': {'method': {'name': one['method'], **one['fields'], **run['choice']}}, 'commit': run['commit']}


def classes_of(suite: str) -> int:
  """How many classes a suite has."""
  return {'digits': 10, 'cifar10': 10, 'pacs': 7}.get(suite, 6)


def _spread(by_seed) -> str:
  return analysis.spread(list(by_seed.values())) if by_seed else '-'


def _signed(by_seed) -> str:
  """With a sign; '-' without common seeds, or evaluations within the limit."""
  if not by_seed:
    return '-'
  values = list(by_seed.values())
  return ('+' if np.mean(values) >= 0 else '') + analysis.spread(values)


def _equal(one, private) -> str:
  return _signed(scores.gain_at_examples(one, private)) + STOPPED * scores.is_stopped(one, private)


def _lost(lost) -> str:
  below = lost[lost > 0]
  if not len(below):
    return '0 %'
  return f'{100 * len(below) / len(lost):.0f} %, by {below.mean():.1f}, at most {lost.max():.1f}'


def _choice(one) -> str:
  choice = one['runs'][0]['choice']
  edge = ' (edge)' if scores.at_edge(one) else ''
  return ', '.join(
    f'{k.replace("learning_rate", "rate")} {v}{edge * (k == "learning_rate")}' for k, v in choice.items()
  )


def overview(everything: dict) -> list:
  """A dict of numbers per method over settings: those of the most settings first, among them the largest mean gain on
  own rows.

  Args:
    everything: {setting: {method: (cell, what is there)}}, each setting with Private.
  """
  out = []
  for method in dict.fromkeys(m for here in everything.values() for m in here if m != 'private'):
    there = {place: (here[method][1], here['private'][1]) for place, here in everything.items() if method in here}
    there = {place: pair for place, pair in there.items() if scores.gain(*pair)}  # with a common seed
    pairs = list(there.values())
    if not pairs:
      continue
    own, rest = ([list(scores.gain(*pair, rows).values()) for pair in pairs] for rows in scores.ROWS)
    equal = [list(scores.gain_at_examples(*pair).values()) for pair in pairs]
    within = [list(g.values()) for pair in pairs if (g := scores.gain_at_bytes(*pair, 1e6 * WITHIN))]
    equal_means = [np.mean(g) for g in equal if g]
    _, by_itself = SHARED.get(method, ('', None))
    alone = [list(scores.gain_alone(*pair, by_itself).values()) for pair in pairs] if by_itself else None
    means, lost = [np.mean(g) for g in own], np.concatenate([scores.losses(*pair) for pair in pairs])
    sent = [sum(scores.megabytes(one, True).values()) for one, _ in pairs]
    out.append(
      {
        'method': method,
        'places': tuple(there),
        'seeds': (min(map(len, own)), max(map(len, own))),
        'gain': evidence.over_settings(own),
        'means': means,
        'gain_alone': evidence.over_settings(alone) if alone else None,
        'gain_all': evidence.over_settings(rest),
        'gain_within': evidence.over_settings(within) if len(within) == len(pairs) else None,
        'within': len(within),
        'gain_equal': evidence.over_settings(equal) if all(equal) else None,
        'stopped': any(scores.is_stopped(*pair) for pair in pairs),
        'wins': evidence.wins(means),
        'better': evidence.signed_rank(means) if len(means) >= 3 else None,
        'better_equal': evidence.signed_rank(equal_means) if len(equal_means) == len(means) >= 3 else None,
        'below': float(np.mean(lost > 0)),
        'lost': float(lost[lost > 0].mean()) if (lost > 0).any() else 0.0,
        'megabytes': float(np.mean(sent)),
        'messages': float(np.mean([sum(scores.megabytes(one).values()) for one, _ in pairs])),
      }
    )
  return sorted(out, key=lambda row: (len(row['places']), row['gain'][0]), reverse=True)


def interval(three) -> str:
  """'+2.10 [1.00, 3.20]'."""
  return '-' if three is None else f'{three[0]:+.2f} [{three[1]:+.2f}, {three[2]:+.2f}]'


def at_equal_examples(row: dict) -> str:
  """Of a row of the `overview`, and whether some of it is of runs that were stopped."""
  return interval(row['gain_equal']) + STOPPED * row['stopped']


def of_tier(rows: list) -> str:
  """The `overview` as a table."""
  most = len(rows[0]['places'])
  count = lambda row: f' ({len(row["places"])} of {most} settings)' * (len(row['places']) < most)
  line = lambda row: {
    'method': f'{row["method"]}{count(row)}',
    'gain on own rows': interval(row['gain']),
    'at equal examples': at_equal_examples(row),
    f'within {WITHIN:g} MB': _within(row),
    'by own models alone': interval(row['gain_alone']),
    'gain on all rows': interval(row['gain_all']),
    'better than private': f'{row["wins"][0]} of {row["wins"][1]}',
    'P(> 1 point better), P(> 1 point worse)': _probability(row['better']),
    'clients below private': f'{100 * row["below"]:.0f} %, by {row["lost"]:.1f}',
    'MB of messages': f'{row["messages"]:.2f}',
    'with public images': f'{row["megabytes"]:.2f}',
  }
  return analysis.markdown(pd.DataFrame(list(map(line, rows))))


def _within(row) -> str:
  """The gain where the method stays within the bytes in all of its settings, else in how many it does."""
  if row['method'] == 'agg':  # which has all examples in one place, and sends no messages
    return '-'
  some = 0 < row['within'] < len(row['places'])
  return f'in {row["within"]} of {len(row["places"])} settings' if some else interval(row['gain_within'])


def _probability(three) -> str:
  return 'fewer than 3 settings' if three is None else f'{three[2]:.2f}, {three[0]:.2f}'


def control(cell, one: dict, base: dict, other: str, out, page: pathlib.Path) -> dict:
  """A row: what is other than in `base`, a method of the tables, and what that adds to it over common seeds."""
  return {
    'method': base['method'],
    'with': f'[{other}]({os.path.relpath(cells.path_of(cell, out), page.parent)})',
    'own rows': _signed(scores.gain(one, base)),
    'all rows': _signed(scores.gain(one, base, 'all')),
    'seeds': len(scores.gain(one, base)),
    'chosen': f'{_choice(one)}; in the tables {_choice(base)}',
  }


def beside(chosen: list, out) -> str:
  """The settings of somebody's cells, each with a table in which their method is beside ours."""
  lines = []
  for cell in chosen:
    here = found(out, *cell.place.astuple(), more=[cell.method])
    if cell.method in here:
      suite, _, tier, setting = cell.place.astuple()
      lines += [f'{suite}, {tier}, {setting}', '', of_setting(here, out), '']
  return '\n'.join(lines)
