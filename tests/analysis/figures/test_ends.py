"""Names at the ends of lines."""

import itertools

import numpy as np
import pytest
from matplotlib.text import Annotation

from fedkd.analysis.figures import curves, gain, gain_against_megabytes, pareto, worst
from fedkd.analysis.figures.ends import spread


def test_places_keep_their_gap_and_order_and_move_no_more_than_they_must():
  wanted = np.array([0.5, 0.51, 0.9, 0.49])
  places = spread(wanted, 0.1)
  assert np.array_equal(np.argsort(places), np.argsort(wanted))
  assert np.diff(np.sort(places)).min() >= 0.1 - 1e-12
  np.testing.assert_allclose(places, [0.5, 0.6, 0.9, 0.4])
  np.testing.assert_allclose(spread(np.array([0.1, 0.7]), 0.1), [0.1, 0.7])
  np.testing.assert_allclose(spread(np.array([0.5, 0.5]), np.array([0.1, 0.3])), [0.4, 0.6])  # half of each


def test_more_than_eight_runs_are_named_at_their_ends_without_overlap(many):
  for axes in (curves(many), curves(many, 'megabytes')):
    assert axes.get_legend() is None
    assert not axes.collections  # bands of so many would hide one another
    assert 'interval' not in axes.get_xlabel()
    figure = axes.figure
    figure.draw_without_rendering()
    names = [one for one in axes.get_children() if isinstance(one, Annotation)]
    assert len(names) == 12
    boxes = [super(Annotation, one).get_window_extent() for one in names]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert min(box.x0 for box in boxes) > axes.get_window_extent().x1  # beside the lines
    assert max(box.x1 for box in boxes) <= figure.bbox.x1  # and not cut off
    assert min(box.y0 for box in boxes) >= 0


@pytest.mark.parametrize('draw', [pareto, gain, worst])
def test_long_names_leave_room_for_the_axes_and_none_is_cut_off(draw, frame):
  long = {run: f'{run} with a very long name for its run, alpha=0.5 beta=0.9' for run in frame['run'].unique()}
  named = frame.replace({'run': long})
  axes = draw(named, long['private']) if draw is gain else draw(named)
  figure = axes.figure
  figure.draw_without_rendering()
  assert axes.get_window_extent().width > 0.45 * figure.bbox.width
  names = axes.get_legend().get_texts() if axes.get_legend() else axes.get_yticklabels()
  shown = [text for text in (*names, axes.xaxis.label, axes.yaxis.label) if text.get_text()]
  boxes = [text.get_window_extent() for text in shown]
  assert min(min(box.x0, box.y0) for box in boxes) >= 0
  assert max(box.x1 for box in boxes) <= figure.bbox.x1
  assert max(box.y1 for box in boxes) <= figure.bbox.y1


@pytest.mark.parametrize('draw', [curves, pareto])
@pytest.mark.parametrize('long', [1, 12])
def test_many_runs_with_long_names_leave_room_for_the_axes_too(draw, long, many):
  names = {
    run: f'{run} with a very long name for its run, alpha=0.5 beta=0.9 gamma=0.25' for run in many['run'].unique()
  }
  axes = draw(many.replace({'run': dict(list(names.items())[:long])}))
  figure = axes.figure
  figure.draw_without_rendering()
  assert axes.get_window_extent().width > 0.4 * figure.bbox.width
  boxes = [super(Annotation, one).get_window_extent() for one in axes.get_children() if isinstance(one, Annotation)]
  assert len(boxes) == 12
  assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
  assert min(min(box.x0, box.y0) for box in boxes) >= 0
  assert max(box.x1 for box in boxes) <= figure.bbox.x1
  assert max(box.y1 for box in boxes) <= figure.bbox.y1


def test_a_name_leads_to_the_last_value_of_its_run(many):
  axes = curves(many)
  ends = {one.get_text(): one.xy for one in axes.get_children() if isinstance(one, Annotation)}
  lines = {one.get_label(): (one.get_xdata()[-1], one.get_ydata()[-1]) for one in axes.get_lines()}
  assert ends == lines


def test_names_of_points_are_beside_them_without_overlap():
  sent = [0.4, 0.5, 3.5, 4.0, 4.0, 4.0, 18, 18, 19, 122, 250, 260]
  points = {f'method_{i}': (x, i % 4, i % 4 - 2.0, i % 4 + 2.0) for i, x in enumerate(sent)}
  axes = gain_against_megabytes(points)
  axes.figure.draw_without_rendering()
  boxes = {one.get_text(): super(Annotation, one).get_window_extent() for one in axes.texts}
  assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes.values(), 2))
  x = {name: axes.transData.transform((at[0], 0))[0] for name, at in points.items()}
  assert all(0 < boxes[name].x0 - x[name] < 60 for name in points)
  assert max(box.x1 for box in boxes.values()) <= axes.figure.bbox.x1
