"""RESULTS.md from the JSON objects in results/: claims, what experiments decide, printed numbers beside ours, what is
sent. Nothing is written by hand."""

import pathlib

from fedkd import analysis
from launch import papers
from launch.papers import messages, plots, robustness, sections, values, verdicts

HEAD = """# Results

Written by `python -m launch.reproduce --report` from the JSON objects in `results/`; nothing here is typed by hand.
Accuracies are percent. Ours is the mean over seeds ± a 95 % Student t interval (below three seeds the range); what is
printed stands in brackets. Differences between our rows are paired over seeds.

`paper` is the published setting; `medium` has the published length with narrow nets; `light` has full nets and rounds,
but Adam and batches of 64; `small` is for machines without an accelerator: how far it is from a printed number says
little. Minutes are wall-clock time of training, on cores that were shared with other work.
"""
CLAIMS = """## Claims of the papers

A claim is judged by the longest profile that has both of its rows. It is *reproduced* where the whole interval of the
difference is above 0, *contradicted* where it is below, and otherwise *not decided*, as are all claims with fewer than
three seeds. A claim that allows for some points less (how many is our choice) is judged in the same way against minus
that many. Steadiness is how far an evaluation lies from the line between its neighbours. The intervals are over seeds;
where two rows of the same seeds do nearly the same (Velo and Felo), a rerun with other rounding can move their
difference by more than its interval.
"""
DECISIONS = """## What experiments say

Each experiment changes one thing in a row of a table; shown is how far the changed row is above the row it is compared
with. The commands begin with `python -m launch.reproduce`.
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
  counts = judged['verdict'].value_counts().to_dict()
  lines = [HEAD, CLAIMS, ', '.join(f'{count} {verdict}' for verdict, count in counts.items()) + '.', '']
  shown = judged[judged['verdict'] != 'not run'].drop(columns=['id', 'why'])
  lines += [analysis.markdown(shown), '', *_reasons(judged), '']
  lines += [DECISIONS, *decided, ''] if decided else []
  lines += [TABLES]
  for id, entry in papers.registry().items():
    for profile in values.PROFILES:
      if done := everything.get((id, profile)):
        lines += sections.section(id, entry, profile, done)
    pictures = ', '.join(f'[{name}](results/figures/{name}.png)' for name in plots.of(out, id, everything))
    lines += [f'Figures: {pictures}.', ''] if pictures else []
  return [*lines, *messages.section(), *_survived(out), *_not_run(everything, judged)]


def _survived(out) -> list:
  lines = []
  for name, (text, table) in TRUST.items():
    path = pathlib.Path(out) / f'{name}.json'
    lines += [text, '', table(path)] if path.exists() else []
  return ['## What runs survive', '', *lines] if lines else []


def _reasons(judged) -> list:
  """Why we contradict claims, and what we know of those that are not decided, each reason once."""
  reasons, open_ends = {}, {}
  for line in judged[judged['verdict'] == 'contradicted'].itertuples():
    reasons.setdefault(line.why or 'no cause was found.', []).append(line.claim)
  for line in judged[(judged['verdict'] == 'not decided') & (judged['why'] != '')].itertuples():
    if line.why not in reasons:
      open_ends.setdefault(line.why, []).append(line.claim)
  lines = [f'* {"; ".join(texts)}: {why}' for why, texts in reasons.items()]
  return lines + [f'* Not decided: {"; ".join(texts)}: {why}' for why, texts in open_ends.items()]


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
  lines += [f'* Not at full size, for want of an accelerator: {", ".join(full)}.'] if full else []
  without = judged[judged['verdict'] == 'not run']
  for name in ('', *sorted(set(missing.values()))):
    texts = [line.claim for line in without.itertuples() if missing.get(line.id, '') == name]
    about = f'that need {name}' if name else 'that the available images could judge'
    lines += ['', f'{len(texts)} claims without runs {about}: {"; ".join(texts)}.'] if texts else []
  return [*lines, '']
