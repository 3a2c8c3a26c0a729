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
