"""What a difference says about a claim: an example of each word, and which claims are counted once."""

import re

import numpy as np
import pytest

from fedkd import analysis
from launch.studies import papers
from launch.studies.papers import judging, verdicts

AROUND = np.array([-1.0, 0.0, 1.0])  # an interval of 2.48 on either side


@pytest.mark.parametrize(
  ('mean', 'printed', 'profile', 'word'),
  [
    (4, 5, 'small', 'agrees'),
    (4, 1, 'paper', 'sign only, larger'),
    (4, 7, 'paper', 'sign only, smaller'),
    (4, None, 'small', 'sign only'),
    (1, 3, 'paper', 'undecided'),
    (1, None, 'paper', 'undecided'),
    (1, -9, 'paper', 'undecided'),  # the paper's own number is against its claim
    (1, 4, 'paper', 'incompatible'),
    (1, 4, 'light', 'scale too small'),
    (-4, None, 'paper', 'incompatible'),
    (-4, -4, 'medium', 'scale too small'),
  ],
)
def test_a_word_for_every_interval(mean, printed, profile, word):
  assert judging.word(AROUND + mean, printed, profile) == word
  assert word in judging.WORDS


def test_a_margin_moves_zero():
  assert judging.word(AROUND - 1, None, 'paper') == 'undecided'
  assert judging.word(AROUND - 1, -5, 'paper', margin=4) == 'within a margin'
  assert judging.word(AROUND - 9, None, 'paper', margin=4) == 'incompatible'
  assert judging.word(AROUND + 4, 3, 'paper', margin=-1) == 'agrees'  # it has to lie above 1
  assert judging.word(AROUND + 3, 3, 'paper', margin=-1) == 'undecided'
  assert judging.p_value(AROUND - 1, margin=1) == pytest.approx(1)
  assert judging.p_value(AROUND - 1) == pytest.approx(analysis.p_value(AROUND - 1))


def test_fewer_than_three_seeds_decide_nothing():
  assert judging.word(AROUND[:2] + 9, 9, 'paper') == 'undecided'
  assert judging.word(AROUND - 4, 4, 'paper', other=AROUND[:2] + 9) == 'incompatible'
  assert np.isnan(judging.p_value(AROUND[:2] + 9))


@pytest.mark.parametrize(
  ('ours', 'other', 'decides'),
  [(-4, 4, True), (1, 4, True), (4, -4, True), (4, 1, True), (4, 4, False), (-4, 1, False)],
)
def test_an_open_choice_decides_where_it_turns_the_claim(ours, other, decides):
  found = judging.word(AROUND + ours, 20, 'paper', other=AROUND + other)
  assert (found == 'an open choice decides') == decides


@pytest.mark.parametrize(('second', 'verdict'), [(20, 'sign only'), (-20, 'an open choice decides')])
def test_every_reading_that_was_run_counts(monkeypatch, second, verdict):
  of = lambda points: {'seeds': [0, 1, 2], 'per_seed': {'final': (points + AROUND) / 100}, 'config': {}, 'commit': 'c'}
  rows = {'more': of(0), 'less': of(-10), 'first': of(5), 'second': of(second)}
  everything = {('one', 'small'): {**rows, 'zero': of(0)}}
  readings = tuple((name, f'one/{name}', 'one/zero') for name in ('none', 'first', 'second'))
  claim = papers.Claim('claim', 'one/more', 'one/less', paper='p', readings=readings)
  monkeypatch.setattr(papers, 'claims', lambda: (claim,))
  monkeypatch.setattr(verdicts, '_printed', lambda claim, profile: None)
  judged = verdicts.claims(everything).iloc[0]
  assert judged['verdict'] == verdict
  assert judged['open'].startswith('second: ') == (second < 0)


def test_a_claim_that_repeats_a_run_is_counted_once(monkeypatch):
  """The second table's fedgkt is the run of the first; felo is another one. Two of three p values are Holm's."""
  of = lambda accuracy, **more: {
    'seeds': [0, 1, 2],
    'per_seed': {'final': accuracy},
    'config': {},
    'commit': 'c',
    **more,
  }
  low, high = [0.5, 0.51, 0.52], [0.6, 0.62, 0.61]
  everything = {
    ('one', 'small'): {'felo': of(high), 'velo': of(high[::-1]), 'fedgkt': of(low)},
    ('two', 'small'): {'felo': of(high), 'fedgkt': of(low, same_run='one/fedgkt')},
  }
  sides = [('one/felo', 'one/fedgkt'), ('two/felo', 'two/fedgkt'), ('one/velo', 'one/fedgkt')]
  made = tuple(papers.Claim(f'{more} {less}', more, less, paper='p') for more, less in sides)
  monkeypatch.setattr(papers, 'claims', lambda: made)
  monkeypatch.setattr(verdicts, '_printed', lambda claim, profile: None)
  judged = verdicts.claims(everything)
  assert judged['repeats'].tolist() == [False, True, False]
  single = [judging.p_value(100 * (np.array(a) - low)) for a in (high, high[::-1])]
  first, second = analysis.holm(np.array(single))
  np.testing.assert_allclose(judged['p'], [first, np.nan, second])


def runs_of(*accuracy, first=0, examples=100.0):
  """A result with a seed for each accuracy."""
  seeds = list(range(first, first + len(accuracy)))
  per_seed = {'final': list(accuracy), 'examples': [examples] * len(accuracy)}
  return {'seeds': seeds, 'per_seed': per_seed, 'config': {}, 'commit': 'c'}


def test_the_longest_profile_with_three_common_seeds_judges(monkeypatch):
  """One seed at full size, three in `small`; and rows that have no seed in common."""
  claim = papers.Claim('a', 't/a', 't/b', paper='p', printed=10.0)
  monkeypatch.setattr(papers, 'claims', lambda: (claim,))
  three = {'a': runs_of(0.6, 0.62, 0.61), 'b': runs_of(0.5, 0.51, 0.52)}
  one = {name: runs_of(result['per_seed']['final'][0]) for name, result in three.items()}
  row = verdicts.claims({('t', 'paper'): one, ('t', 'small'): three}).iloc[0]
  assert (row['profile'], row['verdict'], row['printed']) == ('small', 'agrees', '+10.00')
  assert verdicts.claims({('t', 'paper'): one}).iloc[0]['verdict'] == 'undecided'
  apart = {'a': three['a'], 'b': runs_of(0.5, 0.51, 0.52, first=3)}
  assert verdicts.claims({('t', 'paper'): apart}).iloc[0]['verdict'] == 'not run'


@pytest.mark.parametrize('printed', [-0.5, 0.0, None])
def test_a_paper_whose_numbers_are_against_its_claim_is_told(monkeypatch, printed):
  claim = papers.Claim('a', 't/a', 't/b', paper='p', printed=printed)
  monkeypatch.setattr(papers, 'claims', lambda: (claim,))
  rows = {'a': runs_of(0.6, 0.62, 0.61), 'b': runs_of(0.5, 0.51, 0.52)}
  told = verdicts.claims({('t', 'small'): rows}).iloc[0]
  assert ("The paper's own numbers are against this claim." in told['why']) == (printed == -0.5)
  assert told['printed'] == {-0.5: '-0.50', 0.0: '+0.00', None: '-'}[printed]


def test_equal_numbers_of_examples_come_first(monkeypatch):
  rows = {'a': runs_of(0.5, 0.51, 0.52), 'b': runs_of(0.6, 0.62, 0.61)}
  rows['longer'] = runs_of(0.7, 0.72, 0.71, examples=102)
  claim = papers.Claim('a', 't/a', 't/b', paper='p', equal=('t/longer', 't/b'))
  monkeypatch.setattr(papers, 'claims', lambda: (claim, claim._replace(equal=('t/none', 't/b'))))
  monkeypatch.setattr(verdicts, '_printed', lambda claim, profile: None)
  first, second = verdicts.claims({('t', 'small'): rows}).itertuples()
  assert (first.ours[:5], first.verdict) == ('10.00', 'sign only')
  assert re.fullmatch(r'-10.00 ± \d\.\d\d \(scale too small\)', first._6)  # as published
  assert (second.ours[:6], second.verdict) == ('-10.00', 'scale too small')


def test_numbers_of_examples_that_are_not_equal_in_a_profile_do_not_come_first(monkeypatch):
  """As those of `why-fedmd-mnist` beside a FedMD of a longer profile."""
  rows = {'a': runs_of(0.5, 0.51, 0.52), 'b': runs_of(0.6, 0.62, 0.61), 'other': runs_of(0.7, 0.72, 0.71, examples=10)}
  claim = papers.Claim('a', 't/a', 't/b', paper='p', equal=('t/other', 't/b'))
  monkeypatch.setattr(papers, 'claims', lambda: (claim,))
  monkeypatch.setattr(verdicts, '_printed', lambda claim, profile: None)
  for other in (rows['other'], runs_of(0.7, 0.72, 0.71, examples=110)):
    (line,) = verdicts.claims({('t', 'small'): {**rows, 'other': other}}).itertuples()
    assert (line.ours[:6], line.verdict, line._6) == ('-10.00', 'scale too small', '')
