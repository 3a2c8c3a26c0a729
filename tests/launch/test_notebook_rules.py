"""The rules that the notebooks teach: short, lawful, and the same by value and by dotted path."""

import ast
import json
import pathlib
import sys

import jax
import numpy as np
import pytest

import runs
from fedkd import aggregate, experiment

NOTEBOOK = pathlib.Path(__file__).parents[2] / 'notebooks' / '02_write_an_aggregation_rule.ipynb'
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text())['cells'] if 'rule' in cell['metadata'].get('tags', ())]
SOURCES = [''.join(cell['source']) for cell in CELLS]
RULES = {}
for source in SOURCES:  # each cell is a complete file
  exec(compile(source, str(NOTEBOOK), 'exec'), names := {'__name__': 'notebook'})
  RULES |= {n.name: names[n.name] for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
JITTED = {name: jax.jit(rule) for name, rule in RULES.items()}

every_rule = pytest.mark.parametrize('name', ['geometric_median', 'confident_mean'])
WEIGHT = np.array([1, 0, 1, 1, 0, 1, 1, 1], np.float32)


@pytest.fixture
def rows():
  return np.random.default_rng(0).normal(size=(8, 10)).astype(np.float32)


def close(a, b):
  np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_notebook_has_the_two_rules():
  assert set(RULES) == {'geometric_median', 'confident_mean'}


@every_rule
def test_a_rule_has_twenty_lines_at_most(name):
  (source,) = (s for s in SOURCES if f'def {name}(' in s)
  assert len([line for line in source.splitlines() if line.strip()]) <= 20


@every_rule
def test_the_order_of_the_rows_does_not_matter(name, rows):
  order = np.random.default_rng(1).permutation(8)
  close(JITTED[name](rows[order], WEIGHT[order]), JITTED[name](rows, WEIGHT))


@every_rule
def test_equal_rows_give_their_mean(name, rows):
  rows[:] = rows[0]
  close(JITTED[name](rows, WEIGHT), aggregate.mean(rows, WEIGHT))


@every_rule
@pytest.mark.parametrize('hole', [np.nan, np.inf, 1e38])
def test_absent_rows_do_not_matter(name, hole, rows):
  present = RULES[name](rows[WEIGHT > 0], WEIGHT[WEIGHT > 0])
  rows[WEIGHT == 0] = hole
  close(JITTED[name](rows, WEIGHT), present)


def test_the_geometric_median_minimises_the_sum_of_distances_and_keeps_the_tree(rows):
  tree = {'a': rows[:, :4], 'b': rows[:, 4:].reshape(8, 2, 3)}
  found = JITTED['geometric_median'](tree, WEIGHT)
  middle = np.concatenate([found['a'], found['b'].ravel()])
  close(middle, JITTED['geometric_median'](rows, WEIGHT))
  pull = (rows - middle) / np.linalg.norm(rows - middle, axis=1, keepdims=True)
  assert np.linalg.norm(WEIGHT @ pull) < 1e-3  # the condition of the minimum: unit vectors to the rows cancel


def test_the_geometric_median_resists_one_outlier(rows):
  clean = JITTED['geometric_median'](rows, WEIGHT)
  radius = np.linalg.norm(rows - np.asarray(clean), axis=1).max()
  rows[0] = 1e4
  assert np.linalg.norm(JITTED['geometric_median'](rows, WEIGHT) - clean) < radius
  assert np.linalg.norm(aggregate.mean(rows, WEIGHT) - clean) > 100 * radius


def test_the_confident_mean_weighs_by_the_largest_probability():
  rows = np.log([[0.9, 0.05, 0.05], [0.4, 0.3, 0.3]]).astype(np.float32)
  close(JITTED['confident_mean'](rows, np.ones(2, np.float32)), (0.9 * rows[0] + 0.4 * rows[1]) / 1.3)


@pytest.mark.slow
@pytest.mark.parametrize(('method', 'name'), [('fedavg', 'geometric_median'), ('fedhe', 'confident_mean')])
def test_by_value_and_by_dotted_path_are_the_same_run(method, name, tmp_path, monkeypatch):
  images = runs.save_images(tmp_path / 'tiny.npz')
  (tmp_path / 'my_rules.py').write_text('\n\n'.join(SOURCES))
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'my_rules', raising=False)
  rules = {'value': RULES[name], 'path': f'my_rules:{name}', 'mean': 'mean'}
  digest = {}
  for label, rule in rules.items():
    config = runs.config(images, method=method, rounds=4, rule=rule)
    config.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
    digest[label] = experiment.run(config, tmp_path / label, show=False)['state_sha256']
  assert digest['value'] == digest['path'] != digest['mean']
