"""RESULTS.md from the JSON objects in results/: claims, what experiments decide, printed numbers beside ours, what is
sent."""

import itertools
import pathlib

import pandas as pd

from fedkd import analysis
from launch.studies import papers
from launch.studies.papers import messages, plots, robustness, sections, values, verdicts

HEAD = """# Results

Written by `python -m launch.reproduce --report` from the JSON objects in `results/`: all numbers of our runs are read
from them, those in the reasons too. Accuracies are percent. Ours is the mean over seeds ± a 95 % Student t interval
(below three seeds the range); what is printed stands in brackets. Differences between our rows are paired over seeds.

`paper` is the published setting; `medium` has the published length with narrow nets; `light` has full nets and rounds,
but Adam and batches of 64; `small` is for machines without an accelerator, and its accuracies are not to be compared
with printed ones. Minutes are wall-clock time of training, on cores that were shared with other work. A row is stale
where its method has changed since it was run, as is said below its table.
"""
CLAIMS = """## Claims of the papers

A claim is an inequality between two rows, judged by the longest profile that has both. It is *reproduced* where the
whole interval of the difference is above 0 and *contradicted* where it is below. Otherwise it is *smaller than printed*
where the printed difference lies above the interval, and else *not decided*, as are all claims with fewer than three
seeds. A claim that allows for some points less (how many is our choice) is judged in the same way against minus that
many. Claims of one table depend on each other: ACC is a mean of BWT and FWT, and FedProx stands beside FedAvg.
Steadiness is how far an evaluation lies from the line between its neighbours.

Claims with six seeds were first judged with three. Seeds were added where three had left a claim, or one about the same
rows, undecided; the first three are among the six, so that these intervals cover somewhat less often than 95 %.
"""
DECISIONS = """## What experiments say

Each experiment changes one thing in a row of a table. Points are how far the run is above the row against which it is
judged; `python -m launch.reproduce --id=ID --rows=ROW --profile=PROFILE` makes a run called ID/ROW.
"""
TABLES = """## Tables

ACC: test rows of all nodes, BWT: the node's own, FWT: the others', each at the node's best validation round. Second
half, last quarter: means over the evaluations after half and three quarters of the rounds. Training above test: how
far the last accuracy on training rows is above that on test rows. Numbers up / down are those of one client update.
"""
TRUST = {
  'crash': (
    'Measured by `python -m launch.crash`: what happens to a run, and how it ends when it is started again.',
    robustness.table,
  ),
  'fuzz': (
    'Measured by `python -m launch.fuzz`: random changes of what others write and type.',
    robustness.fuzzed,
  ),
}
MEDIUM = ('he-mnist-hetero', 'he-cifar10-hetero', 'md-cifar-iid', 'fv-cifar10-iid')  # published length, narrow nets
MOST_NAMED = 10  # claims in a sentence
NOT_RUN = """## Not run

By the command `python -m launch.reproduce --id=ID --profile=PROFILE`:
"""


def write(out, path, draw=True):
  """Writes the report, and unless `draw` is False the figures into `out`/figures."""
  everything = values.found(out)
  if draw:
    plots.draw(out, everything)
  pathlib.Path(path).write_text('\n'.join(_lines(out, everything)).rstrip('\n') + '\n')


def _lines(out, everything) -> list:
  judged, decided = verdicts.claims(everything), verdicts.decisions(everything)
  lines = [HEAD, CLAIMS, analysis.markdown(_counts(judged)), '']
  for paper, own in judged[judged['verdict'] != 'not run'].groupby('paper', sort=False):
    lines += _judged(paper, own)
  lines += [DECISIONS] if decided else []
  for text, table in decided.items():
    lines += [f'**{text}**', '', analysis.markdown(table), '']
  lines += [TABLES]
  for _, entries in itertools.groupby(papers.registry().items(), lambda item: item[1].together or item[0]):
    lines += _tables(out, everything, dict(entries))
  return [*lines, *messages.section(), *_survived(out), *_not_run(everything, judged)]


def _counts(judged) -> pd.DataFrame:
  """How many claims of each paper have which verdict, and how many are judged in `small`."""
  counts = pd.crosstab(judged['paper'], judged['verdict']).reindex(papers.PAPERS, fill_value=0)
  counts = counts.reindex(columns=verdicts.VERDICTS, fill_value=0)
  counts['judged in `small`'] = (judged['profile'] == 'small').groupby(judged['paper']).sum()
  counts.loc['all'] = counts.sum()
  return counts.reset_index()


def _judged(paper, own) -> list:
  """The table of a paper's claims, and the reasons that it refers to by number."""
  reasons = {why: number for number, why in enumerate(dict.fromkeys(filter(None, own['why'])), 1)}
  shown = own.drop(columns=['paper', 'id', 'why'])
  shown['remark'] = [str(reasons.get(why, '')) for why in own['why']]
  listed = [f'{number}. {why}' for why, number in reasons.items()]
  return [f'### {paper}', '', analysis.markdown(shown), '', *listed, *[''] * bool(listed)]


def _tables(out, everything, entries) -> list:
  """The tables of an id, or one for several that are shown together, for every profile; the figures below the first
  that they are drawn from."""
  lines = []
  for profile in values.PROFILES:
    done = {id: everything[id, profile] for id in entries if (id, profile) in everything}
    if done:
      lines += sections.section({id: entries[id] for id in done}, profile, done)
    for id in done:
      drawn = plots.of(out, id, everything) if plots.profile_of(id, everything) == profile else ()
      pictures = ', '.join(f'[{name}](results/figures/{name}.png)' for name in drawn)
      lines += [f'Figures: {pictures}.', ''] if pictures else []
  return lines


def _survived(out) -> list:
  lines = []
  for name, (text, table) in TRUST.items():
    path = pathlib.Path(out) / f'{name}.json'
    lines += [text, '', table(path)] if path.exists() else []
  return ['## What runs survive', '', *lines] if lines else []


def _not_run(everything, judged) -> list:
  """What has no result, and what it would take."""
  registry = papers.registry()
  done = lambda id, profiles: any((id, profile) in everything for profile in profiles)
  missing = {id: entry.needs for id, entry in registry.items() if entry.needs and not done(id, values.PROFILES)}
  short = {id: entry.cost for id, entry in registry.items() if id not in missing and not done(id, values.PROFILES)}
  # What decides is run in `small` alone, unless a question is asked in another profile.
  asked = {question.row.partition('/')[0] for question in papers.questions() if question.profile != 'small'}
  tables = {id: entry for id, entry in registry.items() if not id.startswith('why-') or id in asked}
  full = [id for id, entry in tables.items() if not (id in missing or id in short or done(id, entry.full))]
  lines = [NOT_RUN]
  for name in sorted(set(missing.values())):
    lines.append(f'* {name} was not available: {", ".join(id for id, needs in missing.items() if needs == name)}.')
  for cost in dict.fromkeys(short.values()):
    lines.append(f'* In no profile yet (`small`: {cost}): {", ".join(id for id, own in short.items() if own == cost)}.')
  longer = [id for id in MEDIUM if not done(id, ('medium', 'paper'))]
  lines += [f'* Not in `medium`, whose rows take hours on a core: {", ".join(longer)}.'] if longer else []
  lines += [f'* Not at full size, which for most takes an accelerator: {", ".join(full)}.'] if full else []
  without = judged[judged['verdict'] == 'not run']
  for name in ('', *sorted(set(missing.values()))):
    texts = [line.claim for line in without.itertuples() if missing.get(line.id, '') == name]
    about = f'that need {name}' if name else 'that the available images could judge'
    named = f': {"; ".join(texts)}' if len(texts) <= MOST_NAMED else ''
    lines += ['', f'{len(texts)} claims without runs {about}{named}.'] if texts else []
  return [*lines, '']
