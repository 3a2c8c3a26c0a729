"""Runs of several phases: FedMD after transfer learning, branching, resuming, own test rows."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import runs
from fedkd import analysis, distillation, experiment, files, methods
from fedkd import config as configs
from fedkd.analysis import compare, results
from fedkd.errors import ConfigError, StoppedError
from fedkd.experiment import dry_run, phase
from fedkd.experiment.build import assembly
from fedkd.experiment.storage import checkpoint
from fedkd.types import Group, State, apply_model
from helpers import assert_same_bits, cases
from runs import metrics


def config(images, method='fedmd', seeds=(0,)):
  out = runs.config(images, 'private', 3, seeds)
  out.method = configs.method(method, steps=2, batch=8, **({'epochs': None} if method == 'fedmd' else {}))
  if method == 'fedmd':
    out.method.update({'subset': 16, 'digest_batch': 8})
    phase = {'steps': 2, 'batch': 8}
    out.before = ({'name': 'public', 'rounds': 2, **phase}, {'name': 'private', 'rounds': 2, **phase})
  out.data.public_share, out.eval_every, out.eval_rows = 0.2, 1, 0
  out.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  return out


@pytest.fixture(scope='module')
def finished(images, tmp_path_factory):
  """(workdir, summary) of public, private, fedmd; a checkpoint after every round."""
  workdir = tmp_path_factory.mktemp('phases') / 'fedmd'
  made = config(images)
  made.checkpoint_every = 1
  return workdir, experiment.run(made, workdir, show=False)


def test_every_phase_is_evaluated_from_its_start(finished):
  rows = metrics(finished[0])
  assert [(r['phase'], r['round']) for r in rows] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] + [
    (2, i) for i in range(4)
  ]
  assert [r['method'] for r in rows] == ['public'] * 3 + ['private'] * 3 + ['fedmd'] * 4


def test_models_carry_over_and_the_first_round_of_fedmd_only_exchanges(finished):
  rows = metrics(finished[0])
  per_client = [r['accuracy_per_client'] for r in rows]
  assert per_client[2] == per_client[3]
  assert per_client[5] == per_client[6] == per_client[7]
  assert per_client[7] != per_client[8]
  assert finished[1]['start'] == rows[6]['accuracy']


def test_only_the_last_phase_sends(finished):
  rows = metrics(finished[0])
  assert [r['numbers_up'] for r in rows[:7]] == [[0]] * 7
  assert rows[-1]['numbers_up'] == [3 * 4 * 16 * 3]  # rounds, clients, rows, classes


@pytest.mark.slow
def test_the_optimizer_of_the_private_phase_is_handed_to_the_revisit(images):
  parts = assembly.build(config(images))
  state = parts.phases[0].init(parts.variables)
  state, _ = parts.phases[0].run(state, 0, 1)
  private = parts.phases[1].init(parts.phases[0].handover(state))
  private, _ = parts.phases[1].run(private, 0, 1)
  fedmd = parts.phases[2].init(parts.phases[1].handover(private))
  count = lambda opt: np.asarray(opt[0].count)
  assert count(private.client[0].opt).tolist() == [[2] * 4]  # the steps of its own phase: a fresh optimizer
  assert count(fedmd.client[0].learner.opt).tolist() == [[2] * 4]
  assert count(fedmd.client[0].digest_opt).tolist() == [[0] * 4]


@pytest.mark.slow
@pytest.mark.parametrize('kept', [4, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 5, 6))])
def test_a_run_resumes_in_any_phase_to_the_same_bits(finished, images, tmp_path, kept):
  """Checkpoints are those of rounds 5, 6, 7 (three are kept); an earlier one is made by running again."""
  workdir, summary = finished
  again = tmp_path / 'fedmd'
  made = config(images)
  made.checkpoint_every = 1
  if kept >= 5:
    shutil.copytree(workdir, again)
    for step in (6, 7):
      if step > kept:
        shutil.rmtree(again / 'checkpoints' / str(step))
    (again / 'summary.json').unlink()
  else:
    stop_after(made, again, kept)
  assert experiment.run(made, again, show=False)['state_sha256'] == summary['state_sha256']
  assert metrics(again) == metrics(workdir)


def stop_after(made, workdir, step):
  """Runs until a signal arrives after `step` rounds."""
  import signal

  real, saves = checkpoint.save, []

  def save(opened, at, state, totals):
    real(opened, at, state, totals)
    saves.append(at)
    if at == step:
      signal.raise_signal(signal.SIGTERM)

  checkpoint.save = save
  try:
    with pytest.raises(StoppedError):
      experiment.run(made, workdir, show=False)
  finally:
    checkpoint.save = real


def test_a_run_branches_from_a_phase_of_another(finished, images):
  workdir, _ = finished
  made = config(images, 'agg')
  made.init_from = 'fedmd@0'
  experiment.run(made, workdir.parent / 'pooled', show=False)
  assert metrics(workdir.parent / 'pooled')[0]['accuracy_per_client'] == metrics(workdir)[2]['accuracy_per_client']


@pytest.mark.parametrize(
  ('init_from', 'change', 'match'),
  [
    ('fedmd', {}, 'must be RUN@PHASE'),
    ('nobody@0', {}, 'holds no run'),
    ('fedmd@7', {}, 'phase 7 of that run is not finished'),
    ('fedmd@0', {'initial': 'own'}, r"initial='own' cannot be combined with init_from"),
    ('fedmd@0', {'seeds': (3,)}, r'clients of that run differ \(seeds'),
    ('fedmd@0', {'data.public_share': 0.1}, 'data.public_share: 0.2 -> 0.1'),
  ],
)
def test_a_wrong_branch_is_refused_and_nothing_is_written(finished, images, init_from, change, match):
  made = config(images, 'agg')
  made.init_from = init_from
  for field, value in change.items():
    made.update_from_flattened_dict({field: value})
  with pytest.raises(ConfigError, match=match):
    experiment.run(made, finished[0].parent / 'wrong', show=False)
  with pytest.raises(ConfigError, match=match):
    dry_run.text(made, finished[0].parent / 'wrong')
  assert not (finished[0].parent / 'wrong').exists()


def test_a_branch_from_a_run_on_other_data_is_refused(finished, tmp_path):
  shutil.copytree(finished[0], tmp_path / 'fedmd')
  made = config(runs.save_images(tmp_path / 'tiny.npz', seed=1), 'agg')
  made.init_from = 'fedmd@0'
  plain = files.read_sealed(tmp_path / 'fedmd' / 'config.json')
  plain['data']['name'] = made.data.name  # as if that file had been replaced since
  files.write_sealed(tmp_path / 'fedmd' / 'config.json', plain)
  told = r"^init_from='fedmd@0': workdir=.*fedmd holds a run on other data than data.name=npz:.*; restore them"
  with pytest.raises(ConfigError, match=told):
    experiment.run(made, tmp_path / 'wrong', show=False)
  with pytest.raises(ConfigError, match=told):
    dry_run.text(made, tmp_path / 'wrong')
  assert not (tmp_path / 'wrong').exists()


def test_without_a_workdir_a_dry_run_says_that_it_has_not_looked_for_the_other_run(images):
  made = config(images, 'agg')
  made.init_from = 'nobody@0'
  assert '\n  init_from: phase 0 of nobody, not looked for without the workdir of this run\n' in dry_run.text(made)
  made.init_from = 'nobody'
  with pytest.raises(ConfigError, match='must be RUN@PHASE'):
    dry_run.text(made)


def test_a_branch_from_a_damaged_phase_is_refused(finished, images, tmp_path):
  shutil.copytree(finished[0], tmp_path / 'fedmd')
  runs.damage(tmp_path / 'fedmd' / 'phases' / '0')
  made = config(images, 'agg')
  made.init_from = 'fedmd@0'
  with pytest.raises(ConfigError, match=r'fedmd/phases/0 is damaged \(.*\); restore it, or delete'):
    experiment.run(made, tmp_path / 'wrong', show=False)


def test_a_branch_that_the_system_does_not_let_be_read_is_one_sentence(finished, images, tmp_path, monkeypatch):
  made = config(images, 'agg')
  made.init_from = 'fedmd@0'
  monkeypatch.setattr('orbax.checkpoint.CheckpointManager', too_many)
  with pytest.raises(ConfigError, match=r'fedmd/phases cannot be read \(Too many open files\); repair that'):
    experiment.run(made, finished[0].parent / 'unread', show=False)


def too_many(*args, **options):
  raise OSError(24, 'Too many open files')


def test_a_branch_from_a_phase_of_another_run_is_refused(finished, images, tmp_path):
  """As if `phases/` had been copied from a run with another optimizer."""
  shutil.copytree(finished[0], tmp_path / 'fedmd')
  other = files.read_sealed(tmp_path / 'fedmd' / 'config.json')
  other['optimizer']['learning_rate'] *= 2
  files.write_sealed(tmp_path / 'fedmd' / 'config.json', other)
  made = config(images, 'agg')
  made.init_from = 'fedmd@0'
  with pytest.raises(ConfigError, match=r'fedmd/phases/0 is of a run with another config \(optimizer.learning_rate: '):
    experiment.run(made, tmp_path / 'wrong', show=False)


def test_a_phase_without_rounds_is_refused(images):
  made = config(images)
  made.before = ({'name': 'public', 'rounds': 0, 'steps': 1},)
  with pytest.raises(ConfigError, match=r'before\[0\].rounds=0 must be a whole number of at least 1'):
    assembly.build(made)


@pytest.mark.parametrize(
  ('change', 'match'),
  [
    ({'data.public_share': 0.0}, r'no public rows; .* in a config data\.public or data\.public_share'),
    ({'method.digest_loss': 'l1'}, "digest_loss='l1' is unknown"),
  ],
)
def test_bad_public_data_is_one_sentence(images, change, match):
  made = config(images)
  made.update_from_flattened_dict(change)
  with pytest.raises(ConfigError, match=match):
    assembly.build(made)


@pytest.fixture(scope='module')
def domains(tmp_path_factory):
  """(workdir, summary) of two domains of rotated digits with own test rows."""
  made = configs.default()
  made.method = configs.method('fedh2l', batch=8)
  made.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  made.data.update({'name': 'rotated_mnist_5k', 'clients': 4, 'partition': 'by_origin', 'aligned': True})
  made.data.update({'public_share': 0.1, 'test_share': 0.15})
  made.rounds, made.eval_every, made.eval_rows = 3, 3, 0
  workdir = tmp_path_factory.mktemp('domains') / 'run'
  return workdir, experiment.run(made, workdir, show=False)


def test_accuracy_is_pooled_from_own_and_others(domains):
  """ACC = (BWT + 3 FWT) / 4 with four test sets of 150 (Li et al., 2021)."""
  last = metrics(domains[0])[-1]
  own, others = (np.array(last[f'accuracy_{kind}_per_client']) for kind in ('local', 'others'))
  np.testing.assert_allclose((own + 3 * others) / 4, last['accuracy_per_client'], rtol=1e-6)
  assert last['test_rows'] == 600
  np.testing.assert_allclose(np.array(own) * 150 % 1, 0, atol=1e-9)


def test_own_test_rows_are_those_of_the_split(domains):
  """Client 2's accuracy on its own rows, computed from the loaded model."""
  workdir, _ = domains
  made = experiment.read_config(workdir)
  source = assembly.load_data(made)
  with np.load(workdir / 'split.npz') as split:
    sizes = np.cumsum([0, *split['seed0_test_sizes']])
    rows = split['seed0_test'][sizes[2] : sizes[3]]
  assert (source.origin[rows] == 2).all()
  model, variables = experiment.load(workdir, 2)
  answer = np.argmax(model.apply(variables, source.train_image[rows], False)[0], -1)
  last = metrics(workdir)[-1]['accuracy_local_per_client'][0][2]
  assert np.mean(answer == source.train_label[rows]) == pytest.approx(last, abs=1e-6)


def test_the_summary_selects_per_node(domains):
  _, summary = domains
  assert np.shape(summary['best_on_validation_local_per_client']) == (1, 4)
  assert set(np.ravel(summary['best_round'])) <= {0, 3}


def test_the_config_of_a_run_with_phases_is_read_back(finished):
  read = experiment.read_config(finished[0])
  assert read.before[0]['name'] == 'public'
  assert json.loads((finished[0] / 'config.json').read_text())['before'][1]['rounds'] == 2


def signed(tx, steps: int | None = 2, batch=8):
  """Private, whose clients may also predict the least likely class; what they need for it is beside their models."""
  method = methods.private(tx, steps=steps, batch=batch)
  opposite = lambda model, variables, server, x: variables['sign'] * apply_model(model, variables, server, x)
  sign = lambda state, g: -jnp.ones(jax.tree.leaves(state.client[g])[0].shape[0])
  variables = lambda state, g: {**method.variables(state, g), 'sign': sign(state, g)}
  return method._replace(variables=variables, predictions=(('least', opposite),))


def test_a_run_reports_every_prediction_by_name_and_hands_over_the_models_alone(images, tmp_path):
  made = runs.config(images, signed, 1)
  made.before = ({'name': signed, 'rounds': 1, 'steps': 2, 'batch': 8},)
  made.eval_every, made.eval_rows = 1, 0
  with pytest.warns(UserWarning, match=r"^'sign' of Method.variables \S+ \(test_phase.py, line \d+\) stay behind at "):
    named = experiment.run(made, tmp_path / 'run', show=False)
  rows = files.read(tmp_path / 'run' / 'metrics.jsonl')
  assert rows[1]['accuracy_per_client'] == rows[2]['accuracy_per_client']  # the end of one phase, the start of the next
  plain = {key for key in rows[3] if key.startswith('accuracy') and '_least' not in key}
  assert {key.replace('accuracy', 'accuracy_least', 1) for key in plain} | {'validation_accuracy_least'} <= set(rows[3])
  assert np.mean(rows[3]['accuracy_least']) < np.mean(rows[3]['accuracy'])
  assert named['final_least'] == rows[3]['accuracy_least']
  assert named['final_least_per_client'] == rows[3]['accuracy_least_per_client']
  assert named['worst_client_least'] == rows[3]['accuracy_least_worst']
  assert len(named['best_on_validation_least']) == 1
  other = {key: value for key, value in named.items() if '_least' not in key}
  frame = analysis.runs(tmp_path / 'run')
  table = compare.table({'other': other, 'named': named}, frame).set_index('run')['least %']
  assert table.tolist() == ['-', analysis.spread(100 * np.array(named['final_least']))]
  assert 'least %' not in compare.table({'other': other}, frame)
  curve = results.of_run(tmp_path / 'run', 'x', 'smoke')['curve']
  np.testing.assert_allclose(curve[-1]['accuracy_least'], named['final_least'], atol=1e-4)


@pytest.mark.parametrize('method', ['fedavg', 'felo', 'fiarse', 'scaffold'])
def test_methods_that_average_weights_start_from_those_of_a_private_phase(images, method):
  """Whose optimizer's state is no weight."""
  config = runs.config(images, method='fedavg')
  config.method = configs.method(method, steps=2, batch=8, epochs=None)
  config.before = ({'name': 'private', 'rounds': 1, 'steps': 2, 'batch': 8},)
  assert [phase.label for phase in assembly.build(config, dry=True).phases] == ['private', method]


def decayed(learning_rate=0.1):
  """A rate that is 0 after three rounds of two steps."""
  return optax.sgd(optax.cosine_decay_schedule(learning_rate, 6), momentum=0.9)


@pytest.mark.parametrize('method', cases(['fedmd', 'dsfl'], slow=['dsfl']))
def test_a_schedule_inside_the_optimizer_begins_anew_with_a_phase(images, method):
  """Else training on private rows would start where the rate of the phase before has ended: at 0."""
  made = config(images)
  made.optimizer = configs.optimizer(decayed)
  (phase,) = made.before = (made.before[1],)
  phase['rounds'] = 3
  own = {'subset': 16, 'digest_batch': 8}
  made.method = configs.method(method, **own, steps=2, batch=8, epochs=None)
  first, last = assembly.build(made).phases
  state, _ = first.run(first.init(assembly.build(made).variables), 0, 3)
  begun = last.init(first.handover(state)).client[0]
  assert [int(count) for count in optax.tree.get_all_with_path(begun.learner.opt, 'count')[0][1].ravel()] == [0] * 4
  assert_same_bits(optax.tree.get(begun.learner.opt, 'trace'), optax.tree.get(state.client[0].opt, 'trace'))


@pytest.mark.parametrize('method', ['dense', 'coboosting', 'lg_fedavg'])
def test_a_server_s_model_has_no_optimizer_of_a_client(images, method):
  made = runs.config(images, method='fedavg')
  made.optimizer = configs.optimizer('adam', learning_rate=0.001)
  all = {'share': 'all'} if method == 'lg_fedavg' else {}
  made.before = ({'name': method, 'rounds': 1, 'batch': 8, 'epochs': 1, **all},)
  assert [phase.label for phase in assembly.build(made, dry=True).phases] == [method, 'fedavg']


@pytest.mark.parametrize(('method', 'continues'), [('private', True), ('dense', False)])
def test_a_group_of_one_client_is_handed_its_own_optimizer_alone(images, method, continues):
  """A server's model has one row as well."""
  made = runs.config(images, method='private')
  made.groups = ({'model': 'MLP', 'clients': 3, 'hidden': (8,)}, {'model': 'MLP', 'clients': 1, 'hidden': (4,)})
  made.before = ({'name': method, 'rounds': 1, 'batch': 8, 'epochs': 1},)
  first, _ = assembly.build(made, dry=True).phases
  assert ['opt' in group for group in jax.eval_shape(first.handover, first.state)] == [continues] * 2


def test_a_phase_after_another_optimizer_begins_with_its_own():
  """FML clips the gradients of HtFLlib's own models, in a chain that other methods do not have."""
  tx, clipped = optax.sgd(0.1, 0.9), optax.chain(optax.clip(1.0), optax.sgd(0.1, 0.9))
  variables = {'params': {'w': jnp.ones(2)}, 'batch_stats': {}}
  moved = lambda tx: jax.tree.map(lambda a: a + 1, tx.init(variables['params']))
  begun = lambda before: distillation.start({**variables, 'opt': moved(before)}, tx).learner.opt
  assert_same_bits(begun(tx), moved(tx))
  assert_same_bits(begun(clipped), tx.init(variables['params']))


def test_the_last_evaluation_is_of_all_rows(images, tmp_path):
  """Of the test set and of those held out, whose number differs between seeds."""
  config = runs.config(images, method='private', rounds=2, seeds=(0, 1))
  config.data.validation, config.eval_every, config.eval_rows = 0.3, 1, 10
  parts = assembly.build(config)
  held = [sum(map(len, split.validation)) for split in parts.splits]
  *_, before, last = experiment.run(config, tmp_path / 'run', show=False) and files.read(tmp_path / 'run/metrics.jsonl')
  assert (before['test_rows'], last['test_rows']) == (10, len(parts.source.test_label))
  whole = lambda row, counts: all(
    np.allclose(np.array(own) * count, np.round(np.array(own) * count))
    for own, count in zip(row['validation_accuracy_per_client'], counts, strict=True)
  )
  assert whole(before, [10, 10])
  assert whole(last, held)
  assert not whole(last, [10, 10])


def test_models_of_their_own_are_handed_over_with_statistics_of_all():
  """Also where a method returns one entry for all clients beside those of each."""
  group = Group('MLP', None, np.arange(3))
  variables = lambda state, g: {'params': state.client[g], 'batch_stats': state.server}
  method = methods.private(optax.sgd(0.1))._replace(variables=variables)
  state = State(({'kernel': jnp.arange(8).reshape(4, 2)},), {'mean': jnp.ones((1, 5))})  # a row pads
  (found,) = phase.handover_variables(method, (group,), state)
  np.testing.assert_array_equal(found['params']['kernel'], jnp.arange(6).reshape(3, 2))
  np.testing.assert_array_equal(found['batch_stats']['mean'], jnp.ones((3, 5)))
