"""What a difference says about a claim: an example of each word, and which claims are counted once."""

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
  assert judging.word(AROUND - 1, None, 'paper', margin=4) == 'sign only'
  assert judging.p_value(AROUND - 1, margin=1) == pytest.approx(1)
  assert judging.p_value(AROUND - 1) == pytest.approx(analysis.p_value(AROUND - 1))


def test_fewer_than_three_seeds_decide_nothing():
  assert judging.word(AROUND[:2] + 9, 9, 'paper') == 'undecided'
  assert judging.word(AROUND - 4, 4, 'paper', other=AROUND[:2] + 9) == 'incompatible'
  assert np.isnan(judging.p_value(AROUND[:2] + 9))


@pytest.mark.parametrize(
  ('ours', 'other', 'decides'),
  [(-4, 4, True), (1, 4, True), (4, -4, True), (4, 1, False), (4, 4, False), (-4, 1, False)],
)
def test_an_open_choice_decides_where_it_turns_the_claim(ours, other, decides):
  found = judging.word(AROUND + ours, 20, 'paper', other=AROUND + other)
  assert (found == 'an open choice decides') == decides


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


def test_equal_numbers_of_examples_come_first(monkeypatch):
  of = lambda *accuracy: {'seeds': [0, 1, 2], 'per_seed': {'final': list(accuracy)}, 'config': {}, 'commit': 'c'}
  rows = {'a': of(0.5, 0.51, 0.52), 'b': of(0.6, 0.62, 0.61), 'longer': of(0.7, 0.72, 0.71)}
  claim = papers.Claim('a', 't/a', 't/b', paper='p', equal=('t/longer', 't/b'))
  monkeypatch.setattr(papers, 'claims', lambda: (claim, claim._replace(equal=('t/none', 't/b'))))
  monkeypatch.setattr(verdicts, '_printed', lambda claim, profile: None)
  first, second = verdicts.claims({('t', 'small'): rows}).itertuples()
  assert (first.ours[:5], first.verdict) == ('10.00', 'sign only')
  assert first._6.startswith('-10.00')  # as published
  assert (second.ours[:6], second.verdict) == ('-10.00', 'scale too small')
