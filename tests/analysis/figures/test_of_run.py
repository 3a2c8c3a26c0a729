"""What a run draws of itself."""

import numpy as np
import pytest

import runs
from fedkd import experiment
from fedkd.analysis import tidy
from fedkd.analysis.figures import of_run


@pytest.mark.figures
def test_the_figures_of_a_run_are_of_its_last_phase_and_architectures(tmp_path, monkeypatch):
  drawn = {}
  monkeypatch.setattr(of_run, 'save', lambda axes, path: drawn.update({path.stem: axes}))
  config = runs.config(runs.save_images(tmp_path / 'i.npz'), 'private', 2, (5, 6))
  config.eval_rows = 40
  summary = experiment.run(config, tmp_path / 'run', show=False)
  (line,), (point,) = drawn['accuracy_rounds'].get_lines()[:1], drawn['accuracy_rounds'].containers
  assert line.get_xdata().tolist() == [0]  # 40 of 90 test rows; the last evaluation is on all
  assert point.lines[0].get_ydata()[0] == pytest.approx(100 * np.mean(summary['final']))
  names = [text.get_text() for text in drawn['accuracy_clients'].get_legend().get_texts()]
  assert names == [group['name'] for group in summary['groups']]
  assert drawn['accuracy_megabytes'].get_title() == 'private'
  assert drawn['labels'].get_title() == 'seed 5'


def test_a_run_whose_predictions_are_no_numbers_is_finished_without_figures_of_them(tmp_path, monkeypatch, capsys):
  drawn = []
  monkeypatch.setattr(of_run, 'save', lambda axes, path: drawn.append(path.stem))
  rows = [
    {'phase': 0, 'round': r, 'seeds': [0], 'accuracy': [np.nan], 'accuracy_per_client': [[np.nan]]} for r in (0, 1)
  ]
  frame = tidy.tidy(rows, {}, run='a', method='a')
  monkeypatch.setattr(of_run, '_frame', lambda *given: frame)
  of_run.save_figures(tmp_path, np.ones((1, 2)), {'seeds': [0]})
  assert "accuracy_rounds.png is not drawn: metric='accuracy' is not in the frame" in capsys.readouterr().err
  assert drawn == ['labels']
