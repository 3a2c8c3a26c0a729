"""The newcomer's example of the docs: FedProto in one file, through the public entry points and in a config."""

import ast
import io
import tokenize

import jax
import numpy as np
import optax
import pytest

import fedkd
import runs
from fedkd import config as base
from fedkd import experiment, local
from fedkd.types import Data, ExampleIndices, Pool

CLASSES = 3
KEY = jax.random.key(0)


@pytest.fixture
def fedproto(request, monkeypatch):
  """The module; 'fedproto:fedproto' names it in a config."""
  monkeypatch.syspath_prepend(str(request.config.rootpath / 'docs' / 'examples'))
  import fedproto

  return fedproto


def code_lines(text) -> int:
  """Lines with code: no docstrings, comments or blank lines."""
  written = set()
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
      written |= set(range(token.start[0], token.end[0] + 1)) if token.string else set()
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
      written -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
  return len(written)


def vectors():
  random = np.random.default_rng(0)
  y = np.arange(120) % CLASSES
  return (2 * random.normal(size=(CLASSES, 6)))[y] + random.normal(size=(120, 6)), y


def test_it_fits_in_sixty_lines(request):
  assert code_lines('"""Text."""\n\nx = 1  # why\n# why\ny = (\n  2,\n)\n') == 4
  assert code_lines((request.config.rootpath / 'docs' / 'examples' / 'fedproto.py').read_text()) <= 60


def test_prototypes_are_class_means_of_features(fedproto):
  x, y = vectors()
  own = np.array([3, 4, 6, 9, 12, 15])  # nothing of class 2
  index = np.pad(own, (0, 2))
  data = Data(Pool(x.astype(np.float32), y), ExampleIndices(index, np.int32(len(own)), np.int32(0)), None)
  model = fedkd.models.MLP((5,), classes=CLASSES)
  variables = {'batch_stats': {}, **model.init(KEY, data.pool.example[:1], False)}
  value, count = fedproto.prototypes(model, local.start(variables, optax.sgd(0.1)), data)
  dense = variables['params']['layers_0']
  features = np.maximum(x[own] @ np.asarray(dense['kernel']) + np.asarray(dense['bias']), 0)
  assert count.tolist() == [5, 1, 0]
  for c in (0, 1):
    np.testing.assert_allclose(value[c], features[y[own] == c].mean(0), rtol=1e-5, atol=1e-6)


def test_it_runs_through_the_door_and_sends_one_vector_per_class(fedproto):
  x, y = vectors()
  mlp = lambda *widths: fedkd.models.MLP(widths, classes=CLASSES)
  parts = np.array_split(np.arange(90), 3)
  federation = fedkd.federation(x, y, parts, [mlp(5), mlp(5), mlp(8, 5)])
  simulation = fedkd.simulation(fedproto.fedproto(optax.adam(0.03), epochs=2, batch=15), federation)
  state, report = simulation.run(simulation.init(KEY), rounds=20)
  assert simulation.accuracy(state, x[90:], y[90:]).mean() > 0.7
  assert fedkd.ledger.total(report.up)['knowledge'][0] == 20 * 3 * CLASSES * 5
  # What the server holds is the mean of all examples' features, each by its owner's model.
  features = np.concatenate(
    [m.apply(v, x[part], False)[1]['features'] for part, (m, v) in zip(parts, simulation.models(state), strict=True)]
  )
  held = state.server['sum'] / state.server['count'][:, None]
  for c in range(CLASSES):
    np.testing.assert_allclose(held[c], features[y[:90] == c].mean(0), rtol=1e-4, atol=1e-5)


def test_steps_turn_the_default_of_epochs_off_as_in_the_package(fedproto):
  x, y = vectors()
  federation = fedkd.federation(x, y, np.arange(120) % 2, fedkd.models.MLP((4,), classes=CLASSES))
  simulation = fedkd.simulation(fedproto.fedproto(optax.sgd(0.1), steps=2, batch=5), federation)
  _, report = simulation.round(simulation.init(KEY))
  assert report.info[0]['examples'].tolist() == [10, 10]


@pytest.mark.slow
def test_it_runs_in_a_config_by_module_and_function(fedproto, tmp_path):
  config = runs.config(runs.save_images(tmp_path / 'tiny.npz'), rounds=2)
  config.groups = ({'model': 'MLP', 'hidden': (8,)}, {'model': 'MLP', 'hidden': (12, 8)})
  config.method = base.method('fedproto:fedproto', batch=20)
  summary = experiment.run(config, tmp_path / 'run', show=False)
  assert summary['method'] == 'fedproto'
  assert summary['ledger']['up']['knowledge']['numbers'] == [2 * 4 * CLASSES * 8]
