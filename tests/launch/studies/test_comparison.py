"""The benchmark of all methods: what applies, equal budgets, evidence, and results that only grow."""

import json
import pathlib

import numpy as np
import pytest
from scipy import stats

from fedkd import analysis, methods
from fedkd import config as base
from fedkd.config import choices
from fedkd.errors import ConfigError
from fedkd.experiment.build.from_config import make_plan
from fedkd.plan import client_updates
from helpers import cases
from launch import benchmark
from launch.studies import stale
from launch.studies.comparison import (
  advice,
  budget,
  cells,
  controls,
  evidence,
  page,
  problem,
  programs,
  runs,
  scores,
  settings,
  suite,
  tables,
)

ROOT = pathlib.Path(__file__).parents[3]
PLACES = [
  (of, tier, name)
  for of in settings.SUITES
  for name, one in settings.settings(of, 'whole').items()
  for tier in one.tiers
]
CELL = cells.Cell(runs.Place('digits', 'smoke', 'different', 'skew-0.5'), 'fedhe')


def test_a_method_applies_or_has_a_reason_and_takes_its_fields():
  for of, tier, name in PLACES:
    applies = settings.applying(of, tier, name)
    for method in methods.__all__:
      why = settings.reason(method, tier, name, of)
      assert (method in applies) == (not why)
      if not why:
        _, known = choices.factory(base.KINDS['method'], method)
        given = budget.fields(of, 'whole', tier, name, method)
        assert set(given) <= set(known), method
        assert set(budget.grid(method)[0]) - {'learning_rate', 'decay'} <= set(known), method


def test_what_averages_weights_is_not_among_clients_that_all_differ():
  different = settings.applying('digits', 'different', 'skew-0.5')
  assert not {'fedavg', 'scaffold', 'ditto', 'heterofl'} & set(different)
  assert 'fedavg' in settings.applying('digits', 'pairs', 'skew-0.5')
  assert budget.fields('digits', 'whole', 'pairs', 'skew-0.5', 'fedavg')['per_group']
  assert 'heterofl' not in settings.applying('digits', 'one', 'skew-0.5')  # FedAvg, where all have the whole network
  assert set(settings.REDUCES['different']) >= {'felo', 'velo', 'feddf', 'fedgen'}


def test_ten_clients_have_ten_architectures_or_five_or_one():
  for tier, count in (('different', 10), ('pairs', 5), ('one', 1)):
    entries = settings.config_of('digits', 'whole', tier, 'skew-0.5').groups
    assert len({json.dumps(base.to_json(dict(entry))) for entry in entries}) == count
    assert sum(entry['clients'] for entry in entries) == settings.CLIENTS


@pytest.mark.parametrize('name', ['skew-0.5', 'partial'])
def test_budgets_are_equal(name):
  """Of local examples, of public ones, and of runs to choose from."""
  size, config = settings.SIZES['whole'], settings.config_of('digits', 'whole', 'one', name)
  wanted, updates = size.rounds * settings.CLIENTS * size.steps * size.batch, {}
  for method in settings.applying('digits', 'one', name):
    given = budget.fields('digits', 'whole', 'one', name, method)
    rounds = sum(budget.lengths('digits', 'whole', name, method))
    if rounds not in updates:
      updates[rounds] = int(client_updates(make_plan(config.plan, [settings.CLIENTS], rounds)).sum())
    if method == 'fedh2l':  # a round of it is a step, and the first only asks for something to send
      assert (updates[rounds] - settings.CLIENTS) * given['batch'] == wanted
      continue
    assert updates[rounds] * given['steps'] * given['batch'] == wanted, method
    assert given.get('epochs') is None
    assert method not in budget.ON_PUBLIC or given['subset'] == size.subset


@pytest.mark.parametrize('method', [*methods.__all__, 'my_method:factory'])
def test_every_method_may_choose_among_eight_runs_with_the_same_rates(method):
  grid = budget.grid(method)
  assert len({json.dumps(choice, sort_keys=True) for choice in grid}) == budget.BUDGET == 8
  assert {choice['learning_rate'] for choice in grid} == set(budget.RATES)
  assert settings.TUNED_ON not in settings.SIZES['whole'].seeds


@pytest.fixture
def tiny(monkeypatch):
  """Ten perceptrons on digits that come with a dependency; nothing of it is kept."""
  caches = problem._source, problem.groups_of, problem._initialisers
  monkeypatch.setitem(settings.SOURCES, 'digits', {'name': 'mnist_5k'})
  monkeypatch.setattr(settings, 'networks', lambda of, tier: ({'model': 'MLP', 'hidden': (4,)},))
  for cache in caches:
    cache.cache_clear()
  yield CELL.place
  for cache in caches:
    cache.cache_clear()
  programs.clear()


def test_one_program_serves_all_rates_seeds_and_settings(tiny):
  """Without a learning rate the models stay as they are; with one they learn, by the same programs."""
  still = runs.run(tiny, 'private', {'learning_rate': 0.0, 'decay': 1.0}, 0)
  assert still['compiling'] > 0
  for point in still['curve'][:-1]:
    assert point['own'] == still['curve'][0]['own']
  learned = runs.run(tiny, 'private', {'learning_rate': 0.01, 'decay': 0.1}, 1)
  few = runs.Place('digits', 'smoke', 'different', 'few')
  elsewhere = runs.run(few, 'private', budget.grid('private')[0], 1)
  assert learned['compiling'] == elsewhere['compiling'] == 0
  assert np.mean(learned['curve'][-1]['own']) > np.mean(still['curve'][-1]['own'])
  size = settings.SIZES['smoke']
  assert learned['examples'] == size.rounds * settings.CLIENTS * size.steps * size.batch
  assert [point['round'] for point in learned['curve']] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize('method', settings.applying('digits', 'one', 'skew-0.5'))
def test_every_method_learns_with_traced_hyperparameters(tiny, method, monkeypatch):
  """A program of every method, and its numbers: those of examples and rounds."""
  monkeypatch.setitem(budget.COMMON, 'hidden', (4,))  # no wider than the clients' nets, as FedMRL has it
  made = runs.run(tiny, method, budget.grid(method)[0], 0)
  assert not made['diverged']
  assert made['curve'][-1]['round'] == sum(budget.lengths('digits', 'smoke', 'skew-0.5', method))
  assert made['curve'][-1]['bytes_up'] > 0 or method in ('private', 'agg')


def test_raw_public_images_are_counted_once_up_and_for_all_others_down(tiny):
  world = problem.make(tiny.astuple(), 0)
  public = int(world.arrays[4].size)
  assert world.image_bytes == 28 * 28
  assert runs.public_bytes('fedmd', world) == {'up': public * 784, 'down': 9 * public * 784}
  assert runs.public_bytes('feddf', world) == {'up': public * 784, 'down': 0}
  assert runs.public_bytes('fedhe', world) == {'up': 0, 'down': 0}


def test_the_bootstrap_of_settings_is_wider_than_that_of_seeds():
  alike = evidence.bootstrap([[1.0, 2.0, 3.0]] * 3)
  apart = evidence.bootstrap([[-3.0, -2.0, -1.0], [1.0, 2.0, 3.0], [5.0, 6.0, 7.0]])
  assert alike[0] == apart[0] == 2.0
  assert apart[2] - apart[1] > 3 * (alike[2] - alike[1])
  assert evidence.bootstrap([[4.0, 4.0], [4.0, 4.0]]) == (4.0, 4.0, 4.0)


def test_the_bootstrap_is_that_of_many_draws():
  rng = np.random.default_rng(0)
  groups = [mean + rng.normal(0, 1, seeds) for mean, seeds in ((0, 6), (3, 6), (-1, 3), (8, 6), (2, 6))]
  drawn = rng.integers(5, size=(200_000, 5))
  means = np.zeros(drawn.shape)
  for s, one in enumerate(groups):
    means[drawn == s] = rng.choice(one, (np.sum(drawn == s), len(one))).mean(-1)
  tail = stats.norm.cdf(np.sqrt(5 / 4) * stats.t.ppf(0.025, 4))
  expected = np.mean([one.mean() for one in groups]), *np.quantile(means.mean(1), [tail, 1 - tail])
  np.testing.assert_allclose(evidence.bootstrap(groups), expected, atol=0.06)  # of which the draws are 0.05


def test_intervals_over_few_settings_hold_the_truth():
  """Settings whose means are normal around 0, with six seeds each: nominal 95 %, of percentiles alone 87 %."""
  rng = np.random.default_rng(0)
  draws = [[mean + rng.normal(0, 0.5, 6) for mean in rng.normal(0, 2, 5)] for _ in range(200)]
  held = [low <= 0 <= high for _, low, high in (evidence.bootstrap(groups) for groups in draws)]
  assert 0.91 < np.mean(held) < 0.99
  four = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]
  mean, low, high = evidence.over_settings(four)
  assert (mean, high - low) == (2.5, pytest.approx(2 * 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2))
  assert evidence.over_settings([[1.0, 2.0, 3.0]]) == analysis.interval([1.0, 2.0, 3.0])


def test_the_signed_rank_test_knows_worse_equal_and_better():
  worse, equal, better = evidence.signed_rank([5.0] * 10)
  assert better > 0.99
  np.testing.assert_allclose(evidence.signed_rank([-5.0] * 10), (better, equal, worse), atol=0.01)
  assert evidence.signed_rank([0.4, -0.3, 0.2, 0.1])[1] > 0.99
  assert max(evidence.signed_rank([5.0, -5.0, 4.0, -4.0])) < 0.7


def one_run(seed, own, everything=None, sent=0, examples=100.0, choice=None):
  """A test run of ten clients as if it had been made."""
  point = {'round': 6, 'examples': examples, 'bytes_up': sent, 'bytes_down': 2 * sent}
  point |= {'own': own, 'all': everything or own}
  half = {**point, 'round': 3, 'examples': examples / 2, 'own': [a / 2 for a in own], 'bytes_up': sent / 2}
  return {
    'seed': seed, 'choice': choice or budget.grid('fedhe')[2], 'diverged': False, 'examples': examples,
    'seconds': 2.0, 'compiling': 1.0, 'public_bytes': {'up': 10, 'down': 90}, 'curve': [half, point],
    'commit': 'abc', 'dirty': False, 'device': 'one',
  }  # fmt: skip


def there_is(runs, **more):
  """What is there of a cell with these test runs."""
  return {'grid': [], **{kind: [] for kind in cells.KINDS}, 'runs': list(runs), **more}


def test_scores():
  private = there_is(one_run(s, [0.5] * 10) for s in (0, 1))
  own = [0.4] * 2 + [0.7] * 8
  found = there_is(one_run(s, own, sent=1000, examples=200.0) for s in (1, 2))
  np.testing.assert_allclose(scores.gain(found, private)[1], 14.0)  # 64 - 50, of the only common seed
  np.testing.assert_allclose(scores.gain_at_examples(found, private)[1], 32.0 - 50.0)  # at half of its examples
  assert scores.is_stopped(found, private)
  assert not scores.is_stopped(private, private)
  fewer = {**found, 'equal': [one_run(1, [0.6] * 10, examples=99.0)]}  # a run of half of the rounds
  assert scores.gain_at_examples(fewer, private) == {1: pytest.approx(10.0)}
  assert not scores.is_stopped(fewer, private)
  more = there_is((*found['runs'], one_run(0, own, examples=200.0)), equal=fewer['equal'])  # of seed 0 it is missing
  assert scores.is_stopped(more, private)
  assert scores.gain_at_examples(more, private)[1] == pytest.approx(32.0 - 50.0)
  lost = scores.losses(found, private)
  np.testing.assert_allclose(lost, [10.0] * 2 + [0.0] * 8)
  np.testing.assert_allclose(scores.worst_client(found)[2], 40.0)
  assert scores.megabytes(found) == {'up': 0.001, 'down': 0.002}
  assert scores.megabytes(found, public=True) == {'up': 0.00101, 'down': 0.00209}
  assert scores.gain_at_bytes(found, private, 2700)[1] == pytest.approx(32.0 - 50.0)  # 500 + 2000 + 100
  assert scores.gain_at_bytes(found, private, 100) == {}


@pytest.fixture
def made(monkeypatch):
  """Runs that take no time, in the order in which they were asked for. The third choice of eight is the best."""
  asked = []

  def run(place, method, choice, seed, tuning=False, share=1.0):
    asked.append((method, choice, seed, tuning) if share == 1 else (method, choice, seed, share))
    if tuning:
      score = {0: None, 2: 0.8, 3: 0.8}.get(budget.grid(method).index(choice), 0.3)
      spent = {'seconds': 1.0, 'compiling': 0.0, 'diverged': score is None, 'examples': 1.0}
      return {'seed': seed, 'choice': choice, 'validation': score, **spent}
    own = [0.5 + 0.01 * seed + (0.1 if method == 'fedhe' else 0.0)] * 10
    examples = 100.0 * share * (2.5 if method == 'fedmd' else 1)  # it learns from public rows
    return one_run(seed, own, sent=1000 * (method != 'private'), examples=examples, choice=choice)

  monkeypatch.setattr(runs, 'run', run)
  monkeypatch.setattr(suite, 'environment', lambda: {'commit': 'abc', 'dirty': False, 'device': 'one'})
  return asked


def test_the_choice_is_made_on_another_seed_and_results_only_grow(made, tmp_path):
  suite.run([CELL], tmp_path, seeds=(0,))
  grid = budget.grid('fedhe')
  assert made[:8] == [('fedhe', choice, 100, True) for choice in grid]
  assert made[8:] == [('fedhe', grid[2], 0, False)]  # of equals the first
  before = json.loads(cells.path_of(CELL, tmp_path).read_text())
  suite.run([CELL], tmp_path)
  assert made[9:] == [('fedhe', grid[2], 1, False)]  # what is there is not run again
  after = cells.read(CELL, tmp_path)
  assert after['tuning'] == before['tuning']
  assert after['runs'][:1] == before['runs']
  cells.add(CELL, tmp_path, 'runs', {**after['runs'][0], 'seconds': 9.0})  # by another process, meanwhile
  assert cells.read(CELL, tmp_path) == after
  suite.run([CELL], tmp_path)
  assert len(made) == 10


def test_what_learns_from_public_rows_is_run_with_as_many_examples_as_private(made, tmp_path):
  fedmd, private = (CELL._replace(method=method) for method in ('fedmd', 'private'))
  suite.run([fedmd], tmp_path)
  assert len(made) == 8 + 2  # how many are equal is not known before Private has been run
  suite.run([private, fedmd, CELL], tmp_path)
  assert [one for one in made if one[3] not in (True, False)] == [
    ('fedmd', budget.grid('fedmd')[2], seed, pytest.approx(0.4)) for seed in (0, 1)
  ]
  found, reference = (cells.read(cell, tmp_path) for cell in (fedmd, private))
  assert [one['seed'] for one in found['equal']] == [0, 1]
  assert not scores.is_stopped(found, reference)
  assert 'equal' not in json.loads(cells.path_of(CELL, tmp_path).read_text())
  suite.run([fedmd], tmp_path)
  assert len(made) == 3 * 10 + 2


@pytest.mark.parametrize(('method', 'share'), [('fedmd', 0.43), ('fedmd', 0.5), ('dsfl', 0.43), ('fedh2l', 0.5)])
def test_a_share_of_the_rounds_has_no_more_than_its_share_of_the_examples(method, share):
  """Public rows are learned from in the rounds of the method, and not in those alone."""
  examples = lambda alone, rounds: alone + 2.3 * rounds
  for name in settings.settings('digits', 'whole'):
    whole = examples(*budget.lengths('digits', 'whole', name, method))
    part = examples(*budget.lengths('digits', 'whole', name, method, share))
    assert share * whole - 2.3 - 1.3 <= part <= share * whole + 1e-6
    assert budget.lengths('digits', 'whole', name, method, 1 - 1e-12) == budget.lengths('digits', 'whole', name, method)


@pytest.mark.parametrize(('share', 'expected'), cases([(1.0, [4, 3]), (0.5, [2, 1])], slow=[(1.0, [4, 3])]))
def test_the_learning_rate_falls_once_in_the_last_third_of_all_rounds(tiny, monkeypatch, share, expected):
  """Also where clients train alone first; counted from the first round of each phase. The models learn alone even if
  the rate falls to 0, and a run of fewer rounds is looked at once."""
  drops, runner = [], runs._Runner
  monkeypatch.setattr(runs, '_Runner', lambda *given: drops.append(int(given[3]['drop_at'])) or runner(*given))
  one = runs.run(tiny, 'fedmd', {**budget.grid('fedmd')[0], 'decay': 0.0}, 0, share=share)
  assert drops == expected
  assert [point['round'] for point in one['curve']] == ([2, 3, 4, 5, 6] if share == 1 else [3])


def test_what_was_stopped_goes_on(made, tmp_path, monkeypatch):
  whole = runs.run
  monkeypatch.setattr(runs, 'run', lambda *a, **k: pytest.fail('stopped') if len(made) == 3 else whole(*a, **k))
  with pytest.raises(pytest.fail.Exception):
    suite.run([CELL], tmp_path)
  monkeypatch.setattr(runs, 'run', whole)
  suite.run([CELL], tmp_path)
  assert len(made) == 8 + 2


def test_a_result_of_another_configuration_is_refused_before_anything_runs(made, tmp_path):
  suite.run([CELL], tmp_path)
  path = cells.path_of(CELL, tmp_path)
  path.write_text(path.read_text().replace('"steps": 1', '"steps": 7', 1))
  with pytest.raises(ConfigError, match=r'fedhe.json was made with another fields; move it away'):
    suite.run([CELL], tmp_path)
  path.write_text('[]')
  with pytest.raises(ConfigError, match='is not a result of this program'):
    suite.run([CELL], tmp_path)
  assert len(made) == 10


@pytest.mark.parametrize(
  ('tiers', 'names', 'only', 'match'),
  [
    (['several'], None, None, 'several'),
    (None, ['skew'], None, 'skew'),
    (['different'], None, ['fedavg'], 'weights of different architectures have no mean'),
    (None, None, ['fedbest'], "the benchmark has no method 'fedbest'; it has "),
  ],
)
def test_unknown_tiers_settings_and_methods_are_refused(tiers, names, only, match):
  with pytest.raises(ConfigError, match=match):
    cells.cells('digits', 'smoke', tiers, names, only)


def test_somebody_elses_method_is_in_all_settings_and_beside_ours(made, tmp_path, monkeypatch):
  monkeypatch.syspath_prepend('docs/examples')
  theirs = cells.cells('digits', 'smoke', only=['fedproto:fedproto'])
  assert {(cell.place.tier, cell.place.setting) for cell in theirs} == {(t, s) for of, t, s in PLACES if of == 'digits'}
  given = budget.fields('digits', 'smoke', 'different', 'skew-0.5', 'fedproto:fedproto')
  assert given == {'steps': 1, 'batch': 8, 'epochs': None}
  mine = [cell for cell in theirs if cell.place == CELL.place]
  suite.run([*mine, CELL, CELL._replace(method='private')], tmp_path)
  assert cells.path_of(mine[0], tmp_path).name == 'fedproto.fedproto.json'
  text = tables.beside(mine, tmp_path)
  rows = [line.split(' | ')[0] for line in text.splitlines() if line.startswith('| ')]
  assert rows == ['| method', '| ---', '| fedhe', '| private', '| fedproto:fedproto']  # the best first


def test_clients_learn_no_labels_of_shared_rows_before_a_method_on_public_rows(tiny, monkeypatch):
  """As they learn none after: the phase alone is Private on the others; as a method of its own it is on all."""
  made, make = [], runs.runner_of
  monkeypatch.setattr(runs, 'runner_of', lambda *given: made.append(make(*given)) or made[-1])
  runs.run(tiny, 'fedmd', budget.grid('fedmd')[0], 0)
  runs.run(tiny, 'private', budget.grid('private')[0], 0)
  assert [one.identity[0] for one in made] == ['private', 'fedmd', 'private']
  assert (made[1].world.key == made[2].world.key).all()  # of equal seeds
  assert (made[1].world.key != made[0].world.key).all()  # the same mini-batches would come again
  assert "('rows', 'unshared')" in made[0].identity[1]
  assert 'rows' not in made[2].identity[1]


def test_advice_prefers_a_sure_gain_among_methods_with_the_same_settings():
  row = lambda method, gain, low, count: {
    'method': method, 'gain': (gain, low, 9.0), 'places': range(count), 'better': None
  }  # fmt: skip
  rows = [row('few', 3.0, 2.0, 2), row('unsure', 2.0, -0.1, 5), row('sure', 1.0, 0.1, 5), row('less', 0.5, 0.2, 5)]
  every = lambda _: True
  assert advice.best(rows, every)['method'] == 'sure'
  assert advice.best(rows, lambda r: r['method'] != 'sure')['method'] == 'less'
  assert advice.best(rows[:2], every)['method'] == 'unsure'
  assert advice.best(rows, lambda r: r['method'] == 'few')['method'] == 'few'
  assert advice.best(rows, lambda r: False) is None
  assert not advice.is_sure(rows[0])  # of two settings it is the range
  assert not advice.is_sure(rows[1] | {'better': (0.0, 0.04, 0.96)})  # whose interval contains 0


def test_advice_says_what_clients_predict_with_beside_their_own_model():
  private = there_is(one_run(s, [0.5] * 10) for s in (0, 1, 2))
  found = there_is(one_run(s, [0.8] * 10) for s in (0, 1, 2))
  for of_seed, one in zip((0.5, 0.55, 0.6), found['runs'], strict=True):
    one['curve'][-1]['own_own'] = of_seed
  different = {('digits', 'skew-0.5'): {'private': (None, private), 'fedapen': (None, found)}}
  (row,) = tables.overview(different)
  assert row['gain'][0] == pytest.approx(30.0)
  assert row['gain_alone'][0] == pytest.approx(5.0)
  lines = advice.carried_by([row], different)
  assert '| what clients predict with | the ensemble of own and common model |' in lines
  assert ['+5.00 [' in line for line in lines if 'by their own models alone' in line] == [True]


def test_advice_names_the_methods_that_were_run_everywhere():
  """FedHe in both settings, FedMD, which gains more, in one of them."""
  one = lambda accuracy: (None, there_is(one_run(s, [accuracy] * 10) for s in (0, 1)))
  small = {'private': one(0.5), 'fedhe': one(0.6)}
  different = {('digits', 'skew-0.5'): {**small, 'fedmd': one(0.9)}, ('letters', 'skew-0.5'): small}
  said = advice.sentences(tables.overview(different), different)
  said = ' '.join(said.split())
  assert 'Only `fedhe` was run in every one of them; where one of these fits a situation, the others are not' in said
  lone = dict(list(different.items())[:1])
  said = advice.sentences(tables.overview(lone), lone)
  assert 'every one of them' not in said
  different['cifar10', 'skew-0.5'] = {'private': one(0.5), 'fedmd': one(0.6)}
  said = advice.sentences(tables.overview(different), different)
  assert 'Only `fedhe`, `fedmd` were run in 2 of them; where' in ' '.join(said.split())


def test_a_setting_without_common_seeds_leaves_a_method_its_others():
  one = lambda accuracy, *seeds: (None, there_is(one_run(s, [accuracy] * 10) for s in seeds))
  whole = {'private': one(0.5, 0, 1), 'fedhe': one(0.6, 0, 1)}
  (row,) = tables.overview({'a': whole, 'b': {'private': one(0.5, 0), 'fedhe': one(0.9, 1)}})
  assert (row['method'], row['places'], row['gain'][0]) == ('fedhe', ('a',), pytest.approx(10))


def test_methods_of_fewer_settings_are_below_and_bytes_are_compared_where_all_are_within():
  """FedMD, in one of two settings, gains more there; FedHe has sent too much in the other."""
  one = lambda accuracy, sent=0.0: (None, there_is(one_run(s, [accuracy] * 10, sent=sent) for s in (0, 1, 2)))
  first = {'private': one(0.5), 'fedhe': one(0.6), 'fedmd': one(0.9)}
  everything = {'a': first, 'b': {'private': one(0.5), 'fedhe': one(0.6, sent=9e6)}}
  rows = tables.overview(everything)
  assert [row['method'] for row in rows] == ['fedhe', 'fedmd']
  assert (rows[0]['within'], rows[0]['gain_within']) == (1, None)
  text = tables.of_tier(rows)
  assert '| fedmd (1 of 2 settings) | +40.00' in text
  assert '| in 1 of 2 settings |' in text
  assert advice.without_public(rows[1], rows, everything)['gain'][0] == pytest.approx(10)


def test_the_page_tells_gains_without_seeds_in_which_a_client_of_private_learned_nothing():
  one = lambda *runs: (None, there_is(one_run(s, own) for s, own in enumerate(runs)))
  dead = [0.1] + [0.9] * 9
  here = {'private': one([0.9] * 10, dead), 'fedhe': one([0.9] * 10, [0.9] * 10), 'agg': one([0.8] * 10, [0.8] * 10)}
  said, _ = page._without_clients_at_chance('digits', here)
  assert said.startswith(
    'Clients of `private` ended at chance (seed 1: client 0). The gains on own rows over the other'
  )
  assert said.endswith('seeds: fedhe +0.00, agg -10.00.')
  assert page._without_clients_at_chance('digits', {**here, 'private': here['fedhe']}) == []


def test_advice_tells_what_is_left_without_few_images_and_without_dead_clients_of_private():
  one = lambda *runs: (None, there_is(one_run(s, own) for s, own in enumerate(runs)))
  alive, dead = [0.5] * 10, [0.1] + [0.5] * 9
  better = one([0.6] * 10, [0.6] * 10)
  different = {
    ('digits', 'skew-0.5'): {'private': one(alive, dead), 'fedhe': better},
    ('digits', 'few'): {'private': one([0.3] * 10, [0.3] * 10), 'fedhe': better},
  }
  lines = advice.carried_by(tables.overview(different), different)
  assert lines == [
    '| what carries the gain | `fedhe`, on own rows |',
    '| --- | --- |',
    '| without the settings of few images | +12.00 |',
    '| without seeds in which a client of `private` ended at chance | +20.00 |',
    '| what clients predict with | their own models |',
  ]
  different['digits', 'skew-0.5']['private'] = one(alive, alive)
  lines = advice.carried_by(tables.overview(different), different)
  assert '| without the settings of few images | +10.00 |' in lines
  assert 'at chance' not in ''.join(lines)
  different['digits', 'domains'] = {'private': one([0.5] * 10, [0.5] * 10), 'fedhe': better}
  lines = advice.carried_by(tables.overview(different), different)
  assert '| by setting | +10.00 to +30.00, the median +10.00 |' in lines
  assert advice.carried_by([], different) == []


def test_a_page_without_private_and_an_accuracy_that_is_no_number_are_refused(made, tmp_path):
  place = CELL.place.__class__('digits', 'whole', 'different', 'skew-0.5')
  fedhe, private = (cells.Cell(place, method) for method in ('fedhe', 'private'))
  suite.run([fedhe], tmp_path, seeds=(0,))
  with pytest.raises(ConfigError, match=r'no run of private in digits, different, skew-0\.5, .* run fedkd benchmark'):
    page.write(tmp_path, tmp_path / 'page.md')
  suite.run([private], tmp_path, seeds=(0,))
  path = cells.path_of(private, tmp_path)
  path.write_text(path.read_text().replace('[0.5,', '[NaN,', 1))
  with pytest.raises(ConfigError, match=r'private.json is not a result of this program \(NaN is no accuracy\)'):
    page.write(tmp_path, tmp_path / 'page.md')


def test_a_page_of_no_results_is_refused(tmp_path):
  with pytest.raises(ConfigError, match=r'out=.*nowhere has no method beside private of the profile whole; run fedkd'):
    page.write(tmp_path / 'nowhere', tmp_path / 'page.md')
  assert not (tmp_path / 'page.md').exists()


def test_the_page_tells_the_controls_that_were_run(tmp_path, monkeypatch):
  place = CELL.place.__class__('digits', 'whole', 'different', 'skew-0.5')
  one = lambda method, accuracy: (
    cells.Cell(place, method),
    there_is((one_run(s, [accuracy] * 10) for s in (0, 1, 2)), **cells.described(cells.Cell(place, method))),
  )
  name = controls.name_of('private_fresh')
  there = {'private': one('private', 0.7), 'fedhe': one('fedhe', 0.8)}
  monkeypatch.setattr(page.tables, 'found', lambda out, *of, more=(): there)
  said = lambda: page._optimizer(page._controlled(tmp_path), tmp_path, tmp_path / 'page.md')
  title, _, text, _ = said()
  assert title == '## The optimizer'
  assert 'Controls' not in text
  there[name] = one(name, 0.6)
  *_, table, _ = said()
  (row,) = [line for line in table.splitlines() if 'fresh' in line]
  assert row.startswith('| private | [a fresh optimizer in every round](digits/different/skew-0.5/')
  assert '| -10.00 ± 0.00 |' in row


def test_clients_keep_their_optimizer_and_rates_decay_in_every_method():
  given = lambda method: budget.fields('digits', 'whole', 'different', 'skew-0.5', method).get('keep_optimizer')
  for method in settings.applying('digits', 'different', 'skew-0.5'):
    assert budget.keeps_by_default(method) != bool(given(method)), method
    decays = {choice['decay'] for choice in budget.grid(method)}
    assert decays == ({0.1} if method in budget.WEIGHTS else {1.0, 0.1}), method
  assert given(controls.name_of('private_unshared'))  # somebody else's, without a default


def test_the_page_has_an_overview_per_suite_and_counts_no_setting_of_references_alone(tmp_path, monkeypatch):
  one = lambda accuracy: (None, there_is(one_run(s, [accuracy] * 10) for s in (0, 1)))
  small = {'private': one(0.5), 'agg': one(0.6)}
  there = {'digits': small | {'fedhe': one(0.7), 'fedmd': one(0.8)}, 'letters': small | {'fedhe': one(0.65)}}
  monkeypatch.setattr(page.tables, 'found', lambda out, suite, *of: there.get(suite, small) if of[2] == 'few' else {})
  everything = page._of_tier(tmp_path, 'different')
  assert list(everything) == [('digits', 'few'), ('letters', 'few')]
  over_all, by_suite = page.overviews(everything)
  text = '\n'.join(page._overviews(everything, over_all, by_suite))
  whole, digits, letters = text.split('### ')[1:]
  methods_in = lambda table: [line.split()[1] for line in table.splitlines() if line.startswith('| ')][2:]
  assert (methods_in(whole), methods_in(digits), methods_in(letters)) == (
    ['fedhe', 'agg'],
    ['fedmd', 'fedhe', 'agg'],
    ['fedhe', 'agg'],
  )
  drawn = page.figure(everything, by_suite)
  assert [len(axes.containers) for axes in drawn.axes] == [2, 1]


def test_the_page_answers_first_and_links_every_row(made, tmp_path, monkeypatch):
  """FedHe is ten points above Private with both seeds; FedMD is not run."""
  place = CELL.place.__class__('digits', 'whole', 'different', 'skew-0.5')
  suite.run([cells.Cell(place, method) for method in ('private', 'fedhe')], tmp_path / 'out', seeds=(0, 1, 2))
  page.write(tmp_path / 'out', tmp_path / 'page.md')
  text = (tmp_path / 'page.md').read_text()
  joined = text.replace('\n', ' ')
  answer = 'Without public images, clients of ten different architectures gain most by `fedhe`: +10.00 [+10.00, +10.00]'
  assert joined.index(answer) < joined.index('## How it is measured') < joined.index('### MNIST, label skew')
  assert 'With unlabelled public images, nothing has been run yet.' in joined
  assert 'This rests on 1 of 22 settings (MNIST), 1 of 23 methods and 3 of 6 seeds' in joined
  ten = '+10.00 [+10.00, +10.00]'
  assert f'| no public images, at most 1 MB in all | `fedhe` | {ten} | {ten} | 0.00 | 1 of 1 settings' in text
  assert '| [fedhe](out/digits/different/skew-0.5/fedhe.json) (3 of 6 seeds) | 61.00 ± ' in text
  assert (tmp_path / 'out/digits/different/skew-0.5/fedhe.json').exists()
  assert '| MNIST | different | 6 | 0 of ' in text
  assert (tmp_path / 'page.png').stat().st_size > 10_000
  assert 'stale' not in text
  change = stale.Change('fedhe', 'it learns more', ('abc',))
  monkeypatch.setattr(stale, 'CHANGES', (change,))
  page.write(tmp_path / 'out', tmp_path / 'page.md')
  assert '(3 of 6 seeds, stale)' in (tmp_path / 'page.md').read_text()


def test_nothing_on_the_committed_page_is_typed_by_hand(tmp_path, monkeypatch):
  monkeypatch.setattr(page.figures, 'save', lambda figure, path: None)
  (tmp_path / 'results').symlink_to(ROOT / 'results')
  (tmp_path / 'docs').mkdir()
  page.write(tmp_path / 'results' / 'benchmark', tmp_path / 'docs' / 'benchmark.md')
  assert (tmp_path / 'docs' / 'benchmark.md').read_text() == (ROOT / 'docs' / 'benchmark.md').read_text()


def test_a_cell_in_which_every_choice_diverges_is_told(made, tmp_path, monkeypatch):
  whole = runs.run
  monkeypatch.setattr(runs, 'run', lambda *a: {**whole(*a), 'validation': None})
  assert suite.run([CELL], tmp_path) == [CELL]
  assert len(made) == 8


def test_seeds_are_those_of_the_profile():
  given = type('Given', (), {'profile': 'smoke', 'seeds': ['0', '7']})
  with pytest.raises(ConfigError, match="seeds='0,7' must be some of 0, 1"):
    benchmark._seeds(given)


def test_every_choice_reaches_its_method():
  for method, (field, values) in budget.WEIGHTS.items():
    fields = budget.fields('digits', 'smoke', 'pairs', 'skew-0.5', method)
    for choice in budget.grid(method)[:2]:
      values_given, constants = budget.split_choice(choice)
      merged = {**fields, **constants, **values_given}
      assert merged[field] == choice[field]
      assert choice[field] in values
