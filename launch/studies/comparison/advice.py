"""What the results say to somebody who has to choose: sentences and a table of decisions, made from numbers alone."""

import collections
import functools
import itertools
import math
import statistics
import textwrap

from launch.studies.comparison import scores, tables
from launch.studies.comparison.budget import ON_PUBLIC, PUBLIC_CLIENTS, PUBLIC_SERVER, SHARED
from launch.studies.comparison.settings import SIZES, SUITES, TITLES, applying, settings

SAME = 'the same'
FEW_BYTES = (1.0, tables.WITHIN)  # megabytes of all clients and rounds


def _no_public(row, most: float = math.inf) -> bool:
  return row['method'] not in (*PUBLIC_CLIENTS, *PUBLIC_SERVER, 'agg') and row['messages'] <= most


# The methods that need what a situation has. What gains most without public images stands beside those that need such.
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
  most = max((len(row['places']) for row in rows), default=0)
  return [row for row in rows if len(row['places']) == most]


def is_sure(row: dict) -> bool:
  """Whether the interval of the gain on own rows is above 0, and one: of two settings or seeds it is the range."""
  told = len(row['places']) > 2 or (len(row['places']) == 1 and row['seeds'][0] > 2)
  return bool(told and row['gain'][1] > 0)


def without_public(row: dict, rows: list, different: dict) -> dict | None:
  """The method without public images that gains most in the settings of a row, over these."""
  of = lambda one: dict(zip(one['places'], one['means'], strict=True))
  there = {one['method']: of(one) for one in rows if _no_public(one) and {*row['places']} <= {*one['places']}}
  if not there:
    return None
  most = max(there, key=lambda method: sum(there[method][place] for place in row['places']))
  two = {place: {method: different[place][method] for method in ('private', most)} for place in row['places']}
  return tables.overview(two)[0]


def sentences(rows: list, different: dict) -> str:
  """Three sentences as a paragraph: without public images, with them, and what that rests on."""
  said = [_sentence(when, row, rows, different) for when, row in _chosen(rows).items()]
  return textwrap.fill(' '.join([*said, _basis(different)]), 120, break_on_hyphens=False)


def _chosen(rows) -> dict:
  """{when: the row of the method that the answer names, None for none}."""
  with_them = lambda row: row['method'] in (*ON_PUBLIC, *PUBLIC_SERVER)
  return {'Without public images': best(rows, _no_public), 'With unlabelled public images': best(rows, with_them)}


def _sentence(when, row, rows, different) -> str:
  if row is None:
    return f'{when}, nothing has been run yet.'
  first = (
    f'{when}, clients of ten different architectures gain most by `{row["method"]}`'
    if is_sure(row)
    else f'{when}, no method is surely better than training alone; the first is `{row["method"]}`'
  )
  return (
    f'{first}: {tables.interval(row["gain"])} points of accuracy on their own rows over training alone, for '
    f'{row["megabytes"]:.1f} MB in all{_at_equal(row)}{_more(row, rows, different)}.'
  )


def _at_equal(row) -> str:
  """What is left of a gain at equal examples, where that is another one."""
  equal = _equal(row)
  return '' if equal in (SAME, '-') else f', and {equal} at as many examples, public ones counted'


def _more(row, rows, different) -> str:
  """What gains more than a method that needs public images, without them."""
  other = None if _no_public(row) else without_public(row, rows, different)
  if other is None or other['gain'][0] <= row['gain'][0]:
    return ''
  return f'; in the same settings `{other["method"]}` gains {other["gain"][0]:+.2f} without them'


def carried_by(rows: list, different: dict) -> list:
  """Lines of a table: what carries the gains that the sentences name, a column per method; none without such."""
  chosen = [row for row in _chosen(rows).values() if row]
  if not chosen:
    return []
  lines = {
    'by setting': [_by_setting(row) for row in chosen],
    'without the settings of few images': [_without_few(row) for row in chosen],
    'without seeds in which a client of `private` ended at chance': [_of_learners(row, different) for row in chosen],
    'in fewer rounds, with as many examples, public ones counted': [_equal(row) for row in chosen],
    'what clients predict with': [SHARED.get(row['method'], ('their own models',))[0] for row in chosen],
    'by their own models alone': [tables.interval(row['gain_alone']) for row in chosen],
  }
  names = [f'`{row["method"]}`, on own rows' for row in chosen]
  head = [f'| what carries the gain | {" | ".join(names)} |', f'| --- |{" --- |" * len(chosen)}']
  told = {what: said for what, said in lines.items() if {*said} - {'-', SAME}}
  return [*head, *(f'| {what} | {" | ".join(said)} |' for what, said in told.items())]


def _by_setting(row) -> str:
  """How different the settings are."""
  if len(row['means']) < 3:
    return '-'
  low, high, median = min(row['means']), max(row['means']), statistics.median(row['means'])
  return f'{low:+.2f} to {high:+.2f}, the median {median:+.2f}'


def _without_few(row) -> str:
  means = dict(zip(row['places'], row['means'], strict=True))
  rest = [mean for (_, setting), mean in means.items() if setting != 'few']
  return f'{statistics.mean(rest):+.2f}' if 0 < len(rest) < len(means) else '-'


def _of_learners(row, different) -> str:
  """The gain over the seeds in which all clients of Private have learned, where they have not in all."""
  gains = _where_all_learned(row, different)
  return f'{statistics.mean(gains):+.2f}' if gains else '-'


def _wins_of_learners(row, different) -> str:
  """In how many settings a method is better over these seeds, where that is another number."""
  gains = _where_all_learned(row, different)
  wins = sum(gain > 0 for gain in gains)
  differ = gains and wins != row['wins'][0]
  return f' ({wins} without seeds in which a client of `private` ended at chance)' if differ else ''


def _where_all_learned(row, different) -> list:
  """The mean gain in each setting over the seeds in which all clients of Private have learned; [] if that is all."""
  private = {place: different[place]['private'][1] for place in row['places']}
  if not any(scores.clients_at_chance(one, tables.classes_of(place[0])) for place, one in private.items()):
    return []
  gains = [
    scores.where_all_learned(different[place][row['method']][1], one, tables.classes_of(place[0])).values()
    for place, one in private.items()
  ]
  return [statistics.mean(gain) for gain in gains if gain]


def _equal(row) -> str:
  equal = tables.at_equal_examples(row)
  return SAME if equal == tables.interval(row['gain']) else equal


def _basis(different) -> str:
  planned = sum('different' in one.tiers for suite in SUITES for one in settings(suite, 'whole').values())
  names = ', '.join(dict.fromkeys(TITLES[suite] for suite, _ in different))
  seeds = [len(pair[1]['runs']) for here in different.values() for pair in here.values()]
  finished = len(SIZES['whole'].seeds)
  count = _range(min(seeds), max(seeds))
  is_method = lambda method: method not in tables.REFERENCES
  there = collections.Counter(filter(is_method, itertools.chain(*different.values())))
  every = (applying(suite, 'different', name) for suite, name in different)
  could = collections.Counter(filter(is_method, itertools.chain(*every)))
  said = (
    f'This rests on {len(different)} of {planned} settings ({names}), {len(there)} of {len(could)} methods and {count} '
    f'of {finished} seeds, which is all that has been run'
  )
  few = len(different) < 3
  said += '; it says nothing about other data yet.' if few else ', and the intervals below are of these.'
  counts = {method: there[method] for method in could if there[method]}
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


def _range(least, most) -> str:
  return f'{least}' if least == most else f'{least} to {most}'


def decisions(rows: list, different: dict) -> list:
  """Lines of a table: situation, method, gain, gain at equal examples, megabytes, how sure, and for a method that needs
  public images what gains most without them."""
  lines = [_decision(situation, best(rows, fits), rows, different) for situation, fits in SITUATIONS.items()]
  there = [row for row in everywhere(rows) if row['method'] != 'agg']
  safest = min(filter(is_sure, there), key=lambda row: row['below'], default=None)
  if safest:
    few = f'{100 * safest["below"]:.0f} %, by {safest["lost"]:.1f} points'
    least = f'fewest clients below training alone, of the {len(there)} methods in as many settings: {few}'
    lines.append(_decision(least, safest, rows, different))
  return lines


def _decision(situation, row, rows, different) -> str:
  if row is None:
    return f'| {situation} | not run yet | | | | | |'
  needs = not _no_public(row)
  nothing = 'no sure gain by them' if needs else 'train alone'
  method = f'`{row["method"]}`' if is_sure(row) else f'{nothing} (`{row["method"]}` is the first)'
  other = without_public(row, rows, different) if needs else None
  beside = f'`{other["method"]}` {tables.interval(other["gain"])}, {other["megabytes"]:.2f} MB' if other else '-'
  wins = f'{row["wins"][0]} of {row["wins"][1]} settings{_wins_of_learners(row, different)}'
  sure = f'{wins}, {_range(*row["seeds"])} seeds'
  equal = tables.at_equal_examples(row)
  if row['better']:
    sure += f'; P(> 1 point) {row["better"][2]:.2f}'
  if row['better_equal'] and row['better_equal'] != row['better']:
    sure += f', at equal examples {row["better_equal"][2]:.2f}'
  gain = tables.interval(row['gain'])
  return f'| {situation} | {method} | {gain} | {equal} | {row["megabytes"]:.2f} | {sure} | {beside} |'
