"""Searches that Optuna proposes: what they ask for, what they remember, and successive halving."""

import pytest

from fedkd.errors import ConfigError
from fedkd.sweep import grid, searches

optuna = pytest.importorskip('optuna')
AXES = grid.parse('optimizer.learning_rate=log:1e-4:1e-1;method.batch=8,16,32;method.steps=linear:1:9')


def driven(search, score, limit=100):
  """[(points, rounds)] of the rungs of a search, whose points are scored."""
  rungs, told = [], None
  try:
    while len(rungs) < limit:
      proposed, rounds = search.send(told)
      rungs.append((proposed, rounds))
      told = {n: score(point, rounds) for n, point in proposed.items()}
  except StopIteration:
    pass
  return rungs


def of_rate(point, rounds):
  del rounds
  return 1 - abs(point['optimizer.learning_rate'] - 0.01)


@pytest.mark.parametrize('search', ['random', 'tpe'])
def test_points_are_within_the_grid_and_the_same_again(search, tmp_path):
  found = driven(searches.make(search, AXES, 6, 0, 2, tmp_path), of_rate)
  points = [point for proposed, _ in found for point in proposed.values()]
  assert len(points) == 6
  assert all(1e-4 <= point['optimizer.learning_rate'] <= 1e-1 for point in points)
  assert all(point['method.batch'] in (8, 16, 32) and point['method.steps'] in range(1, 10) for point in points)
  assert len({str(point) for point in points}) == 6
  (tmp_path / 'other').mkdir()
  assert driven(searches.make(search, AXES, 6, 0, 2, tmp_path / 'other'), of_rate) == found


def test_tpe_that_was_killed_goes_on_as_it_would_have(tmp_path):
  (tmp_path / 'whole').mkdir()
  (tmp_path / 'killed').mkdir()
  whole = driven(searches.make('tpe', AXES, 16, 0, 4, tmp_path / 'whole'), of_rate)
  driven(searches.make('tpe', AXES, 16, 0, 4, tmp_path / 'killed'), of_rate, limit=2)
  assert driven(searches.make('tpe', AXES, 16, 0, 4, tmp_path / 'killed'), of_rate) == whole
  more = driven(searches.make('tpe', AXES, 20, 0, 4, tmp_path / 'killed'), of_rate)
  assert more[:4] == whole
  assert len(more) == 5


def test_tpe_learns_from_scores(tmp_path):
  axes, early, late = grid.parse('a.b=linear:0.0:1.0'), [], []
  for best in (0.1, 0.3, 0.6, 0.9):
    (tmp_path / f'{best}').mkdir()
    near = lambda point, rounds, best=best: -abs(point['a.b'] - best)
    rungs = driven(searches.make('tpe', axes, 40, 0, 4, tmp_path / f'{best}'), near)
    distance = [abs(point['a.b'] - best) for proposed, _ in rungs for point in proposed.values()]
    early, late = early + distance[:20], late + distance[-20:]
  assert sum(late) < 0.75 * sum(early)


def test_no_two_random_points_are_nearly_the_same(tmp_path):
  """Those of 0 and 3 as seeds are, within two per cent in two fields."""
  axes = grid.parse('a.b=linear:0.0:1.0;a.c=linear:0.0:1.0')
  ((proposed, _),) = driven(searches.make('random', axes, 10, 0, 1, tmp_path), lambda point, rounds: 0.0)
  points = sorted((point['a.b'], point['a.c']) for point in proposed.values())
  near = [max(abs(x - y) for x, y in zip(a, b, strict=True)) for i, a in enumerate(points) for b in points[:i]]
  assert min(near) > 0.02


def test_halving_continues_the_better_third_for_three_times_the_rounds(tmp_path):
  rungs = driven(searches.make('halving', AXES, 9, 90, 4, tmp_path), of_rate)
  assert [(len(points), rounds) for points, rounds in rungs] == [(9, 10), (3, 30), (1, 90)]
  ranked = sorted(rungs[0][0].values(), key=lambda point: -of_rate(point, 0))
  assert list(rungs[1][0].values()) == ranked[:3]
  assert list(rungs[2][0].values()) == ranked[:1]


def test_halving_that_has_begun_is_refused_another_number_of_points(tmp_path):
  make = lambda points: searches.make('halving', AXES, points, 9, 4, tmp_path)
  driven(make(2), of_rate, limit=1)
  whole = driven(make(3), of_rate, limit=1)  # killed before the first run
  (tmp_path / 'points' / 'one').mkdir(parents=True)
  assert driven(make(3), of_rate, limit=1) == whole
  for other in (2, 9):
    with pytest.raises(
      ConfigError, match=f'points={other}, and out=.* holds a search=halving of 3, .*; give points=3, or'
    ):
      make(other)


def test_failed_points_do_not_go_on(tmp_path):
  fails = lambda point, rounds: None if point['method.batch'] == 8 else of_rate(point, rounds)
  rungs = driven(searches.make('halving', AXES, 9, 90, 4, tmp_path), fails)
  assert all(point['method.batch'] != 8 for point in rungs[1][0].values())


def test_a_search_is_refused_without_its_number_of_points():
  for count in (None, 0):
    with pytest.raises(ConfigError, match=f'search=tpe needs points={count} to be at least 1; give --points=20'):
      searches.check('tpe', count)
