"""Figures of numbers by label."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedkd import analysis
from fedkd.analysis import figures
from fedkd.errors import ConfigError

VALUES = {
  name: (np.array([0, 50, 100]), np.arange(9.0).reshape(3, 3) + i) for i, name in enumerate(['private', 'fedhe'])
}


def test_lines_are_means_and_say_what_their_bands_are():
  axes = figures.lines(VALUES, 'share')
  for line, band, (x, y) in zip(axes.get_lines(), axes.collections, VALUES.values(), strict=True):
    np.testing.assert_array_equal(line.get_xydata(), np.stack([x, y.mean(0)], 1))
    corners = band.get_paths()[0].vertices
    first = corners[corners[:, 0] == 0][:, 1]
    np.testing.assert_allclose((first.min(), first.max()), analysis.interval(y[:, 0])[1:])
  assert axes.get_xlabel() == 'share\n95 % interval over 3 seeds'


def test_bars_and_panels_have_the_colours_of_curves(frame):
  colours = {run: to_hex(colour) for run, colour in figures.colours(frame).items()}
  drawn = figures.bars({name: np.ones(2) for name in colours}, 'title')
  assert [to_hex(bar.get_facecolor()) for bar in drawn.patches] == list(colours.values())
  points = {name: (1.0, 2.0, 1.5, 3.0) for name in colours}
  axes = figures.gain_against_megabytes(points)
  assert [to_hex(bar.lines[0].get_color()) for bar in axes.containers] == list(colours.values())
  low, high = axes.containers[0].lines[2][0].get_segments()[0][:, 1]
  np.testing.assert_allclose((low, high), (1.5, 3.0))


def test_models_start_at_a_level_and_pass_the_bounds():
  row = lambda round, *each: {'phase': 0, 'round': round, 'accuracy_per_client': [list(each)]}
  of = {'method': 'fedmd', 'id': 'md', 'profile': 'small', 'config': {'groups': [{'model': 'A'}, {'model': 'B'}]}}
  of['curve'] = [row(0, 0.1, 0.3), row(1, 0.5, 0.6)]
  axes = figures.collaboration(of, {'pooled': {'per_seed': {'final': [0.8, 0.9]}}})
  lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
  np.testing.assert_allclose(lines['1 B'], [30, 60])
  assert lines['mean at the start'][0] == pytest.approx(20)
  assert lines['pooled, mean'][0] == pytest.approx(85)


def test_more_than_eight_points_are_named_beside_the_axes():
  points = {f'm{i}': (1.0 + i, float(i), i - 1.0, i + 1.0) for i in range(9)}
  axes = figures.gain_against_megabytes(points)
  assert axes.get_legend() is None
  assert {text.get_text(): text.xy for text in axes.texts} == {name: (x, y) for name, (x, y, *_) in points.items()}
  few = figures.gain_against_megabytes(dict(list(points.items())[:8]))
  assert len(few.get_legend().get_texts()) == 8
  assert not few.texts


def test_a_result_without_single_clients_is_refused():
  for curve in ([], [{'phase': 0, 'round': 0, 'accuracy': [0.1]}]):
    with pytest.raises(ConfigError, match="result 'md' has no accuracies of single clients over its rounds"):
      figures.collaboration({'id': 'md', 'curve': curve}, {})
