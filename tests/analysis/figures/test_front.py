"""Accuracy against megabytes."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedkd import analysis
from fedkd.analysis.figures import pareto
from fedkd.analysis.figures.front import on_front
from fedkd.errors import ConfigError


def test_the_front_is_what_nothing_cheaper_or_as_cheap_beats():
  cost, gain = np.array([0, 1, 2, 2, 3, 3, 4, 5]), np.array([5, 4, 7, 6, 9, 9, 8, 9])
  assert on_front(cost, gain).tolist() == [True, False, True, False, True, True, False, False]


def test_points_are_last_values_against_all_megabytes_and_those_on_the_front_are_filled(make):
  runs = {'private': (0.5, 0), 'fedhe': (0.6, 1e3), 'dsfl': (0.55, 1e5), 'fedmd': (0.7, 1e6)}
  frame = analysis.tidy.concatenated(make(name, *of) for name, of in runs.items())
  axes = pareto(frame)
  points = {bar.get_label(): bar.lines for bar in axes.containers}
  assert set(points) == {'fedhe', 'dsfl', 'fedmd'}
  for run, (marker, _, (bar,)) in points.items():
    one = frame.query(f"run == '{run}' and metric == 'accuracy' and client == -1 and round == 20")
    mean, low, high = analysis.interval(100 * one['value'].to_numpy())
    assert marker.get_xdata()[0] == pytest.approx(2 * 20 * runs[run][1] / 1e6)
    assert marker.get_ydata()[0] == pytest.approx(mean)
    np.testing.assert_allclose(bar.get_segments()[0][:, 1], (low, high))
  filled = {run for run, (marker, *_) in points.items() if to_hex(marker.get_markerfacecolor()) != '#ffffff'}
  assert filled == {'fedhe', 'fedmd'}
  (front,) = (line for line in axes.get_lines() if line.get_gid() == 'front')
  np.testing.assert_allclose(front.get_xdata(), [0.04, 40])
  assert axes.get_xscale() == 'log'
  assert 'private (sends nothing)' in [line.get_label() for line in axes.get_lines()]


def test_a_run_without_a_value_at_the_end_is_named_and_no_earlier_one_is_set_against_all_megabytes(make):
  frame = analysis.tidy.concatenated([make('fedhe', 0.6, 1e3), make('dsfl', 0.9, 1e3), make('fedmd', 0.7, 1e6)])
  frame.loc[(frame['run'] == 'dsfl') & (frame['round'] == 20) & (frame['metric'] == 'accuracy'), 'value'] = np.nan
  axes = pareto(frame)
  assert [bar.get_label() for bar in axes.containers] == ['fedhe', 'fedmd']
  assert axes.get_xlabel().endswith('no value at the end: dsfl')
  with pytest.raises(ConfigError, match="metric='accuracy' has no value at the last evaluation of any run"):
    pareto(frame[frame['run'] == 'dsfl'])


def test_a_metric_that_ends_before_the_run_is_set_against_the_megabytes_of_its_last_round(make):
  frame = make('fedhe', 0.6, 1e3)
  frame = frame[(frame['round'] < 20) | (frame['metric'] != 'accuracy')]
  (bar,) = pareto(frame).containers
  assert bar.lines[0].get_xdata()[0] == pytest.approx(2 * 10 * 1e3 / 1e6)


def test_a_run_without_megabytes_is_named_so(make):
  frame = analysis.tidy.concatenated([make('fedhe', 0.6, 1e3), make('dsfl', 0.9, 1e3)])
  unsent = frame[(frame['run'] != 'dsfl') | ~frame['metric'].isin(['bytes_up', 'bytes_down'])]
  assert pareto(unsent).get_xlabel().endswith('no megabytes: dsfl')
  late = unsent[(unsent['run'] == 'dsfl') | (unsent['metric'] != 'accuracy')]
  with pytest.raises(ConfigError, match='frame has no bytes at the last evaluation of dsfl'):
    pareto(late)
