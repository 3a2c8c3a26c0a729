"""Intervals, tables and figures."""

import numpy as np
import pandas as pd
import pytest

import runs
from fedkd import analysis, experiment, files, totals
from fedkd.analysis import compare, results, tidy
from fedkd.errors import ConfigError
from launch import compare as command


def test_interval_is_student_t():
  """t(0.975, 2) = 4.302653; mean 2, standard deviation 1, three values."""
  mean, low, high = analysis.interval([1.0, 2.0, 3.0])
  assert (mean, high - mean, mean - low) == pytest.approx((2, 4.302653 / np.sqrt(3), 4.302653 / np.sqrt(3)), rel=1e-6)


def test_an_interval_is_over_seeds_alone():
  """Over [seeds, clients] it would be the deviation of clients over the root of the seeds."""
  for function in (analysis.interval, analysis.spread, analysis.p_value):
    with pytest.raises(ValueError, match=r'^values has shape \[3, 4\]; give one number for each seed'):
      function(np.ones((3, 4)))
  with pytest.raises(ValueError, match=r'^values is empty; give'):
    analysis.interval([])


@pytest.mark.parametrize('gain', [[0.05] * 3, [0.3] * 6, [0.6 - 0.5, 0.7 - 0.6, 0.8 - 0.7], [0.0] * 3])
def test_equal_gains_have_no_p_value_however_they_are_rounded(gain):
  assert np.isnan(analysis.p_value(gain))
  assert analysis.p_value([*gain[1:], gain[0] + 1e-6]) > 0


def test_a_bar_in_a_cell_is_part_of_it():
  assert analysis.markdown(pd.DataFrame({'a': ['x|y']})).splitlines()[2] == r'| x\|y |'


def test_interval_below_three_seeds_is_the_range():
  assert analysis.interval([0.25, 0.75]) == (0.5, 0.25, 0.75)
  assert analysis.spread([50.0]) == '50.00'
  assert analysis.spread([40.0, 60.0]) == '50.00 [40.00, 60.00]'


def a_summary(method, final, seeds=(0, 1, 2), up=0):
  ledger = {'up': {'weights': {'numbers': [up] * 3, 'bytes': [4e6 * up] * 3}}, 'down': {}}
  return {
    'method': method,
    'final': final,
    'seeds': list(seeds),
    'worst_client': final,
    'ledger': ledger,
    'seconds': 1.0,
  }


def a_frame(summaries, **test_rows):
  """Of runs with two clients, which are as accurate."""
  last = lambda run: [{'round': 1, 'seeds': run['seeds'], 'accuracy_per_client': [[x, x] for x in run['final']]}]
  return tidy.concatenated(
    tidy.tidy(last(run), {}, run=label, method=run['method']).assign(test_rows=test_rows.get(label, 90))
    for label, run in summaries.items()
  )


def test_differences_are_paired_over_seeds():
  """The runs differ by exactly one point on every seed: the paired interval is empty though the runs vary."""
  one = {'a': a_summary('private', [0.5, 0.6, 0.7]), 'b': a_summary('fedhe', [0.51, 0.61, 0.71], up=2)}
  table = compare.table(one, a_frame(one)).set_index('run')
  assert table.loc['b', 'difference'] == '+1.00 ± 0.00'
  assert table.loc['a', 'difference'] == 'reference'
  assert (
    table.loc['b', 'accuracy %']
    == f'61.00 ± {430.2653 * 0.1 / np.sqrt(3):.2f}'[:5] + f' ± {10 * 4.302653 / np.sqrt(3):.2f}'
  )
  assert table.loc['b', 'MB up'] == '8.000'


@pytest.mark.parametrize(
  ('sent', 'said'),
  [(0, '0'), (4, '0.000004'), (384, '0.000384'), (1000, '0.001'), (1234.5, '0.001'), (8e6, '8.000')],
)
def test_what_sends_a_little_is_told_from_what_sends_nothing(sent, said):
  one = {'a': a_summary('fedhe', [0.5, 0.6, 0.7], up=sent / 4e6)}
  line = compare.table(one, a_frame(one)).iloc[0]
  assert (line['MB up'], line['MB down']) == (said, '0')


def test_differences_pair_only_common_seeds():
  one = {'a': a_summary('private', [0.5, 0.6, 0.7]), 'b': a_summary('fedhe', [0.7, 0.9, 0.1], seeds=(2, 1, 5))}
  table = compare.table(one, a_frame(one)).set_index('run')
  assert table.loc['b', 'difference'] == '+15.00 [0.00, 30.00]'


def test_a_run_that_cannot_be_compared_says_why_instead_of_the_difference():
  one = {'a': a_summary('private', [0.5, 0.6, 0.7]), 'b': a_summary('fedhe', [0.6, 0.7, 0.8])}
  one |= {'late': a_summary('fedhe', [0.6, 0.7, 0.8], seeds=(7, 8, 9)), 'gone': a_summary('fedhe', [0.6, 0.7, 0.8])}
  frame = a_frame({label: run for label, run in one.items() if label != 'gone'}, b=30)
  said = compare.table(one, frame).set_index('run')['difference']
  assert said.to_dict() == {
    'a': 'reference',
    'b': 'not compared: other test rows',
    'late': 'not compared: no common seed',
    'gone': 'not compared: evaluations cannot be read',
  }
  assert (
    compare.table(one, frame, 'gone').set_index('run')['difference']['a'] == 'not compared: evaluations cannot be read'
  )


def test_examples_stand_beside_the_difference_of_runs_of_other_lengths():
  one = {'a': a_summary('private', [0.5, 0.6, 0.7]), 'b': a_summary('fedhe', [0.6, 0.7, 0.8])}
  one['a']['examples'] = [9000.0, 9600.0, 9600.0]
  table = compare.table(one, a_frame(one)).set_index('run')
  assert table['examples'].to_dict() == {'a': '9,400', 'b': '-'}  # a run of an older version


def test_accuracy_on_own_test_rows_has_a_column_where_a_run_has_some_and_the_rows_are_told():
  one = {'a': a_summary('private', [0.5, 0.6, 0.7]), 'b': a_summary('fedhe', [0.6, 0.7, 0.8])}
  assert 'own rows %' not in compare.table(one, a_frame(one))
  assert compare.tested_on(one) == 'Every client is tested on the shared test set.'
  one['b']['final_local'] = [0.8, 0.9, 1.0]
  own = compare.table(one, a_frame(one)).set_index('run')['own rows %']
  assert own.to_dict() == {'a': '-', 'b': analysis.spread([80, 90, 100])}
  one['a']['final_local'] = [0.5, 0.5, 0.5]
  said = 'Every client is tested on the test rows of all clients together, for own rows % on its own alone.'
  assert compare.tested_on(one) == said


def test_figures_say_below_them_which_runs_are_not_compared(tmp_path, monkeypatch):
  one = {'a': a_summary('private', [0.5, 0.6, 0.7]), 'b $5_$6': a_summary('fedhe', [0.6, 0.7, 0.8])}
  frame, drawn, curves = a_frame(one, **{'b $5_$6': 30}), {}, analysis.curves
  monkeypatch.setattr(analysis, 'curves', lambda tidy, x, colours: curves(tidy, colours=colours))
  monkeypatch.setattr(analysis, 'save', lambda axes, path: drawn.update({path.name: axes}))
  command.write_table(compare.table(one, frame), frame, compare.apart(one, frame, 'a'), tmp_path)
  assert list(drawn) == [f'accuracy_{x}.png' for x in ('rounds', 'turns', 'megabytes')]
  for axes in drawn.values():
    assert 'not compared (other test rows): b $5_$6' in axes.get_xlabel()
    assert axes.get_legend_handles_labels()[1][-1].startswith('b $5_$6')
    axes.figure.draw_without_rendering()
    assert axes.figure.get_figheight() > curves(frame).figure.get_figheight()
  many = {f'run {i}': 'other data' for i in range(9)} | {'b': 'no common seed', 'a': ''}
  command.write_table(compare.table(one, frame), frame, many, tmp_path)
  said = ' '.join(drawn['accuracy_rounds.png'].get_xlabel().split())
  assert said.endswith('not compared (other data): run 0, run 1, run 2 and 6 more not compared (no common seed): b')


def test_runs_are_told_apart_by_as_much_of_their_paths_as_needed(tmp_path):
  a, b, c = tmp_path / 'hetero/fedhe', tmp_path / 'homo/fedhe', tmp_path / 'homo/private'
  assert compare.labelled([b, c, b]) == {'fedhe': b, 'private': c}
  assert compare.labelled([str(a), b, c]) == {'hetero/fedhe': a, 'homo/fedhe': b, 'homo/private': c}


def test_two_results_of_one_method_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr('fedkd.analysis.results.of_run', lambda path, id, profile: {'method': 'fedhe'})
  with pytest.raises(ConfigError, match='two runs of fedhe would be one file'):
    command.write_results(['a', 'b'], tmp_path / 'results')
  assert not list(tmp_path.iterdir())


def test_a_group_of_which_nobody_is_evaluated_has_no_accuracy():
  out = totals.accuracies(np.array([[1, 2], [3, 4]]), np.array([4, 4]), np.array([0, 2]), 3)
  assert out['accuracy_per_group'] == [[0.25, None, 0.5], [0.75, None, 1.0]]


def test_pairs_and_sums_are_by_seed():
  np.testing.assert_allclose(analysis.paired({0: 1.0, 1: 5.0, 2: 7.0}, {2: 1.0, 1: 2.0, 9: 0.0}), [3, 6])
  assert analysis.paired({0: 1.0}, {1: 1.0}).shape == (0,)
  kinds = {'weights': {'bytes': [4, 8]}, 'statistics': {'bytes': [1, 2]}}
  sent = results.sent({'seeds': [0, 1], 'ledger': {'up': kinds, 'down': {}}}, 'bytes')
  assert {way: values.tolist() for way, values in sent.items()} == {'up': [5, 10], 'down': [0, 0]}


def test_markdown_is_a_table():
  assert analysis.markdown(pd.DataFrame({'a': ['1'], 'b': ['2']})) == '| a | b |\n| --- | --- |\n| 1 | 2 |'


@pytest.mark.figures
def test_read_has_a_line_per_evaluation_and_seed(tmp_path):
  experiment.run(runs.config(runs.save_images(tmp_path / 'i.npz'), 'private', 4, (5, 6)), tmp_path / 'run', show=False)
  frame = analysis.read(tmp_path / 'run')
  assert frame['seed'].tolist() == [5, 6] * 3
  assert frame['round'].tolist() == [0, 0, 2, 2, 4, 4]
  per_client = np.stack(frame['accuracy_per_client'])
  np.testing.assert_allclose(per_client.mean(1), frame['accuracy'])
  np.testing.assert_allclose(per_client.min(1), frame['accuracy_worst'])
  assert analysis.by_seed(frame, 'accuracy_per_client').shape == (2, 3, 4)
  with pytest.raises(ConfigError, match=r"the frame.*'accuracies'.*accuracy"):
    analysis.by_seed(frame, 'accuracies')
  for figure in ('accuracy_rounds', 'accuracy_megabytes', 'accuracy_clients', 'labels'):
    assert (tmp_path / 'run' / 'figures' / f'{figure}.png').read_bytes()[:4] == b'\x89PNG'
  summary = files.read_sealed(tmp_path / 'run' / 'summary.json')
  analysis.save_figures(tmp_path / 'run', np.ones((4, 2)), summary, ['$a_^$', 'b'])  # that is no formula


def test_an_empty_directory_is_refused(tmp_path):
  with pytest.raises(ConfigError, match=r'no metrics\.jsonl'):
    analysis.read(tmp_path)
  with pytest.raises(ConfigError, match=r'no summary\.json'):
    results.summary(tmp_path)


def test_summary_selects_each_client_on_validation_and_averages_the_second_half():
  """One seed, two clients; an earlier phase does not count."""
  accuracy, validation = [0.1, 0.4, 0.9, 0.6, 0.7], [0.1, 0.8, 0.3, 0.8, 0.2]
  other = [0.2, 0.2, 0.2, 0.2, 0.8]  # the second client's, on both
  rows = [
    {
      'phase': 1,
      'round': r,
      'accuracy': [(a + o) / 2],
      'accuracy_per_client': [[a, o]],
      'accuracy_worst': [min(a, o)],
      'validation_accuracy': [(v + o) / 2],
      'validation_accuracy_per_client': [[v, o]],
    }
    for r, a, v, o in zip(range(0, 50, 10), accuracy, validation, other, strict=True)
  ]
  out = results.headline([{**rows[2], 'phase': 0, 'accuracy': [0.99]}, *rows])
  # A tie goes to the earlier round; the test accuracy 0.9 is not looked at.
  assert out['best_on_validation_per_client'] == [[0.4, 0.8]]
  assert out['best_on_validation'] == [pytest.approx(0.6)]
  assert out['best_round'] == [[10, 40]]
  nan = [[[float('nan'), one['validation_accuracy_per_client'][0][1]]] for one in rows]
  blind = results.headline([{**one, 'validation_accuracy_per_client': v} for one, v in zip(rows, nan, strict=True)])
  assert np.isnan(blind['best_on_validation_per_client'][0][0])
  assert blind['best_round'] == [[None, 40]]
  assert blind['best_on_validation_per_client'][0][1] == 0.8
  nan[2] = [[0.1, 0.2]]  # the only evaluation in which the first client predicts
  blind = results.headline([{**one, 'validation_accuracy_per_client': v} for one, v in zip(rows, nan, strict=True)])
  assert blind['best_round'] == [[20, 40]]
  assert out['second_half_mean'] == [pytest.approx(((0.6 + 0.2) / 2 + (0.7 + 0.8) / 2) / 2)]
  np.testing.assert_allclose(out['second_half_mean_per_client'], [[(0.6 + 0.7) / 2, (0.2 + 0.8) / 2]])
  assert out['last_quarter_mean'] == [pytest.approx((0.7 + 0.8) / 2)]
  assert out['final'] == [0.75]
  assert out['start'] == [pytest.approx(0.15)]


def test_the_first_bad_loss_is_the_earliest_round_then_the_lowest_client():
  from fedkd.round import Report

  loss = [np.ones((1, 3, 2)), np.ones((1, 3, 1))]
  loss[0][0, 2, 0] = np.nan
  loss[1][0, 1, 0] = np.inf
  ids = (np.tile([0, 1], (1, 3, 1)), np.tile([2], (1, 3, 1)))
  report = Report(ids, tuple({'loss': a} for a in loss), (), (), {})
  assert totals.first_bad_loss(report, 3) == (0, 1, [2], np.inf)
  assert totals.first_bad_loss(report, 1) is None
  untrained = tuple({**info, 'examples': np.where(np.isfinite(info['loss']), 1, 0)} for info in report.info)
  assert totals.first_bad_loss(report._replace(info=untrained), 3) is None  # on nothing there is no loss


def test_means_are_over_the_turns_that_have_a_value():
  """Two segments of a group of two slots; NaN is undefined, an empty slot no update, and a round not run is neither."""
  from fedkd.round import Report

  ids = (np.array([[[0, 1], [0, -1], [1, 0]]]),)
  info = {'loss': np.array([[[1.0, 2.0], [6.0, 0.0], [9.0, 9.0]]]), 'examples': np.full((1, 3, 2), 4.0)}
  info['cosine'] = np.array([[[np.nan, 0.5], [-1.0, 0.0], [9.0, 9.0]]])
  first = totals.add(totals.start(1), Report(ids, (info,), (), (), {}), 2, 1.0)
  assert totals.row(first)['loss'] == [3.0]
  assert totals.row(first)['cosine'] == [-0.25]
  assert totals.row(totals.add(first, Report(ids, (info,), (), (), {}), 1, 1.0))['cosine'] == [0.0]
  silent = Report(ids, ({'cosine': np.full((1, 3, 2), np.nan)},), (), (), {})
  assert totals.row(totals.add(totals.start(1), silent, 3, 1.0))['cosine'] == [None]


def test_a_result_is_self_contained(tmp_path):
  config = runs.config(runs.save_images(tmp_path / 'i.npz'), 'private', 2)
  config.data.dir = '/somewhere'
  summary = experiment.run(config, tmp_path / 'run', show=False)
  out = results.of_run(tmp_path / 'run', 'he-tiny', 'small')
  assert (out['id'], out['profile'], out['method'], out['seeds']) == ('he-tiny', 'small', 'private', [0])
  assert out['per_seed']['final'] == summary['final']
  assert out['config']['data']['dir'] == ''
  assert {'config_sha256', 'ledger', 'seconds', 'device', 'versions', 'commit', 'dirty'} <= out.keys()
