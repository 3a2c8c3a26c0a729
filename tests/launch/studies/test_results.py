"""What the committed results must be, whatever their numbers."""

import pathlib

import numpy as np
import pytest

from fedkd import models
from fedkd.analysis import results
from fedkd.experiment import warm_up

FOLDER = pathlib.Path(__file__).parents[3] / 'results'
FILES = sorted(path for path in FOLDER.glob('*/*/*.json') if path.stem != 'features')
PYTORCH = 0.9  # the decay of all nets with BatchNorm that have no field for it


def decay(group) -> float:
  """Of BatchNorm's running statistics in a net without pre-trained weights; 0 if it has none."""
  if group['model'] in ('MLP', 'LeNet', 'AlexNet', 'VGG11') or group.get('weights'):
    return 0.0
  fields = getattr(models, group['model']).__dataclass_fields__
  return group.get('momentum', fields['momentum'].default if 'momentum' in fields else PYTORCH)


def share(result) -> float:
  """Of the initial statistics at the first evaluation after training began; after several phases, at the end."""
  config, curve = result['config'], result.get('curve') or []
  slowest = max(map(decay, config['groups']), default=0.0)
  blocks = [*config.get('before', ()), config['method']]
  batch = max(block.get('batch') or 0 for block in blocks)
  first = next((row for row in curve if row['round'] > 0), None)
  if not first or config.get('init_from') or config['method']['name'] == 'heterofl' or not batch:
    return 0.0  # HeteroFL gathers statistics before every evaluation
  clients, examples = config['data']['clients'], np.asarray(result['per_seed']['examples'], float)
  if len(blocks) > 1:
    return float(slowest ** (examples.mean() / clients / batch))
  part = first['round'] / config['rounds']
  totals = {'turns': part * result['turns'], 'examples': part * examples, 'down': result['ledger']['down']}
  return warm_up.initial_share(slowest, totals, first['round'], clients, batch)


@pytest.mark.parametrize('path', FILES, ids=['/'.join(path.parts[-3:]) for path in FILES])
def test_no_row_is_evaluated_with_statistics_that_it_could_not_have_learned(path):
  assert share(results.read(path)) <= warm_up.TOO_MUCH
