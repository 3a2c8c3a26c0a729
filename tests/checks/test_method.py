"""The parts of a method are of the right kinds before any of them is called."""

import numpy as np
import optax
import pytest

import fedkd
import runs
from fedkd import methods, models, servers
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly

GOOD = methods.private(optax.sgd(0.1), steps=1, batch=4)
LABEL = np.arange(12) % 3
FEDERATION = fedkd.federation(np.eye(3, dtype=np.float32)[LABEL], LABEL, LABEL % 2, models.MLP((4,), classes=3))


def swapped(tx, steps: int = 1):
  """A method that a config may name."""
  return GOOD._replace(client=GOOD.server, server=GOOD.client)


SERVER = r'give fedkd.Server\(init, receive, send\), or fedkd.servers.silent\(\)$'
WRONG = {
  'swapped': (swapped(None), r'^method.client is a Server; give fedkd.Client\(init, step\)$'),
  'a step in place of a client': (
    GOOD._replace(client=GOOD.client.step),
    r'^method.client is the function step, not called; give fedkd.Client\(init, step\)$',
  ),
  'no server': (GOOD._replace(server=None), f'^method.server is None; {SERVER}'),
  'a server, not called': (
    GOOD._replace(server=servers.silent),
    f'^method.server is the function silent, not called; {SERVER}',
  ),
  'no step': (
    GOOD._replace(client=GOOD.client._replace(step=None)),
    r'^method.client.step is None; give a function \(key, t, model, state, download, data\) -> \(state, upload, ',
  ),
  'a first state in place of what makes it': (
    GOOD._replace(server=GOOD.server._replace(init=())),
    r'^method.server.init is a tuple; give a function \(key, groups, variables, data\) -> state$',
  ),
  'no models': (GOOD._replace(variables={}), r'^method.variables is a dict; give a function \(state, g\) -> '),
  'a calibrated state': (GOOD._replace(calibrate=3), r'^method.calibrate is 3, an int; .* -> state, or None$'),
  'a name without a prediction': (
    GOOD._replace(predictions=(('near',),)),
    '^method.predictions has a tuple; give pairs of a name and a function ',
  ),
  'one pair alone': (
    GOOD._replace(predictions=('near', GOOD.predict)),
    "^method.predictions has 'near', a str; give pairs of a name and a function ",
  ),
}


@pytest.mark.parametrize('name', WRONG)
def test_a_method_of_other_parts_is_refused_in_one_sentence(name):
  method, words = WRONG[name]
  with pytest.raises(ConfigError, match=words):
    fedkd.simulation(method, FEDERATION)


def test_a_config_that_names_a_factory_of_such_a_method_is_refused(tmp_path):
  config = runs.config(runs.save_images(tmp_path / 'images.npz'))
  config.method = fedkd.config.method(f'{__name__}:swapped')
  with pytest.raises(ConfigError, match=r"^method.name='.*:swapped': method.client is a Server; give fedkd.Client\("):
    assembly.build(config, dry=True)
