"""Clients at the end of a run."""

import numpy as np
import pytest

from fedkd import analysis
from fedkd.analysis.figures import clients, worst
from fedkd.errors import ConfigError


def last(frame, run):
  one = frame.query(f"run == '{run}' and metric == 'accuracy' and client >= 0 and round == 20")
  return 100 * one.pivot(index='seed', columns='client', values='value').to_numpy()


def test_every_client_has_its_mean_and_interval_under_its_number(frame):
  axes = clients(frame[frame['run'] == 'fedhe'])
  wanted = last(frame, 'fedhe')
  assert [bars.get_label() for bars in axes.containers] == ['MLP 8', 'MLP 16']
  markers = [bars.lines[0] for bars in axes.containers]
  assert np.concatenate([one.get_xdata() for one in markers]).tolist() == [0, 1, 2, 3]
  np.testing.assert_allclose(np.concatenate([one.get_ydata() for one in markers]), wanted.mean(0))
  segment = axes.containers[1].lines[2][0].get_segments()[1]
  np.testing.assert_allclose(segment[:, 1], analysis.interval(wanted[:, 3])[1:])
  assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_several_runs_and_metrics_without_clients_are_refused(frame):
  with pytest.raises(ConfigError, match='frame has 3 runs; give one of them, such as ') as refused:
    clients(frame)
  remedy = str(refused.value).partition('such as ')[2]
  assert set(eval(remedy, {'frame': frame})['run']) == {'private'}
  with pytest.raises(ConfigError, match="metric='loss' is in the frame of all clients together alone"):
    worst(frame, 'loss')


def test_the_worst_client_is_that_of_every_seed(frame):
  axes = worst(frame)
  order = [text.get_text() for text in axes.get_yticklabels()]
  assert order == ['private', 'fedhe', 'fedmd']  # the best on top
  means = [line.get_xdata()[0] for line in axes.get_lines() if line.get_markerfacecolor() == 'white']
  for place, run in enumerate(order):
    least = last(frame, run).min(1)
    marker, _, (error,) = axes.containers[place].lines
    assert marker.get_xdata()[0] == pytest.approx(least.mean())
    np.testing.assert_allclose(error.get_segments()[0][:, 0], analysis.interval(least)[1:])
    assert means[place] == pytest.approx(last(frame, run).mean())


def test_a_run_in_which_a_client_has_no_value_has_no_worst_client_and_is_last(frame):
  broken = frame.copy()
  of_client = (frame['run'] == 'fedmd') & (frame['client'] == 3) & (frame['round'] == 20)
  broken.loc[of_client & (frame['metric'] == 'accuracy') & (frame['seed'] == 1), 'value'] = np.nan
  axes = worst(broken)
  assert [text.get_text() for text in axes.get_yticklabels()] == ['fedmd', 'private', 'fedhe']
  assert np.isnan(np.asarray(axes.containers[0].lines[0].get_xdata(), float)).all()
  one = clients(broken[broken['run'] == 'fedmd'])
  drawn = np.concatenate([bars.lines[0].get_ydata() for bars in one.containers])
  np.testing.assert_allclose(drawn, [*last(frame, 'fedmd').mean(0)[:3], np.nan])
