"""Gains over a reference."""

import numpy as np
import pytest

from fedkd import analysis
from fedkd.analysis import tidy
from fedkd.analysis.figures import gain
from fedkd.errors import ConfigError


def last(frame, run):
  """[seeds, clients]."""
  one = frame.query(f"run == '{run}' and metric == 'accuracy' and client >= 0 and round == 20")
  return one.pivot(index='seed', columns='client', values='value').to_numpy()


def test_gains_are_paired_over_seeds_per_client_and_per_architecture(frame):
  gained = 100 * (last(frame, 'fedmd') - last(frame, 'private'))
  per_architecture = gained.reshape(3, 2, 2).mean(2)
  for axes, wanted in ((gain(frame), gained), (gain(frame, by='architecture'), per_architecture)):
    (bars,) = (one for one in axes.containers if one.get_label() == 'fedmd')
    marker, _, (error,) = bars.lines
    np.testing.assert_allclose(marker.get_ydata(), wanted.mean(0))
    for segment, column in zip(error.get_segments(), wanted.T, strict=True):
      np.testing.assert_allclose(segment[:, 1], analysis.interval(column)[1:])
    assert axes.get_ylabel() == 'accuracy, difference to private (points)'
  assert [text.get_text() for text in axes.get_xticklabels()] == ['MLP 8', 'MLP 16']
  assert axes.get_xlabel() == 'architecture\n95 % interval over 3 seeds'
  assert list(gain(frame).get_xticks()) == [0, 1, 2, 3]


@pytest.mark.parametrize(('clients', 'seeds'), [(1, 3), (2, 3), (4, 4), (4, 6)])
def test_numbers_of_clients_that_are_those_of_seeds_are_still_of_clients(clients, seeds):
  accuracy = np.random.default_rng(0).uniform(size=(2, seeds, clients))
  rows = [[{'round': 1, 'seeds': list(range(seeds)), 'accuracy_per_client': run.tolist()}] for run in accuracy]
  frame = tidy.concatenated(
    tidy.tidy(of, {}, run=run, method=run) for run, of in zip(('private', 'fedhe'), rows, strict=True)
  )
  (bars,) = gain(frame).containers
  np.testing.assert_allclose(bars.lines[0].get_ydata(), 100 * (accuracy[1] - accuracy[0]).mean(0))


@pytest.mark.parametrize('count', [3, 25])
def test_clients_of_a_sample_stand_at_their_numbers(count):
  numbers = 10 * np.arange(count)
  rows = [{'round': 1, 'seeds': [0], 'clients': numbers, 'accuracy_per_client': [np.linspace(0, 1, count).tolist()]}]
  frame = tidy.concatenated(tidy.tidy(rows, {}, run=run, method=run) for run in ('private', 'fedhe'))
  axes = gain(frame)
  (bars,) = axes.containers
  axes.figure.draw_without_rendering()
  told = dict(zip(axes.get_xticks(), (text.get_text() for text in axes.get_xticklabels()), strict=True))
  for place, number in zip(bars.lines[0].get_xdata(), numbers, strict=True):
    assert told.get(place, str(number)) == str(number)


def test_a_reference_that_is_not_there_and_runs_that_cannot_be_compared_are_told(frame, make):
  with pytest.raises(ConfigError, match="reference='ind' is 0 runs of the frame; give one of private, fedhe, fedmd"):
    gain(frame, 'ind')
  with pytest.raises(ConfigError, match="by='group' is unknown; choose one of client, architecture"):
    gain(frame, by='group')
  with pytest.raises(ConfigError, match=r'no run can be compared with private \(it is alone\)'):
    gain(frame[frame['run'] == 'private'])
  unmeasured = frame.drop(frame.query("run == 'private' and metric == 'accuracy' and client >= 0").index)
  with pytest.raises(ConfigError, match="reference='private' is 0 runs of the frame; give one of fedhe, fedmd"):
    gain(unmeasured)
  other = make('fd', 0.5, 1, test_rows=(50, 50, 70))
  with pytest.warns(UserWarning, match='not compared with private: fd: other test rows'):
    axes = gain(analysis.tidy.concatenated([frame, other]))
  assert {one.get_label() for one in axes.containers} == {'fedhe', 'fedmd'}


def without(frame, run, client, seed):
  """The frame in which a client has no accuracy at the end, in one seed."""
  frame = frame.copy()
  of_client = (frame['run'] == run) & (frame['client'] == client) & (frame['seed'] == seed) & (frame['round'] == 20)
  frame.loc[of_client & (frame['metric'] == 'accuracy'), 'value'] = np.nan
  return frame


def test_a_client_without_a_value_has_no_gain_and_takes_no_seed_from_the_others(frame):
  gained = 100 * (last(frame, 'fedmd') - last(frame, 'private'))
  broken = without(frame, 'fedmd', client=1, seed=2)
  of = lambda axes: next(one for one in axes.containers if one.get_label() == 'fedmd').lines[0].get_ydata()
  wanted = gained.mean(0)
  wanted[1] = np.nan
  np.testing.assert_allclose(of(gain(broken)), wanted)
  np.testing.assert_allclose(of(gain(broken, by='architecture')), [np.nan, gained[:, 2:].mean()])
