"""The papers' claims, judged by our runs, and what experiments say about those that we do not reproduce."""

import numpy as np
import pandas as pd

from fedkd import analysis
from fedkd.analysis import statistics
from launch.studies import papers, stale
from launch.studies.papers import judging, values
from launch.studies.papers.common import Claim

EQUAL = 0.05  # by so large a share equal numbers of examples may differ


def claims(everything: dict) -> pd.DataFrame:
  """One line per claim, judged by the longest profile that has both rows with three common seeds, or else with any.

  'ours' is the difference with equal numbers of examples where that was run, 'as published' then that of the
  published budgets. 'p' is Holm's over the claims of a paper, of which those that repeat an earlier one's run are
  none: 'repeats'.
  """
  lines, seen = [], set()
  for claim in papers.claims():
    line = _line(everything, claim)
    sides = line.pop('runs')
    line['repeats'] = any(is_copy and key in seen for key, is_copy in sides)
    seen |= {key for key, _ in sides}
    lines.append(line)
  out = pd.DataFrame(lines)
  alone = out['p'].where(~out['repeats'])
  out['p'] = alone.groupby(out['paper'], sort=False).transform(lambda p: analysis.holm(p.to_numpy()))
  return out


def _line(everything, claim) -> dict:
  about = {'paper': claim.paper, 'claim': claim.text, 'id': claim.more.split('/')[0]}
  of = lambda profile: values.difference(everything, profile, claim.more, claim.less, claim.metric)
  there = {profile: found for profile in values.PROFILES if (found := of(profile)) is not None}
  enough = [profile for profile, found in there.items() if len(found) >= statistics.FEWEST]
  if there:
    profile = next(iter(enough or there))
    return about | _judged(everything, claim, profile, there[profile])
  nothing = {'printed': _signed(_printed(claim, 'paper')), 'ours': '-', 'as published': '', 'p': np.nan, 'runs': ()}
  return about | nothing | {'verdict': judging.NOT_RUN, 'profile': '-', 'seeds': 0, 'why': '', 'open': ''}


def _judged(everything, claim, profile, published) -> dict:
  """A line's verdict and what it rests on: equal numbers of examples, where they were run, before published budgets."""
  of = lambda sides: values.difference(everything, profile, *sides, claim.metric) if sides else None
  equal = of(claim.equal) if _are_equal(everything, profile, claim.equal) else None
  printed = _printed(claim, profile)
  sides, difference = (claim.equal, equal) if equal is not None else ((claim.more, claim.less), published)
  word = lambda found, reading: judging.word(found, printed, profile, claim.margin, reading[1])
  readings = [(name, found) for name, *pair in claim.readings if (found := of(pair)) is not None] or [('', None)]
  # Of several readings that were run, one by which the claim is decided otherwise, if there is such.
  telling = lambda found: next((one for one in readings if word(found, one) == judging.OPEN), readings[0])
  other = telling(difference)
  verdict, before = word(difference, other), word(published, telling(published))
  why = [values.filled(everything, claim.why), _stale(everything, profile, *sides)]
  if printed is not None and printed < 0 and not claim.margin:
    why.insert(0, "The paper's own numbers are against this claim.")
  return {
    'printed': _signed(printed),
    'ours': analysis.spread(difference),
    'as published': '' if equal is None else analysis.spread(published) + f' ({before})' * (before != verdict),
    'verdict': verdict,
    'open': f'{other[0]}: {analysis.spread(other[1])}' if verdict == judging.OPEN else '',
    'p': judging.p_value(difference, claim.margin),
    'profile': profile,
    'seeds': len(difference),
    'runs': _runs(everything, profile, sides, claim),
    'why': ' '.join(filter(None, why)),
  }


def _are_equal(everything, profile, sides) -> bool:
  """Whether the runs of both sides are there and saw equal numbers of examples, in this profile."""
  runs = [run for side in sides for run in values.named(everything, profile, side).values()]
  if not runs or None in runs:
    return False
  seen = [np.mean(run['per_seed'].get('examples', np.nan)) for run in runs]
  return bool(np.max(seen) <= (1 + EQUAL) * np.min(seen))


def _runs(everything, profile, sides, claim: Claim) -> list:
  """For each side (what it is compared as: its run, by its first name in the tables, beside which method; whether it is
  a copy of that run)."""
  out = []
  for side, beside in (sides, sides[::-1]):
    for name, result in values.named(everything, profile, side).items():
      run, metric = result.get('same_run', name.partition(':')[0]), name.partition(':')[2] or claim.metric
      out.append(((profile, metric, run, beside.rpartition('/')[2]), 'same_run' in result))
  return out


def _stale(everything, profile, *expressions) -> str:
  """Which rows of a difference are stale; '' where none is."""
  each = [item for expression in expressions for item in values.named(everything, profile, expression).items()]
  return stale.note({name.partition(':')[0].split('/')[1]: result for name, result in each if stale.changes(result)})


def _signed(points) -> str:
  return '-' if points is None else f'{points:+.2f}'


def _printed(claim, profile) -> float | None:
  """The claim's difference as printed."""
  if not isinstance(claim.printed, str):
    return claim.printed
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


def decisions(everything: dict) -> dict:
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
