"""The papers' claims, judged by our runs, and what experiments say about those that we do not reproduce."""

import pandas as pd

from fedkd import analysis
from launch.studies import papers, stale
from launch.studies.papers import values

VERDICTS = ('reproduced', 'smaller than printed', 'not decided', 'contradicted', 'not run')


def claims(everything) -> pd.DataFrame:
  """One line per claim, judged by the longest profile that has both rows."""
  return pd.DataFrame([_line(everything, claim) for claim in papers.claims()])


def _line(everything, claim) -> dict:
  about = {'paper': claim.paper, 'claim': claim.text, 'id': claim.more.split('/')[0]}
  for profile in values.PROFILES:
    difference = values.difference(everything, profile, claim.more, claim.less, claim.metric)
    if difference is not None:
      printed = _printed(claim, profile)
      verdict = _verdict(difference, claim.margin, printed)
      line = {**about, 'printed': _signed(printed), 'ours': analysis.spread(difference), 'verdict': verdict}
      why = [values.filled(everything, claim.why), _stale(everything, profile, claim.more, claim.less)]
      return {**line, 'profile': profile, 'seeds': len(difference), 'why': ' '.join(filter(None, why))}
  line = {**about, 'printed': _signed(_printed(claim, 'paper')), 'ours': '-', 'verdict': 'not run'}
  return {**line, 'profile': '-', 'seeds': 0, 'why': ''}


def _stale(everything, profile, *expressions) -> str:
  """Which rows of a difference are stale; '' where none is."""
  each = [item for expression in expressions for item in values.named(everything, profile, expression).items()]
  return stale.note({name.partition(':')[0].split('/')[1]: result for name, result in each if stale.changes(result)})


def _verdict(difference, margin, printed) -> str:
  """What the interval says; fewer than three seeds decide nothing."""
  if len(difference) < 3:
    return 'not decided'
  _, low, high = analysis.interval(difference)
  if low > -margin:
    return 'reproduced'
  if high < -margin:
    return 'contradicted'
  return 'smaller than printed' if printed is not None and high < printed else 'not decided'


def _signed(points) -> str:
  return '-' if points is None else f'{points:+.2f}'


def _printed(claim, profile) -> float | None:
  """The claim's difference as printed."""
  registry, sides = papers.registry(), []
  for side in (claim.more, claim.less):
    signed = 0.0
    for sign, name in zip((1, -1), side.split(' - '), strict=False):
      name, _, own = name.partition(':')
      id, row = name.split('/')
      entry = registry[id]
      metric = own or claim.metric
      names = [printed for printed, ours in entry.metrics.items() if ours == metric]
      found = next(one for one in entry.rows if one.name == row)
      value = values.printed(entry, profile, found, names[0] if names else metric)
      if value is None:
        return None
      signed += sign * value
    sides.append(signed)
  return sides[0] - sides[1]


def decisions(everything) -> dict:
  """{disagreement: a table with a line for every change that was run}."""
  lines = {}
  for question in papers.questions():
    difference = values.difference(everything, question.profile, question.row, question.beside, question.metric)
    if difference is not None:
      change = stale.marked(question.change, *_rows(everything, question))
      line = {'change': change, 'against': question.beside, 'points': analysis.spread(difference)}
      line |= {'seeds': len(difference), 'run': question.row, 'profile': question.profile}
      lines.setdefault(question.text, []).append(line)
  return {text: pd.DataFrame(own) for text, own in lines.items()}


def _rows(everything, question) -> list:
  """The results that a question is about."""
  sides = question.row, question.beside
  return [result for side in sides for result in values.named(everything, question.profile, side).values()]
