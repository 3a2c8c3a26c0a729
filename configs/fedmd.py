"""FedMD: transfer learning, then collaboration on the logits of public images (Li and Wang, 2019, Figure 2, Table 4).

  python -m launch.main --config=configs/fedmd.py:small,setting=femnist_iid,method=fedmd --workdir=runs/fedmd

`setting`: femnist_iid, femnist_first (the run that the authors' first repository stores, on the letters k to p
instead of a to f), femnist_noniid (needs emnist-letters.npz in data.dir, made of the published
file as docs/running/data.md shows), cifar_iid, cifar_noniid, or
cifar_weak (models 0 and 9 are two-layer networks). `method`: fedmd; pooled, every model on all private data, and
private, every model alone, for 50 passes; private_long, alone for as many passes as FedMD's private phase and revisits
together, with the batches of the revisits. All three warm-start from the public phase of the neighbouring run `fedmd`.
`weights`: `uniform`, or `paper` (models 0 and 9 count half). `zoo`: table1 or table2 for the CIFAR nets;
`superclasses`: paper or code.

`paper`: ten nets, all public images. `medium`: as that, nets of a quarter of the width, all passes. `small`: models 0,
5, 8, 9 at full width, 20 000 public images, three passes over them, 8 rounds on 2 000 images, with the distillation
batch and the passes of `femnist_first`: with those of `femnist_iid` a round has 8 distillation steps where the paper
has 20. For CIFAR a quarter of the width, six passes, and 1 000 images, so 8 distillation steps a round where the paper
has 20 (cifar_iid) or 40 (cifar_noniid). In cifar_iid and cifar_weak the 25 passes of the private phase, and the 50 of
`private`, are of one step each, after which the deeper of these nets still answer with public classes, so that FedMD is
better judged against `private_long`. `smoke`: seconds, on embedded digits. The published early stopping watches the
test sets, as does `paper` alone, and there `private_long` does not stop; elsewhere passes are fixed. Results:
RESULTS.md.
"""

from configs import fedhe_mnist
from fedkd import config as base

# Table 2 of the paper: filters and dropout.
TABLE_2 = (
  ((128, 256), 0.2),
  ((128, 128, 192), 0.2),
  ((64, 64, 64), 0.2),
  ((128, 64, 64), 0.3),
  ((64, 64, 128), 0.4),
  ((64, 128, 256), 0.2),
  ((64, 128, 192), 0.2),
  ((128, 192, 256), 0.2),
  ((128, 128, 128), 0.3),
  ((64, 64, 64, 64), 0.2),
)
KIND = {2: 'TwoConv', 3: 'ThreeConv', 4: 'FourConv'}
# Data, and the round: distillation batch, passes of the revisit and its batch, rounds (the authors' code).
SETTINGS = {
  'femnist_iid': ({'name': 'emnist/letters', 'keep': (1, 2, 3, 4, 5, 6), 'public': 'mnist'}, (256, 2, 5, 20)),
  'femnist_first': (
    {'name': 'emnist/letters', 'keep': (11, 12, 13, 14, 15, 16), 'public': 'mnist'},
    (128, 10, 5, 13),
  ),
  'femnist_noniid': (
    {
      'name': 'npz:emnist-letters.npz',
      'keep': (1, 2, 3, 4, 5, 6),
      'public': 'mnist',
      'partition': base.partition('writers'),
    },
    (256, 4, 5, 20),
  ),
  'cifar_iid': ({'name': 'cifar100', 'keep': (0, 2, 20, 63, 71, 82), 'public': 'cifar10'}, (256, 4, 5, 20)),
  'cifar_noniid': (
    {
      'name': 'cifar100',
      'label': 'coarse_label',
      'keep': (0, 1, 2, 3, 4, 5),
      'public': 'cifar10',
      'partition': base.partition('few_by_origin', per_class=20),
    },
    (128, 10, 10, 13),
  ),
}
SETTINGS['cifar_weak'] = SETTINGS['cifar_iid']
SUPERCLASSES = {'paper': (0, 1, 2, 3, 4, 5), 'code': (0, 1, 7, 9, 12, 18)}
SMALL = (0, 5, 8, 9)  # models
TRANSFER = 25  # passes of the private phase
# Of the `paper` profile: patience and min_delta (the authors' code); it leaks the test set.
PUBLIC_STOP = {'watch': 'accuracy_public', 'patience': 3}
PRIVATE_STOP = {'watch': 'accuracy', 'min_delta': 0.001}


def zoo(setting, table, width=1.0, profile='paper') -> tuple:
  """One client for each of the ten models."""
  table_1 = [(filters, dropout) for filters, dropout in (*fedhe_mnist.TWO_CONV, *fedhe_mnist.THREE_CONV)]
  nets = table_1 if table == 'table1' else TABLE_2
  common = {'clients': 1, 'initialiser': 'glorot_uniform', 'penalty': 1e-3, **fedhe_mnist.momentum(profile)}
  groups = [{'model': KIND[len(f)], 'filters': fedhe_mnist.narrow(f, width), 'dropout': q, **common} for f, q in nets]
  if setting == 'cifar_weak':
    for i in (0, 9):
      groups[i] = {'model': 'MLP', 'hidden': fedhe_mnist.narrow((256,), width), 'clients': 1}
  return tuple(groups)


def get_config(arg=''):
  words = {'setting': tuple(SETTINGS), 'weights': ('uniform', 'paper'), 'zoo': ('', 'table1', 'table2')}
  profiles = ('paper', 'medium', 'small', 'smoke')
  choice = base.parse(arg, profiles, method='fedmd', clients='', superclasses=tuple(SUPERCLASSES), **words)
  data, (digest_batch, revisit, batch, rounds) = SETTINGS[choice.setting]
  config = base.default()
  config.name = f'fedmd_{choice.setting}'
  config.optimizer.eps = 1e-7  # Keras's
  config.plan = base.plan('synchronous')
  config.data.partition, config.data.validation, config.data.clients = base.partition('few'), 0.0, 10
  config.data.update(data)
  if choice.setting == 'cifar_noniid':
    config.data.keep = SUPERCLASSES[choice.superclasses]
  table = choice.zoo or ('table1' if 'femnist' in choice.setting else 'table2')
  config.groups = zoo(choice.setting, table, profile=choice.profile)
  config.seeds, config.eval_every, config.eval_rows = (0, 1, 2), 1, 0
  passes, subset = 20, 5000
  if choice.profile == 'medium' or (choice.profile == 'small' and 'cifar' in choice.setting):
    config.groups = zoo(choice.setting, table, 0.25, choice.profile)
  if choice.profile == 'small':
    rounds, passes, subset, config.seeds, config.data.public_rows = 8, 3, 2000, (0,), 20_000
    if 'cifar' in choice.setting:
      passes, subset, config.seeds = 6, 1000, (0, 1, 2)
    digest_batch, revisit = SETTINGS['femnist_first'][1][:2]
    config.groups = tuple(config.groups[i] for i in SMALL)
    config.data.clients = len(SMALL)
  if choice.profile == 'smoke':
    rounds, passes, subset, config.seeds, config.data.public_rows = 2, 1, 64, (0,), 256
    nets = zoo(choice.setting, 'table1', width=0.02, profile=choice.profile)
    config.groups = tuple({**net, 'clients': 2} for net in (nets[0], nets[5]))
    config.data.update({'name': 'mnist_5k', 'public': 'mnist_5k', 'label': 'label'})
    config.data.partition = base.partition('few')
    config.data.keep, config.data.clients, config.eval_rows = (0, 1, 2, 3, 4, 5), 4, 200
  if choice.clients:
    base.spread(config, base.number('clients', choice.clients, int, least=1))
  epoch = {'steps': None, 'epochs': 1}
  transfer = TRANSFER if choice.profile != 'smoke' else 2
  public, private = {}, {}
  if choice.profile == 'paper':
    public = {'early_stop': {**PUBLIC_STOP, 'min_delta': 0.005 if 'cifar' in choice.setting else 0.001}}
    private = {'early_stop': {**PRIVATE_STOP, 'patience': 5 if choice.setting == 'femnist_first' else 10}}
  if choice.method == 'fedmd':
    weights = (0.5, *(1.0,) * (config.data.clients - 2), 0.5) if choice.weights == 'paper' else ()
    config.before = (
      {'name': 'public', 'rounds': passes, **epoch, 'batch': 128, **public},
      {'name': 'private', 'rounds': transfer, **epoch, 'batch': 32, **private},
    )
    config.method = base.method(
      'fedmd', subset=subset, digest_batch=digest_batch, epochs=revisit, batch=batch, weights=weights
    )
    config.rounds = rounds + 1  # the first only uploads logits
  else:
    long = choice.method == 'private_long'
    own = {'name': 'private'} if long else {'name': choice.method}
    scope = {'name': 'agg', 'scope': 'everyone'} if choice.method == 'pooled' else own
    config.method = base.method(**scope, **epoch, batch=batch if long else 32)
    config.rounds = transfer + rounds * revisit if long else 2 * transfer
    config.init_from = 'fedmd@0'
    if not long:
      config.early_stop.update(private.get('early_stop', {}))
    config.eval_every = 1 if private else 5
  return base.finish(config, choice)
