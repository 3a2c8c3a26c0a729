"""A whole run: the run directory, resuming, seeds, bad input."""

import contextlib
import functools
import json
import re
import shutil
import signal

import jax
import numpy as np
import pytest

import runs
from fedkd import aggregate, experiment, files, methods, optimizers
from fedkd import config as configs
from fedkd.analysis import results
from fedkd.analysis.results import summary as summary_of
from fedkd.errors import ConfigError, DivergedError, StoppedError
from fedkd.experiment import progress, provenance, runner, scoring
from fedkd.experiment.build import assembly
from fedkd.experiment.storage import checkpoint
from helpers import EMITTERS
from runs import metrics


@pytest.fixture(scope='session')
def finished(images, tmp_path_factory):
  """(workdir, summary) of six rounds of FedHe without a break, checkpoint every second round."""
  workdir = tmp_path_factory.mktemp('finished') / 'run'
  config = runs.config(images)
  config.checkpoint_every = 2
  return workdir, experiment.run(config, workdir, show=False)


def test_the_run_directory_is_complete(finished):
  workdir, summary = finished
  assert {p.name for p in workdir.iterdir()} >= {
    'config.json', 'split.npz', 'metrics.jsonl', 'tensorboard', 'checkpoints', 'figures', 'summary.json'
  }  # fmt: skip
  names = {'accuracy_rounds', 'accuracy_megabytes', 'accuracy_clients', 'labels'}
  assert {p.stem for p in (workdir / 'figures').iterdir()} == names
  assert [row['round'] for row in metrics(workdir)] == [0, 2, 4, 6]
  assert [row['test_rows'] for row in metrics(workdir)] == [30, 30, 30, 90]
  assert summary['final'] == metrics(workdir)[-1]['accuracy']
  assert len(summary['state_sha256']) == 64
  assert summary['images'] == {'train': 240, 'public': 0, 'test': 90, 'classes': 3}


def test_the_accuracy_in_training_is_that_of_the_last_models_on_their_own_rows(finished):
  workdir, _ = finished
  *before, last = metrics(workdir)
  assert not any('accuracy_train' in row for row in before)
  parts = assembly.build(experiment.read_config(workdir), dry=True)
  rows = parts.splits[0].private
  for client, (module, variables) in enumerate(experiment.load_all(workdir)):
    logits = module.apply(variables, parts.source.train_image[rows[client]], False)[0]
    right = np.argmax(logits, -1) == parts.source.train_label[rows[client]]
    assert last['accuracy_train_per_client'][0][client] == pytest.approx(right.mean())
  assert last['accuracy_train'] == [pytest.approx(np.mean(last['accuracy_train_per_client']))]


def test_the_split_is_saved_disjoint_and_complete(finished):
  workdir, _ = finished
  with np.load(workdir / 'split.npz') as split:
    rows = np.concatenate([split['seed0_private'], split['seed0_validation']])
    assert sorted(rows) == list(range(240))
    assert split['seed0_validation_sizes'].tolist() == [6, 6, 6, 6]


def test_the_ledger_counts_twelve_numbers_per_turn_of_three_classes(finished):
  """C(C+1) numbers each way, none down during the cold start, which is one turn per client = round 0."""
  workdir, summary = finished
  numbers = {way: sum(k['numbers'][0] for k in summary['ledger'][way].values()) for way in ('up', 'down')}
  assert summary['turns'] == 24
  assert numbers == {'up': 24 * 12, 'down': 20 * 12}
  assert metrics(workdir)[-1]['numbers_up'] == [24 * 12]
  assert metrics(workdir)[-1]['bytes_up_per_client'] == [48]


def test_a_finished_run_returns_its_summary_without_training(finished, monkeypatch):
  workdir, summary = finished
  monkeypatch.setattr(runner, 'build', None)
  assert experiment.run(experiment.read_config(workdir), workdir, show=False) == summary


def test_more_rounds_continue_to_the_same_bits(images, finished, tmp_path):
  config = runs.config(images, rounds=3)
  first = experiment.run(config, tmp_path, show=False)
  config.rounds, config.eval_batch = 6, 7  # a run field may change, rounds may grow
  second = experiment.run(config, tmp_path, show=False)
  assert first['state_sha256'] != second['state_sha256'] == finished[1]['state_sha256']
  assert [row['round'] for row in metrics(tmp_path)] == [0, 2, 3, 4, 6]


def test_a_run_names_the_code_that_trained_it(images, tmp_path, monkeypatch):
  """Somebody commits while it trains; the process that is started next runs the new code, one after it only repairs."""
  now, train = {'commit': 'first', 'dirty': False}, runner._train

  def start(rounds, meanwhile):
    monkeypatch.setattr(provenance, 'code', functools.cache(provenance.code.__wrapped__))
    monkeypatch.setattr(runner, '_train', lambda *args: now.update(meanwhile) or train(*args))
    summary = experiment.run(runs.config(images, rounds=rounds), tmp_path, show=False)
    return [summary.get(field) for field in ('commit', 'commits', 'dirty')]

  monkeypatch.setattr(provenance, 'commit', lambda package: dict(now))
  assert start(2, {'commit': 'second', 'dirty': True}) == ['first', None, False]
  assert start(4, {'commit': 'third', 'dirty': False}) == ['first', ['first', 'second'], True]
  (tmp_path / 'summary.json').unlink()
  assert start(4, {}) == ['first', ['first', 'second'], True]
  one = results.of_run(tmp_path, 'he-tiny', 'small')
  assert one['commits'] == results.commits(one) == ['first', 'second']


def test_what_an_older_version_trained_is_of_unknown_code():
  new, installed = {'commit': 'new', 'dirty': False}, {'commit': '', 'dirty': False}
  assert provenance.made_by(provenance.continued(None, None)) == {'commit': 'unknown', 'dirty': False}
  assert provenance.made_by(provenance.continued(None, new))['commits'] == ['unknown', 'new']
  assert provenance.made_by(provenance.continued([new], new)) == new
  assert provenance.made_by(provenance.continued([installed], new))['commits'] == ['none', 'new']


@pytest.mark.parametrize('watch', [pytest.param('', marks=pytest.mark.slow), 'accuracy'])
def test_a_longer_run_compiles_the_same_program(images, watch):
  texts = []
  for rounds in (1, 8):
    config = runs.config(images, rounds=rounds)
    config.early_stop.watch = watch
    texts.append(assembly.build(config, dry=True).phases[0].lower().as_text())
  assert texts[0] == texts[1]


def test_another_config_is_refused_and_named(finished):
  workdir, _ = finished
  config = experiment.read_config(workdir)
  config.method.alpha = 2.0
  config.rounds = 4
  before = {p: p.stat().st_mtime_ns for p in workdir.rglob('*')}
  with pytest.raises(ConfigError, match=r'method.alpha: 1.0 -> 2.0; rounds: 6 -> 4.*another workdir'):
    experiment.run(config, workdir, show=False)
  assert before == {p: p.stat().st_mtime_ns for p in workdir.rglob('*')}


def test_a_damaged_checkpoint_falls_back_to_the_older_one(finished, tmp_path, capsys):
  shutil.copytree(finished[0], tmp_path / 'run')
  workdir = tmp_path / 'run'
  (workdir / 'summary.json').unlink()
  runs.damage(workdir / 'checkpoints' / '6')
  again = experiment.run(experiment.read_config(workdir), workdir, show=False)
  assert 'checkpoint 6 is damaged' in capsys.readouterr().err
  assert again['state_sha256'] == finished[1]['state_sha256']
  assert metrics(workdir) == metrics(finished[0])


def diverging(images, eval_every):
  """A config whose steps are infinite from round 4 on; a checkpoint after every call."""
  config = runs.config(images, rounds=8, method='private', steps=1)
  config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  config.optimizer = configs.optimizer('sgd', learning_rate=1e3)
  config.milestones, config.decay, config.checkpoint_every, config.eval_every = (4,), 1e38, 1, eval_every
  return config


@pytest.mark.parametrize(
  ('eval_every', 'what'), [(3, r'the losses of 4 clients .* became nan'), (1, 'a weight became')]
)
def test_diverging_names_the_round_and_keeps_the_last_good_checkpoint(images, tmp_path, eval_every, what):
  """With a call per round the weights are bad before a loss is."""
  config = diverging(images, eval_every)
  told = rf'{what}.* round \d of private.*; lower optimizer.learning_rate=1000.0; the checkpoint of round (\d) is kept'
  with pytest.raises(DivergedError, match=told) as caught:
    experiment.run(config, tmp_path, show=False)
  assert not (tmp_path / 'summary.json').exists()
  kept = int(re.search(told, str(caught.value)).group(1))
  assert kept == {3: 3, 1: 4}[eval_every]
  phase = assembly.build(config, dry=True).phases[0]
  with checkpoint.manager(tmp_path / 'checkpoints', tidy=False) as saved:
    step, state, _ = checkpoint.restore(saved, lambda step: phase.saved, pytest.fail)
  assert step == kept
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.client))


def test_losses_that_are_bad_in_the_first_round_are_not_traced_to_an_earlier_one(images, tmp_path):
  """Nor to a rule, which has made nothing yet; and who wants the finished run is told why there is none."""
  config = diverging(images, 3)
  config.method = configs.method('fedavg', steps=4, batch=8)
  config.optimizer.learning_rate = 1e30
  with pytest.raises(DivergedError) as caught:
    experiment.run(config, tmp_path, show=False)
  assert ' in round 0 of fedavg (seed 0): look for the cause in their examples; lower' in str(caught.value)
  with pytest.raises(ConfigError) as refused:
    summary_of(tmp_path)
  assert str(refused.value) == (
    f'{tmp_path} holds no finished run (no summary.json); it failed ({caught.value}); mend that, and run it to its end'
  )
  (tmp_path / 'lock').write_text('process 1\nstopped: by a signal\n')
  with pytest.raises(ConfigError, match=r'no summary.json\); run it to its end first$'):
    summary_of(tmp_path)


@pytest.mark.parametrize('file', ['config.json', 'split.npz'])
def test_a_work_directory_that_cannot_be_used_is_refused(images, tmp_path, file):
  (tmp_path / 'run').mkdir()
  if file == 'config.json':
    (tmp_path / 'run' / file).write_text('{')
  else:
    (tmp_path / 'run' / file).mkdir()  # in the way
  with pytest.raises(ConfigError, match=r'config\.json is damaged|cannot be written'):
    experiment.run(runs.config(images, 'private'), tmp_path / 'run', show=False)


CONV = {'model': 'TwoConv', 'clients': 4, 'filters': (2, 2)}  # with BatchNorm and dropout


def test_the_lowering_does_not_change_what_training_begins_with(images):
  begun = []
  for lowering in ('native', 'matmul'):
    config = runs.config(images)
    config.groups, config.lowering = (CONV,), lowering
    source = assembly.load_data(config)
    groups = assembly.make_groups(config, source)
    example = jax.ShapeDtypeStruct(source.train_image.shape[1:], np.uint8)
    begun.append(assembly.initial_variables(assembly.initialisers(groups, example), (0,)))
  jax.tree.map(np.testing.assert_array_equal, *begun)


@pytest.mark.slow
@pytest.mark.parametrize('net', ['MLP', pytest.param('TwoConv', marks=pytest.mark.slow)])
def test_seeds_together_equal_seeds_alone(images, net):
  states = []
  for seeds in ((0, 3), (3,)):
    config = runs.config(images, seeds=seeds, steps=1)
    config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},) if net == 'MLP' else (CONV,)
    config.optimizer = configs.optimizer('sgd', learning_rate=0.05)
    parts = assembly.build(config)
    phase = parts.phases[0]
    program = phase.lower().compile(EMITTERS)
    inputs = phase.inputs._replace(participants=phase.slots(0, None), start=np.int32(0), count=np.int32(2))
    state, _ = program(inputs, phase.init(parts.variables))
    states.append([np.asarray(leaf[-1]) for leaf in jax.tree.leaves((state.client, state.server))])
  for together, alone in zip(*states, strict=True):
    np.testing.assert_array_equal(together, alone)


@pytest.mark.slow  # test_simulation has it for one network
@pytest.mark.parametrize('net', ['MLP', 'TwoConv'])
def test_seeds_under_vmap_are_those_of_map_to_rounding(images, net):
  """`vmap` is what `auto` chooses on an accelerator."""
  made = []
  for axis in ('map', 'vmap'):
    config = runs.config(images, 'fedhe', seeds=(0, 3), rounds=3)
    config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},) if net == 'MLP' else (CONV,)
    config.optimizer, config.seed_axis = configs.optimizer('sgd', learning_rate=0.05), axis
    config.plan = configs.plan('asynchronous', stale=True)
    parts = assembly.build(config)
    phase = parts.phases[0]
    state, report = phase.run(phase.init(parts.variables), 0, phase.length)
    numbers = [leaf for leaf in jax.tree.leaves((state, report)) if np.issubdtype(leaf.dtype, np.number)]
    made.append(numbers)
  for one, other in zip(*made, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_loaded_client_repeats_its_accuracy(finished, images, tmp_path):
  """Also one that was trained on more devices than there are."""
  workdir = shutil.copytree(finished[0], tmp_path / 'run')
  (workdir / 'summary.json').unlink()  # whose digest is of the other config
  files.write_sealed(workdir / 'config.json', {**files.read_sealed(workdir / 'config.json'), 'devices': 64})
  last = metrics(workdir)[-1]['accuracy_per_client'][0]
  with np.load(images) as saved:
    image, label = saved['x_test'], saved['y_test']
  for client in (1, 2):
    model, variables = experiment.load(workdir, client)
    answer = np.argmax(model.apply(variables, image, False)[0], -1)
    assert np.mean(answer == label) == pytest.approx(last[client], abs=1e-6)


@pytest.mark.parametrize(
  ('client', 'seed', 'match'),
  [
    (4, None, '^client=4 is unknown; the run has clients 0 to 3'),
    (0, 9, '^seed=9 is unknown; the run has seeds 0'),
    (1.0, None, '^client=1.0 is unknown'),
    (True, None, '^client=True is unknown'),
    (0, False, '^seed=False is unknown'),
  ],
)
def test_load_refuses_unknown_clients_and_seeds(finished, client, seed, match):
  with pytest.raises(ConfigError, match=match):
    experiment.load(finished[0], client, seed)


def test_chunks_do_not_change_a_bit(images, finished):
  parts = assembly.build(runs.config(images))
  phase = parts.phases[0]
  state = phase.init(parts.variables)
  for start, count in ((0, 1), (1, 2), (3, 1), (4, 2)):
    state, _ = phase.run(state, start, count)
  again = checkpoint.checksum((state.client, state.server))
  assert again == finished[1]['state_sha256']


def test_a_run_is_traced_once_whatever_its_chunks(images):
  traces = []

  def counted(tx, steps=2, batch=8):
    method = methods.private(tx, steps, None, batch)
    step = lambda *args: traces.append(1) or method.client.step(*args)
    return method._replace(client=method.client._replace(step=step))

  config = runs.config(images, method='private')
  config.method = configs.method(counted)
  parts = assembly.build(config)
  phase = parts.phases[0]
  state = phase.init(parts.variables)
  state, _ = phase.run(state, 0, 2)
  first = len(traces)
  state, _ = phase.run(state, 2, 1)
  phase.run(state, 3, 2)
  assert first == len(traces) == len(parts.groups)


@pytest.mark.slow
def test_programs_are_compiled_once_before_any_is_run(images, tmp_path, compiled, monkeypatch):
  """Of all phases that are ahead, in the caller's context of JAX, also where clients may stop."""
  real = scoring.accuracy
  monkeypatch.setattr(scoring, 'accuracy', lambda *args: compiled.append('an evaluation') or real(*args))
  config = runs.config(images, method='private', rounds=1)
  config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  config.data.validation, config.early_stop.watch = 0.2, 'validation_accuracy'
  config.before = ({'name': 'private', 'rounds': 1, 'steps': 2, 'batch': 4},)
  with jax.default_matmul_precision('bfloat16'):
    experiment.run(config, tmp_path / 'run', show=False)
    assert compiled.count('jit(run)') == 2
    assert 'jit(run)' not in compiled[compiled.index('an evaluation') :]
    (tmp_path / 'run' / 'summary.json').unlink()
    for late in (tmp_path / 'run' / 'checkpoints').glob('2*'):
      shutil.rmtree(late)
    compiled.clear()
    experiment.run(config, tmp_path / 'run', show=False)
  assert compiled.count('jit(run)') == 1


def test_the_time_left_counts_from_the_first_update(monkeypatch, capsys):
  now = iter((100.0, 120.0))
  monkeypatch.setattr(progress.time, 'monotonic', lambda: next(now))
  with progress.display('a run', 100) as display:
    for at in (40, 50):
      display.update(at, 7.0, {'accuracy': [0.5]})
  assert [line.split('examples/s')[1].strip() for line in capsys.readouterr().out.splitlines()] == ['', '1:40 left']


def test_a_signal_while_compiling_ends_the_run_before_it_trains(images, tmp_path, monkeypatch):
  compile = jax.stages.Lowered.compile

  def interrupted(program):
    signal.raise_signal(signal.SIGTERM)
    return compile(program)

  monkeypatch.setattr(jax.stages.Lowered, 'compile', interrupted)
  with pytest.raises(StoppedError, match='while compiling; start again to continue'):
    experiment.run(runs.config(images), tmp_path / 'run', show=False)
  assert not (tmp_path / 'run' / 'metrics.jsonl').exists() or not (tmp_path / 'run' / 'metrics.jsonl').read_text()


def test_a_signal_once_it_has_compiled_lets_the_run_save_a_round(images, tmp_path, monkeypatch):
  words = []

  @contextlib.contextmanager
  def display(*args):
    def say(text):
      words.append(text)
      if 'compiled in' in text:
        signal.raise_signal(signal.SIGTERM)

    yield progress.Display(lambda *args: None, say)

  monkeypatch.setattr(progress, 'display', display)
  config = runs.config(images)
  with pytest.raises(StoppedError, match='after round 1, which is saved; start again to continue'):
    experiment.run(config, tmp_path / 'run')
  monkeypatch.undo()
  assert 'compiled in' in words[-1]

  last = progress.Display(lambda at, *args: at == config.rounds and signal.raise_signal(signal.SIGTERM), words.append)
  with pytest.raises(StoppedError, match='in the last rounds of a run, which is finished'):
    experiment.run(config, tmp_path / 'run', show=last)
  assert experiment.run(config, tmp_path / 'run', show=False)['rounds'] == config.rounds


@pytest.mark.slow
def test_blocks_of_one_shape_find_the_same_right_answers(images, monkeypatch):
  config = runs.config(images, rounds=2)
  config.data.validation = 0.3
  parts = assembly.build(config)
  phase, shapes = parts.phases[0], []
  real = phase.programs.correct
  seen = lambda inputs, state, x, y: shapes.append(x.shape) or real(inputs, state, x, y)
  phase = phase._replace(programs=phase.programs._replace(correct=seen))
  state, _ = phase.run(phase.init(parts.variables), 0, 2)
  look = lambda rows: [scoring.accuracy(parts, phase, state, rows), scoring.validation(parts, phase, state, rows)]
  whole = {rows: look(rows) for rows in (0, 13)}
  monkeypatch.setattr(scoring, 'EVAL_BLOCK', (7, 40))  # of 90 test rows and 72 held out: the last block is not full
  for rows, found in whole.items():
    parts.config.eval_rows = rows
    shapes.clear()
    assert look(rows) == found
    assert {shape[1] for shape in shapes} == {rows or 30}


def geometric_mean(rows, weight):
  share = weight / weight.sum()
  return jax.tree.map(lambda a: jax.numpy.tensordot(share, a, 1), rows)


@pytest.mark.slow
def test_a_rule_by_value_and_by_dotted_path(images, tmp_path):
  by_value = runs.config(images, method='fedavg', rounds=2, rule=geometric_mean)
  by_path = runs.config(images, method='fedavg', rounds=2, rule=f'{__name__}:geometric_mean')
  results = [experiment.run(c, tmp_path / str(i), show=False) for i, c in enumerate((by_value, by_path))]
  assert results[0]['state_sha256'] == results[1]['state_sha256']
  saved = json.loads((tmp_path / '0' / 'config.json').read_text())
  assert saved['method']['rule'] == f'{__name__}:geometric_mean'


@pytest.mark.parametrize(
  ('change', 'match'),
  [
    (lambda c: setattr(c, 'colour', 'red'), r"config has no field 'colour'; it has"),
    (lambda c: c.update(rounds=0), r'rounds=0 must be a whole number of at least 1'),
    (lambda c: c.update(rounds=-3), r'rounds=-3 must be a whole number of at least 1'),
    (lambda c: c.update(seeds=(1, 1)), r'seeds=\(1, 1\) must be distinct'),
    (lambda c: c.method.update(name='fedbest'), r"method.name='fedbest' is unknown; choose one of agg, .*fedhe"),
    (lambda c: setattr(c.method, 'beta', 1), r"method fedhe has no field 'beta'; it has steps"),
    (lambda c: c.data.update(name='no_such_set'), r'no_such_set.*npz:FILE'),
    (
      lambda c: c.data.update(partition='fair'),
      r"data.partition.name='fair' is unknown; choose one of by_origin, contiguous",
    ),
    (lambda c: c.data.update(clients=5), r'groups have 4 clients but data.clients=5'),
    (lambda c: c.groups[1].update(first=1), r'groups have 3 clients but data.clients=4; make them equal'),
    (lambda c: c.groups[1].update(first=3), r'clients from 0 to 4 and leave some out; let `first` number them 0 to 3'),
    (lambda c: c.data.update(classes=2), r'data.classes=2 is less than the 3 classes'),
    (lambda c: c.update(lowering='fast'), r"lowering='fast' is unknown; choose one of auto"),
    (lambda c: c.update(groups=({'model': 'Perceptron', 'clients': 4},)), r'groups\[0\].model=.* choose one of .*MLP'),
    (lambda c: c.update(groups=({'model': 'MLP', 'clients': 4, 'width': 3},)), r"has no field 'width'; it has hidden"),
    (lambda c: c.update(groups=({'model': 'ThreeConv', 'clients': 4, 'filters': (2, 2, 2)},)) or tiny(c), r'too deep'),
    (lambda c: many_clients(c), r'data.clients=300 is more than the 240 training examples'),
    (lambda c: setattr(c, 'method', configs.method('fedavg')), r'method.per_group=True'),
    (lambda c: c.method.update(steps=None), r'steps or epochs'),
    (lambda c: c.optimizer.update(name='adamm'), r"optimizer.name='adamm' is unknown"),
  ],
)
def test_bad_input_is_one_sentence_before_anything_is_written(images, tmp_path, change, match):
  config = runs.config(images)
  config.unlock()
  change(config)
  if config.data.classes == -1:
    config.data.classes = 0
    config.data.name = f'npz:{runs.save_images(tmp_path / "small.npz", size=6)}'
  with pytest.raises(ConfigError, match=match) as caught:
    experiment.run(config, tmp_path / 'run', show=False)
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'run').exists()


def tiny(config):
  config.data.classes = -1  # marks that the images shall be 6x6


def many_clients(config):
  config.data.clients = 300
  config.groups = ({'model': 'MLP', 'clients': 300},)


def test_a_client_with_one_example_and_batchnorm_is_refused(images, tmp_path):
  path = runs.save_images(tmp_path / 'few.npz', train=6, test=6)
  config = runs.config(path)
  config.groups, config.data.validation = (CONV,), 0.0
  with pytest.raises(ConfigError, match=r'single training example.*BatchNorm'):
    experiment.run(config, tmp_path / 'run', show=False)


def halved(tx, steps=2, batch=8):
  """Private with half the steps, as a user's own method."""
  return methods.private(tx, steps // 2, None, batch)


@pytest.mark.slow
def test_a_method_by_value_and_by_dotted_path(images, tmp_path):
  by_value, by_path = runs.config(images, 'private'), runs.config(images, 'private')
  by_value.method = configs.method(halved)
  by_path.method = configs.method(f'{__name__}:halved')
  for config in (by_value, by_path):
    config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  results = [experiment.run(c, tmp_path / str(i), show=False) for i, c in enumerate((by_value, by_path))]
  assert results[0]['state_sha256'] == results[1]['state_sha256']
  assert results[0]['examples'] == [6 * 4 * 8]
  assert results[0]['method'] == results[1]['method'] == 'halved'


def wrong_tree(rows, weight):
  del weight
  return rows['params']


def broken(rows, weight):
  return rows['weights']


WRONG_RULES = {
  'tree': (
    wrong_tree,
    rf'rule {__name__}:wrong_tree \(test_runner.py, line \d+\) returned no params\.',
  ),
  'shape': (
    lambda rows, weight: rows,
    rf'rule {__name__}:<lambda> \(.*, line \d+\) returned \[4, 8\] for params\.\S+bias, expected \[8\]$',
  ),
  'raises': (
    broken,
    rf"rule {__name__}:broken \(test_runner.py, line \d+: return rows\['weights'\]\) raised KeyError: 'weights'$",
  ),
}


@pytest.mark.parametrize(('rule', 'sentence'), WRONG_RULES.values(), ids=WRONG_RULES)
def test_a_rule_with_the_wrong_result_is_refused_before_training(rule, sentence, images, tmp_path):
  with pytest.raises(ConfigError, match=f'^{sentence}'):
    experiment.run(runs.config(images, 'fedavg', rule=rule), tmp_path / 'run', show=False)
  assert not (tmp_path / 'run').exists()


clipping, server_adam = aggregate.centred_clipping(1.0), optimizers.fedadam(0.03)


@pytest.mark.slow
def test_rules_with_memory_and_server_optimizers_by_value_and_by_dotted_path(images, tmp_path):
  given = {'rule': clipping, 'server_tx': server_adam}
  named = {'rule': f'{__name__}:clipping', 'server_tx': f'{__name__}:server_adam'}
  results = [
    experiment.run(runs.config(images, 'fedavg', **how), tmp_path / name, show=False)
    for name, how in (('value', given), ('path', named))
  ]
  assert results[0]['state_sha256'] == results[1]['state_sha256']
  net, _ = experiment.load(tmp_path / 'path', 0, trust=True)
  assert net.net.hidden == (8,)
  with pytest.raises(
    ConfigError, match=r'centred_clipping.* cannot be loaded .*give module:function on the Python path'
  ):
    experiment.load(tmp_path / 'value', 0, trust=True)  # a closure: nobody can find it again
  with pytest.raises(ConfigError, match=r"method.server_tx='adam' is unknown; give module:function"):
    experiment.run(runs.config(images, 'fedavg', server_tx='adam'), tmp_path / 'plain', show=False)


def mlps(images, *groups):
  config = runs.config(images, 'private', 2)
  config.groups = tuple({'model': 'MLP', **group} for group in groups)
  return config


@pytest.mark.slow
def test_a_client_of_two_groups_is_evaluated_in_the_first_that_holds_it(images, tmp_path):
  """Alone at work, the two clients of the wide net do in one group of four what they do in a group of their own."""
  wide, narrow = {'clients': 2, 'hidden': (8,)}, {'clients': 2, 'hidden': (4,)}
  apart = experiment.run(mlps(images, wide, narrow), tmp_path / 'apart', show=False)
  both = mlps(images, narrow | {'first': 2}, wide | {'first': 0, 'clients': 4})  # 2 and 3 are in either
  shared = experiment.run(both, tmp_path / 'both', show=False)
  assert shared['final_per_client'] == apart['final_per_client']
  per_group = [metrics(tmp_path / run)[-1]['accuracy_per_group'][0] for run in ('apart', 'both')]
  assert per_group[1] == per_group[0][::-1]
  assert [row['turns'] for row in metrics(tmp_path / 'both')] == [[0], [12]]
  model, _ = experiment.load(tmp_path / 'both', 3)
  assert model.net.hidden == (4,)


@pytest.mark.slow
def test_velo_continues_from_within_its_initial_phase_to_the_same_bits(images, tmp_path):
  """Two seeds; the autoencoder first trains before round 3, every second round."""
  cvae = {'interval': 2, 'cvae_epochs': 2, 'limits': (20, 20)}
  config = runs.config(images, 'velo', 6, (0, 1), epochs=None, initial=3, feature_align='group', **cvae)
  config.groups = ({'model': 'MLP', 'clients': 2, 'hidden': (8,)}, {'model': 'MLP', 'clients': 2, 'hidden': (4,)})
  whole, parts = runs.halves_of(config, tmp_path, 2)
  assert parts['state_sha256'] == whole['state_sha256']
  rows = metrics(tmp_path / 'whole')
  assert [row['cvae_trained_8'] for row in rows[1:]] == [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]  # rounds 1, 3, 5
  assert rows[1]['cvae_reconstruction_4'] == [None, None]
  assert rows[2]['cvae_reconstruction_4'] > [0.0, 0.0]
  assert rows[1]['numbers_down'] == [0, 0] < rows[2]['numbers_down']


@pytest.mark.slow
@pytest.mark.parametrize('store', [False, True])
def test_images_on_the_server_are_in_no_checkpoint_and_a_run_goes_on_to_the_same_bits(images, tmp_path, store):
  digest = {'subset': 8, 'digest_epochs': 1, 'digest_batch': 4, 'epochs': None}

  def finished(rounds, folder):
    config = runs.config(images, 'dsfl', rounds, (0, 1), **digest)
    config.data.public_share = 0.2
    config.client_store = str(tmp_path / f'{folder}-clients') if store else ''
    return config, experiment.run(config, tmp_path / folder, show=False)['state_sha256']

  _, whole = finished(4, 'whole')
  config, _ = finished(2, 'parts')
  assert finished(4, 'parts')[1] == whole
  phase = assembly.build(config, dry=True).phases[0]
  of_images = lambda tree: [leaf for leaf in jax.tree.leaves(tree) if leaf.dtype == np.uint8 and leaf.ndim == 5]
  assert not of_images(phase.state)
  assert not of_images(phase.saved)


@pytest.mark.slow
def test_heterofl_draws_widths_anew_and_is_evaluated_as_the_whole_network(images, tmp_path):
  """Four clients in three groups; statistics of the part that `load` returns are those of all training images."""
  config = runs.config(images, 'heterofl', 4, (0, 1), epochs=None)
  net = {'model': 'PreActResNet', 'blocks': (1,), 'width': 0.0625, 'clients': 4, 'first': 0}
  config.groups = tuple({**net, 'rate': rate} for rate in (1.0, 0.5, 0.25))
  config.plan = configs.plan('dynamic', ratio=0.75)
  config.eval_clients = 3
  whole, parts = runs.halves_of(config, tmp_path, 2)
  assert parts['state_sha256'] == whole['state_sha256']
  last = metrics(tmp_path / 'whole')[-1]
  assert last['turns'] == [12, 12]
  assert len(last['accuracy_per_client'][0]) == 3
  model, variables = experiment.load(tmp_path / 'whole', 2, seed=1)
  with np.load(images) as saved:
    answer = np.argmax(model.apply(variables, saved['x_test'], False)[0], -1)
    assert np.mean(answer == saved['y_test']) == pytest.approx(last['accuracy'][1], abs=1e-6)
  assert model.net.rate == 1.0


@pytest.mark.slow
def test_milestones_slow_every_optimizer_down(images, tmp_path):
  """With decay 0 nothing moves from the milestone on."""
  config = runs.config(images, 'private', 6)
  config.milestones, config.decay = (4,), 0.0
  config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)  # without BatchNorm, whose statistics go on
  experiment.run(config, tmp_path / 'run', show=False)
  start, two, four, _ = (row['accuracy_per_client'] for row in metrics(tmp_path / 'run'))
  assert start != two != four
  _, after = experiment.load(tmp_path / 'run')
  config.rounds = 4
  experiment.run(config, tmp_path / 'short', show=False)
  jax.tree.map(np.testing.assert_array_equal, after, experiment.load(tmp_path / 'short')[1])


def test_the_config_of_an_older_run_is_read_with_the_defaults_of_younger_fields(finished, tmp_path):
  old = files.read_sealed(finished[0] / 'config.json')
  del old['milestones'], old['data']['aligned']
  (tmp_path / 'config.json').write_text(json.dumps(old))
  assert configs.to_json(experiment.read_config(tmp_path)) == configs.to_json(experiment.read_config(finished[0]))


def test_logits_of_a_run_are_those_of_the_models_that_are_loaded(finished):
  x = np.random.default_rng(0).integers(0, 256, (130, 12, 12, 1)).astype(np.uint8)
  logits = experiment.logits(finished[0], x)
  for client, (model, variables) in enumerate(experiment.load_all(finished[0])):
    np.testing.assert_allclose(logits[client], model.apply(variables, x, False)[0], atol=1e-5)
  for other, said in (
    (x / 255, '^x is float64, and the examples of the federation are uint8; give uint8 of the same scale'),
    (x[:, :5], r'^x has shape \[130, 5, 12, 1\]; give examples \[T, 12, 12, 1\], at least one'),
  ):
    with pytest.raises(ValueError, match=said):
      experiment.logits(finished[0], other)


def test_load_needs_neither_weights_nor_the_run_it_started_from(images, finished, tmp_path, monkeypatch):
  """Nothing is compiled to know what shape a checkpoint has."""
  monkeypatch.setattr(
    'fedkd.experiment.build.assembly._with_weights', lambda *args: pytest.fail('made initial weights')
  )
  monkeypatch.setattr('fedkd.experiment.storage.warm_start.read', lambda *args: pytest.fail('read the other run'))
  shutil.copytree(finished[0], tmp_path / 'run')
  (tmp_path / 'run' / 'summary.json').unlink()  # whose digest is of the other config
  config = files.read_sealed(tmp_path / 'run' / 'config.json')
  config['init_from'], config['groups'][0]['weights'] = 'nobody@0', 'gone.npz'
  files.write_sealed(tmp_path / 'run' / 'config.json', config)
  jax.tree.map(np.testing.assert_array_equal, experiment.load(tmp_path / 'run')[1], experiment.load(finished[0])[1])
