"""One upload in all: DENSE and Co-Boosting, which make their own images, on five clients with MNIST images.

  python -m launch.main --config=configs/one_shot_mnist.py:method=dense --workdir=runs/dense

Five clients of one small CNN with BatchNorm whose labels follow a Dirichlet distribution (0.5). `method`: dense,
coboosting; fedavg, which averages the weights of as many passes once, private and agg (all with `--config.rounds=1`).
`small`: 10 000 images, 30 passes of the clients, 20 rounds of the server, a generator a quarter as wide as the paper's.
`smoke`: seconds.
"""

from fedkd import config as base

NET = {'model': 'FedGenCNN', 'channels': (16, 32)}
SERVER = {'server_rounds': 20, 'width': 16, 'server_batch': 128}


def method(name, epochs):
  """The settings of a method: all clients train for as many passes in the first round."""
  special = {'dense': SERVER, 'coboosting': SERVER, **{key: {'steps': None} for key in ('private', 'agg', 'fedavg')}}
  return base.method(name, epochs=epochs, batch=64, **special.get(name, {}))


def get_config(arg=''):
  choice = base.parse(arg, ('small', 'smoke'), method='dense')
  config = base.default()
  config.name = 'one_shot_mnist'
  config.method = method(choice.method, 30)
  config.optimizer = base.optimizer('sgd', learning_rate=0.01, momentum=0.9)
  config.plan = base.plan('synchronous')
  config.data.partition = base.partition('dirichlet', concentration=0.5)
  config.data.update({'name': 'mnist', 'rows': 10_000, 'clients': 5})
  config.groups = (NET,)
  config.seeds, config.rounds, config.eval_every, config.eval_rows = (0, 1, 2), 20, 5, 0
  if choice.profile == 'smoke':
    config.data.update({'name': 'mnist_5k', 'rows': 0})
    config.seeds, config.rounds, config.eval_every = (0,), 2, 1
    config.method.epochs = 2
    if choice.method in ('dense', 'coboosting'):
      config.method.update({'generator_steps': 3, 'server_rounds': 2, 'width': 4})
  return base.finish(config, choice)
