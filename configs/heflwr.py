"""Sub-networks of one LeNet on MNIST, eight clients of four widths: the table of HeFlwr's homepage.

  python -m launch.main --config=configs/heflwr.py:paper,method=heterofl,split=iid --workdir=runs/heterofl

Two clients each have a quarter, a half, three quarters and all of a network's channels; all take part in every round,
with a pass in batches of 64 and a fresh Adam. `accuracy` is the mean over clients, each with its own sub-network, on
the test set. `split`: iid, or dirichlet (0.5). `method`: fedavg, the whole network for all; heterofl, fedrolex (whose
window moves on by a quarter), federated_dropout; fedrolex_misplaced and federated_dropout_misplaced, with an error of
HeFlwr's server (`launch.studies.papers.misplaced`); private, agg, with the whole network.

Every mean is by n_k over the clients that hold a number, and no loss ignores a class. FedRolex and Federated Dropout
are evaluated with the parts that were trained in the last round. FjORD with its distillation and MFL are not there.

`paper`: 50 rounds. `small`: 10 000 images. `smoke`: seconds, on the embedded images. Results: docs/results/heflwr.md.

Measured with split=iid (2-core CPU shared with other work, seeds 0, 1, 2), per cent; by a client's own sub-network, and
by the whole:

| method | printed | `paper` | whole network | `small` | whole network |
| --- | --- | --- | --- | --- | --- |
| fedavg | 99.30 | 99.16 ± 0.16 | | 98.33 ± 0.29 | |
| heterofl | 98.44 | 98.06 ± 0.36 | | 94.81 ± 1.47 | |
| fedrolex | 97.55 | 96.83 ± 1.82 | 98.74 ± 0.22 | 92.75 ± 2.62 | 97.27 ± 0.62 |
| fedrolex_misplaced | 97.55 | 97.27 ± 0.85 | 98.35 ± 0.41 | 93.33 ± 0.80 | 96.22 ± 0.82 |
| federated_dropout | 26.32 | 83.23 ± 4.34 | 98.84 ± 0.14 | 78.50 ± 1.72 | 96.90 ± 0.51 |
| federated_dropout_misplaced | 26.32 | 19.27 ± 14.26 | 29.57 ± 26.73 | 12.46 ± 1.78 | 13.16 ± 3.91 |
| private | | | | 94.74 ± 0.19 | |
| agg | | | | 97.27 ± 0.47 | |

With the error of HeFlwr's server Federated Dropout fails as it does there. A row of three seeds takes about four
minutes in `small` and six to twenty in `paper`.
"""

import numpy as np

from fedkd import config as base

WIDTHS = (0.25, 0.5, 0.75, 1.0)
CLIENTS = 8
NET = {'model': 'LeNet', 'filters': (8, 16)}
TURN = {'steps': None, 'epochs': 1, 'batch': 64, 'keep_optimizer': False}
NESTED = ('heterofl', 'fedrolex', 'federated_dropout')
SUB = {'masked': False, 'weighted': True, 'inference': 'trained', 'stride': 0.25}
MISPLACED = '_misplaced'
ROWS = {'paper': 60_000, 'small': 10_000, 'smoke': 4000}


def get_config(arg=''):
  choice = base.parse(arg, ('paper', 'small', 'smoke'), method='heterofl', split=('iid', 'dirichlet'))
  config = base.default()
  config.name = f'heflwr_mnist_{choice.split}'
  config.groups = groups(choice.method)
  config.method = method(choice.method, ROWS[choice.profile], config.groups)
  config.optimizer = base.optimizer('adam', learning_rate=1e-3)
  config.data.update({'name': 'mnist', 'size': 32, 'validation': 0.0, 'clients': CLIENTS})
  config.data.normalise = 'configs.heflwr:torchvision'
  if choice.split == 'dirichlet':
    config.data.partition = base.partition('dirichlet', concentration=0.5, smallest=100)
  config.seeds, config.rounds, config.eval_every, config.eval_rows = (0, 1, 2), 50, 10, 0
  if choice.profile == 'small':
    config.data.rows = ROWS['small']
  if choice.profile == 'smoke':
    config.seeds, config.rounds, config.eval_every, config.data.name = (0,), 2, 1, 'mnist_5k'
  return base.finish(config, choice)


def method(name, rows, groups):
  """A method's settings; agg, whose clients all train on the rows of all, takes as many batches as the others."""
  fields, plain = {**TURN}, name.removesuffix(MISPLACED)
  if plain in NESTED:
    fields |= SUB
  if plain != name:
    name = f'launch.studies.papers.misplaced:{plain}'
    fields = {'epochs': 1, 'batch': TURN['batch'], 'rates': tuple(group['rate'] for group in groups)}
    return base.method(name, **fields)
  if name == 'agg':
    fields |= {'epochs': None, 'steps': round(rows / CLIENTS / TURN['batch'])}
  known = base.method(name)
  return base.method(name, **{field: value for field, value in fields.items() if field in known})


def groups(method) -> tuple:
  """Two clients of each width; for Federated Dropout every client by itself, so that each draws its own channels; for
  others than sub-networks all clients with the whole."""
  plain, two = method.removesuffix(MISPLACED), CLIENTS // len(WIDTHS)
  if plain not in NESTED:
    return (NET,)
  each = 1 if plain == 'federated_dropout' else two
  return tuple({**NET, 'rate': width, 'clients': each} for width in WIDTHS for _ in range(two // each))


def torchvision(train_image, name) -> tuple:
  """The mean and deviation of MNIST's pixels that its examples name, at whatever size."""
  del train_image, name
  return np.float32([255 * 0.1307]), np.float32([1 / (255 * 0.3081)])
