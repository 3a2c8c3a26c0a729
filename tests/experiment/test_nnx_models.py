"""NNX classes in a config."""

import numpy as np
import pytest

import runs
from fedkd import experiment
from fedkd.errors import ConfigError
from helpers import cases

METHODS = {
  'fedhe': {},
  'fedproto': {'steps': 0, 'epochs': 1},
  'fedmd': {'epochs': 0, 'subset': 20, 'digest_batch': 10},
}


@pytest.mark.parametrize('method', cases(METHODS, slow=['fedmd', 'fedproto']))
def test_a_config_names_an_nnx_class_and_its_run_is_loaded_again(images, tmp_path, method):
  config = runs.config(images, method, rounds=2, **METHODS[method])
  config.data.public = f'npz:{images}' if method == 'fedmd' else ''
  config.groups = ({'model': 'nnx_nets:Net', 'inputs': 144, 'clients': 4},)
  experiment.run(config, tmp_path, show=False)
  module, variables = experiment.load(tmp_path, client=2, trust=True)
  x = np.load(images)['x_test'][:9]
  logits, out = module.apply(variables, x, False)
  assert logits.shape == (9, 6 if config.data.public else 3)  # those of public images are classes of their own
  np.testing.assert_array_equal(module.apply(variables, out['features'], method='head'), logits)
  np.testing.assert_allclose(experiment.logits(tmp_path, x, trust=True)[2], logits, rtol=1e-5, atol=1e-5)
  moved = variables['batch_stats']['net']['net']['norm']['mean']
  assert np.abs(moved).max() > 0


@pytest.mark.parametrize(
  ('entry', 'says'),
  [
    ({'model': 'nnx_nets:Net', 'depth': 2}, r"groups\[0\], a Net, has no field 'depth'; it has width, inputs"),
    ({'model': 'nnx_nets:Plain'}, r"groups\[0\].model='nnx_nets:Plain' has no field 'classes'"),
    ({'model': 'nnx_nets:fixed'}, r'groups\[0\]: Net returns 2 logits for 3 classes'),
  ],
)
def test_what_a_config_cannot_build_is_refused(images, tmp_path, entry, says):
  config = runs.config(images)
  config.groups = ({**entry, 'clients': 4},)
  with pytest.raises(ConfigError, match=says):
    experiment.run(config, tmp_path, show=False)
