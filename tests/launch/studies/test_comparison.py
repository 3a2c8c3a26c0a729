"""The benchmark of all methods: what applies, equal budgets, ranks, and results that are not made twice."""

import itertools
import json

import numpy as np
import pytest

from fedkd import config as base
from fedkd import methods, optimizers
from fedkd.analysis import results
from fedkd.data import catalogue
from fedkd.errors import ConfigError, DivergedError
from fedkd.experiment.build import assembly
from fedkd.experiment.build.from_config import make_plan
from fedkd.plan import client_updates
from launch.studies import stale
from launch.studies.comparison import budget, cells, page, ranks, suite
from launch.studies.comparison.settings import NEVER, PROFILES, SIZES, SUITES, applying, reason, settings

EVERY = [
  pytest.param(suite, profile, marks=[pytest.mark.slow] * ((suite, profile) != ('digits', 'small')))
  for suite, profile in itertools.product(SUITES, PROFILES)
]
CELL = cells.Cell('digits', 'smoke', 'skew-1', 'fedhe')


@pytest.mark.parametrize(('suite', 'profile'), EVERY)
def test_a_method_has_a_valid_config_or_a_reason(suite, profile):
  for name in settings(suite, profile):
    applies = applying(name)
    for method in methods.__all__:
      why = reason(method, name)
      assert (method in applies) == (not why)
      assert not why or why.split()[0] in ('it', 'its', 'the', 'weights')  # the end of a sentence
      for choice in () if why else budget.grid(method)[: None if name == 'skew-0.1' else 1]:
        config = budget.config_of(suite, profile, name, method, choice)
        base.check(config)
        base.build('method', config.method, optimizers.scheduled(base.build('optimizer', config.optimizer)))


@pytest.mark.slow
@pytest.mark.parametrize('name', list(settings('digits', 'smoke')))
def test_every_run_of_a_setting_can_be_built(name):
  """In shapes: what depends on data, nets and clients is refused here, if anything is."""
  for method in applying(name):
    assembly.build(budget.config_of('digits', 'smoke', name, method, budget.grid(method)[-1], (0,)), dry=True)


@pytest.mark.slow
@pytest.mark.skipif('cifar10' not in [e.name for e in catalogue.entries() if e.there], reason='needs CIFAR-10')
def test_the_common_model_of_photos_fits_beside_the_clients():
  for method in ('fml', 'fedapen', 'fedkd', 'fedmrl'):
    choice = budget.grid(method)[0]
    assembly.build(budget.config_of('photos', 'smoke', 'architectures', method, choice, (0,)), dry=True)


def local_examples(config) -> int:
  """Rows of their own that all clients together are trained on, one by one."""
  own = config.method
  groups = [entry['clients'] for entry in base.entries(config)]
  updates = int(client_updates(make_plan(config.plan, groups, config.rounds)).sum())
  if own.name == 'fedh2l':  # the first round only asks for something to send
    return (updates - config.data.clients) * own.batch
  assert own.get('epochs') is None
  return updates * own.steps * own.batch


@pytest.mark.parametrize(('suite', 'profile'), EVERY)
def test_budgets_are_equal(suite, profile):
  """Of local examples, over all settings with as many clients; of public ones; and of runs to choose from."""
  size = SIZES[profile]
  for name, setting in settings(suite, profile).items():
    wanted = size.rounds * setting.length * setting.data['clients'] * size.steps * size.batch
    seen, public = {}, {}
    for method in applying(name):
      config = budget.config_of(suite, profile, name, method, budget.grid(method)[0])
      seen[method], own = local_examples(config), config.method
      if method in budget.ON_PUBLIC:
        passes = own.get('digest_epochs', 0) * own.subset
        public[method] = passes or own.digest_steps * own.digest_batch
    assert seen == dict.fromkeys(seen, wanted), name
    assert set(public.values()) <= {size.subset * size.public_passes}


@pytest.mark.parametrize('method', [m for m in methods.__all__ if m not in NEVER])
def test_every_method_may_choose_among_as_many_runs(method):
  grid = budget.grid(method)
  assert len(grid) == budget.BUDGET == 4
  assert len({json.dumps(choice, sort_keys=True) for choice in grid}) == 4
  configs = [budget.config_of('digits', 'small', 'skew-1', method, choice, (0,)) for choice in grid]
  assert len({json.dumps(base.to_json(config), sort_keys=True) for config in configs}) == 4  # every choice arrives
  assert {config.rounds for config in configs} == {configs[0].rounds}


def test_methods_of_a_setting_have_the_same_data_and_nets():
  for name in settings('digits', 'small'):
    made = [budget.config_of('digits', 'small', name, m, budget.grid(m)[0]) for m in applying(name)]
    same = lambda config: base.to_json({field: config[field] for field in ('data', 'groups', 'plan', 'seeds')})
    assert all(same(config) == same(made[0]) for config in made)


def test_ranks_and_their_critical_difference():
  """Two equal in the second setting. Demsar (2006, section 3.2.2): 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25."""
  accuracy = {'a': np.array([0.5, 0.7, 0.2]), 'b': np.array([0.9, 0.7, 0.6]), 'c': np.array([0.6, 0.1, 0.4])}
  average = ranks.average_ranks(accuracy)
  assert list(average) == ['b', 'c', 'a']
  np.testing.assert_allclose(list(average.values()), [(1 + 1.5 + 1) / 3, (2 + 3 + 2) / 3, (3 + 1.5 + 3) / 3])
  np.testing.assert_allclose(ranks.critical_difference(4, 14), 2.569 * np.sqrt(20 / 84), rtol=1e-3)
  np.testing.assert_allclose(ranks.critical_difference(2, 6), 1.960 * np.sqrt(6 / 36), rtol=1e-3)


def made(cell, choice, accuracy=(0.5, 0.6, 0.7), sent=0, seeds=None, validation=0.5):
  """A result as if a run had been made."""
  config = budget.config_of(*cell, choice, seeds)
  seeds = list(config.seeds)
  final = list(accuracy)[: len(seeds)]
  nothing = {'knowledge': {'numbers': [sent] * len(seeds), 'bytes': [4 * sent] * len(seeds)}}
  return {
    'id': 'benchmark', 'profile': cell.profile, 'method': cell.method, 'seeds': seeds, 'seconds': 60.0, 'turns': 20,
    'config': results.comparable(base.to_json(config)), 'config_sha256': '', 'device': 'one', 'versions': {},
    'commit': '', 'dirty': False, 'curve': [{'validation_accuracy': [validation] * len(seeds)}],
    'per_seed': {'final': final, 'worst_client': [a / 2 for a in final], 'final_local': [a + 0.1 for a in final]},
    'ledger': {'up': nothing, 'down': {}},
  }  # fmt: skip


@pytest.fixture
def runs(monkeypatch):
  """Runs that take no time: their configs by folder. The third choice of four is the best; the first diverges."""
  ran = {}

  def run(config, folder, show):
    del show
    if folder in ran:
      return
    if folder.name == 'choice-0':
      raise DivergedError('loss is nan')
    folder.mkdir(parents=True)
    ran[folder] = config

  def of_run(folder, id, profile, name=None):
    del id, name
    score = {'choice-1': 0.3, 'choice-2': 0.8, 'choice-3': 0.8}.get(folder.name, 0.5)
    number = 2 if folder.name == 'test' else int(folder.name[-1])
    cell = CELL._replace(profile=profile)
    return made(cell, budget.grid(CELL.method)[number], seeds=ran[folder].seeds, validation=score)

  monkeypatch.setattr('fedkd.experiment.run', run)
  monkeypatch.setattr(results, 'of_run', of_run)
  return ran


def test_the_choice_is_made_on_validation_rows_and_published(runs, tmp_path):
  suite.run([CELL], tmp_path / 'out', tmp_path / 'runs')
  found = results.read(cells.path_of(CELL, tmp_path / 'out'))
  assert found['chosen'] == budget.grid('fedhe')[2]  # of equals the first
  assert [one['validation'] for one in found['tuning']] == [None, 0.3, 0.8, 0.8]
  assert [one['choice'] for one in found['tuning']] == budget.grid('fedhe')
  configs = {folder.name: config for folder, config in runs.items()}
  assert [tuple(configs[f'choice-{i}'].seeds) for i in (1, 2, 3)] == [budget.TUNED_ON] * 3
  assert configs['choice-1'].eval_every == configs['choice-1'].rounds > configs['test'].eval_every
  assert tuple(configs['test'].seeds) == (0, 1, 2)
  assert configs['test'].method.alpha == found['chosen']['alpha']
  assert configs['test'].optimizer.learning_rate == found['chosen']['learning_rate']


def test_what_is_there_is_not_run_again_and_what_was_killed_goes_on(runs, tmp_path, monkeypatch):
  start = lambda: suite.run([CELL], tmp_path / 'out', tmp_path / 'runs')
  whole = budget.config_of
  stop = lambda *args: pytest.fail('killed') if len(args) == 5 else whole(*args)  # before the last run
  with monkeypatch.context() as patched:
    patched.setattr(budget, 'config_of', stop)
    with pytest.raises(pytest.fail.Exception):
      start()
  assert len(runs) == 3
  before = dict(runs)
  start()
  assert {folder: config for folder, config in runs.items() if folder in before} == before
  assert len(runs) == 4  # only the test of the choice was left
  assert not list((tmp_path / 'runs').rglob('choice-*'))
  monkeypatch.setattr('fedkd.experiment.run', lambda *args, **more: pytest.fail('trained again'))
  start()


@pytest.mark.parametrize(
  ('field', 'match'), [('rounds', r'another config \(rounds: 1 -> 2\)'), ('tuning', 'other choices of hyperparameters')]
)
def test_a_result_of_another_config_is_refused(runs, tmp_path, field, match):
  suite.run([CELL], tmp_path, tmp_path / 'runs')
  path = cells.path_of(CELL, tmp_path)
  found = results.read(path)
  if field == 'rounds':
    found['config']['rounds'] = 1
  else:
    found['tuning'].pop()
  path.write_text(json.dumps(found))
  with pytest.raises(ConfigError, match=match):
    suite.run([CELL], tmp_path, tmp_path / 'runs')


@pytest.mark.parametrize(
  ('names', 'chosen', 'match'),
  [
    (['skew'], None, "settings has no field 'skew'|skew"),
    (['architectures'], ['fedavg'], 'weights of different architectures have no mean'),
    (None, ['fedbest'], "methods='fedbest' has no place in skew-0.1"),
  ],
)
def test_unknown_settings_and_methods_are_refused(names, chosen, match):
  with pytest.raises(ConfigError, match=match):
    cells.cells('digits', 'smoke', names, chosen)


def test_the_page_has_ranks_pairs_choices_and_reasons(tmp_path, monkeypatch):
  """fedavg is 10 points above private in all settings, fedhe 5 below: ranks 1, 2, 3."""
  better = {'private': 0.0, 'fedavg': 0.1, 'fedhe': -0.05}

  def put(setting, method):
    cell = cells.Cell('digits', 'small', setting, method)
    choice = budget.grid(method)[0]
    accuracy = [value + better[method] for value in (0.5, 0.6, 0.7)]
    one = made(cell, choice, accuracy, sent=250_000 * (method != 'private'))
    path = cells.path_of(cell, tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**one, 'chosen': choice, 'tuning': []}))

  for setting, method in itertools.product(('skew-1', 'few'), better):
    put(setting, method)
  page.write(tmp_path, tmp_path / 'page.md')
  assert '2 settings are too few for ranks of 3 methods' in (tmp_path / 'page.md').read_text()
  for method in better:
    put('domains', method)
  page.write(tmp_path, tmp_path / 'page.md')
  text = (tmp_path / 'page.md').read_text()
  assert f'at 5 % is {3.314 / np.sqrt(2) * np.sqrt(12 / 18):.2f}' in text  # of three methods in three settings
  assert '| fedavg | 1.00 | yes |' in text
  assert '| private | 2.00 | yes |' in text
  assert '| fedhe | 3.00 | no |' in text
  assert (
    '| fedavg | 70.00 ± 24.84 | +10.00 ± 0.00 | 80.00 ± 24.84 | 35.00 ± 12.42 | 1.000 | 0.000 | rate 0.0003 |' in text
  )
  assert 'two architectures by turns: weights of different architectures have no mean: `ditto`, `fedavg`, ' in text
  assert text.index('| fedavg | 70') < text.index('| private | 60') < text.index('| fedhe | 55')
  assert (tmp_path / 'page-digits-small.png').stat().st_size > 10_000
  assert '(stale)' not in text
  change = stale.Change('fedhe', 'it learns more', ('',), (('alpha', budget.grid('fedhe')[0]['alpha']),))
  monkeypatch.setattr(stale, 'CHANGES', (change,))
  page.write(tmp_path, tmp_path / 'page.md')
  text = (tmp_path / 'page.md').read_text()
  assert '| fedhe (stale) | 3.00 | no |' in text
  assert text.count('| fedhe (stale) | 55.00 ±') == text.count('again: fedhe: since then it learns more.') == 3
  assert '| fedavg | 70.00' in text
