"""docs/results/: a page for each paper, with every claim, what experiments say, and the tables; and one of what is
common to all of them."""

import itertools
import pathlib
import re

import pandas as pd

from fedkd import analysis
from launch.studies import papers
from launch.studies.papers import judging, messages, plots, robustness, sections, values

NUMBERS = """Accuracies are percent. Ours is the mean over seeds ± a 95 % Student t interval (below three seeds the
range); what is printed stands in brackets. Differences between our rows are paired over seeds.

`paper` is the published setting; `medium` has the published length with narrow nets; `light` has full nets and rounds,
but Adam and batches of 64; `small` is for machines without an accelerator: its accuracies are not to be compared with
printed ones, and that a difference agrees with the printed one there does not say that it would at full size. Minutes
are wall-clock time of training, on cores that were shared with other work. A row is stale where its method has changed
since it was run, as is said below its table; made is the commit whose code trained it, and whether files had been
changed since. Of rows that were run before 29 November 2026 it is the commit that was checked out when the run ended,
which some of them began before.
"""
CLAIMS = """## Claims

A claim is an inequality between two rows, judged by the longest profile that has both ([what the words
mean](../../RESULTS.md#what-the-words-mean)). *Ours* is the difference with equal numbers of examples where that was
run, and *as published* then the one with the paper's budgets, with its word where that is another one. Where there is
no such run the two sides may have seen different numbers of examples, as the budgets of their paper have it. A claim
that allows for some points less is judged against minus that many, and by itself. *p* is that of a two-sided paired t
test that the difference is 0, or minus the margin, after Holm over all claims of the paper; a claim that repeats an
earlier one's run (marked =) is not counted again. Claims of one table depend on each other all the same. Steadiness is
how far an evaluation lies from the line between its neighbours.

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
far the last accuracy on training rows is above that on test rows. Numbers up / down are those of one client update, of
methods that upload once the update that is sent.
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
FIGURES = '../../results/figures'


def name_of(paper: str) -> str:
  """The file of a paper's page, without its ending."""
  return re.sub(r'\W+', '_', paper.lower())


def pages(out: str | pathlib.Path, everything: dict, judged: pd.DataFrame, decided: dict) -> dict[str, str]:
  """{file: text} of all pages, with what is common to all as 'common'.

  Args:
    out: the folder of results.
    everything: of `values.found`.
    judged, decided: of `verdicts`.
  """
  made = {name_of(paper): _page(out, everything, paper, judged, decided) for paper in papers.PAPERS}
  common = ['# What is sent, and what runs survive', '', *messages.section(), *_survived(out)]
  return made | {'common': _text(common)}


def paper_of(id: str) -> str:
  """The paper of an id: its own, or of an experiment the one whose config it changes."""
  own = {known: name for name, paper in papers.PAPERS.items() for known in paper.registry()}
  config = lambda known: papers.registry()[known].rows[0].config
  by_config = {config(known): name for known, name in own.items()}
  return own[id] if id in own else by_config[config(id)]


def _text(lines) -> str:
  return '\n'.join(lines).rstrip('\n') + '\n'


def _page(out, everything, paper, judged, decided) -> str:
  own = judged[(judged['paper'] == paper) & (judged['verdict'] != judging.NOT_RUN)]
  lines = [f'# {paper}', '', NUMBERS, CLAIMS, *_judged(own)]
  asked = {text: table for text, table in decided.items() if paper_of(table['run'].iloc[0].partition('/')[0]) == paper}
  lines += [DECISIONS] if asked else []
  for text, table in asked.items():
    lines += [f'**{text}**', '', analysis.markdown(table), '']
  lines += [TABLES]
  mine = {id: entry for id, entry in papers.registry().items() if paper_of(id) == paper}
  for _, entries in itertools.groupby(mine.items(), lambda item: item[1].together or item[0]):
    lines += _tables(out, everything, dict(entries))
  return _text(lines)


def _judged(own) -> list:
  """The table of a paper's claims, and the reasons that it refers to by number."""
  reasons = {why: number for number, why in enumerate(dict.fromkeys(filter(None, own['why'])), 1)}
  shown = own[['claim', 'printed', 'ours', 'as published', 'verdict', 'p', 'profile', 'seeds']].astype(object)
  shown['verdict'] = [f'{v}; {o}' if o else v for v, o in zip(own['verdict'], own['open'], strict=True)]
  shown['p'] = ['=' if again else p_text(p) for again, p in zip(own['repeats'], own['p'], strict=True)]
  shown['remark'] = [str(reasons.get(why, '')) for why in own['why']]
  if not own['as published'].any():
    shown = shown.drop(columns='as published')
  listed = [f'{number}. {why}' for why, number in reasons.items()]
  return [analysis.markdown(shown), '', *listed, *[''] * bool(listed)]


def p_text(p: float) -> str:
  """A p value for a table; '' for none."""
  return '' if pd.isna(p) else '< 0.001' if p < 1e-3 else f'{p:.3f}'


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
      pictures = ', '.join(f'[{name}]({FIGURES}/{name}.png)' for name in drawn)
      lines += [f'Figures: {pictures}.', ''] if pictures else []
  return lines


def _survived(out) -> list:
  lines = []
  for name, (text, table) in TRUST.items():
    path = pathlib.Path(out) / f'{name}.json'
    lines += [text, '', table(path)] if path.exists() else []
  return ['## What runs survive', '', *lines] if lines else []
