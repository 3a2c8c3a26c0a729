"""RESULTS.md on one page, and a page for each paper under docs/results/, from the JSON objects in results/."""

import pathlib
import re
import textwrap

import pandas as pd

from fedkd import analysis
from launch.studies import papers
from launch.studies.papers import judging, paper_pages, plots, values, verdicts

PAGES = 'docs/results'
HEAD = """# Results

Written by `python -m launch.reproduce --report` from the JSON objects in `results/`: all numbers of our runs are read
from them, those in the reasons too.
"""
HEADLINES = (
  'FedMD beats transfer learning, cifar-iid',
  'FedHe beats Private, mnist, hetero',
  'FedHe beats Private, cifar10, homo',
  'FedHe beats FedMD, cifar10, homo',
  'FedH2L beats IND in average ACC, alpha = 10 %',
  'FedH2L beats FedMD in average ACC, alpha = 10 %',
  'FedH2L beats FedAvg in average ACC, alpha = 10 %',
  'Felo beats fedhe, cifar10, iid',
  'FedProto beats Local, MNIST, 3 classes a client',
  'FedGen beats FedAvg, MNIST, Dirichlet 0.1',
)
HOW = """## What the words mean

The difference of two rows is judged by its 95 % interval over seeds, at equal numbers of examples where that was run;
with the published budgets it may be another one, which then stands beside it.

"""
HEAD_TABLE = """## Ten claims

Claims that six of the papers are cited for. Differences in points; *ours* has as many examples on both sides where *as
published* stands beside it, with its verdict where that is another one; elsewhere the sides have the budgets of their
paper, which may differ. p is two-sided, after Holm over all claims of the paper.
"""
STAND = """## Disagreements that we stand by

Claims that are *incompatible* in the published setting, as far as the paper gives it, or that *an open choice decides*;
numbers and experiments are on the papers' pages.
"""
MEDIUM = ('he-mnist-hetero', 'he-cifar10-hetero', 'md-cifar-iid', 'fv-cifar10-iid')  # published length, narrow nets
MOST_NAMED = 10  # claims in a sentence
DECIDING = """## What would decide most

Reruns, with hours on two cores as estimated from the rows that are there:

* FedHe and Private on MNIST, different nets, with FedMD's examples (1 to 2); FedMD with KL at paper length, last and
  best round (3).
* FedAvg and FedProx with the LeNet of 431,080 weights at 7 and 14 rounds, three alphas, six seeds (4).
* FedHe and Private on CIFAR-10, one architecture, 50,000 turns (6).
"""
NOT_RUN = """## Not run

What would settle the rest, by the command `python -m launch.reproduce --id=ID --profile=PROFILE`:
"""


def write(out: str | pathlib.Path, path: str | pathlib.Path, draw: bool = True) -> None:
  """Writes the report and the papers' pages beside it, and unless `draw` is False the figures into `out`/figures."""
  everything = values.found(out)
  if draw:
    plots.draw(out, everything)
  judged, decided = verdicts.claims(everything), verdicts.decisions(everything)
  path = pathlib.Path(path)
  path.write_text('\n'.join(_lines(everything, judged)).rstrip('\n') + '\n')
  folder = path.parent / PAGES
  folder.mkdir(parents=True, exist_ok=True)
  for name, text in paper_pages.pages(out, everything, judged, decided).items():
    (folder / f'{name}.md').write_text(text)


def _lines(everything, judged) -> list:
  words = [f'* *{word}*: {meaning}.' for word, meaning in judging.WORDS.items()]
  counted = judged[~judged['repeats']]
  return [
    HEAD,
    *_sentences(counted),
    '## Papers and verdicts',
    '',
    analysis.markdown(_counts(counted)),
    '',
    f'[What is sent, and what runs survive]({PAGES}/common.md).',
    '',
    HOW + '\n'.join(words),
    '',
    HEAD_TABLE,
    analysis.markdown(_headlines(judged)),
    '',
    STAND,
    *_disagreements(counted),
    '',
    DECIDING,
    *_not_run(everything, judged),
  ]


def _sentences(judged) -> list:
  """What holds, what does not, and what is open: in the published setting, and in smaller ones."""
  run = judged[judged['verdict'] != judging.NOT_RUN]
  published = run['profile'] == judging.PUBLISHED
  at_scale, smaller = run[published], run[~published]
  many = lambda claims, *words: int(claims['verdict'].isin(words).sum())
  holds = run[run['verdict'].isin(judging.HOLDS)]
  left = judging.OPEN, judging.WITHIN, judging.UNDECIDED
  opened, within, undecided = (many(at_scale, word) for word in left)
  said = (
    f'Of the {len(judged)} claims of {len(papers.PAPERS)} papers {len(run)} could be judged. In the published setting '
    f'{many(at_scale, *judging.HOLDS)} of {len(at_scale)} hold, {many(at_scale, judging.INCOMPATIBLE)} are '
    f'incompatible with our runs, {opened} hold by one reading of what the paper leaves open, {within} hold within a '
    f'margin of ours and {undecided} are undecided. In smaller settings {many(smaller, *judging.HOLDS)} of '
    f'{len(smaller)} hold and {many(smaller, judging.SCALE)} do not, neither of which says much about the published '
    f'one; {many(smaller, judging.WITHIN)} hold within a margin and {many(smaller, judging.UNDECIDED)} are undecided. '
    f'Of the {len(holds)} that hold {int((holds["p"] < 0.05).sum())} keep p < 0.05 after Holm over the claims of '
    f'their paper. {many(judged, judging.NOT_RUN)} have no runs; what that would take is listed below.'
  )
  return [textwrap.fill(said, 120, break_on_hyphens=False), '']


def _linked(paper) -> str:
  return f'[{paper}]({PAGES}/{paper_pages.name_of(paper)}.md)'


def _counts(judged) -> pd.DataFrame:
  """How many claims of each paper have which verdict, and of all papers in the published setting and in others."""
  counts = pd.crosstab(judged['paper'], judged['verdict']).reindex(papers.PAPERS, fill_value=0)
  published = judged['profile'] == judging.PUBLISHED
  in_smaller = ~published & (judged['verdict'] != judging.NOT_RUN)
  for name, chosen in (
    ('all', judged),
    ('in the published setting', judged[published]),
    ('in smaller ones', judged[in_smaller]),
  ):
    counts.loc[name] = chosen['verdict'].value_counts()
  counts = counts.reindex(columns=list(judging.WORDS)).fillna(0).astype(int)
  counts.index = [_linked(paper) if paper in papers.PAPERS else paper for paper in counts.index]
  return counts.reset_index(names='paper')


def _headlines(judged) -> pd.DataFrame:
  own = judged.set_index('claim').loc[list(HEADLINES)].reset_index()
  shown = own[['paper', 'claim', 'printed', 'ours', 'as published']].assign(p=list(map(paper_pages.p_text, own['p'])))
  shown['verdict'] = [f'{v} ({p})' for v, p in zip(own['verdict'], own['profile'], strict=True)]
  if own['open'].any():
    shown['what decides'] = own['open']
  return shown.assign(paper=list(map(_linked, own['paper'])))


def _disagreements(judged) -> list:
  """A line for each reason: how many claims it concerns, between what they lie, and its first sentence."""
  own = judged[judged['verdict'].isin((judging.INCOMPATIBLE, judging.OPEN))]
  lines = []
  for (paper, why), same in own.groupby(['paper', 'why'], sort=False):
    ours, printed = (_range(same[name]) for name in ('ours', 'printed'))
    what = f'{len(same)} claims, such as "{same["claim"].iloc[0]}"' if len(same) > 1 else f'"{same["claim"].iloc[0]}"'
    opened = '; '.join(f'{line.claim}: {line.open}' for line in same.itertuples() if line.open)
    opened = f' By another reading: {opened}.' if opened else ''
    lines.append(f'* {_linked(paper)}: {what}: ours {ours}, printed {printed}. {_first_sentence(why)}{opened}')
  return lines


def _range(texts) -> str:
  """From the smallest to the largest of the numbers with which texts begin."""
  numbers = sorted(float(text.split()[0]) for text in texts)
  ends = dict.fromkeys(f'{number:+.2f}' for number in (numbers[0], numbers[-1]))
  return ' to '.join(ends)


def _first_sentence(text) -> str:
  return re.split(r'(?<=[a-z%])\. ', text)[0].rstrip('.') + '.' if text else ''


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
  without = judged[judged['verdict'] == judging.NOT_RUN]
  for name in ('', *sorted(set(missing.values()))):
    texts = [line.claim for line in without.itertuples() if missing.get(line.id, '') == name]
    about = f'that need {name}' if name else 'that the available images could judge'
    named = f': {"; ".join(texts)}' if len(texts) <= MOST_NAMED else ''
    lines += ['', f'{len(texts)} claims without runs {about}{named}.'] if texts else []
  return [*lines, '']
