"""Curves: what is drawn is what the tables say."""

import numpy as np
import pytest

from fedkd import analysis
from fedkd.analysis.figures import curves, violations
from fedkd.errors import ConfigError


def line(axes, name):
  (found,) = (one for one in axes.get_lines() if one.get_label() == name)
  return found


def by_round(frame, run, metric='accuracy'):
  """[seeds, rounds] of all clients together."""
  one = frame[(frame['run'] == run) & (frame['metric'] == metric) & (frame['client'] == -1)]
  return one.pivot(index='seed', columns='round', values='value').to_numpy()


def test_a_line_is_the_mean_and_a_band_the_interval_of_the_tables(frame):
  axes = curves(frame)
  values = 100 * by_round(frame, 'fedhe')
  np.testing.assert_allclose(line(axes, 'fedhe').get_ydata(), values.mean(0))
  assert list(line(axes, 'fedhe').get_xdata()) == [0, 10, 20]
  corners = axes.collections[1].get_paths()[0].vertices
  for x, column in zip((0, 10, 20), values.T, strict=True):
    _, low, high = analysis.interval(column)
    at = corners[corners[:, 0] == x][:, 1]
    np.testing.assert_allclose((at.min(), at.max()), (low, high))
  assert axes.get_xlabel() == 'round\n95 % interval over 3 seeds'
  assert axes.get_ylabel() == 'accuracy (%)'


def test_below_three_seeds_the_band_is_the_range_and_is_called_so(frame):
  two = frame[frame['seed'] < 2]
  axes = curves(two)
  values = 100 * by_round(two, 'private')
  corners = axes.collections[0].get_paths()[0].vertices
  last = corners[corners[:, 0] == 20][:, 1]
  np.testing.assert_allclose((last.min(), last.max()), (values[:, -1].min(), values[:, -1].max()))
  assert 'range over 2 seeds' in axes.get_xlabel()


@pytest.mark.parametrize(('x', 'last'), [('updates', 80), ('examples', 1280), ('megabytes', 0.04), ('seconds', 10)])
def test_x_is_what_it_is_called(frame, x, last):
  of = frame[frame['run'] == 'fedhe']
  assert line(curves(of, x), 'fedhe').get_xdata()[-1] == pytest.approx(last)


def test_a_run_that_sends_nothing_is_a_level_over_megabytes_which_are_a_logarithm_where_they_differ_much(frame):
  axes = curves(frame, 'megabytes')
  level = line(axes, 'private (sends nothing)')
  np.testing.assert_allclose(level.get_ydata(), 100 * by_round(frame, 'private')[:, -1].mean())
  assert axes.get_xscale() == 'log'
  np.testing.assert_allclose(line(axes, 'fedmd').get_xdata(), [20, 40])  # not 0, which has no place there
  assert line(curves(frame[frame['run'] == 'fedmd'], 'megabytes'), 'fedmd').get_xdata()[0] == 0
  assert curves(frame[frame['run'] == 'private'], 'megabytes').get_xscale() == 'linear'


def test_the_evaluation_on_all_test_rows_is_a_point_apart_from_the_line(make):
  of = make('fedhe', 0.6, 1e3, test_rows=(50, 50, 500))
  axes = curves(of)
  assert list(line(axes, 'fedhe').get_xdata()) == [0, 10]
  (point,) = axes.containers
  assert point.lines[0].get_xdata().tolist() == [20]
  mean, low, high = analysis.interval(100 * by_round(of, 'fedhe')[:, -1])
  np.testing.assert_allclose(point.lines[0].get_ydata(), mean)
  np.testing.assert_allclose(point.lines[2][0].get_segments()[0][:, 1], (low, high))
  assert axes.get_xlabel().endswith('points: all test rows')
  assert list(line(curves(of, metric='loss'), 'fedhe').get_xdata()) == [10, 20]  # no matter of test rows


def test_only_the_last_phase_of_a_run_is_drawn(make, frame):
  before = make('fedhe', 0.3, 1e3).assign(phase=0)
  both = analysis.tidy.concatenated([before, frame[frame['run'] == 'fedhe'].assign(phase=1)])
  drawn = line(curves(both), 'fedhe').get_ydata()
  np.testing.assert_allclose(drawn, 100 * by_round(frame, 'fedhe').mean(0))


def test_a_single_run_has_a_title_and_no_legend(frame):
  axes = curves(frame[frame['run'] == 'fedhe'])
  assert axes.get_legend() is None
  assert axes.get_title() == 'fedhe'
  assert len(curves(frame).get_legend().get_texts()) == 3


def test_violations_are_a_share(frame):
  of = frame[(frame['run'] == 'fedhe') & (frame['metric'] == 'accuracy')].assign(metric='violated', value=0.25)
  axes = violations(of)
  np.testing.assert_allclose(line(axes, 'fedhe').get_ydata(), 25)
  with pytest.raises(ConfigError, match=r"metric='violated' is not in the frame, .*; give a run of fedh2l"):
    violations(frame)


@pytest.mark.parametrize(('options', 'match'), [
  ({'x': 'time'}, "x has no quantity 'time'; it has round, updates"),
  ({'metric': 'los'}, "metric='los' is not in the frame, which has accuracy, bytes_down"),
])  # fmt: skip
def test_what_is_not_there_is_refused(frame, options, match):
  with pytest.raises(ConfigError, match=match):
    curves(frame, **options)


def test_two_trainings_of_one_name_are_not_averaged(frame):
  with pytest.raises(ConfigError, match="run 'private' has two values of accuracy for seed 0 in round 0; give every"):
    curves(analysis.tidy.concatenated([frame, frame]))


def test_what_is_no_tidy_frame_is_refused(frame):
  with pytest.raises(ConfigError, match='frame is a dict; give one of fedkd'):
    curves({'FedHe': frame})
  with pytest.raises(ConfigError, match="frame has no column 'metric'"):
    violations(analysis.wide(frame))


def test_an_empty_frame_is_refused(frame):
  with pytest.raises(ConfigError, match='frame is empty; give'):
    curves(frame[:0])
  with pytest.raises(ConfigError, match=r'give fedkd.train test=\(x, y\)'):
    curves(frame[frame['metric'] == 'loss'])


def test_a_level_is_of_the_last_evaluation_or_the_run_is_named(frame):
  broken = frame.copy()
  of_last = (
    (frame['run'] == 'private') & (frame['round'] == 20) & (frame['metric'] == 'accuracy') & (frame['seed'] == 1)
  )
  broken.loc[of_last & (frame['client'] == -1), 'value'] = np.nan
  axes = curves(broken, 'megabytes')
  assert [line.get_label() for line in axes.get_lines()] == ['fedhe', 'fedmd']
  assert 'no value at the end: private' in axes.get_xlabel()
  assert len(curves(broken).get_lines()[0].get_xdata()) == 2  # over rounds the line ends where its values do


@pytest.mark.parametrize(('x', 'told'), [('round', True), ('updates', True), ('examples', False), ('megabytes', False)])
def test_what_is_counted_anew_in_each_phase_is_said_to_be_of_the_last(frame, x, told):
  """Rounds and client updates are; the other quantities are counted from the start of a run."""
  phases = frame.assign(phase=(frame['run'] == 'fedhe').astype(int))
  assert ('rounds and updates: of the last phase' in curves(phases, x).get_xlabel()) == told
  assert 'phase' not in curves(frame, x).get_xlabel()


def test_a_run_in_which_a_seed_never_has_a_value_is_named_or_refused(frame):
  broken = frame.copy()
  of_seed = frame.query("run == 'fedhe' and metric == 'loss' and seed == 1")
  broken.loc[of_seed.index, 'value'] = np.nan
  axes = curves(broken, metric='loss')
  assert [line.get_label() for line in axes.get_lines()] == ['private', 'fedmd']
  assert axes.get_xlabel().endswith('no value at the end: fedhe')
  with pytest.raises(ConfigError, match="metric='loss' has no round in which every seed of a run has a value"):
    curves(broken[broken['run'] == 'fedhe'], metric='loss')


def test_a_run_that_knows_single_clients_alone_is_their_mean_beside_others(frame):
  alone = frame.drop(frame.query("run == 'fedhe' and metric == 'accuracy' and client == -1").index)
  drawn = {line.get_label(): line.get_ydata() for line in curves(alone).get_lines()}
  assert list(drawn) == ['private', 'fedhe', 'fedmd']
  for line in curves(frame).get_lines():
    np.testing.assert_allclose(drawn[line.get_label()], line.get_ydata())


def test_a_run_without_x_is_named_or_refused(frame):
  unsent = frame.drop(frame.query("run == 'fedmd' and metric in ('bytes_up', 'bytes_down')").index)
  axes = curves(unsent, 'megabytes')
  assert [line.get_label() for line in axes.get_lines()] == ['private (sends nothing)', 'fedhe']
  assert 'no megabytes: fedmd' in axes.get_xlabel()
  apart = frame.query("run == 'fedhe' or (run == 'fedmd' and metric in ('bytes_up', 'bytes_down'))")
  apart = apart.drop(apart.query("run == 'fedhe' and metric in ('bytes_up', 'bytes_down')").index)
  with pytest.raises(ConfigError, match="x='megabytes' and metric='accuracy' are not known of any run in one round"):
    curves(apart, 'megabytes')


def test_a_line_that_lacks_rounds_of_a_seed_says_so(frame):
  broken = frame.copy()
  stopped = frame.query("run == 'fedhe' and metric == 'loss' and seed == 1 and round == 20")
  broken.loc[stopped.index, 'value'] = np.nan
  axes = curves(broken, metric='loss')
  assert line(axes, 'fedhe').get_xdata().tolist() == [10]
  assert axes.get_xlabel().endswith('no line where a seed has no value: fedhe')
  assert 'no line' not in curves(frame, metric='loss').get_xlabel()  # nobody has a loss in round 0
