"""One upload in all: DENSE and Co-Boosting, which make their own images, on five clients with MNIST images (Zhang et
al., DENSE, 2022, Table 1).

  python -m launch.main --config=configs/one_shot_mnist.py:method=dense,alpha=0.1 --workdir=runs/dense

Five clients of one small CNN with BatchNorm whose labels follow a Dirichlet distribution of concentration `alpha`.
`method`: dense, coboosting; fedavg and feddf, which average the weights of as many passes once; private, agg. A random
half of the official test images is the test set, the other half are the images, without labels, that feddf learns from.

`paper`: all images, 400 passes, 200 rounds of the server. `small`: 10 000 images, 30 passes of the clients, 20 rounds
of the server, a generator a quarter as wide as the paper's. `smoke`: seconds.
"""

from configs import fedkt
from fedkd import config as base

NET = {'model': 'FedGenCNN', 'channels': (16, 32)}
SYNTHETIC = ('dense', 'coboosting')
CLIENTS = 5
# Training images, 0: all; passes of a client and its batch; rounds of the server; what else its training takes.
SIZES = {
  'paper': (0, 400, 128, 200, {}),
  'small': (10_000, 30, 64, 20, {'width': 16, 'server_batch': 128}),
  'smoke': (0, 2, 64, 2, {'width': 4, 'server_batch': 128, 'generator_steps': 3}),
}
STEPS = {'paper': 10_000, 'small': 2000, 'smoke': 20}  # of FedDF's server


def method(name, profile, rows):
  """The settings of a method: all clients train for as many passes in the first round."""
  _, epochs, batch, rounds, server = SIZES[profile]
  synthetic = {**server, 'server_rounds': rounds}
  special = {
    'dense': synthetic,
    'coboosting': synthetic,
    'agg': {'epochs': None, 'steps': round(epochs * rows / CLIENTS / batch)},  # whose clients have all rows
    'feddf': {'server_steps': STEPS[profile]},
  }
  known = base.method(name)
  fields = {'steps': None, 'epochs': epochs, 'batch': batch, **special.get(name, {})}
  return base.method(name, **{field: value for field, value in fields.items() if field in known})


def get_config(arg=''):
  choice = base.parse(arg, ('small', 'paper', 'smoke'), method='dense', alpha='0.5')
  rows, _, _, rounds, _ = SIZES[choice.profile]
  config = base.default()
  config.name = f'one_shot_mnist_{choice.alpha}'
  config.method = method(choice.method, choice.profile, 4000 if choice.profile == 'smoke' else rows or 60_000)
  config.optimizer = base.optimizer('sgd', learning_rate=0.01, momentum=0.9)
  config.plan = base.plan('synchronous')
  config.data.update({'name': 'mnist', 'rows': rows, 'clients': CLIENTS, 'validation': 0.0})
  fedkt.halve_tests(config, base.number('alpha', choice.alpha))
  config.groups = (NET,)
  config.seeds, config.eval_every, config.eval_rows = (0, 1, 2), 5, 0
  config.rounds = rounds if choice.method in SYNTHETIC else 1
  if choice.profile == 'smoke':
    config.data.name, config.seeds, config.eval_every = 'mnist_5k', (0,), 1
  return base.finish(config, choice)
