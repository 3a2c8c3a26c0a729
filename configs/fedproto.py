"""FedProto and its baselines on MNIST, twenty clients with about n classes each (Tan et al., 2022, Table 1).

  python -m launch.main --config=configs/fedproto.py:small,method=fedproto,ways=3 --workdir=runs/fedproto

Client i has n_i classes around `ways` and 99 or 100 images of each, and 40 test images of each of its classes;
`accuracy_local` is over these, as in the paper, `accuracy` over the test images of all clients; FedProto's by
prototypes. `zoo`: homo, the authors' CNN for all; hetero, 18, 20 or 22 channels in its second convolution. `method`:
fedproto, private (the paper's Local), agg, fedavg, fedprox, or another that needs no public data.

`paper`: the published settings; batches of 4, one pass a round, 100 rounds (fedavg 150, fedprox 110). `small`: 30
rounds of the same. `smoke`: seconds, on the embedded images. Results: RESULTS.md.
"""

from fedkd import config as base

BATCH, STDEV = 4, 2
PASS = {'steps': None, 'epochs': 1, 'batch': BATCH}  # per round; the optimizer is new in each
ROUNDS = {'fedavg': 150, 'fedprox': 110}  # of the others: 100
BY = {'inference': 'prototypes'}  # as the paper predicts
SPECIAL = {'fedprox': {'mu': 0.01}, 'fedproto': BY, 'fedtgp': BY}  # mu: the paper does not say; ours
CHANNELS = {'homo': ((20, 20),), 'hetero': ((18, 7), (20, 7), (22, 6))}  # of the second convolution, and clients


def get_config(arg=''):
  choice = base.parse(
    arg, ('paper', 'small', 'smoke'), method='fedproto', ways=('3', '4', '5'), zoo=('homo', 'hetero'), clients=''
  )
  config = base.default()
  config.name = f'fedproto_mnist_{choice.ways}_{choice.zoo}'
  known = base.method(choice.method)
  ways, shots = int(choice.ways), 20 if choice.profile == 'smoke' else 100
  special = {**SPECIAL, 'agg': {'epochs': None, 'steps': steps(ways, shots)}}.get(choice.method, {})
  fields = {**PASS, 'keep_optimizer': False, **special}
  config.method = base.method(choice.method, **{name: value for name, value in fields.items() if name in known})
  config.optimizer = base.optimizer('sgd', learning_rate=0.01, momentum=0.5)
  config.data.partition = base.partition('n_way', ways=ways, stdev=STDEV, shots=shots)
  config.data.update({'name': 'mnist', 'normalise': 'standard', 'validation': 0.0})
  config.initial = 'own'  # the authors' code makes a network for every client; that of a server is the first client's
  config.groups = tuple(
    {'model': 'MnistCNN', 'channels': (10, second), 'clients': clients} for second, clients in CHANNELS[choice.zoo]
  )
  clients = config.data.clients = base.number('clients', choice.clients or 20, int, least=len(config.groups))
  if clients != 20:
    base.spread(config, clients)
  config.seeds = (0, 1, 2)
  config.rounds, config.eval_every, config.eval_rows = ROUNDS.get(choice.method, 100), 10, 0
  if choice.profile == 'small':
    config.rounds = 30
  if choice.profile == 'smoke':
    config.seeds, config.rounds, config.eval_every = (0,), 2, 1
    config.data.update({'name': 'mnist_5k', 'clients': 4, 'stride': 24, 'test_shots': 20})
    base.spread(config, 4)
  return base.finish(config, choice)


def steps(ways, shots):
  """Batches of a pass over a client's rows, in the mean: agg, whose clients have the rows of all, takes as many."""
  classes = (max(2, ways - STDEV) + ways + STDEV) / 2  # of a client, by `n_way`
  return round(classes * shots / BATCH)
