"""Training with a history: nothing but `simulation.run` and `simulation.accuracy`, written down."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
from fedkd import analysis
from fedkd.analysis import tidy
from fedkd.errors import ConfigError, DivergedError
from fedkd.experiment.trackers import Tracker
from helpers import CLASSES, assert_close, assert_same_bits, pool

KEY = jax.random.key(0)
IMAGES = pool()
X, Y = IMAGES.example, IMAGES.label
NETS = [fedkd.models.MLP(hidden=(4,), classes=CLASSES)] * 2 + [fedkd.models.MLP(hidden=(), classes=CLASSES)]


@pytest.fixture(scope='module')
def federation():
  return fedkd.federation(X, Y, [np.arange(0, 30), np.arange(30, 50), np.arange(50, 90)], NETS)


@pytest.fixture(scope='module')
def simulation(federation):
  return fedkd.simulation(fedkd.methods.fedhe(optax.sgd(0.1), steps=1, batch=8), federation)


@pytest.fixture(scope='module')
def trained(simulation):
  return fedkd.train(simulation, KEY, rounds=5, test=(X, Y), every=2)


def same_bits(one, other):
  data = lambda state: state._replace(key=jax.random.key_data(state.key))
  assert_same_bits(data(one), data(other))


def test_a_history_is_what_the_pure_functions_give(simulation, trained):
  state, history = trained
  assert [row['round'] for row in history.rows] == [0, 2, 4, 5]
  straight, reports = simulation.run(simulation.init(KEY), 5)
  same_bits(state, straight)
  correct = np.round(np.asarray(simulation.accuracy(straight, X, Y), float) * len(Y))
  assert history.rows[-1]['accuracy_per_client'] == [(correct / len(Y)).tolist()]
  sent = fedkd.ledger.total(reports.up)
  assert history.rows[-1]['bytes_up'] == [sum(size for _, size in sent.values())]
  last = np.concatenate([np.asarray(info['loss'])[4] for info in reports.info])
  np.testing.assert_allclose(history.rows[-1]['loss'], last.mean(), rtol=1e-6)


def test_seeds_are_mapped(simulation, trained):
  keys = jnp.stack([KEY, jax.random.key(1)])
  state, history = fedkd.train(simulation, keys, rounds=5, test=(X, Y), every=5)
  assert_close(jax.tree.map(lambda a: a[0], state._replace(key=state.round)), trained[0]._replace(key=trained[0].round))
  assert np.shape(history.rows[-1]['accuracy_per_client']) == (2, 3)
  np.testing.assert_allclose(history.rows[-1]['accuracy'][0], trained[1].rows[-1]['accuracy'][0], atol=1e-6)
  assert history.rows[-1]['accuracy'][0] != history.rows[-1]['accuracy'][1]


def test_saved_and_restored_it_goes_on_to_the_same_bits(simulation, trained, tmp_path):
  _, history = fedkd.train(simulation, KEY, rounds=2, test=(X, Y), every=2)
  history.save(tmp_path / 'run')
  history.save(tmp_path / 'run')  # replaces it
  restored = fedkd.restore(tmp_path / 'run', simulation)
  same_bits(restored, history.states['run'])
  read = fedkd.History.read(tmp_path / 'run', simulation)
  state, whole = fedkd.train(simulation, restored, rounds=3, test=(X, Y), every=2, history=read)
  same_bits(state, trained[0])
  timeless = lambda history: [{k: v for k, v in row.items() if k != 'seconds'} for row in history.rows]
  assert timeless(whole) == timeless(trained[1])


def test_clients_with_test_examples_of_their_own(simulation, trained):
  """Accuracies on own and on the others' examples are those of these examples alone."""
  owner = np.arange(len(Y)) % 3
  _, history = fedkd.train(simulation, KEY, rounds=2, test=(X, Y, owner), every=2)
  row, state = history.rows[-1], history.states['run']
  for client in range(3):
    of = lambda rows, client=client: float(simulation.accuracy(state, X[rows], Y[rows])[client])
    assert row['accuracy_local_per_client'][0][client] == pytest.approx(of(owner == client))
    assert row['accuracy_others_per_client'][0][client] == pytest.approx(of(owner != client))
  assert row['accuracy'] == [np.mean(row['accuracy_per_client'])]
  np.testing.assert_allclose(row['accuracy_per_client'][0], simulation.accuracy(state, X, Y), rtol=1e-6)
  with pytest.raises(
    ValueError, match=r"test has examples of the clients \[0, 1\], and 'run' has clients 0 to 2; give"
  ):
    fedkd.train(simulation, KEY, rounds=2, test=(X, Y, owner % 2))


def test_a_frame_has_the_domains_of_clients():
  x, y = np.eye(3)[[0, 1, 2] * 4], np.arange(12) % 3
  net = fedkd.models.MLP(hidden=(), classes=3)
  domains = np.repeat([5, 4, 5, 4], 3)
  federation = fedkd.federation(x, y, [[0, 1], [3, 4], [6, 9]], net, domains=domains)
  made = fedkd.simulation(fedkd.methods.private(optax.sgd(0.1), steps=1, batch=2), federation)
  frame = fedkd.train(made, KEY, rounds=1, test=(x, y))[1].frame()
  known = frame[frame['client'] >= 0].drop_duplicates('client').set_index('client')['domain']
  assert (known[0], known[1]) == (5, 4)
  assert np.isnan(known[2])
  other = fedkd.train(made, KEY, rounds=1, test=(x[:6], y[:6]))[1].frame()
  both = tidy.concatenated([frame, other.assign(run='other', test_rows=12)])
  assert analysis.summary(both, 'run').set_index('run')['apart'].to_dict() == {'run': '', 'other': 'other data'}


def test_histories_from_other_keys_are_not_paired(trained):
  frame = trained[1].frame()
  both = tidy.concatenated([frame, frame.assign(run='other', key='00')])
  assert analysis.summary(both, 'run').set_index('run')['apart'].to_dict() == {
    'run': '',
    'other': 'other keys of seed 0',
  }
  older = tidy.concatenated([frame, frame.assign(run='older').drop(columns='key')])  # which did not tell
  assert not analysis.summary(older, 'run')['apart'].any()


def test_a_history_beside_a_run_directory_is_not_called_one_of_other_data(trained):
  """Their checksums are of different things, so that they never agree; without them the two are compared."""
  frame = trained[1].frame()
  run = frame.assign(run='from files', data='0a1b2c3d', data_config='4e5f6a7b')
  both = tidy.concatenated([frame.assign(run='history'), run])
  said = 'one is a history and one a run directory, whose data are not known to be the same'
  for base, other in (('history', 'from files'), ('from files', 'history')):
    assert analysis.summary(both, base).set_index('run')['apart'].to_dict() == {base: '', other: said}
  known = both.drop(columns=['data', 'data_config'])
  assert analysis.summary(known, 'history').set_index('run')['gain'].to_dict() == {'history': 0, 'from files': 0}


def test_several_simulations_are_compared_in_one_frame(federation, simulation, trained):
  private = fedkd.simulation(fedkd.methods.private(optax.sgd(0.1), steps=1, batch=8), federation)
  states, history = fedkd.train({'alone': private, 'fedhe': simulation}, KEY, rounds=2, test=(X, Y), every=2)
  assert list(states) == ['alone', 'fedhe']
  frame = history.frame()
  assert list(frame.columns[:4]) == ['run', 'method', 'seed', 'phase']
  of = frame[(frame['run'] == 'fedhe') & (frame['round'] == 2) & (frame['metric'] == 'accuracy')]
  clients = of[of['client'] != tidy.ALL]
  assert clients['value'].tolist() == trained[1].rows[1]['accuracy_per_client'][0]
  assert clients['examples'].tolist() == [30, 20, 40]
  assert clients['architecture'].nunique() == 2
  assert of[of['client'] == tidy.ALL]['value'].item() == pytest.approx(clients['value'].mean())
  assert of[of['client'] == tidy.ALL]['architecture'].isna().all()


def test_a_loss_that_is_not_finite_ends_it_and_names_the_client(federation):
  wild = fedkd.simulation(fedkd.methods.private(optax.sgd(1e30), steps=1, batch=8), federation)
  with pytest.raises(DivergedError, match=r'^run: the loss of client 0, 1 is \w+ in round 1; lower') as caught:
    fedkd.train(wild, KEY, rounds=4, every=1)
  assert int(caught.value.state.round) == 1
  assert [row['round'] for row in caught.value.history.rows] == [0, 1]


def test_an_interrupt_returns_what_there_is(simulation, trained):
  calls = []

  def run(state, rounds):
    calls.append(rounds)
    if len(calls) == 2:
      raise KeyboardInterrupt
    return simulation.run(state, rounds)

  with pytest.warns(UserWarning, match='run was interrupted, and is returned as of round 2'):
    state, history = fedkd.train(simulation._replace(run=run), KEY, rounds=5, test=(X, Y), every=2)
  assert int(state.round) == 2
  assert [row['accuracy'] for row in history.rows] == [row['accuracy'] for row in trained[1].rows[:2]]


def test_nothing_is_shown_where_nobody_looks(simulation, capfd):
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    fedkd.train(simulation, KEY, rounds=2, every=2)
  assert capfd.readouterr() == ('', '')


def test_wrong_arguments_are_refused(federation, simulation, trained, tmp_path):
  other = fedkd.simulation(fedkd.methods.private(optax.adam(0.1), steps=1, batch=8), federation)
  trained[1].save(tmp_path)
  for call, said in (
    (lambda: fedkd.train(simulation, 3), r'^key is 3, an int; give one key'),
    (lambda: fedkd.train(simulation, KEY, rounds=0), 'rounds=0 must be'),
    (lambda: fedkd.train(simulation, KEY, every=1.5), 'every=1.5 must be'),
    (lambda: fedkd.train(simulation, KEY, test=X), r'test is .*; give \(x, y\)'),
    (lambda: fedkd.train({}, KEY), 'simulation is an empty dict'),
    (lambda: fedkd.train({'a': federation}, KEY), r"simulation\['a'\] is a Federation"),
    (lambda: fedkd.train({'a': simulation}, {'b': KEY}), "key has nothing for 'a'"),
    (lambda: fedkd.train(other, trained[0]), "key is a state of another simulation than 'run'"),
    (lambda: fedkd.train(simulation, trained[0], history=fedkd.train(simulation, KEY, rounds=1)[1]), 'ends at round 1'),
    (lambda: fedkd.train(simulation, KEY, history=trained[1]), "history has 'run' already"),
    (lambda: fedkd.restore(tmp_path / 'nothing', simulation), "holds no 'run'"),
    (lambda: fedkd.restore(tmp_path, other), "holds a state of another simulation than 'run'; make that one$"),
    (lambda: fedkd.train(simulation, []), '^key is a list; give one key'),
    (lambda: fedkd.train(simulation, [KEY, jax.random.key(7), KEY]), 'key has the same key for seeds 0 and 2; give'),
    (lambda: fedkd.train(simulation, KEY, history='runs'), "history is 'runs', a str; give what fedkd.train has"),
    (lambda: fedkd.train({0.1: simulation}, KEY), 'simulation has the name 0.1, a float; give a name that a folder'),
    (lambda: fedkd.train({'a/b': simulation}, KEY), "simulation has the name 'a/b', a str; give"),
    (lambda: fedkd.train({'..': simulation}, KEY), r"simulation has the name '\.\.', a str; give"),
    (lambda: fedkd.train(simulation, KEY, test=(X, Y, Y / 1)), r'test\[2\] is float32\[120\]; give integers \[120\]'),
    (lambda: fedkd.train(simulation, KEY, test=(X, Y, Y[:5])), r'test\[2\] is int32\[5\]; give integers \[120\]'),
  ):
    with pytest.raises((ValueError, ConfigError), match=said):
      call()


def test_what_is_wrong_with_the_last_simulation_ends_no_training(federation, simulation):
  narrow = fedkd.federation(X[:, :4], Y, [np.arange(0, 30), np.arange(30, 50), np.arange(50, 90)], NETS)
  other = fedkd.simulation(fedkd.methods.private(optax.sgd(0.1), steps=1, batch=8), narrow)
  trained = []
  first = simulation._replace(run=lambda *arguments: trained.append(arguments))
  for key, said in ((KEY, 'x has shape'), ({'first': KEY}, "key has nothing for 'other'")):
    with pytest.raises(ValueError, match=said):
      fedkd.train({'first': first, 'other': other}, key, rounds=2, test=(X, Y))
  assert not trained


def test_a_history_goes_on_with_its_own_state_and_examples(simulation, trained):
  state, history = trained
  with pytest.raises(ValueError, match=r"^history has evaluations of 'run' on other examples or test examples"):
    fedkd.train(simulation, state, rounds=1, test=(X[:30], Y[:30]), history=history)
  foreign, _ = fedkd.train(simulation, jax.random.key(7), rounds=5, test=(X, Y), every=5)
  with pytest.raises(ValueError, match=r"^history is of 'run' from another key than the state; give the state that"):
    fedkd.train(simulation, foreign, rounds=1, test=(X, Y), history=history)
  several, _ = fedkd.train(simulation, jax.random.split(KEY, 2), rounds=5, test=(X, Y), every=5)
  with pytest.raises(ValueError, match=r"^history is of 'run' from another key than the state"):
    fedkd.train(simulation, several, rounds=1, test=(X, Y), history=history)


def test_logits_are_those_of_every_clients_model(simulation, trained):
  logits = simulation.logits(trained[0], X)
  for client in range(3):
    model, variables = simulation.model(trained[0], client)
    np.testing.assert_allclose(logits[client], model.apply(variables, X, False)[0], atol=1e-6)
  np.testing.assert_array_equal(simulation.predict(trained[0], X), logits.argmax(-1))
  is_right = (simulation.predict(trained[0], X) == Y).mean(1)
  np.testing.assert_allclose(simulation.accuracy(trained[0], X, Y), is_right, atol=1e-6)
  with pytest.raises(ValueError, match=r'^x has shape \[120, 36\]; give examples \[T, 6, 6, 1\]'):
    simulation.logits(trained[0], X.reshape(120, 36))


def test_a_tracker_is_told_of_every_evaluation_once_by_one_id(simulation, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  told, runs, ended = [], [], []

  def tracker(run):
    runs.append(run)
    log = lambda row, step: told.append((step, row['round'], row['turns']))
    return Tracker(
      log, lambda summary, figures: ended.append(summary and summary['rounds']), max([-1, *(t[0] for t in told)])
    )

  state, history = fedkd.train(simulation, KEY, rounds=4, every=2, tracker=tracker)
  _, history = fedkd.train(simulation, state, rounds=2, every=2, history=history, tracker=tracker)
  assert told == [(row['round'], row['round'], row['turns']) for row in history.rows]
  assert [step for step, *_ in told] == [0, 2, 4, 6]
  assert ended == [4, 6]
  assert len({run.id for run in runs}) == 1
  assert 'id' not in history.frame()


def test_a_tracker_that_does_not_say_what_it_has_is_told_of_every_evaluation_too(simulation, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  told = []

  def tracker(run):
    told.append([])
    return Tracker(lambda row, step: told[-1].append((step, row['round'])), lambda summary, figures: None, None)

  state, history = fedkd.train(simulation, KEY, rounds=4, every=2, tracker=tracker)
  more, _ = fedkd.train(simulation, state, rounds=2, every=2, history=history, tracker=tracker)
  fedkd.train(simulation, more, rounds=2, every=2, tracker=tracker)  # without a history, it is evaluated first
  state, history = fedkd.train(simulation, KEY, rounds=2, every=2)
  fedkd.train(simulation, state, rounds=2, every=2, history=history, tracker=tracker)
  assert [[step for step, _ in one] for one in told] == [[0, 2, 4], [6], [6, 8], [0, 2, 4]]
  assert all(step == round for one in told for step, round in one)


def test_an_unknown_tracker_is_refused(simulation):
  with pytest.raises(ConfigError, match="tracker='wandbb' is unknown; choose one of tensorboard, wandb"):
    fedkd.train(simulation, KEY, rounds=2, tracker='wandbb')


def test_no_test_examples_are_refused(simulation):
  with pytest.raises(ValueError, match=r'^test has no examples; give \(x, y\) with at least one, or leave out test$'):
    fedkd.train(simulation, KEY, rounds=1, test=(X[:0], Y[:0]), progress=False)
