"""What the results say to somebody who has to choose: sentences and a table of decisions, made from numbers alone."""

import collections
import functools
import math
import textwrap

from launch.studies.comparison import tables
from launch.studies.comparison.budget import ON_PUBLIC, PUBLIC_CLIENTS, PUBLIC_SERVER, SHARED
from launch.studies.comparison.settings import SIZES, SUITES, TITLES, applying, settings

FEW_BYTES = (1.0, tables.WITHIN)  # megabytes of all clients and rounds


def _no_public(row, most: float = math.inf) -> bool:
  return row['method'] not in (*PUBLIC_CLIENTS, *PUBLIC_SERVER, 'agg') and row['messages'] <= most


SITUATIONS = {
  **{f'no public images, at most {most:g} MB in all': functools.partial(_no_public, most=most) for most in FEW_BYTES},
  'no public images': _no_public,
  'unlabelled public images at every client': lambda row: row['method'] in ON_PUBLIC,
  'public images at the server alone': lambda row: row['method'] in PUBLIC_SERVER,
  'labelled public images at every client': lambda row: row['method'] == 'fedh2l',
}


def best(rows: list, fits) -> dict | None:
  """The row with the largest gain on own rows among those that fit, of those whose gain is sure if there are any.

  Only methods count that were run in the most settings: gains over different settings do not compare. `rows` are of
  `tables.overview`, the largest gain first.
  """
  there = everywhere([row for row in rows if fits(row)])
  return next((row for row in there if is_sure(row)), there[0] if there else None)


def everywhere(rows) -> list:
  """The rows of `tables.overview` of as many settings as any of them has."""
  most = max((row['wins'][1] for row in rows), default=0)
  return [row for row in rows if row['wins'][1] == most]


def is_sure(row: dict) -> bool:
  """Whether the interval of the gain on own rows is above 0."""
  return row['gain'][1] > 0


def sentences(rows: list, different: dict) -> list:
  """Three sentences as paragraphs: without public images, with them, and how sure that is."""
  fits = {'Without public images': _no_public, 'With public images': lambda row: row['method'] in _WITH}
  said = [_sentence(when, best(rows, which)) for when, which in fits.items()]
  return [textwrap.fill(' '.join([*said, _basis(different)]), 120, break_on_hyphens=False)]


_WITH = (*ON_PUBLIC, *PUBLIC_SERVER)


def _sentence(when, row) -> str:
  if row is None:
    return f'{when}, nothing has been run yet.'
  gain, cost = tables.interval(row['gain']), f'{row["megabytes"]:.1f} MB'
  if is_sure(row):
    return (
      f'{when}, clients of ten different architectures gain most by `{row["method"]}`: {gain} points of accuracy on '
      f'their own rows over training alone, for {cost} in all{_equal(row)}{_alone(row)}.'
    )
  return (
    f'{when}, no method is better than training alone beyond its interval; the first is `{row["method"]}` with {gain} '
    f'points on own rows, for {cost} in all.'
  )


def _equal(row) -> str:
  """The gain at equal examples, where it is another."""
  if row['gain_equal'] is None or (equal := tables.interval(row['gain_equal'])) == tables.interval(row['gain']):
    return ''
  how = 'stopped early, where it has seen' if row['stopped'] else 'in fewer rounds, with'
  return f'; {how} as many examples, public ones counted, {equal}'


def _alone(row) -> str:
  """What clients predict with, where that is more than their own model."""
  if row['method'] not in SHARED:
    return ''
  of_own = f'; by their own models alone {tables.interval(row["gain_alone"])}' if row['gain_alone'] else ''
  return f'; they predict with {SHARED[row["method"]][0]}{of_own}'


def _basis(different) -> str:
  planned = sum('different' in one.tiers for suite in SUITES for one in settings(suite, 'whole').values())
  names = ', '.join(dict.fromkeys(TITLES[suite] for suite, _ in different))
  seeds = [len(pair[1]['runs']) for here in different.values() for pair in here.values()]
  finished = len(SIZES['whole'].seeds)
  count = f'{min(seeds)}' if min(seeds) == max(seeds) else f'{min(seeds)} to {max(seeds)}'
  there = collections.Counter(method for here in different.values() for method in here)
  could = collections.Counter(method for suite, name in different for method in applying(suite, 'different', name))
  said = (
    f'This rests on {len(different)} of {planned} settings ({names}), {len(there)} of {len(could)} methods and {count} '
    f'of {finished} seeds, which is all that has been run'
  )
  few = len(different) < 3
  said += '; it says nothing about other data yet.' if few else ', and the intervals below are of these.'
  counts = {method: there[method] for method in could if there[method] and method not in tables.REFERENCES}
  most = max(counts.values(), default=0)
  if all(there[method] == could[method] for method in counts):
    return said
  leading = [f'`{method}`' for method, count in counts.items() if count == most]
  were = 'were' if len(leading) > 1 else 'was'
  where = 'every one' if most == len(different) else f'{most}'
  return (
    f'{said} Only {", ".join(leading)} {were} run in {where} of them; where one of these fits a situation, the others '
    'are not considered.'
  )


def decisions(rows: list) -> list:
  """Lines of a table: situation, method, gain, gain at equal examples, megabytes, how sure."""
  lines = [_decision(situation, best(rows, fits)) for situation, fits in SITUATIONS.items()]
  gaining = [row for row in everywhere(rows) if row['method'] != 'agg' and is_sure(row)]
  safest = min(gaining, key=lambda row: row['below'], default=None)
  if safest:
    share = f'no client may lose (fewest below training alone: {100 * safest["below"]:.0f} %)'
    lines.append(_decision(share, safest))
  return lines


def _decision(situation, row) -> str:
  if row is None:
    return f'| {situation} | not run yet | | | | |'
  method = f'`{row["method"]}`' if is_sure(row) else f'train alone (`{row["method"]}` is the first)'
  sure = f'{row["wins"][0]} of {row["wins"][1]} settings, {row["seeds"]} seeds'
  equal = tables.at_equal_examples(row)
  if row['better']:
    sure += f'; P(> 1 point) {row["better"][2]:.2f}'
  return f'| {situation} | {method} | {tables.interval(row["gain"])} | {equal} | {row["megabytes"]:.2f} | {sure} |'
