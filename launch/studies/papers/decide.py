"""Experiments that name the cause of a disagreement with a paper: one thing is changed beside a row of its tables."""

from configs import fedhe_mnist, felo
from launch.studies.papers import fedh2l_tables as tables
from launch.studies.papers.common import Experiment, Row
from launch.studies.papers.dense import METRICS as DENSE
from launch.studies.papers.fedh2l import H2L, nodes_of
from launch.studies.papers.fedhe import FINAL
from launch.studies.papers.fedproto import METRICS as FEDPROTO
from launch.studies.papers.fedproto import WAYS
from launch.studies.papers.felo import LIGHT, SECOND_HALF
from launch.studies.papers.heflwr import METRICS as HEFLWR

RMNIST, FIVE = 'method={},setting=rmnist,alpha=10', 'method={},setting=rmnist,alpha=5'
HOMO, EXTREME = 'method={},split=dir0.5,zoo=homo', 'method={},zoo=extreme'
# As many local steps in the rounds that FedH2L's bandwidth affords a LeNet of 431,080 weights, the one to which "over
# 1000 times the bandwidth" fits: 7 if uploads alone are counted, 14 if downloads are too; and 3, where FedAvg pays for
# both and FedH2L for its uploads.
FEWER = {rounds: {'rounds': rounds, 'method.steps': 10_000 // rounds} for rounds in (14, 7, 3)}
BACK = {'data.angles': (0, -20, -40, -60)}
FOUR = {'method.steps': 4}  # batches a round: FedH2L's own, and those of its three peers
# As many as the paper keeps, of Velo too, whose config has room for class means: 300, less than a round of examples.
SAMPLES = {'method.upload': 'per_sample', 'method.limits': (5000, 50_000)}
LONG = {'rounds': 3501, 'seeds': (0, 1)}  # of FedMD at paper length; two of its three seeds have fallen by then
SHORT = {'private': (3, 5, 10), 'fedproto': (3, 5, 10, 20), 'fedavg': (20,)}  # rounds of one pass
SIX, MORE = tuple(range(6)), tuple(range(3, 9))
# As many rounds of the server as DENSE's paper has, but of 128 images, not 256, on clients trained as in `small`.
FULL = {'rounds': 200, 'method.server_rounds': 200, 'eval_every': 20}
# FedHe's clients with nets of twice the width that they have in `small`, a quarter of the published one.
QUARTER = {'groups': fedhe_mnist.zoo('hetero', 10, 2 * fedhe_mnist.WIDTHS['small'], **fedhe_mnist.momentum('small'))}
# Data, architectures, and turns in which Private sees as many examples as FedMD in all its phases.
AS_FEDMD = {
  'mnist': ('mnist', 'homo', 4200),
  'cifar10': ('cifar10', 'homo', 3800),
  'cifar10-hetero': ('cifar10', 'hetero', 3800),
}
LESS_STEEP = {
  'KL in the place of MAE': 'fedmd_kl',
  'squared error': 'fedmd_mse',
  'a tenth of the learning rate after 1,500 rounds': 'fedmd_decay',
}


def _with_stem(method) -> tuple:
  return tuple({**group, 'stem': 'imagenet'} for group in felo.get_config(f'small,method={method}').groups)


# id: (title, config, its string, {row: (method, what is changed)})
CHANGES = {
  'why-fedhe-weight': (
    "the weight of FedHe's distance to the class means, CIFAR-10, different nets",
    'fedhe_cifar10',
    'method={},zoo=hetero',
    {f'fedhe_{weight}': ('fedhe', {'method.alpha': weight}) for weight in (0.1, 0.3)},
  ),
  'why-fedhe-store': (
    "FedHe's class means of all updates, which the authors' code forgets after ten a client, CIFAR-10, different nets",
    'fedhe_cifar10',
    'method={},zoo=hetero',
    {'fedhe': ('fedhe', {'method.refresh_every': 0.0})},
  ),
  'why-fedhe-width': (
    'nets of a quarter of the published width, not an eighth, CIFAR-10, different nets',
    'fedhe_cifar10',
    'method={},zoo=hetero',
    {name: (name, QUARTER) for name in ('fedhe', 'private')},
  ),
  'why-fedhe-initial': (
    'clients that start from weights of their own, CIFAR-10, one architecture',
    'fedhe_cifar10',
    'method={},zoo=homo',
    {name: (name, {'initial': 'own'}) for name in ('fedhe', 'private')},
  ),
  **{
    f'why-fedmd-{name}': (
      f'as many examples as FedMD sees, {data}, {zoo}',
      f'fedhe_{data}',
      f'method={{}},zoo={zoo}',
      {method: (method, {'rounds': turns, 'eval_every': turns // 10}) for method in ('private', 'fedhe')},
    )
    for name, (data, zoo, turns) in AS_FEDMD.items()
  },
  'why-rmnist-loss': (
    'the loss with which FedMD learns on Rotated MNIST',
    'fedh2l',
    RMNIST,
    {f'fedmd_{loss}': ('fedmd', {'method.digest_loss': loss}) for loss in ('kl', 'mse')},
  ),
  'why-fedmd-falls': (
    "FedMD's falls within 3,500 rounds on Rotated MNIST: its loss, and its learning rate",
    'fedh2l',
    RMNIST,
    {
      'fedmd': ('fedmd', LONG),
      **{f'fedmd_{loss}': ('fedmd', {**LONG, 'method.digest_loss': loss}) for loss in ('kl', 'mse')},
      'fedmd_decay': ('fedmd', {**LONG, 'milestones': (1500,)}),
    },
  ),
  'why-rmnist-optimizer': (
    "FedH2L's optimizer, one for local and one for global steps",
    'fedh2l',
    RMNIST,
    {'fedh2l_separate': ('fedh2l', {'method.separate_optimizers': True})},
  ),
  'why-rmnist-aligned': (
    'seed digits drawn in each domain by itself, so that rotated copies of test digits are trained on',
    'fedh2l',
    FIVE,
    {
      row: ({'ind': 'private'}.get(row, row), {'data.aligned': False})
      for row in ('fedh2l', 'agg', 'ind', 'fedavg', 'fedprox')
    },
  ),
  'why-rmnist-rounds': (
    'fourteen, seven or three long rounds of FedAvg and FedProx instead of 52',
    'fedh2l',
    RMNIST,
    {
      f'{name}{suffix}': (name, FEWER[rounds])
      for rounds, suffix in ((14, '_14'), (7, ''), (3, '_3'))
      for name in ('fedavg', 'fedprox')
    },
  ),
  'why-rmnist-direction': (
    'digits turned counterclockwise',
    'fedh2l',
    RMNIST,
    {row: ({'ind': 'private'}.get(row, row), BACK) for row in ('fedh2l', 'ind', 'agg', 'fedmd')},
  ),
  'why-rmnist-steps': (
    'as many examples a round for AGG as FedH2L sees, Rotated MNIST',
    'fedh2l',
    RMNIST,
    {'agg': ('agg', FOUR)},
  ),
  'why-pacs-steps': (
    'as many examples a round for AGG and IND as FedH2L sees, PACS',
    'fedh2l',
    'method={},setting=pacs',
    {row: (method, FOUR) for row, method in (('agg', 'agg'), ('ind', 'private'))},
  ),
  'why-felo-start': (
    'what Felo and Velo start from, on a Dirichlet split with ResNet18 everywhere',
    'felo',
    HOMO,
    {
      'felo_loaded': ('felo', {'method.load_in_initial': True}),
      'velo_loaded': ('velo', {'method.load_in_initial': True}),
      'felo_alone': ('felo', {'method.alpha': 0.0}),
      'felo_loaded_alone': ('felo', {'method.load_in_initial': True, 'method.alpha': 0.0}),
    },
  ),
  'why-felo-dirichlet': (
    'six more seeds of Felo, Velo and FedAvg on a Dirichlet split, ResNet18 everywhere, averaged weights loaded from '
    'the start, from one commit',
    'felo',
    HOMO,
    {
      **{name: (name, {'method.load_in_initial': True, 'seeds': MORE}) for name in ('felo', 'velo')},
      **{name: (name, {'seeds': MORE}) for name in ('fedavg', 'private')},
    },
  ),
  'why-velo-generator': (
    "what Velo's autoencoder learns from, and the noise that it assumes",
    'felo',
    EXTREME,
    {
      'felo_samples': ('felo', SAMPLES),
      'velo_samples': ('velo', SAMPLES),
      'velo_samples_0.01': ('velo', {**SAMPLES, 'method.vae_variance': 0.01}),
      'velo_sigma': ('velo', {'method.vae_variance': 0.0}),
      'velo_0.01': ('velo', {'method.vae_variance': 0.01}),
    },
  ),
  'why-felo-stem': (
    'larger maps for Felo: 3x3 stem without pool',
    'felo',
    'method={},stem=cifar',
    {'felo': ('felo', {}), 'private': ('private', {})},
  ),
  'why-felo-maps': (
    "maps as small as the ResNets' for FedGKT and HeteroFL: ImageNet's stem for all",
    'felo',
    'method={}',
    {name: (name, {'groups': _with_stem(name)}) for name in ('fedgkt', 'heterofl')},
  ),
  'why-velo-iid': (
    'six more seeds of Velo and Felo, iid, from one commit',
    'felo',
    'method={}',
    {name: (name, {'seeds': MORE}) for name in ('velo', 'felo')},
  ),
  'why-dense-rounds': (
    '200 rounds of 128 images on the servers of DENSE and Co-Boosting, MNIST, Dirichlet 0.1',
    'one_shot_mnist',
    'method={},alpha=0.1',
    {f'{method}_200': (method, FULL) for method in ('dense', 'coboosting')},
  ),
  **{
    f'why-fedproto-length-{ways}': (
      f'how long Local, FedAvg and FedProto train, MNIST, about {ways} classes a client',
      'fedproto',
      f'method={{}},ways={ways}',
      {
        f'{method}_{rounds}': (method, {'rounds': rounds, 'eval_every': rounds, 'seeds': SIX})
        for method, each in SHORT.items()
        for rounds in each
      },
    )
    for ways in WAYS
  },
  'why-heflwr-shares': (
    "HeFlwr's own draw of the clients' shares, MNIST, Dirichlet 0.5",
    'heflwr',
    'method={},split=homepage',
    {row: (row, {}) for row in ('heterofl', 'fedrolex')},
  ),
}


# Numbers of rounds and widths in these are chosen for one profile.
ONLY = {
  **dict.fromkeys((f'why-fedmd-{name}' for name in AS_FEDMD), 'small'),
  **dict.fromkeys(('why-fedhe-width', 'why-felo-maps', 'why-dense-rounds'), 'small'),
  **dict.fromkeys(('why-rmnist-rounds', 'why-fedmd-falls'), 'paper'),
}
PRINTED = {'why-rmnist-direction': tables.TABLE_2['10']}  # id: {row: a line of a table of FedH2L}


def registry() -> dict:
  """{id: Experiment}."""
  made = {id: _experiment(PRINTED.get(id, {}), *change) for id, change in CHANGES.items()}
  return {id: entry._replace(only=ONLY.get(id, '')) for id, entry in made.items()}


def _experiment(lines, title, config, arg, changes) -> Experiment:
  def row(name, method, changed):
    line = lines.get(name, '')
    overrides, parts = tuple(changed.items()), tables.nodes(line, 'rmnist')
    return Row(name, config, arg.format(method), tables.average(line), overrides, parts)

  how = {
    'fedh2l': ({**H2L, 'largest drop': 'largest_drop'}, '10 minutes a row'),
    'fedhe_cifar10': (FINAL, '5 minutes a row'),
    'fedhe_mnist': (FINAL, '10 minutes a row'),
    'felo': (SECOND_HALF, '7 minutes a row', LIGHT),
    'fedproto': (FEDPROTO, '3 minutes a row'),
    'heflwr': (HEFLWR, '6 minutes a row'),
    'one_shot_mnist': (DENSE, '2 hours a row'),
  }[config]
  about = f'What decides: {title}', 'ours', tuple(row(name, *of) for name, of in changes.items()), *how
  return Experiment(*about, parts=nodes_of('rmnist') if lines else ())
