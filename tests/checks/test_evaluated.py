"""What an evaluation calls is looked at before training."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
import runs
from fedkd import evaluation, methods, models
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly
from fedkd.types import apply_model

PRIVATE = methods.private(optax.sgd(0.1), steps=1, batch=4)
LABEL = np.arange(12) % 3
NETS = [models.MLP((4,), classes=3)] * 2 + [models.MLP((5,), classes=3)]
LINE = r'\S+ \(test_evaluated.py, line \d+(: .*)?\) '


def kept_by_the_server(variables):
  """Private, and a server that keeps zeros for all three clients; `variables` of them."""
  zeros = lambda tree: jax.tree.map(lambda a: jnp.zeros((3, *a.shape)), tree)
  server = PRIVATE.server._replace(
    init=lambda key, groups, first, data: zeros(first[0]), receive=lambda *args: (args[3], {})
  )
  return PRIVATE._replace(server=server, variables=variables)


def of_first(state, g):
  return jax.tree.map(lambda a: a[0], PRIVATE.variables(state, g))


MISFITS = {
  'without an axis of clients': (
    PRIVATE._replace(variables=of_first),
    rf'^Method.variables {LINE}returned \[4\] at .* for MLP 4 of 2 clients; let leaves be \[1, ...\], one for all, or '
    r'\[2, ...\], rows of its clients: of \[K, ...\], fedkd.rows.fetch_rows takes them by the data.private.id that ',
  ),
  'of all clients': (
    kept_by_the_server(lambda state, g: state.server),
    rf'^Method.variables {LINE}returned \[3, 4\] at .* for MLP 4 of 2 clients; let leaves be ',
  ),
  'of another group': (
    PRIVATE._replace(variables=lambda state, g: PRIVATE.variables(state, 0)),
    rf'^Method.variables {LINE}returned \[2, 4\] at .* for MLP 5 of 1 clients; let leaves be ',
  ),
  'of another network': (
    PRIVATE._replace(variables=lambda state, g: jax.tree.map(lambda a: a[:1], PRIVATE.variables(state, 0))),
    rf'^Method.variables {LINE[:-1]}: an evaluation fails with For parameter "kernel" in ',
  ),
  'parameters alone': (
    PRIVATE._replace(variables=lambda state, g: PRIVATE.variables(state, g)['params']),
    rf"^Method.variables {LINE}returned a dict of net for MLP 4; let it return {{'params', 'batch_stats'}}, and ",
  ),
  'no dict': (
    PRIVATE._replace(variables=lambda state, g: 3),
    rf'^Method.variables {LINE}returned 3, an int for MLP 4',
  ),
  'text': (
    PRIVATE._replace(variables=lambda state, g: {**PRIVATE.variables(state, g), 'name': 'a'}),
    rf"^Method.variables {LINE}returned for MLP 4 'a', a str at \['name'\] in its variables; let it be a pytree ",
  ),
  'an error': (
    PRIVATE._replace(variables=lambda state, g: state.nothing),
    rf"^Method.variables {LINE}raised AttributeError: 'State' object has no",
  ),
  'three deployed': (
    PRIVATE._replace(deployed=lambda model, variables, server, g: (model, variables, server)),
    rf"^Method.deployed {LINE}returned a tuple of 3; let it return \(module, {{'params', 'batch_stats'}}\)$",
  ),
  'a model without variables': (
    PRIVATE._replace(deployed=lambda model, variables, server, g: (variables, model)),
    rf"^Method.deployed {LINE}returned a dict and a Preprocessed; let it return \(module, {{'params', ",
  ),
  'an error in deployed': (
    PRIVATE._replace(deployed=lambda model, variables, server, g: (model, variables['own'])),
    rf"^Method.deployed {LINE}raised KeyError: 'own'$",
  ),
  'a calibrated state with more': (
    PRIVATE._replace(calibrate=lambda groups, state, data, which: (state, {})),
    rf'^Method.calibrate {LINE}returned a tuple; let it return the state, changed by state._replace\(...\)$',
  ),
  'a calibration that fails': (
    PRIVATE._replace(calibrate=lambda groups, state, data, which: state.nothing),
    rf'^Method.calibrate {LINE}raised AttributeError: ',
  ),
}


@pytest.mark.parametrize('name', MISFITS)
def test_what_an_evaluation_calls_is_looked_at_before_training(name):
  method, words = MISFITS[name]
  federation = fedkd.federation(np.eye(3, dtype=np.float32)[LABEL], LABEL, np.arange(12) % 3, NETS)
  with pytest.raises(ConfigError, match=words) as caught:
    fedkd.simulation(method, federation)
  assert '\n' not in str(caught.value)


def test_methods_of_this_package_are_not_traced_for_it():
  one = lambda model, variables, server, x: jnp.zeros((len(x), 3))
  assert evaluation.tried(methods.fedproto(optax.sgd(0.1))) == []
  assert evaluation.tried(PRIVATE._replace(variables=of_first, predictions=(('own', apply_model),))) == ['']
  assert evaluation.tried(PRIVATE._replace(predictions=(('one', one), ('own', apply_model)))) == ['one']


def everybodys(tx, steps: int = 1):
  """A method that a config may name: its server keeps models of all clients, and gives them out as those of a group."""
  of_all = lambda tree: jax.tree.map(lambda a: jnp.zeros((4, *a.shape)), tree)
  private = methods.private(tx, steps=steps)
  server = private.server._replace(init=lambda key, groups, first, data: of_all(first[0]), receive=keep)
  return private._replace(server=server, variables=lambda state, g: state.server)


def keep(key, t, groups, state, uploads, ids, data):
  return state, {}


@pytest.mark.parametrize('store', [False, True])
def test_a_run_looks_at_it_before_training_too(tmp_path, store):
  config = runs.config(runs.save_images(tmp_path / 'images.npz'))
  config.method = fedkd.config.method(f'{__name__}:everybodys')
  config.client_store = str(tmp_path / 'store') if store else ''
  with pytest.raises(
    ConfigError, match=rf'^Method.variables {LINE}returned \[4, .* for MLP 8 of 2 clients; let leaves'
  ):
    assembly.build(config, dry=True)
