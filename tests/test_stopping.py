"""Early stopping: the rule, the seats, and runs whose clients stop."""

import numpy as np
import pytest

import runs
from fedkd import build, experiment, stopping
from fedkd.errors import ConfigError
from fedkd.stopping import EarlyStop
from helpers import assert_same_bits, row
from test_phases import config, rows_of, stop_after


def in_python(values, patience, min_delta):
  """Epochs that one client trains, by Keras's description."""
  best, waited = -np.inf, 0
  for epoch, value in enumerate(values, 1):
    if value > best + min_delta:
      best, waited = value, 0
    else:
      waited += 1
    if waited >= patience:
      return epoch
  return None


@pytest.mark.parametrize('patience', [1, 2, 4])
@pytest.mark.parametrize('min_delta', [0.0, 0.1])
def test_the_rule_is_keras(patience, min_delta):
  early = EarlyStop('accuracy', patience, min_delta)
  history = np.random.default_rng(0).integers(0, 10, (12, 3, 5)) / 10
  for s in range(3):
    for k in range(5):
      end = in_python(history[:, s, k], patience, min_delta)
      out = [stopping.stopped(early, history[:e])[s, k] for e in range(13)]
      assert out == [end is not None and e >= end for e in range(13)]


def test_those_who_have_stopped_have_no_seat():
  who = np.array([[0, 1, 2], [2, -1, 3]])  # the row 3 only fills up a device
  gone = np.array([[True, False, False, True], [False, False, False, False]])
  made = stopping.seats(who, np.array([1, 3, 2]), gone)
  assert made.tolist() == [[[0, -1, 2], [2, -1, 3]], who.tolist()]


@pytest.fixture(scope='module')
def images(tmp_path_factory):
  return runs.save_images(tmp_path_factory.mktemp('images') / 'tiny.npz')


def of_one_group(images, method, rounds, seeds=(0,)):
  made = config(images, method, seeds)
  made.groups, made.rounds = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},), rounds
  return made


def test_stopped_clients_stay_and_the_others_do_not_notice(images):
  made = of_one_group(images, 'private', 2, (0, 1))
  made.early_stop.watch = 'accuracy'
  parts = build.build(made)
  phase = parts.phases[0]
  begin = lambda: phase.init(parts.variables)
  gone = np.array([[True, False, False, False], [False, False, True, True]])
  everyone, all_report = phase.run(begin(), 0, 1)
  some, report = phase.run(begin(), 0, 1, gone)
  of = lambda state, s, c: row(row(state.client[0], s), c)
  start = begin()
  for s in range(2):
    for c in range(4):
      assert_same_bits(of(some, s, c), of(start if gone[s, c] else everyone, s, c))
  assert ((np.asarray(report.ids[0])[:, 0] >= 0) == ~gone).all()
  assert (np.asarray(all_report.ids[0])[:, 0] >= 0).all()


def two_phases(images, rounds, **early):
  """The public phase and then every client alone."""
  made = of_one_group(images, 'private', rounds)
  public = {'name': 'public', 'rounds': rounds, 'steps': 2, 'batch': 8}
  made.before = ({**public, 'early_stop': {**early, 'watch': 'accuracy'}} if early else public,)
  if early:
    made.early_stop.update({**early, 'watch': 'validation_accuracy'})
  return made


@pytest.fixture(scope='module')
def finished(images, tmp_path_factory):
  """(config, workdir, summary): no evaluation beats the first by 2, so that everyone trains two rounds of nine."""
  made = two_phases(images, 9, patience=1, min_delta=2.0)
  made.checkpoint_every = 1
  workdir = tmp_path_factory.mktemp('early') / 'run'
  return made, workdir, experiment.run(made, workdir, show=False)


def test_a_phase_ends_when_everyone_has_stopped(finished, images, tmp_path):
  _, workdir, summary = finished
  rows = rows_of(workdir)
  assert [(r['phase'], r['round']) for r in rows] == [(p, t) for p in (0, 1) for t in (0, 1, 2, 9)]
  assert rows[2]['examples'] == rows[3]['examples'] == [2 * 4 * 2 * 8]
  plain = experiment.run(two_phases(images, 2), tmp_path / 'run', show=False)
  assert plain['state_sha256'] == summary['state_sha256']


def test_a_run_with_early_stopping_resumes_to_the_same_bits(finished, tmp_path):
  made, workdir, summary = finished
  stop_after(made, tmp_path / 'run', 9)  # the signal is heard after one of the two rounds of the second phase
  assert experiment.run(made, tmp_path / 'run', show=False)['state_sha256'] == summary['state_sha256']
  assert rows_of(tmp_path / 'run') == rows_of(workdir)


def test_the_public_test_set_is_looked_at_where_it_is_watched(finished, tmp_path):
  own, public = (runs.save_images(tmp_path / f'{name}.npz', seed) for seed, name in enumerate(('own', 'public')))
  made = of_one_group(own, 'public', 2)
  made.data.update({'public': f'npz:{public}', 'public_share': 0.0})
  made.early_stop.update({'watch': 'accuracy_public', 'patience': 5})
  experiment.run(made, tmp_path / 'run', show=False)
  last = rows_of(tmp_path / 'run')[-1]
  model, variables = experiment.load(tmp_path / 'run', 1)
  with np.load(public) as arrays:
    image, label = arrays['x_test'], arrays['y_test']
  answer = np.argmax(model.apply(variables, image, False)[0], -1)
  assert last['accuracy_public_per_client'][0][1] == pytest.approx(np.mean(answer == label))
  assert last['accuracy_public'][0] > last['accuracy'][0]  # trained on public images alone
  assert 'accuracy_public' not in rows_of(finished[1])[-1]


@pytest.mark.parametrize(
  ('early', 'change', 'match'),
  [
    ({'watch': 'loss'}, {}, "early_stop.watch='loss' is unknown"),
    ({'watch': 'accuracy', 'patience': 0}, {}, 'patience=0'),
    ({'watch': 'accuracy', 'min_delta': -0.1}, {}, 'min_delta=-0.1'),
    ({'watch': 'accuracy', 'epochs': 3}, {}, "early_stop has no field 'epochs'"),
    ({'watch': 'validation_accuracy'}, {'data.validation': 0.0}, r'set data\.validation above 0'),
    ({'watch': 'accuracy_public'}, {}, r'needs the test set of public data; set data\.public'),
    ({'watch': 'accuracy'}, {'eval_clients': 2}, 'eval_clients=2 does not go with early_stop'),
  ],
)
def test_what_cannot_be_watched_is_refused(images, early, change, match):
  made = config(images)
  made.before = ({**made.before[0], 'early_stop': early}, made.before[1])
  made.update_from_flattened_dict(change)
  with pytest.raises(ConfigError, match=match):
    build.build(made, dry=True)
