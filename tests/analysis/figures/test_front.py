"""Accuracy against megabytes."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedkd import analysis
from fedkd.analysis.figures import pareto
from fedkd.analysis.figures.front import on_front


def test_the_front_is_what_nothing_cheaper_or_as_cheap_beats():
  cost, gain = np.array([0, 1, 2, 2, 3, 3, 4]), np.array([5, 4, 7, 6, 9, 9, 8])
  assert on_front(cost, gain).tolist() == [True, False, True, False, True, True, False]


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
