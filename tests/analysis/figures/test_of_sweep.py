"""Figures of the table of a sweep."""

import numpy as np
import pandas as pd

from fedkd.analysis.figures import of_sweep

FRAME = pd.DataFrame(
  {
    'a': [1.0, 1.0, 2.0, 2.0],
    'b': [1, 2, 1, 2],
    'validation %': [60.0, 70.0, 90.0, np.nan],
    'rounds': [9, 9, 3, 9],
    'number': [0, 1, 2, 3],
  }
)


def test_points_are_set_beside_those_that_were_trained_as_long(tmp_path, monkeypatch):
  """Of successive halving some are trained for fewer rounds, whatever they reached by then; the title says so."""
  drawn = {}
  monkeypatch.setattr(of_sweep, 'save', lambda axes, path: drawn.update({path.stem: axes}))
  of_sweep.save_all(FRAME, ['a', 'b'], tmp_path)
  assert set(drawn) == {'budget', 'heat', 'parallel'}
  assert all(axes.get_title() == '2 of 3 points: those trained for 9 rounds' for axes in drawn.values())
  np.testing.assert_array_equal(drawn['budget'].get_lines()[1].get_ydata(), [60, 70])
  assert [text.get_text() for text in drawn['heat'].texts] == ['60.0', '70.0']
  of_sweep.save_all(FRAME[FRAME['rounds'] == 9], ['a', 'b'], tmp_path)
  assert all(axes.get_title() == '' for axes in drawn.values())


def test_points_of_a_search_stand_at_their_values_and_not_in_a_map_of_all_pairs(tmp_path):
  """A hundred points of two intervals would be a map of a hundred by a hundred, blank but for its diagonal."""
  of = np.linspace(-3, 0, 100)
  frame = pd.DataFrame({'a': 10**of, 'b': -of, 'c': ['x', 'y'] * 50, 'validation %': 90 + of, 'number': range(100)})
  axes = of_sweep.heat_map(frame, 'a', 'b')
  np.testing.assert_allclose(axes.collections[0].get_offsets(), frame[['a', 'b']])
  assert (axes.get_xscale(), axes.get_yscale()) == ('log', 'linear')
  assert max(axes.figure.get_size_inches()) < 10
  assert not of_sweep.heat_map(frame, 'a', 'c').texts
  grid = frame.assign(a=np.repeat(range(10), 10), b=list(range(10)) * 10)
  assert len(of_sweep.heat_map(grid, 'a', 'b').texts) == 100


def test_values_of_several_types_have_places(tmp_path):
  """`method.steps=1,2,4,8,16,32,None`, where None is a word of the table."""
  frame = pd.DataFrame({'a': [1, 2, 4, 8, 16, 32, 'None'], 'b': range(7), 'validation %': np.arange(7.0)})
  of_sweep.save_all(frame.assign(rounds=1, number=range(7)), ['a', 'b'], tmp_path)
  said = [text.get_text() for text in of_sweep.parallel(frame, ['a', 'b']).texts]
  assert said == ['1', 'None', '0', '6', '0', '6']
