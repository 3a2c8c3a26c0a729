"""It learns, on real images, in seconds."""

import pytest

from configs import fedhe_digits
from fedkd import experiment


@pytest.mark.slow
@pytest.mark.parametrize('method', [pytest.param('private', marks=pytest.mark.slow), 'fedhe'])
def test_four_clients_learn_mnist_5k(method, tmp_path):
  config = fedhe_digits.get_config(f'small,method={method}')
  config.groups = (
    {'model': 'TwoConv', 'clients': 2, 'filters': (4, 8)},
    {'model': 'MLP', 'clients': 2, 'hidden': (64,)},
  )
  config.data.clients, config.seeds, config.rounds, config.eval_every = 4, (0,), 40, 40
  summary = experiment.run(config, tmp_path, show=False)
  assert summary['final'][0] > 0.8
