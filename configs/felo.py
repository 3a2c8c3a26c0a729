"""Felo and Velo on CIFAR-10 and CINIC-10, and their baselines (Chan and Ngai, 2022).

  python -m launch.main --config=configs/felo.py:small,method=felo,split=dir0.5 --workdir=runs/felo

`method`: felo, velo, fedhe, fedmd, fedgkt, heterofl, fedavg (zoo=resnet18), private, agg. `data`: cifar10 (20 clients)
or cinic10 (10, the folder as distributed). `split`: iid or dir0.5. `zoo`: previous (ResNet10, 14, 18, 22, 26), extreme
(10, 18, 26, 34, 50), homo (ResNet18, as in Table 2) or resnet18 (the same, compared with other zoos). `ratio`: clients
a round; empty for the paper's (a fifth; all for homo and dir0.5). `interval`: rounds between two trainings of Velo's
autoencoder. `align`: of features in `extreme`, pool (the default), group or linear. `stem` of the ResNets: imagenet (by
its accuracies the paper's) or cifar (3x3, no pool). `widths` of heterofl: dynamic (drawn anew each round) or fixed.

`paper`: SGD 0.1, batches of 10, 5 epochs per client update, 100 rounds. `light`: Adam at a constant rate, batches of
64, evaluated every 5 rounds, otherwise the same. `medium`: as `light`, nets of a quarter of the width.
`small`: nets of a quarter of the width, 10 clients of 500 images, all of them in each of 30 rounds, one epoch; so that
a seed of the slowest method takes 5 minutes without a compilation cache, on two idle cores
(`--config.seeds=0, --config.devices=2`): felo 2 minutes, fedgkt 4, fedmd 5. Where maps are larger, nets are shallower
and narrower: heterofl has an eighth of the width; fedgkt half of it on the client and a quarter on the server, whose
network makes one pass a round. `smoke`: seconds, on the embedded images.
fedgkt has all clients in every round and its own optimizer, as published, but no plateau schedule, crop and flip; its
maps of all clients' images are in memory at once, so that its seeds run one after the other. FedMD's clients share a
tenth of their examples as the public set. Velo keeps (`method.limits`) all class means of the profile's rounds, at
most 5000. With `widths=fixed` read accuracy_per_group: its first entry is the whole network.
Results: RESULTS.md.
"""

from typing import NamedTuple

from fedkd import config as base

ZOO = {'previous': (10, 14, 18, 22, 26), 'extreme': (10, 18, 26, 34, 50), 'homo': (18,), 'resnet18': (18,)}
RATES = (1.0, 0.5, 0.25, 0.125, 0.0625)
# width, images, clients, rounds, rounds between evaluations, epochs, batch, learning rate of Adam
SIZES = {
  'paper': (1.0, 0, 0, 100, 1, 5, 10, 0.0),
  'light': (1.0, 0, 0, 100, 5, 5, 64, 1e-3),
  'medium': (0.25, 0, 0, 100, 5, 5, 64, 1e-3),
  'small': (0.25, 5000, 10, 30, 3, 1, 25, 1e-3),
  'smoke': (0.03, 0, 5, 6, 2, 1, 32, 1e-2),
}
ROWS = {'cifar10': (50_000, 20), 'cinic10': (90_000, 10)}  # training images, clients


def groups(zoo, clients, width, profile, align, stem='imagenet') -> tuple:
  """Equal groups of ResNets, as far as the clients allow; for `smoke` the first and last, of two stages each."""
  fields = {'width': width} if stem == 'imagenet' else {'width': width, 'stem': stem}
  nets = [{'model': f'ResNet{depth}', **fields} for depth in ZOO[zoo]]
  if align == 'linear':  # the widest nets get a layer down to the others' width
    last = 128 if profile == 'smoke' else 512  # channels of the last stage
    wide = lambda net: {'projection': round(last * width)} if net['model'] == 'ResNet50' else {}
    nets = [{**net, **wide(net)} for net in nets]
  if profile == 'smoke':
    nets = [{**net, 'blocks': (1, 1)} for net in {net['model']: net for net in (nets[0], nets[-1])}.values()]
  dealt = [{**net, 'clients': len(range(i, clients, len(nets)))} for i, net in enumerate(nets)]
  return tuple(group for group in dealt if group['clients'])


class Setting(NamedTuple):
  """What the methods' settings depend on."""

  choice: base.ConfigDict  # the words of the config string
  training: dict  # epochs and batch of a client's update
  ratio: float  # of the clients, in a round
  interval: int  # rounds between two trainings of Velo's autoencoder

  @property
  def small(self) -> bool:
    """Whether the profile is one of the narrow ones."""
    return self.choice.profile in ('small', 'smoke')

  @property
  def initial(self) -> int:
    """Rounds of initial training."""
    return 2 if self.choice.profile == 'smoke' else 5


# One function per method: sets `config.method`, and what else the method needs.


def _knowledge(setting) -> dict:
  """What Felo and Velo have in common."""
  align = setting.choice.align or ('pool' if setting.choice.zoo == 'extreme' else 'none')
  return {**setting.training, 'initial': setting.initial, 'feature_align': 'none' if align == 'linear' else align}


def _felo(config, setting):
  config.method = base.method('felo', **_knowledge(setting))


def _velo(config, setting):
  # Room for all class means of a run, up to the paper's 5000: a vector per class, client and round.
  limits = (min(5000, round(config.rounds * config.data.clients * setting.ratio)), 50_000)
  config.method = base.method('velo', **_knowledge(setting), limits=limits, interval=setting.interval)


def _fedhe(config, setting):
  start = {'count_offset': 0.0, 'cold_start': setting.initial * setting.ratio, 'refresh_every': 0.0}
  config.method = base.method('fedhe', **setting.training, keep_optimizer=False, **start)


def _fedmd(config, setting):
  batch = setting.training['batch']
  transfer = {'epochs': 1, 'steps': None, 'batch': batch, 'keep_optimizer': False}
  passes = 1 if setting.choice.profile == 'smoke' else 5
  config.before = tuple({'name': phase, 'rounds': passes, **transfer} for phase in ('public', 'private'))
  config.before[1]['rows'] = 'unshared'  # without the public tenth
  config.data.public_share = 0.1
  config.method = base.method(
    'fedmd', **setting.training, keep_optimizer=False, subset=0, digest_batch=batch, rows='unshared'
  )
  config.rounds += 1  # the first only uploads logits
  config.milestones = tuple(m + 1 for m in config.milestones)


def _fedgkt(config, setting):
  small = setting.small
  config.groups = ({'model': 'GKTClient', 'clients': config.data.clients, 'width': 0.5 if small else 1.0},)
  config.plan = base.plan('synchronous')
  config.optimizer = base.ConfigDict({'name': 'fedkd.optimizers:amsgrad', 'learning_rate': 1e-3, 'weight_decay': 1e-4})
  config.milestones, config.data.crop, config.data.flip = (), 0, False
  config.seed_axis = 'map'  # a seed's maps take gigabytes
  server = {'small': {'server_blocks': (1, 1, 1)}, 'smoke': {'server_blocks': (1, 1)}}.get(setting.choice.profile, {})
  server |= {'server_epochs': 1, 'server_width': 0.25} if small else {}
  config.method = base.method('fedgkt', epochs=1, batch=setting.training['batch'] if small else 256, **server)


def _heterofl(config, setting):
  clients, width = config.data.clients, config.groups[0]['width'] / (2 if setting.small else 1)
  blocks = {'small': {'blocks': (1, 1, 1, 1)}, 'smoke': {'blocks': (1, 1)}}.get(setting.choice.profile, {})
  net = {'model': 'PreActResNet', 'width': width, 'first': 0, 'clients': clients, **blocks}
  config.groups = tuple({**net, 'rate': rate} for rate in RATES)
  if setting.choice.widths == 'dynamic':
    config.plan = base.plan('dynamic', ratio=setting.ratio)
  else:
    sizes = [len(range(i, clients, len(RATES))) for i in range(len(RATES))]
    config.groups = tuple(
      {**group, 'clients': size, 'first': sum(sizes[:i])}
      for i, (group, size) in enumerate(zip(config.groups, sizes, strict=True))
    )
  config.method = base.method('heterofl', **setting.training, masked=True)


def _fedavg(config, setting):
  config.method = base.method('fedavg', **setting.training, per_group=setting.choice.zoo not in ('homo', 'resnet18'))


def _private(config, setting):
  config.method = base.method('private', **setting.training, keep_optimizer=False)


def _agg(config, setting):
  rows = (config.data.rows or ROWS[setting.choice.data][0]) // config.data.clients
  batch = setting.training['batch']
  steps = setting.training['epochs'] * -(-rows // batch)
  config.method = base.method('agg', steps=steps, batch=batch, keep_optimizer=False)


METHODS = {
  'felo': _felo,
  'velo': _velo,
  'fedhe': _fedhe,
  'fedmd': _fedmd,
  'fedgkt': _fedgkt,
  'heterofl': _heterofl,
  'fedavg': _fedavg,
  'private': _private,
  'agg': _agg,
}


def method(config, setting):
  """Sets the method and what else it needs; a method that is not in the table keeps its own defaults."""
  if setting.choice.method in METHODS:
    METHODS[setting.choice.method](config, setting)
  else:
    config.method = base.method(setting.choice.method)


def _check_idle_words(choice):
  """Refuses a word that method and zoo do not read."""
  name, align = choice.method, choice.align
  own_nets = name in ('fedgkt', 'heterofl')
  idle = {
    'align': align and (choice.zoo != 'extreme' or own_nets or (align != 'linear' and name not in ('felo', 'velo'))),
    'interval': choice.interval != '1' and name != 'velo',
    'widths': choice.widths != 'dynamic' and name != 'heterofl',
    'ratio': choice.ratio and name == 'fedgkt',  # all its clients are in every round
  }
  for word in filter(idle.get, idle):
    raise base.ConfigError(f'{word}={choice[word]} does nothing for method={name}, zoo={choice.zoo}; leave it out')


def get_config(arg=''):
  choice = base.parse(
    arg,
    tuple(SIZES),
    method='felo',
    data=tuple(ROWS),
    split=('iid', 'dir0.5'),
    zoo=tuple(ZOO),
    ratio='',
    interval='1',
    clients='',
    align='',
    stem=('imagenet', 'cifar'),
    widths=('dynamic', 'fixed'),
  )
  width, rows, clients, rounds, every, epochs, batch, rate = SIZES[choice.profile]
  _check_idle_words(choice)
  config = base.default()
  config.name = f'felo_{choice.data}_{choice.split}_{choice.zoo}'
  config.data.name = 'cifar10' if choice.data == 'cifar10' else 'folder:cinic10'
  clients = base.number('clients', choice.clients, int, least=1) if choice.clients else clients or ROWS[choice.data][1]
  config.data.rows, config.data.clients = rows, clients
  config.data.partition = base.partition('iid') if choice.split == 'iid' else base.partition('dirichlet')
  config.data.normalise, config.data.crop, config.data.flip = 'standard', 4, True
  config.data.validation = 0.0  # the paper has none; its headline is a mean over rounds
  config.seeds, config.rounds, config.eval_every = (0, 1, 2), rounds, every
  config.groups = groups(choice.zoo, config.data.clients, width, choice.profile, choice.align, choice.stem)
  config.eval_rows = 0 if choice.profile in ('paper', 'light', 'medium') else 1000
  if choice.profile == 'paper':
    # HeteroFL's training, its milestones scaled from 400 rounds to 100.
    config.optimizer = base.ConfigDict({'name': 'fedkd.optimizers:sgd', 'learning_rate': 0.1})
    config.milestones = (38, 63)
  else:
    config.optimizer = base.ConfigDict({'name': 'fedkd.optimizers:adam', 'learning_rate': rate, 'weight_decay': 5e-4})
  everybody = choice.profile in ('small', 'smoke') or (choice.zoo == 'homo' and choice.split != 'iid')
  ratio = base.number('ratio', choice.ratio or (1.0 if everybody else 0.2))
  interval = base.number('interval', choice.interval, int)
  interval = min(interval, 2) if choice.profile == 'smoke' else interval
  config.plan = base.plan('sampled', ratio=ratio)
  method(config, Setting(choice, {'steps': None, 'epochs': epochs, 'batch': batch}, ratio, interval))
  if choice.profile == 'smoke':
    config.seeds, config.eval_rows = (0,), 200
    config.data.name, config.data.crop, config.data.flip = 'mnist_5k', 0, False
    config.data.rows = 500
  return base.finish(config, choice)
