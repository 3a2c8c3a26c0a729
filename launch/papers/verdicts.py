"""The papers' claims, judged by our runs, and what experiments say about those that we do not reproduce."""

import pandas as pd

from fedkd import analysis
from launch import papers
from launch.papers import values


def claims(everything) -> pd.DataFrame:
  """One line per claim, judged by the longest profile that has both rows."""
  return pd.DataFrame([_line(everything, claim) for claim in papers.claims()])


def _line(everything, claim) -> dict:
  about = {'claim': claim.text, 'id': claim.more.split('/')[0]}
  for profile in values.PROFILES:
    difference = values.difference(everything, profile, claim.more, claim.less, claim.metric)
    if difference is not None:
      verdict = _verdict(difference, claim.margin)
      ours = f'{analysis.spread(difference)}'
      why = claim.why if verdict != 'reproduced' else ''
      line = {**about, 'printed': _printed(claim, profile), 'ours': ours, 'verdict': verdict}
      return {**line, 'profile': profile, 'seeds': len(difference), 'why': why}
  line = {**about, 'printed': _printed(claim, 'paper'), 'ours': '-', 'verdict': 'not run'}
  return {**line, 'profile': '-', 'seeds': 0, 'why': ''}


def _verdict(difference, margin) -> str:
  """What the interval says; fewer than three seeds decide nothing."""
  if len(difference) < 3:
    return 'not decided'
  _, low, high = analysis.interval(difference)
  return 'reproduced' if low > -margin else 'contradicted' if high < -margin else 'not decided'


def _printed(claim, profile) -> str:
  """The claim's difference as printed."""
  registry, sides = papers.registry(), []
  for side in (claim.more, claim.less):
    signed = 0.0
    for sign, name in zip((1, -1), side.split(' - '), strict=False):
      name, _, own = name.partition(':')
      id, row = name.split('/')
      entry = registry[id]
      names = [printed for printed, metric in entry.metrics.items() if metric == (own or claim.metric)]
      found = next(one for one in entry.rows if one.name == row)
      value = values.printed(entry, profile, found, names[0]) if names else None
      if value is None:
        return '-'
      signed += sign * value
    sides.append(signed)
  return f'{sides[0] - sides[1]:+.2f}'


def decisions(everything) -> list:
  """A line for every question that has its runs, with its command."""
  lines = []
  for question in papers.questions():
    difference = values.difference(everything, question.profile, question.row, question.beside, question.metric)
    if difference is not None:
      id, row = question.row.split('/')
      command = f'`--id={id} --rows={row} --profile={question.profile}`'
      points = f'{analysis.spread(difference)} points ({len(difference)} seed{"s" * (len(difference) > 1)})'
      lines.append(f'* {question.text}: {question.change}: {points}; {command}')
  return lines
