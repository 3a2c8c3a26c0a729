"""Early stopping: the rule, the slots, and runs whose clients stop."""

import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX import record_writer
from tensorboardX.proto import event_pb2
from test_phase import config, stop_after

import runs
from fedkd import config as configs
from fedkd import experiment, methods, totals
from fedkd.errors import ConfigError
from fedkd.experiment import early_stopping
from fedkd.experiment.build import assembly
from fedkd.experiment.early_stopping import EarlyStop
from fedkd.experiment.trackers import tensorboard
from fedkd.experiment.trackers.protocol import Run
from helpers import assert_same_bits, row
from runs import metrics


def in_python(values, patience, min_delta):
  """Epochs that one client trains, by Keras's description."""
  best, waited = -np.inf, 0
  for epoch, value in enumerate(values, 1):
    if value - min_delta > best:
      best, waited = value, 0
    else:
      waited += 1
    if waited >= patience:
      return epoch
  return None


@pytest.mark.parametrize('patience', [1, 2, 4])
@pytest.mark.parametrize('min_delta', [0.0, 0.1])
def test_the_rule_is_keras(patience, min_delta):
  early, patience_state, found = EarlyStop('accuracy', patience, min_delta), {}, []
  history = np.random.default_rng(0).integers(0, 10, (12, 3, 5)) / 10
  assert early_stopping.stopped(early, patience_state) is None
  for accuracy in history:
    patience_state = json.loads(
      json.dumps(early_stopping.update(early, patience_state, accuracy.tolist()))
    )  # as a checkpoint carries it
    found.append(early_stopping.stopped(early, patience_state))
  for s in range(3):
    for k in range(5):
      end = in_python(history[:, s, k], patience, min_delta)
      assert [stopped[s, k] for stopped in found] == [end is not None and e >= end for e in range(1, 13)]
  assert 0 < np.mean(found) < 1


def test_those_who_have_stopped_have_no_seat():
  participants = np.array([[0, 1, 2], [2, -1, 3]])  # the row 3 only fills up a device
  stopped = np.array([[True, False, False, True], [False, False, False, False]])
  made = early_stopping.slots(participants, np.array([1, 3, 2]), stopped)
  assert made.tolist() == [[[0, -1, 2], [2, -1, 3]], participants.tolist()]


def of_one_group(images, method, rounds, seeds=(0,)):
  made = config(images, method, seeds)
  made.groups, made.rounds = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},), rounds
  return made


@pytest.mark.slow
def test_stopped_clients_stay_and_the_others_do_not_notice(images):
  made = of_one_group(images, 'private', 2, (0, 1))
  made.early_stop.watch = 'accuracy'
  parts = assembly.build(made)
  phase = parts.phases[0]
  begin = lambda: phase.init(parts.variables)
  stopped = np.array([[True, False, False, False], [False, False, True, True]])
  everyone, all_report = phase.run(begin(), 0, 1)
  some, report = phase.run(begin(), 0, 1, stopped)
  of = lambda state, s, c: row(row(state.client[0], s), c)
  start = begin()
  for s in range(2):
    for c in range(4):
      assert_same_bits(of(some, s, c), of(start if stopped[s, c] else everyone, s, c))
  assert ((np.asarray(report.ids[0])[:, 0] >= 0) == ~stopped).all()
  assert (np.asarray(all_report.ids[0])[:, 0] >= 0).all()


def two_phases(images, rounds):
  """The public phase and then every client alone, evaluated after every round."""
  made = of_one_group(images, 'private', rounds)
  made.before = ({'name': 'public', 'rounds': rounds, 'steps': 2, 'batch': 8},)
  return made


@pytest.fixture(scope='module')
def finished(images, tmp_path_factory):
  """(config, workdir, summary): in the first phase no evaluation beats the first by 0.99, so that everyone trains two
  rounds of nine; in the second each stops when it gets no better."""
  made = two_phases(images, 9)
  made.before[0]['early_stop'] = {'watch': 'accuracy', 'patience': 1, 'min_delta': 0.99}
  made.early_stop.update({'watch': 'validation_accuracy', 'patience': 1})
  made.checkpoint_every = 1
  workdir = tmp_path_factory.mktemp('early') / 'run'
  return made, workdir, experiment.run(made, workdir, show=False)


def test_a_phase_ends_when_everyone_has_stopped(finished, images, tmp_path):
  rows = metrics(finished[1])
  assert [(r['phase'], r['round']) for r in rows[:4]] == [(0, t) for t in (0, 1, 2, 9)]
  plain = two_phases(images, 2)
  experiment.run(plain, tmp_path / 'run', show=False)
  # The plain phase ends where this one's clients stop, and its last evaluation looks at training rows, too.
  extra = ('accuracy_train', 'accuracy_train_per_client')
  same = [{k: v for k, v in row.items() if k not in extra} for row in metrics(tmp_path / 'run')[:3]]
  assert rows[:3] == same
  for field in ('accuracy_per_client', 'examples', 'turns'):
    assert rows[3][field] == rows[2][field]
  assert rows[3]['turns'] == [8]


def with_a_lone_server(tx, steps: int = 2, batch: int = 8):
  made = methods.private(tx, steps=steps, batch=batch)
  return made._replace(server=made.server._replace(alone=True))


def test_a_phase_whose_server_goes_on_alone_has_all_of_its_rounds(images, tmp_path):
  made = of_one_group(images, 'private', 6)
  made.method = configs.method(with_a_lone_server, steps=2, batch=8)
  made.early_stop.update({'watch': 'validation_accuracy', 'patience': 1, 'min_delta': 0.99})
  experiment.run(made, tmp_path / 'run', show=False)
  rows = metrics(tmp_path / 'run')
  assert [(row['round'], row['turns']) for row in rows] == [(t, [4 * min(t, 2)]) for t in range(7)]


@pytest.mark.slow
@pytest.mark.parametrize('method', ['fedkt', 'dense'])
def test_servers_that_train_alone_say_so(images, method):
  made = of_one_group(images, 'private', 3)
  made.method = configs.method(method)
  parts = assembly.build(made)
  (phase,) = parts.phases
  state, _ = phase.run(phase.init(parts.variables), 0, 1)
  state = jax.tree.map(jnp.copy, state)
  after, _ = phase.run(jax.tree.map(jnp.copy, state), 1, 1, np.ones((1, 4), bool))
  assert phase.method.server.alone
  with pytest.raises(AssertionError):
    assert_same_bits(after.server, state.server)


def test_the_summary_counts_the_updates_of_a_mean_seed(images, tmp_path):
  made = of_one_group(images, 'private', 12, (0, 5))
  made.early_stop.update({'watch': 'validation_accuracy', 'patience': 1})
  summary = experiment.run(made, tmp_path / 'run', show=False)
  first, second = metrics(tmp_path / 'run')[-1]['turns']
  assert first != second
  assert summary['turns'] == (first + second) / 2


def test_a_seed_in_which_nobody_learned_has_no_loss(tmp_path):
  sums = {**totals.start(2), 'means': {'loss': [[0.0, 3.0], [0, 2]]}}
  row = totals.row(sums)
  assert row['loss'] == [None, 1.5]
  tracker = tensorboard.start(Run('run', '', {}, tmp_path, 4, ()))
  tracker.log({**row, 'kl': [None, None]}, 7)
  (path,) = (tmp_path / 'tensorboard').iterdir()
  version, session, *shown = logged(path)
  assert (version.file_version, session.session_log.status, session.step) == ('brain.Event:2', 1, 5)
  assert {event.step for event in shown} == {7}
  values = {event.summary.value[0].tag: event.summary.value[0].simple_value for event in shown}
  assert values['loss'] == 1.5
  assert 'kl' not in values


def logged(path):
  """The events of a TensorBoard file, whose checksums are those of TFRecord."""
  content = path.read_bytes()
  while content:
    (length,) = struct.unpack('<Q', content[:8])
    data, rest = content[12 : 12 + length], content[12 + length :]
    sums = struct.unpack('<I', content[8:12]) + struct.unpack('<I', rest[:4])
    assert sums == tuple(map(record_writer.masked_crc32c, (content[:8], data)))
    yield event_pb2.Event.FromString(data)
    content = rest[4:]


def test_a_run_resumes_among_stopped_clients_to_the_same_bits(finished, tmp_path):
  made, workdir, summary = finished
  turns = [r['turns'][0] for r in metrics(workdir) if r['phase'] == 1]
  some = next(t for t in range(1, len(turns) - 2) if 0 < turns[t + 1] - turns[t] < 4 and turns[t + 2] > turns[t + 1])
  stop_after(made, tmp_path / 'run', 9 + some)  # heard a round later
  assert experiment.run(made, tmp_path / 'run', show=False)['state_sha256'] == summary['state_sha256']
  assert metrics(tmp_path / 'run') == metrics(workdir)


@pytest.mark.slow
@pytest.mark.parametrize('watch', ['accuracy', 'validation_accuracy'])
def test_a_run_that_is_prolonged_stops_its_clients_as_one_without_a_break(images, tmp_path, watch):
  """Although its last evaluation was of more rows than all others."""
  made = of_one_group(images, 'private', 8)
  made.early_stop.update({'watch': watch, 'patience': 2})
  made.eval_every, made.eval_rows = 1, 10
  whole, parts = runs.halves_of(made, tmp_path, 3)
  assert parts['turns'] == whole['turns'] < 4 * 8
  assert parts['state_sha256'] == whole['state_sha256']


@pytest.mark.slow
def test_the_public_test_set_is_looked_at_where_it_is_watched(finished, tmp_path):
  own, public = (runs.save_images(tmp_path / f'{name}.npz', seed) for seed, name in enumerate(('own', 'public')))
  made = of_one_group(own, 'public', 2)
  made.data.update({'public': f'npz:{public}', 'public_share': 0.0})
  made.early_stop.update({'watch': 'accuracy_public', 'patience': 5})
  experiment.run(made, tmp_path / 'run', show=False)
  last = metrics(tmp_path / 'run')[-1]
  model, variables = experiment.load(tmp_path / 'run', 1)
  with np.load(public) as arrays:
    image, label = arrays['x_test'], arrays['y_test']
  answer = np.argmax(model.apply(variables, image, False)[0], -1)
  assert last['accuracy_public_per_client'][0][1] == pytest.approx(np.mean(answer == label))
  assert last['accuracy_public'][0] > last['accuracy'][0]  # trained on public images alone
  assert 'accuracy_public' not in metrics(finished[1])[-1]


@pytest.mark.parametrize(
  ('early', 'change', 'match'),
  [
    ({'watch': 'loss'}, {}, "early_stop.watch='loss' is unknown"),
    ({'watch': 'accuracy', 'patience': 0}, {}, 'patience=0'),
    ({'watch': 'accuracy', 'min_delta': -0.1}, {}, 'min_delta=-0.1'),
    ({'watch': 'accuracy', 'epochs': 3}, {}, "early_stop has no field 'epochs'"),
    ({'patience': 3}, {}, 'early_stop.watch=None is unknown'),
    ({'watch': 'accuracy', 'min_delta': 1.0}, {}, r'min_delta=1\.0 must be'),
    ({'watch': 'validation_accuracy'}, {'data.validation': 0.0}, r'needs held-out rows; raise data\.validation'),
    ({'watch': 'accuracy_public'}, {}, r'needs public data with a test set'),
    ({'watch': 'accuracy'}, {'eval_clients': 2}, 'eval_clients=2 cannot be combined with early_stop'),
  ],
)
def test_what_cannot_be_watched_is_refused(images, early, change, match):
  made = config(images)
  made.before = ({**made.before[0], 'early_stop': early}, made.before[1])
  made.update_from_flattened_dict(change)
  with pytest.raises(ConfigError, match=match):
    assembly.build(made, dry=True)


def test_clients_that_are_drawn_cannot_stop_early(images):
  made = config(images, 'private')
  made.early_stop.watch = 'accuracy'
  made.plan = configs.plan('sampled', ratio=0.5)
  with pytest.raises(ConfigError, match=r"plan\.name='sampled' cannot be combined with early_stop"):
    assembly.build(made, dry=True)
