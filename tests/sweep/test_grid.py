"""What a grid says, as axes and points, and what is refused."""

import pytest

from fedkd import aggregate
from fedkd import config as configs
from fedkd.errors import ConfigError
from fedkd.sweep import grid, points


def test_a_grid_as_text_and_as_a_dict_is_the_same():
  text = grid.parse("method.alpha=0.1,1;data.ways=2,(3,4) ; method.rule='mean',median")
  assert text == grid.parse({'method.alpha': (0.1, 1), 'data.ways': (2, (3, 4)), 'method.rule': ['mean', 'median']})
  assert [axis.field for axis in text] == ['method.alpha', 'data.partition.ways', 'method.rule']


def test_intervals_have_values_for_a_grid():
  logarithmic, linear, whole = grid.parse('a.b=log:1e-4:1e-2;a.c=linear:0.0:1.0:5;a.d=log:1:100')
  assert logarithmic.values == pytest.approx((1e-4, 1e-3, 1e-2))
  assert logarithmic[2:] == (1e-4, 1e-2, True, 3)
  assert linear.values == (0, 0.25, 0.5, 0.75, 1)
  assert whole.values == (1, 10, 100)
  assert all(isinstance(value, int) for value in whole.values)


def test_the_field_decides_whether_an_interval_has_whole_numbers():
  config = configs.default()
  config.method = configs.method('fedhe')
  config.optimizer = configs.optimizer('sgd', learning_rate=0.1)  # `momentum` is empty, and of no type
  text = 'linear:0:1;method.steps=log:1:100;optimizer.momentum=linear:0:1:2;early_stop.min_delta=linear:0:1:2'
  axes = grid.typed(grid.parse(f'method.alpha={text};plan.name=sampled;plan.ratio=log:1:4;rounds=linear:1:2'), config)
  values = {axis.field: axis.values for axis in axes}
  floats = {'method.alpha': (0, 0.5, 1), 'optimizer.momentum': (0, 1), 'early_stop.min_delta': (0, 1)}
  floats['plan.ratio'] = (1, 2, 4)
  whole = {'method.steps': (1, 10, 100), 'rounds': (1, 2)}
  assert values == {**floats, 'plan.name': ('sampled',), **whole}
  for fields, kind in ((floats, float), (whole, int)):
    ends = [end for axis in axes if axis.field in fields for end in (axis.low, axis.high, *axis.values)]
    assert {type(end) for end in ends} == {kind}
  with pytest.raises(ConfigError, match="method fedhe has no field 'beta'"):
    grid.typed(grid.parse('method.beta=linear:0:1'), config)
  config.optimizer = configs.optimizer('sgd', learning_rate=1)
  with pytest.raises(ConfigError, match=r'^optimizer.learning_rate=1 is a whole number in the config, .* with .0$'):
    grid.typed(grid.parse('optimizer.learning_rate=linear:0:1'), config)


def test_points_are_every_combination_the_last_field_fastest():
  assert grid.points(grid.parse('a.b=1,2;a.c=3,4')) == [
    {'a.b': 1, 'a.c': 3},
    {'a.b': 1, 'a.c': 4},
    {'a.b': 2, 'a.c': 3},
    {'a.b': 2, 'a.c': 4},
  ]


@pytest.mark.parametrize(
  ('text', 'sentence'),
  [
    ('', 'grid is empty; write for example method.alpha='),
    ('method.alpha', "grid has 'method.alpha', which is not FIELD=VALUES"),
    ('method.alpha=', "grid has 'method.alpha=', which is not FIELD=VALUES"),
    ('a.b=1;a.b=2', 'grid has a.b twice; give all its values at once'),
    ('a.b=1,1', 'grid: a.b has a value twice'),
    ('seeds=1,2', 'grid has the field seeds; give --seeds'),
    ('a.b=log:0:1', 'grid: a.b=log:0:1 is no interval'),
    ('a.b=linear:2:1', 'grid: a.b=linear:2:1 is no interval'),
    ('a.b=linear:1:2:1', 'grid: a.b=linear:1:2:1 is no interval'),
    ('a.b=log:x:1', 'grid: a.b=log:x:1 is no interval'),
    ('a.b=log:1', 'grid: a.b=log:1 is no interval'),
  ],
)
def test_a_grid_that_says_nothing_is_refused(text, sentence):
  with pytest.raises(ConfigError) as error:
    grid.parse(text)
  assert str(error.value).startswith(sentence)


def test_seeds_as_text():
  assert grid.numbers('2:5', 'seeds') == (2, 3, 4)
  assert grid.numbers('7,1,', 'seeds') == (7, 1)
  for text in ('3:3', '1,1', 'a', '', '-1', '1:2:3'):
    with pytest.raises(ConfigError, match='is no list of distinct seeds; write seeds=0:3'):
      grid.numbers(text, 'seeds')


def test_names_of_points_are_directories_that_differ():
  assert points.name_of({'method.alpha': 0.1, 'optimizer.learning_rate': 1e-3}) == 'alpha=0.1,learning_rate=0.001'
  assert points.name_of({'method.eps': 1, 'optimizer.eps': 2}) == 'method.eps=1,optimizer.eps=2'
  odd = [points.name_of({'method.rule': value}) for value in ('a/b', 'a b', 'x' * 200, 'x' * 201, (1, 2))]
  assert len(set(odd)) == 5
  assert all('/' not in name and ' ' not in name and len(name) < 128 for name in odd)
  assert points.name_of({'a.b': 0.1234567}) != points.name_of({'a.b': 0.1234568})


def test_functions_in_a_grid_become_the_names_by_which_runs_find_them():
  (axis,) = grid.parse({'method.rule': (aggregate.trimmed_mean, 'median')})
  assert axis.values == ('fedkd.aggregate:trimmed_mean', 'median')
  for unnamed in (lambda rows, weight: rows, aggregate.centred_clipping(1.0)):
    with pytest.raises(ConfigError, match=r'grid: method.rule is .* cannot be found by that name; let a module define'):
      grid.parse({'method.rule': (unnamed,)})
