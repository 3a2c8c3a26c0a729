"""Axes and files."""

import sys

import matplotlib
import pytest
from matplotlib.figure import Figure

from fedkd.analysis import figures
from fedkd.errors import ConfigError


def test_axes_are_drawn_in_and_returned(frame):
  axes = Figure().subplots(1, 2)
  assert figures.curves(frame, axes=axes[0]) is axes[0]
  assert figures.worst(frame, axes=axes[1]) is axes[1]
  assert axes[0].get_lines()
  assert axes[1].get_lines()


def test_figures_are_unknown_to_pyplot_outside_a_notebook_and_shown_by_it_inside(frame, monkeypatch):
  import matplotlib.pyplot as plt

  plt.close('all')
  figures.curves(frame)
  assert not plt.get_fignums()
  monkeypatch.setitem(sys.modules, 'ipykernel', matplotlib)
  axes = figures.curves(frame)
  assert plt.gcf() is axes.figure
  plt.close('all')


def test_axes_figures_and_parts_of_figures_are_saved_under_a_path_or_a_string(frame, tmp_path):
  axes = figures.curves(frame)
  part = Figure().subfigures(1, 2)[0].add_subplot()
  for name, drawn in (('a', axes), ('b', axes.figure), ('c', part)):
    figures.save(drawn, f'{tmp_path}/made/{name}.png')
    figures.save(drawn, tmp_path / f'{name}.png')
    assert (tmp_path / f'{name}.png').read_bytes()[:4] == b'\x89PNG'
  assert (tmp_path / 'made' / 'a.png').read_bytes() == (tmp_path / 'a.png').read_bytes()


@pytest.mark.parametrize('name', ['x', 'x.jpgg', 'x.pdf', '.png'])
def test_a_name_of_another_format_is_refused(tmp_path, name):
  with pytest.raises(ConfigError, match=r'^path=.* does not end in \.png, .*; give such a name'):
    figures.save(Figure(), tmp_path / name)
  assert not list(tmp_path.iterdir())


def test_intervals_end_at_all_and_nothing(frame):
  wild = frame.copy()
  wild.loc[(wild['metric'] == 'accuracy') & (wild['seed'] == 0), 'value'] = 1.0
  low, high = figures.curves(wild).get_ylim()
  assert low >= -3
  assert high <= 103
