"""The registry of tables: every row builds, a row runs and is resumed, the report reads what was written."""

import json
import pathlib

import numpy as np
import pytest

from fedkd import config as configs
from fedkd import methods
from fedkd.analysis import results
from fedkd.errors import ConfigError
from launch import papers, reproduce
from launch.papers import fedh2l, report

REGISTRY = papers.registry()


def test_paper_profiles_say_what_the_papers_say():
  """Spec of FedH2L: 10 000 rounds, lr 1e-3, AMSGrad; bandwidth matched to 52 rounds of 192 steps."""
  rows = {row.name: reproduce.config_of(row, 'paper') for row in REGISTRY['h2l-rmnist-a10'].rows}
  assert rows['fedh2l'].rounds == 10_001
  assert rows['agg'].rounds == rows['ind'].rounds == 10_000
  assert (rows['fedavg'].rounds, rows['fedavg'].method.steps) == (52, 192)
  assert rows['fedh2l'].optimizer.name == 'fedkd.optimizers:amsgrad'
  md = reproduce.config_of(REGISTRY['md-femnist-iid'].rows[0], 'paper')
  assert [p['rounds'] for p in md.before] == [20, 25]
  assert [p['early_stop']['watch'] for p in md.before] == ['accuracy_public', 'accuracy']
  assert [(p['early_stop']['patience'], p['early_stop']['min_delta']) for p in md.before] == [(3, 0.001), (10, 0.001)]
  assert (md.rounds, md.method.subset, md.method.digest_batch, md.method.batch, len(md.groups)) == (
    21,
    5000,
    256,
    5,
    10,
  )
  assert len({json.dumps(configs.to_json(config.data), sort_keys=True) for config in rows.values()}) == 1  # one split


@pytest.fixture(scope='module')
def table(tmp_path_factory):
  """(results, runs) of a row of Rotated MNIST at smoke size."""
  folder = tmp_path_factory.mktemp('table')
  where = {'workdir': folder / 'runs', 'out': folder / 'results'}
  reproduce.run('h2l-rmnist-a10', 'smoke', [0], ['ind'], **where)
  return where


def test_a_row_becomes_one_result(table):
  one = results.read(table['out'] / 'h2l-rmnist-a10' / 'smoke' / 'ind.json')
  assert (one['id'], one['profile'], one['method'], one['seeds']) == ('h2l-rmnist-a10', 'smoke', 'ind', [0])
  assert one['curve'][-1]['accuracy'] == np.round(one['per_seed']['final'], 4).tolist()
  assert 0 <= one['per_seed']['best_on_validation_others'][0] <= 1


def test_a_finished_row_is_not_run_again(table, monkeypatch):
  monkeypatch.setattr('fedkd.experiment.run', lambda *args: pytest.fail('trained again'))
  reproduce.run('h2l-rmnist-a10', 'smoke', [0], ['ind'], **table)


def result_of(table, id, row, seeds):
  """A result as if that row had been run."""
  found = results.read(table['out'] / 'h2l-rmnist-a10' / 'smoke' / 'ind.json')
  row = next(one for one in REGISTRY[id].rows if one.name == row)
  return {**found, 'id': id, 'method': row.name, 'config': configs.to_json(reproduce.config_of(row, 'smoke', seeds))}


def test_what_is_a_row_of_two_tables_is_run_once(table, tmp_path, monkeypatch):
  """FedGKT's nets do not depend on the zoo; a result of other seeds or of fewer rounds is none of these."""
  out, ran = tmp_path / 'results', []
  second = out / 'fv-extreme-cifar10-iid' / 'smoke' / 'fedgkt.json'
  found = result_of(table, 'fv-cifar10-iid', 'fedgkt', [0, 1])
  found['config']['eval_batch'] = 7  # not what the row says now, and of no weight
  put(out, found)
  monkeypatch.setattr('fedkd.experiment.run', lambda config, *rest: ran.append(config.name))
  monkeypatch.setattr(results, 'of_run', lambda *args: {})
  again = lambda seeds, row='fedgkt': reproduce.run(
    'fv-extreme-cifar10-iid', 'smoke', seeds, [row], tmp_path / 'runs', out
  )
  again([0, 1])
  again([0, 1])  # it counts as finished
  assert not ran
  one = results.read(second)
  assert (one['id'], one['same_run']) == ('fv-extreme-cifar10-iid', 'fv-cifar10-iid/fedgkt')
  assert one['config'] == {**found['config'], 'name': 'felo_cifar10_iid_extreme'}
  assert one['per_seed'] == found['per_seed']
  second.unlink()
  again([0])
  again([0, 1], 'felo')
  found['config']['rounds'] -= 1
  put(out, found)
  second.unlink()
  again([0, 1])
  assert ran == ['felo_cifar10_iid_extreme'] * 3


def test_a_result_of_another_config_is_refused(table):
  with pytest.raises(ConfigError, match=r'another config \(seeds: \[0\] -> \[1\]\); move it away'):
    reproduce.run('h2l-rmnist-a10', 'smoke', [1], ['ind'], **table)


def test_a_result_of_fewer_rounds_is_not_finished(table, tmp_path):
  one = results.read(table['out'] / 'h2l-rmnist-a10' / 'smoke' / 'ind.json')
  one['config']['rounds'] -= 1
  (tmp_path / 'ind.json').write_text(json.dumps(one))
  row = next(row for row in REGISTRY['h2l-rmnist-a10'].rows if row.name == 'ind')
  with pytest.raises(ConfigError, match=r'another config \(rounds: 3 -> 4'):
    reproduce.finished(tmp_path / 'ind.json', 'h2l-rmnist-a10', 'smoke', row, reproduce.config_of(row, 'smoke'))


@pytest.mark.parametrize(('text', 'match'), [('{"id": 1}', 'has no profile'), ('nothing', 'is not a result')])
def test_a_result_of_another_schema_is_refused(tmp_path, text, match):
  path = tmp_path / 'ind.json'
  path.write_text(text)
  with pytest.raises(ConfigError, match=match):
    results.read(path)


@pytest.mark.parametrize(
  ('name', 'rows', 'match'), [('h2l', None, "id='h2l' is unknown"), ('md-cifar-iid', ['agg'], "rows='agg' is no row")]
)
def test_unknown_ids_and_rows_are_refused(tmp_path, name, rows, match):
  with pytest.raises(ConfigError, match=match):
    reproduce.run(name, 'smoke', None, rows, tmp_path / 'runs', tmp_path / 'results')
  assert not list(tmp_path.iterdir())


def test_a_profile_that_an_id_does_not_have_is_refused(tmp_path):
  with pytest.raises(ConfigError, match=r"'light'; use a profile \(paper, small, smoke\)") as caught:
    reproduce.run('he-mnist-homo', 'light', [0], None, tmp_path / 'runs', tmp_path / 'results')
  assert '\n' not in str(caught.value)
  assert not list(tmp_path.iterdir())


def test_overrides_of_a_row_reach_its_config():
  offset = {
    row.name: reproduce.config_of(row, 'small').method.count_offset
    for row in REGISTRY['he-mnist-homo'].rows
    if 'fedhe' in row.name
  }
  assert offset == {'fedhe': 0.0, 'fedhe_offset': 1.0}


def fake(id, row, seeds, values, rounds=5):
  """A result with the given accuracies."""
  per_seed = {k: values for k in ('final', *fedh2l.H2L.values())}
  return {
    'id': id, 'profile': 'small', 'method': row, 'seeds': seeds, 'per_seed': per_seed, 'turns': 10, 'seconds': 60.0,
    'config': {'rounds': rounds, 'groups': [], 'before': [], 'data': {'clients': 4}},
    'config_sha256': '', 'device': 'one', 'versions': {'jax': '0'}, 'commit': 'c', 'dirty': False,
    'ledger': {'up': {'knowledge': {'numbers': [30] * len(seeds)}}, 'down': {}},
  }  # fmt: skip


def put(out, result):
  path = pathlib.Path(out) / result['id'] / result['profile'] / f'{result["method"]}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(result))


def write_fakes(out, values):
  for name, accuracy in values.items():
    put(out, fake(*name.split('/'), [0, 1, 2], accuracy))


def test_the_report_puts_printed_beside_ours_and_judges_the_claims(tmp_path):
  values = {
    'h2l-rmnist-a10/fedh2l': [0.90, 0.91, 0.92],
    'h2l-rmnist-a10/agg': [0.80, 0.81, 0.82],
    'h2l-rmnist-a10/ind': [0.95, 0.96, 0.98],
    'h2l-rmnist-a10/fedmd': [0.80, 1.0, 0.90],
  }
  write_fakes(tmp_path / 'results', values)
  report.write(tmp_path / 'results', tmp_path / 'RESULTS.md')
  text = (tmp_path / 'RESULTS.md').read_text()
  assert '| fedh2l | 89.13 | 91.00 ± 2.48 | +1.87 |' in text
  assert '* ind, ACC: 27.9 points above the printed value; profile small, 5 rounds, 4 clients.' in text
  assert '* fedh2l, ACC' not in text  # 1.87 points are not far
  verdicts = report.claims(report.found(tmp_path / 'results')).set_index('claim')['verdict']
  assert verdicts['FedH2L beats AGG in average ACC, alpha = 10 %'] == 'kept'
  assert verdicts['FedH2L beats IND in average ACC, alpha = 10 %'] == 'not kept'
  assert verdicts['FedH2L beats FEDMD in average ACC, alpha = 10 %'] == 'kept, within noise'
  assert verdicts['FedH2L beats AGG in average ACC, alpha = 5 %'] == 'not run'
  assert '--id=md-femnist-iid' in text
  assert 'Early stopping' not in text
  path = tmp_path / 'results/h2l-rmnist-a10/small/fedmd.json'
  leaky = json.loads(path.read_text())
  leaky['config']['before'] = [{'name': 'public', 'early_stop': {'watch': 'accuracy_public'}}]
  path.write_text(json.dumps(leaky))
  report.write(tmp_path / 'results', tmp_path / 'RESULTS.md')
  assert "Early stopping watched test rows, as in the authors' code: fedmd." in (tmp_path / 'RESULTS.md').read_text()


def test_claims_about_losses_and_steadiness(tmp_path):
  """Velo loses 2 points, Felo 4; fedgkt swings by 3 points, felo by none; of two intervals one is 3 points lower."""
  half = {'velo': 0.7, 'felo': 0.7, 'fedgkt': 0.6}
  for kind, lost in (('', {'velo': 0.0, 'felo': 0.0, 'fedgkt': 0.0}), ('extreme-', {'velo': 0.02, 'felo': 0.04})):
    for row, drop in lost.items():
      one = fake(f'fv-{kind}cifar10-iid', row, [0, 1, 2], [0.5] * 3)
      one['per_seed']['second_half_mean'] = [half[row] - drop + noise for noise in (0, 0.01, -0.01)]
      swing = 0.03 if row == 'fedgkt' else 0.0  # up and down; the others stand still
      one['curve'] = [{'phase': 0, 'round': t, 'accuracy': [0.5 + swing * (-1) ** t] * 3} for t in range(9)]
      put(tmp_path, one)
  for interval, drop, wide in ((1, 0.0, 0), (2, 0.01, 0), (3, 0.03, 0), (4, 0.0, 0.005), (5, 0.015, 0.01)):
    one = fake(f'fv-interval-{interval}', 'velo_iid', [0, 1, 2], [0.5] * 3)
    one['per_seed']['second_half_mean'] = [0.7 - drop + noise for noise in (0, 0.01 + wide, -0.01 - wide)]
    put(tmp_path, one)
  rows = report.claims(report.found(tmp_path)).set_index('claim')
  stable = [rows.loc[f'Velo: trained every {i} rounds at most 2 points below every round, iid'] for i in (2, 3, 4, 5)]
  # The intervals around 0 and -1.5 reach to -1.2 and -4.0.
  assert [row['verdict'] for row in stable] == ['kept', 'not kept', 'kept', 'kept, within noise']
  lost = rows.loc['Velo loses less than Felo when ResNet34 and 50 come in, cifar10, iid']
  assert (lost['difference'], lost['verdict']) == ('2.00 ± 0.00 points', 'kept')
  steady = rows.loc['felo is steadier than fedgkt, cifar10, iid']
  assert (steady['difference'], steady['verdict']) == ('4.90 ± 0.00 points', 'kept')
  assert rows.loc['felo is steadier than heterofl, cifar10, iid', 'verdict'] == 'not run'


def test_servers_are_named_and_say_what_they_learned():
  """In one row features of two widths; in one nothing was learned by the end, in one nothing was recorded."""
  group = {'model': 'ResNet10', 'width': 0.25, 'clients': 2}
  config = {'groups': [group], 'data': {'crop': 4, 'flip': True}, 'method': {'name': 'felo'}}
  server = {'server': 'resnet55', 'server_width': 0.25, 'server_blocks': [1, 2]}
  done = {
    'felo': {
      'config': config,
      'curve': [{}, {'knowledge_age': [1.0, 2.0], 'feature_age_8': [1], 'feature_age_4': [3]}],
    },
    'velo': {'config': config, 'curve': [{'knowledge_age': [2.0], 'cvae_kl': [None]}]},
    'fedgkt': {'config': {**config, 'method': server, 'data': {'crop': 0, 'flip': False}}},
  }
  table = report._learned(REGISTRY['fv-cifar10-iid'], done).set_index('method')
  assert table.loc['felo'].to_dict() == {
    'age of logits': '1.50', 'age of features, width 8': '1.00', 'age of features, width 4': '3.00',
  }  # fmt: skip
  assert table.loc['velo'].tolist() == ['2.00', '-', '-']
  assert list(table.index) == ['felo', 'velo']
  assert report._nets(done) == (
    'Nets: ResNet10 0.25 width; but fedgkt: ResNet10 0.25 width, resnet55 on the server 0.25 width blocks 1-2. '
    'Without the crops and flips of the others: fedgkt.'
  )


def test_communication_is_that_of_the_papers():
  """FedHe, Tables III and IV; FedH2L, 321, 225 and 2081 numbers."""
  text = report.communication()
  for row in (
    '| MNIST | FedAvg | 324,672 | 324,672 | 0.00 % | 307,392 with the ten outputs that are trained |',
    '| MNIST | FedHe | 110 | 110 | 99.97 % |  |',
    '| MNIST | FedMD, 10 images | 7,940 | 7,940 | 97.55 % |  |',
    '| CIFAR-10 | FedAvg | 326,976 | 326,976 | 0.00 % | 309,696 with the ten outputs that are trained |',
    '| CIFAR-10 | FedMD, 10 images | 30,820 | 30,820 | 90.57 % |  |',
    '| Rotated MNIST, LeNet | 321 | 61,706 | 192 |',
  ):
    assert row in text
  assert '| PACS, VGG11 | 225 |' in text
  assert '| Office-Home, ResNet50 | 2,081 |' in text


def test_nothing_in_the_committed_report_is_typed_by_hand(tmp_path):
  root = pathlib.Path(__file__).parents[2]
  report.write(root / 'results', tmp_path / 'RESULTS.md')
  assert (tmp_path / 'RESULTS.md').read_text() == (root / 'RESULTS.md').read_text()


def test_committed_results_are_of_this_schema():
  paths = list(pathlib.Path(__file__).parents[2].glob('results/*/*/*.json'))
  assert paths
  for path in paths:
    if path.stem != 'features':
      one = results.read(path)
      assert path.stem in {row.name for row in REGISTRY[path.parts[-3]].rows}
      assert one['config']['data']['dir'] == ''


SMOKE = {'h2l-rmnist-a10': ['fedh2l', 'fedprox']}


@pytest.mark.slow
@pytest.mark.parametrize('name', SMOKE)
def test_smoke_rows_train(name, tmp_path):
  reproduce.run(name, 'smoke', [0], SMOKE[name], tmp_path / 'runs', tmp_path / 'results')
  for row in SMOKE[name]:
    one = results.read(tmp_path / 'results' / name / 'smoke' / f'{row}.json')
    assert np.isfinite(one['curve'][-1]['loss']).all()
    assert one['seconds'] > 0


@pytest.mark.slow
@pytest.mark.parametrize('name', [name for name in REGISTRY if name not in SMOKE])
def test_smoke_of_everything_else(name, tmp_path):
  reproduce.run(name, 'smoke', [0], None, tmp_path / 'runs', tmp_path / 'results')
  assert {p.stem for p in (tmp_path / 'results' / name / 'smoke').iterdir()} >= {r.name for r in REGISTRY[name].rows}


def test_method_names_of_the_registry_exist():
  for entry in REGISTRY.values():
    for row in entry.rows:
      assert reproduce.config_of(row, 'paper').method.name in methods.__all__
