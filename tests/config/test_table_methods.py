"""configs/table.py with every method."""

import pytest

from configs import table
from fedkd import config
from fedkd.errors import ConfigError
from fedkd.experiment.build.assembly import build
from helpers import cases

PUBLIC = r'there are no public rows; give .* in a config data.public or data.public_share above 0'
EQUAL = (
  r'groups have different architectures \(.*\), so their weights cannot be averaged; give all clients equal modules'
)
SHARES = r'groups: what MLP 64-32 shares is .*; share layers of equal shapes, or give the models features of one width'
NESTED = r'groups: MLP 32 is not a sub-network of MLP 64-32, .*; use one architecture with several values of rate'
REFUSED = {
  **dict.fromkeys(('dsfl', 'fccl', 'feddf', 'fedh2l', 'fedkt', 'fedmd', 'ktpfl', 'public', 'rhfl'), PUBLIC),
  **dict.fromkeys(('scarlet', 'selective_fd'), PUBLIC),
  **dict.fromkeys(('ditto', 'fedavg', 'fedprox', 'fiarse', 'moon', 'scaffold'), EQUAL),
  **dict.fromkeys(('fedbabu', 'fedgen', 'fedper', 'fedrep'), SHARES),
  **dict.fromkeys(('federated_dropout', 'fedrolex', 'heterofl'), NESTED),
  'fedgkt': 'groups: MLP 32 has no feature map that fedgkt could send; use GKTClient',
}


def check_builds(chosen):
  """Checks that a config is built, and that its client updates are of five steps."""
  build(chosen, dry=True)
  if 'steps' in chosen.method:
    assert (chosen.method.steps, chosen.method.epochs) == (5, None)


LIKE = {'fedprox', 'fiarse', 'scaffold', 'fccl', 'ktpfl', 'rhfl', 'selective_fd', 'fedper', 'fedrep', 'fedrolex'}
LIKE |= {'federated_dropout', 'felo', 'fedtgp', 'fedmrl', 'fedapen', 'coboosting'}  # others that are built take part


@pytest.mark.parametrize('name', cases(config.KINDS['method'].choices, slow=LIKE))
def test_a_table_learns_with_every_method_or_is_told_what_it_lacks(name):
  chosen = table.get_config(f'smoke,clients=2,method={name}')
  if name not in REFUSED:
    check_builds(chosen)
    return
  with pytest.raises(ConfigError, match=REFUSED[name]):
    build(chosen, dry=True)
  if REFUSED[name] is PUBLIC:
    chosen.data.public_share = 0.1
  else:
    chosen.groups = ({'model': 'GKTClient' if name == 'fedgkt' else 'MLP', 'clients': 2},)
  if name != 'fedgkt':  # which is of images
    check_builds(chosen)
