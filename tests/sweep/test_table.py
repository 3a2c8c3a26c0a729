"""The table of a sweep."""

import math

import pytest

from fedkd.sweep import table


def tried(validation, rounds=4, reason=''):
  return [{'validation': validation, 'test': 0.5, 'worst': 0.4}], reason, rounds


@pytest.mark.parametrize(
  'points',
  [
    [(3.0, tried(0.75)), (10.0, tried(0.75)), (1.0, tried(0.5))],  # the first of equals
    [(1.0, tried(0.750001)), (0.1, tried(0.75)), (20.0, tried(0.9, rounds=2))],  # by less than is shown
    [(1.0, tried(0.75)), (5.0, tried(0.99, reason='nan'))],
    [(1.0, tried(0.75)), (5.0, tried(math.nan)), (3.0, tried(0.5))],  # a client predicts NaN at the end
    [(1.0, tried(0.75)), (3.0, tried(0.5)), (5.0, tried(math.nan))],
  ],
)
def test_the_first_line_is_the_best_point(points):
  found = {n: table.Tried({'method.alpha': alpha}, *one) for n, (alpha, one) in enumerate(points)}
  lines = table.of(found)
  assert lines['number'][0] == table.best(found) == 0
  assert list(lines['validation %'].dropna()) == list(lines['validation %'][: lines['validation %'].notna().sum()])
  assert list(lines['rounds']) == sorted(lines['rounds'], reverse=True)


def test_half_the_range_between_seeds_is_called_so():
  """A number beside ± is half a 95 % interval everywhere else: of these three seeds 17 points, not 8."""
  outcomes = [{**one, 'validation': value} for one, value in zip(tried(0.5)[0] * 3, (0.5, 0.6, 0.66), strict=True)]
  lines = table.of({0: table.Tried({'method.alpha': 1.0}, outcomes, '', 3)})
  assert lines['half range'].tolist() == [8.0]
  assert '±' not in lines


def test_rounds_that_are_searched_are_those_of_the_point():
  found = {n: table.Tried({'rounds': n + 1}, *tried(0.9 - 0.1 * n)) for n in range(2)}
  lines = table.of(found)
  assert list(lines['rounds']) == [1, 2]
  assert table.best(found) == 0  # not the longest


def test_without_a_point_that_was_trained_to_the_end_there_is_no_best():
  for broken in (tried(0.5, reason='nan'), tried(math.nan)):
    assert table.best({0: table.Tried({}, *broken), 1: table.Tried({}, *tried(0.5, rounds=2))}) is None
