"""Tidy frames: every number of metrics.jsonl at its place, and what is told of runs side by side."""

import json
import shutil
import time

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import runs
from fedkd import analysis, experiment, files
from fedkd import config as base
from fedkd.analysis import differences, of_runs, tidy
from fedkd.analysis.figures import values
from fedkd.errors import ConfigError
from fedkd.history import History


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Private and FedHe on two seeds, and a run of other data."""
  path = tmp_path_factory.mktemp('tidy')
  images, others = (runs.save_images(path / f'{seed}.npz', seed) for seed in (0, 1))
  for name, method, data in (('one', 'private', images), ('two', 'fedhe', images), ('three', 'private', others)):
    config = runs.config(data, method, rounds=2, seeds=(3, 4))
    config.eval_rows = 0
    experiment.run(config, path / 'runs' / name, show=False)
  return path / 'runs'


@pytest.fixture(scope='module')
def frame(folder):
  return analysis.runs(f'{folder}/*')


def test_every_number_is_that_of_the_run(folder, frame):
  assert set(frame['run']) == {'one', 'two', 'three'}
  rows = files.read(folder / 'two' / 'metrics.jsonl')
  of = frame.query("run == 'two' and seed == 4 and round == 2").set_index(['metric', 'client'])['value']
  for client, value in enumerate(rows[-1]['accuracy_per_client'][1]):
    assert of['accuracy', client] == value
  for metric in ('accuracy', 'loss', 'bytes_up', 'distill_loss', 'accuracy_worst'):
    assert of[metric, tidy.ALL] == rows[-1][metric][1]
  assert of['seconds', tidy.ALL] == rows[-1]['seconds']  # of all seeds together


def test_a_client_has_its_architecture_and_examples(folder, frame):
  one = frame[(frame['run'] == 'one') & (frame['seed'] == 4)].drop_duplicates('client').set_index('client')
  with np.load(folder / 'one' / 'split.npz') as split:
    assert [one['examples'][k] for k in range(4)] == split['seed4_private_sizes'].tolist()
  assert [one['architecture'][k] for k in range(4)] == ['MLP 8', 'MLP 8', 'MLP 4', 'MLP 4']
  assert pd.isna(one['examples'][tidy.ALL])
  assert set(frame['test_rows']) == {90}


def test_a_client_in_several_groups_has_the_architecture_of_the_first_in_which_it_is_evaluated():
  groups = [{'name': 'wide', 'clients': 3, 'first': 0}, {'name': 'narrow', 'clients': 3, 'first': 0}]
  assert of_runs.architectures(groups, {'data': {'clients': 3}}) == ['wide'] * 3


MLPS = tuple({'model': 'MLP', 'hidden': (width,)} for width in (8, 8, 4))
LENETS = ({'model': 'LeNet'}, {'model': 'LeNet', 'rate': 0.5}, {'model': 'MLP'})


@pytest.mark.parametrize(
  ('groups', 'names'),
  [
    (MLPS, ['MLP 8 (1)'] * 2 + ['MLP 8 (2)'] * 2 + ['MLP 4']),
    pytest.param(LENETS, ['LeNet rate=1.0'] * 2 + ['LeNet rate=0.5'] * 2 + ['MLP'], marks=pytest.mark.slow),
  ],
)
def test_architectures_are_known_before_a_run_is_finished(folder, tmp_path, groups, names):
  """By the same names as afterwards, with the defaults of fields that an entry leaves out, and shared out as in the run
  where an entry has no number of clients."""
  config = runs.config(folder.parent / '0.npz', 'private', rounds=2)
  config.groups, config.data.clients = groups, 5
  experiment.run(config, tmp_path / 'done', show=False)
  shutil.copytree(tmp_path / 'done', tmp_path / 'open')
  (tmp_path / 'open' / 'summary.json').unlink()
  with pytest.warns(UserWarning, match='open: not finished'):
    frame = analysis.runs(f'{tmp_path}/*')
  known = frame[frame['client'] >= 0].groupby(['run', 'client'])['architecture'].first()
  assert known['done'].tolist() == names
  assert known['open'].tolist() == known['done'].tolist()


def test_test_rows_of_clients_own_are_those_of_the_seed(folder, tmp_path):
  """They differ between seeds, so that runs with other further seeds are compared, and no evaluation stands apart."""
  for name, seeds in (('one', (0, 1)), ('two', (0,))):
    config = runs.config(folder.parent / '0.npz', 'private', rounds=2, seeds=seeds)
    config.data.merge_test, config.data.test_share, config.eval_every, config.eval_rows = True, 0.3, 1, 10
    config.data.partition = base.partition('dirichlet', concentration=0.5)
    experiment.run(config, tmp_path / name, show=False)
  with np.load(tmp_path / 'one' / 'split.npz') as split:
    sizes = np.array([split[f'seed{seed}_test_sizes'] for seed in (0, 1)])
  assert sizes[0].sum() != sizes[1].sum()
  frame = analysis.runs(f'{tmp_path}/*')
  known = frame[frame['run'] == 'one'].groupby(['seed', 'round'])['test_rows'].unique().map(list).to_dict()
  limited = np.minimum(sizes, 10).sum(1)
  assert known == {(s, r): [limited[s] if r < 2 else sizes[s].sum()] for s in (0, 1) for r in (0, 1, 2)}
  assert differences.apart(frame, 'one') == {'one': '', 'two': ''}
  assert values.rounds_apart(frame, 'accuracy') == {'one': [2], 'two': [2]}
  frame.loc[(frame['run'] == 'two') & (frame['round'] == 2), 'test_rows'] = 7
  assert differences.apart(frame, 'one')['two'] == 'other test rows'


def test_a_limit_that_the_largest_seed_does_not_meet_limits_the_others():
  tested, row = np.array([[40, 40], [60, 19]]), {'test_rows': 80, 'round': 1}
  config = {'eval_rows': 40, 'rounds': 2, 'before': [{'rounds': 1}]}
  rows = lambda **of: of_runs._by_seed({**row, **of}, tested, config)['test_rows'].tolist()
  assert rows(phase=1) == [80, 59]
  assert rows(phase=1, round=2) == rows(phase=0) == [80, 79]
  config['eval_rows'] = 30
  assert rows(phase=1) == [80, 79]  # where the run had ended before it was continued
  assert rows(phase=1, test_rows=60) == [60, 49]


def test_a_history_of_nothing_is_a_frame_without_lines():
  frame = History().frame()
  assert frame.empty
  assert list(frame) == list(tidy.COLUMNS)


def test_clients_of_a_sample_have_their_own_numbers(folder, frame, tmp_path):
  """The sample evaluated is not the first clients, and every value is that of the run that evaluates everybody."""
  config = runs.config(folder.parent / '0.npz', 'private', rounds=2, seeds=(3, 4))
  config.eval_rows, config.eval_clients = 0, 2
  experiment.run(config, tmp_path / 'some', show=False)
  index = ['seed', 'round', 'client', 'architecture', 'examples']
  accuracy = lambda frame: frame[(frame['metric'] == 'accuracy') & (frame['client'] >= 0)].set_index(index)['value']
  some = accuracy(analysis.runs(tmp_path / 'some'))
  assert sorted(set(some.index.get_level_values('client'))) == [2, 3]
  pd.testing.assert_series_equal(some, accuracy(frame[frame['run'] == 'one'])[some.index])


def test_fields_in_which_configs_differ_are_columns(frame):
  by_run = frame.drop_duplicates('run').set_index('run')
  assert by_run['method.name'].to_dict() == {'one': 'private', 'three': 'private', 'two': 'fedhe'}
  assert by_run['data.name'].nunique() == 2
  assert 'rounds' not in frame


def test_a_field_that_is_a_list_is_a_column_of_text(folder, tmp_path):
  for name, milestones in (('never', []), ('early', [1, 2])):
    shutil.copytree(folder / 'one', tmp_path / name)
    config = files.read_sealed(folder / 'one' / 'config.json')
    files.write_sealed(tmp_path / name / 'config.json', {**config, 'milestones': milestones})
    (tmp_path / name / 'summary.json').unlink()
  with pytest.warns(UserWarning, match='not finished'):
    frame = analysis.runs(f'{tmp_path}/*')
  assert frame.groupby('run')['milestones'].unique().map(list).to_dict() == {'never': ['[]'], 'early': ['[1, 2]']}
  assert len(analysis.wide(frame)) == len(frame.drop_duplicates(['run', 'seed', 'round', 'client']))


def test_wide_has_a_column_per_metric(frame):
  line = analysis.wide(frame).query("run == 'two' and seed == 3 and round == 2 and client == 1").iloc[0]
  long = frame.query("run == 'two' and seed == 3 and round == 2 and client == 1 and metric == 'accuracy'")
  assert line['accuracy'] == long['value'].item()


def test_as_xarray(frame):
  cube = tidy.to_xarray(frame)
  one = frame.query("run == 'two' and seed == 4 and round == 2 and client == 1").set_index('metric')['value']
  assert float(cube['accuracy'].sel(run='two', seed=4, round=2, client=1).squeeze()) == one['accuracy']
  assert cube.sizes['client'] == 5  # and that of all


def test_runs_of_other_data_are_not_compared(frame):
  table = analysis.summary(frame[frame['run'] != 'one'], reference='three').set_index('run')
  assert table.loc['two', 'apart'] == 'other data.name'
  assert table.loc['two', ['gain', 'negative_share', 'negative_mean']].isna().all()
  with pytest.raises(ConfigError, match="reference='private' is 2 runs of the frame; give one of"):
    analysis.summary(frame)


def test_runs_of_a_file_that_has_changed_are_not_compared(folder, tmp_path):
  images = shutil.copy(folder.parent / '0.npz', tmp_path / 'images.npz')
  for name in ('then', 'now', 'older'):
    if name == 'now':
      runs.save_images(images, 1)
    config = runs.config(images, 'private' if name == 'then' else 'fedhe', rounds=1)
    experiment.run(config, tmp_path / 'runs' / name, show=False)
  runs.change_data(tmp_path / 'runs' / 'older', None)
  frame = analysis.runs(f'{tmp_path}/runs/*')
  apart = analysis.summary(frame).set_index('run')['apart']
  assert apart.to_dict() == {'now': 'other data', 'older': '', 'then': ''}
  checksums = frame.groupby('run')[['data', 'data_config']].agg(set).map(lambda found: found.pop())
  assert checksums['data_config'].nunique() == 1
  assert checksums.loc['older', 'data'] == ''
  assert checksums.loc['then', 'data'] != checksums.loc['now', 'data']


def test_a_run_is_compared_with_one_that_reads_its_partition(folder, tmp_path):
  file = str(tmp_path / 'parts-{seed}.json')
  for name in ('wrote', 'reads', 'turns'):
    config = runs.config(folder.parent / '0.npz', 'private' if name == 'wrote' else 'fedhe', rounds=1)
    if name == 'wrote':
      config.data.partition_out = file
    else:
      config.data.partition = base.partition('stored', file=file)
    if name == 'turns':
      owned = json.loads((tmp_path / 'parts-0.json').read_text())
      owned['clients'] = owned['clients'][::-1]
      (tmp_path / 'parts-0.json').write_text(json.dumps(owned))
    experiment.run(config, tmp_path / 'runs' / name, show=False)
  frame = analysis.runs(f'{tmp_path}/runs/*')
  apart = analysis.summary(frame).set_index('run')['apart']
  assert apart['reads'] == ''
  assert apart['turns'] == 'other data.partition.file, data.partition.name'
  alone = tidy.concatenated(analysis.runs(tmp_path / 'runs' / name) for name in ('wrote', 'reads', 'turns'))
  apart = analysis.summary(alone).set_index('run')['apart']
  assert apart.to_dict() == {'wrote': '', 'reads': '', 'turns': 'other data'}


def test_runs_whose_stored_partition_has_changed_are_not_compared(folder, tmp_path):
  """The config names the same file, and the examples are the same: who owns them is not."""
  for name in ('then', 'same', 'now'):
    shutil.copytree(folder / 'one', tmp_path / name)
  with np.load(folder / 'one' / 'split.npz') as split:
    arrays = dict(split)
  arrays['seed4_private'] = arrays['seed4_private'][::-1]
  np.savez(tmp_path / 'now' / 'split.npz', **arrays)
  (tmp_path / 'now' / 'summary.json').unlink()
  with pytest.warns(UserWarning, match='now: not finished'):
    frame = analysis.runs(f'{tmp_path}/*')
  apart = analysis.summary(frame, 'then').set_index('run')['apart']
  assert apart.to_dict() == {'now': 'other data', 'same': '', 'then': ''}
  of_seed_3 = analysis.summary(frame[frame['seed'] == 3], 'then').set_index('run')['apart']
  assert set(of_seed_3) == {''}


def test_a_run_and_a_history_are_not_known_to_be_on_the_same_data(folder):
  """One has a checksum of its config, the other has none; two without any are as they are told to be."""
  ours, theirs = (made(**{name: [[0.1, 0.2, 0.3, 0.4]]}).assign(seed=3, test_rows=90) for name in ('a', 'b'))
  both = pd.concat([analysis.runs(folder / 'one'), ours, theirs], ignore_index=True)
  said = 'one is a history and one a run directory, whose data are not known to be the same'
  assert differences.apart(both, 'one') == {'one': '', 'a': said, 'b': said}
  assert differences.apart(both, 'a')['b'] == ''


def made(**accuracy):
  """A frame of runs with these accuracies [seeds, clients]."""
  rows = lambda values: [{'round': 1, 'seeds': list(range(len(values))), 'accuracy_per_client': values}]
  return tidy.concatenated(tidy.tidy(rows(v), {}, run=run, method=run) for run, v in accuracy.items())


def test_the_summary_in_numpy_and_scipy():
  random = np.random.default_rng(0)
  values = {run: random.random((5, 20)) for run in ('private', 'a', 'b', 'c')}
  table = analysis.summary(made(**{run: v.tolist() for run, v in values.items()})).set_index('run')
  base, raw = values['private'], {}
  for run in 'abc':
    gain = values[run] - base
    raw[run] = stats.ttest_rel(values[run].mean(1), base.mean(1)).pvalue
    assert table.loc[run, 'gain'] == pytest.approx(gain.mean())
    low, high = stats.t.interval(0.95, 4, gain.mean(1).mean(), stats.sem(gain.mean(1)))
    assert (table.loc[run, 'gain_low'], table.loc[run, 'gain_high']) == (pytest.approx(low), pytest.approx(high))
    assert table.loc[run, 'negative_share'] == np.mean(gain < 0)
    assert table.loc[run, 'negative_mean'] == pytest.approx(gain[gain < 0].mean())
    assert table.loc[run, 'worst'] == pytest.approx(values[run].min(1).mean())
    assert table.loc[run, 'worst_tenth'] == pytest.approx(np.sort(values[run], 1)[:, :2].mean())
  first, second, third = sorted(raw, key=raw.get)
  adjusted = [3 * raw[first], max(3 * raw[first], 2 * raw[second])]
  assert table.loc[first, 'p'] == pytest.approx(min(1, adjusted[0]))
  assert table.loc[second, 'p'] == pytest.approx(min(1, adjusted[1]))
  assert table.loc[third, 'p'] == pytest.approx(min(1, max(adjusted[1], raw[third])))
  assert np.isnan(table.loc['private', 'p'])


def test_a_client_without_a_value_is_not_left_out_of_the_summary():
  values = {'private': [[0.1, 0.2], [0.3, 0.4]], 'broken': [[0.9, 0.9], [0.9, None]], 'later': [[0.6, 0.6]]}
  frame = made(**values)
  frame.loc[frame['run'] == 'later', 'seed'] = 1
  table = analysis.summary(frame).set_index('run')
  assert table.loc['broken', ['mean', 'worst', 'worst_tenth', 'gain', 'negative_share', 'negative_mean']].isna().all()
  assert table.loc['later', 'gain'] == pytest.approx(0.25)  # over the seed that both have


def test_the_last_evaluation_is_of_the_last_phase_even_if_that_is_the_shortest():
  first, last = (made(a=values).assign(round=round) for values, round in (([[0.9, 0.9]], 9), ([[0.4, 0.6]], 2)))
  phases = pd.concat([first.assign(phase=0, test_rows=50), last.assign(phase=1, test_rows=90)])
  frame = pd.concat([phases, made(private=[[0.2, 0.3]]).assign(test_rows=90)], ignore_index=True)
  table = analysis.summary(frame).set_index('run')
  assert list(table.index) == ['a', 'private']
  assert (table.loc['a', 'mean'], table.loc['a', 'apart']) == (pytest.approx(0.5), '')
  (bars,) = analysis.gain(frame).containers
  np.testing.assert_allclose(bars.lines[0].get_ydata(), [20, 30])


def test_unfinished_and_damaged_runs_are_named(folder, tmp_path):
  for name in ('done', 'open', 'hurt'):
    shutil.copytree(folder / 'one', tmp_path / name)
  (tmp_path / 'open' / 'summary.json').unlink()
  (tmp_path / 'hurt' / 'config.json').write_text('{')
  with pytest.warns(UserWarning, match=r'hurt: damaged \(.*; open: not finished, read up to round 2'):
    frame = analysis.runs(f'{tmp_path}/**')
  assert frame.drop_duplicates('run').set_index('run')['finished'].to_dict() == {'done': True, 'open': False}
  with pytest.raises(ConfigError, match='holds no run'):
    analysis.runs(tmp_path / 'nothing')


def test_a_run_in_an_earlier_phase_has_the_method_that_it_will_end_with(folder, tmp_path):
  """Else it would be taken for a run of that phase's method, such as the reference."""
  shutil.copytree(folder / 'two', tmp_path / 'open')
  (tmp_path / 'open' / 'summary.json').unlink()
  config = files.read_sealed(folder / 'two' / 'config.json')
  files.write_sealed(tmp_path / 'open' / 'config.json', {**config, 'before': [{'name': 'private', 'rounds': 5}]})
  row = {**files.read(folder / 'one' / 'metrics.jsonl')[-1], 'method': 'private'}
  (tmp_path / 'open' / 'metrics.jsonl').unlink()
  files.append(tmp_path / 'open' / 'metrics.jsonl', row, '')
  with pytest.warns(UserWarning, match='open: not finished, read up to round 2 of phase 0, private'):
    frame = analysis.runs(tmp_path / 'open')
  assert set(frame['method']) == {'fedhe'}


def test_a_finished_run_whose_files_have_changed_is_damaged(folder, tmp_path):
  for name in ('whole', 'cut'):
    shutil.copytree(folder / 'one', tmp_path / name)
  metrics = tmp_path / 'cut' / 'metrics.jsonl'
  metrics.write_text(''.join(metrics.read_text().splitlines(keepends=True)[:-1]))
  with pytest.warns(UserWarning, match=r'cut: damaged \(.*metrics.jsonl is damaged or has changed'):
    frame = analysis.runs(f'{tmp_path}/*')
  assert set(frame['run']) == {'whole'}


def test_a_path_without_a_run_is_refused_beside_others(folder, tmp_path):
  for path in (folder / 'none', tmp_path, f'{tmp_path}/*'):
    with pytest.raises(ConfigError, match='holds no run') as refused:
      analysis.runs([folder / 'one', path])
    assert f'paths={path} ' in str(refused.value)
  shutil.copytree(folder / 'one', tmp_path / 'rate=[1]')
  assert set(analysis.runs(tmp_path / 'rate=[1]')['run']) == {'rate=[1]'}


@pytest.mark.slow
def test_a_thousand_runs_are_read_in_seconds(folder, tmp_path):
  large = shutil.ignore_patterns('checkpoints', 'figures', 'tensorboard')
  for number in range(1000):
    shutil.copytree(folder / 'one', tmp_path / str(number), ignore=large)
  begun = time.monotonic()
  frame = analysis.runs(f'{tmp_path}/*')
  print(json.dumps({'seconds': time.monotonic() - begun, 'lines': len(frame)}))
  assert frame['run'].nunique() == 1000


def test_p_values_and_holm_by_hand():
  """0.01 * 3, then 0.02 * 2, then 0.03 * 1 but not less than before; what cannot be tested does not count."""
  np.testing.assert_allclose(analysis.holm(np.array([0.03, 0.01, np.nan, 0.02])), [0.04, 0.03, np.nan, 0.04])
  np.testing.assert_allclose(analysis.p_value(np.array([1.0, 2.0, 3.0])), 0.0741799, rtol=1e-5)  # t = 3.4641
  assert np.isnan([analysis.p_value(np.array(few)) for few in ([1.0, 2.0], [], [2.0, 2.0, 2.0])]).all()


def test_two_trainings_with_one_name_are_told_apart_by_nobody(frame):
  two = frame[frame['run'] == 'two']
  twice = pd.concat([two, two])
  for look in (lambda: analysis.summary(twice, 'two'), lambda: analysis.wide(twice), lambda: analysis.to_xarray(twice)):
    with pytest.raises(ConfigError, match=r"^run 'two' has two values of .* give every training a name of its own"):
      look()
  shorter = two[(two['seed'] == 3) | (two['round'] == 0)]
  with pytest.raises(
    ConfigError, match=r'^run .two. ends in round 0 of phase 0 for seed 4 and in round 2 of phase 0 for'
  ):
    analysis.summary(shorter, 'two')
  with pytest.raises(ConfigError, match=r"^frame has no column 'metric'"):
    analysis.summary(analysis.wide(two), 'two')
