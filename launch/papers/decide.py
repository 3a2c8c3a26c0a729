"""Experiments that name the cause of a disagreement with a paper: one thing is changed beside a row of its tables."""

from configs import fedhe_mnist
from launch.papers import fedh2l_tables as tables
from launch.papers.common import Experiment, Question, Row
from launch.papers.fedh2l import H2L, NAMES, nodes_of
from launch.papers.fedhe import FINAL
from launch.papers.fedproto import METRICS as FEDPROTO
from launch.papers.felo import LIGHT, SECOND_HALF

RMNIST, FIVE = 'method={},setting=rmnist,alpha=10', 'method={},setting=rmnist,alpha=5'
HOMO, EXTREME = 'method={},split=dir0.5,zoo=homo', 'method={},zoo=extreme'
# As many local steps in the rounds that FedH2L's bandwidth affords a LeNet of 431,080 weights, the one to which "over
# 1000 times the bandwidth" fits: 7 if uploads alone are counted, 14 if downloads are too; and 3, where FedAvg pays for
# both and FedH2L for its uploads.
FEWER = {rounds: {'rounds': rounds, 'method.steps': 10_000 // rounds} for rounds in (14, 7, 3)}
BACK = {'data.angles': (0, -20, -40, -60)}
FOUR = {'method.steps': 4}  # batches a round: FedH2L's own, and those of its three peers
SAMPLES = {'method.upload': 'per_sample'}
LONG = {'rounds': 3501, 'seeds': (0, 1)}  # of FedMD at paper length; two of its three seeds have fallen by then
SHORT = {'private': 3, 'fedavg': 20}  # rounds of one pass
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
  'why-fedproto-length': (
    'how long Local and FedAvg train beside FedProto, MNIST, about 3 classes a client',
    'fedproto',
    'method={},ways=3',
    {f'{method}_{rounds}': (method, {'rounds': rounds, 'eval_every': 1}) for method, rounds in SHORT.items()},
  ),
}


PRINTED = {'why-rmnist-direction': tables.TABLE_2['10']}  # id: {row: a line of a table of FedH2L}


def registry() -> dict:
  """{id: Experiment}."""
  return {id: _experiment(PRINTED.get(id, {}), *change) for id, change in CHANGES.items()}


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
  }[config]
  about = f'What decides: {title}', 'ours', tuple(row(name, *of) for name, of in changes.items()), *how
  return Experiment(*about, parts=nodes_of('rmnist') if lines else ())


def questions() -> list:
  """What each change is to explain."""
  acc, half = H2L['ACC'], SECOND_HALF['second half']
  ten, five, homo, extreme = 'h2l-rmnist-a10', 'h2l-rmnist-a5', 'fv-homo-cifar10-dir0.5', 'fv-extreme-cifar10-iid'
  above, below = 'FedMD above FedH2L on Rotated MNIST', 'FedH2L below the printed value at alpha = 5 %'
  falls = 'FedMD loses up to 40 points for hundreds of rounds on Rotated MNIST, largest drop'
  passes = 'FedH2L sees four times as many examples as its baselines'
  good, start = 'FedAvg and FedProx above the printed values on Rotated MNIST', 'FedAvg above Felo and Velo, Dirichlet'
  collapse = 'Velo no better than Felo with ResNet10 to 50'
  ask = lambda text, change, id, row, beside, metric, profile='small': Question(
    text, change, f'{id}/{row}', beside, metric, profile
  )
  worse, ours = 'FedHe below Private on CIFAR-10, different nets', 'he-cifar10-hetero'
  return [
    *(
      ask(
        worse, f'alpha = {weight}, against {beside}', 'why-fedhe-weight', f'fedhe_{weight}', f'{ours}/{beside}', 'final'
      )
      for weight in (0.1, 0.3)
      for beside in ('private', 'fedhe')
    ),
    ask(worse, 'means of all updates, never forgotten', 'why-fedhe-store', 'fedhe', f'{ours}/fedhe', 'final'),
    ask(worse, 'twice the width, against Private', 'why-fedhe-width', 'fedhe', 'why-fedhe-width/private', 'final'),
    *(
      ask(
        'FedHe below Private on CIFAR-10, one architecture',
        f'own initial weights, {change}',
        'why-fedhe-initial',
        row,
        beside,
        'final',
      )
      for change, row, beside in (
        ('FedHe', 'fedhe', 'he-cifar10-homo/fedhe'),
        ('Private', 'private', 'he-cifar10-homo/private'),
        ('FedHe against Private', 'fedhe', 'why-fedhe-initial/private'),
      )
    ),
    *(
      ask(
        f'FedMD above FedHe and Private, {data}, {zoo}',
        f'{called} with {turns:,} turns, against FedMD',
        f'why-fedmd-{name}',
        row,
        f'he-{data}-{zoo}/fedmd',
        'final',
      )
      for name, (data, zoo, turns) in AS_FEDMD.items()
      for row, called in (('private', 'Private'), ('fedhe', 'FedHe'))
    ),
    ask(above, 'FedMD with KL', 'why-rmnist-loss', 'fedmd_kl', f'{ten}/fedmd', acc),
    *(
      ask(above, f'FedMD with KL, against {name}', 'why-rmnist-loss', 'fedmd_kl', f'{ten}/{row}', acc, 'paper')
      for row, name in (('fedmd', 'FedMD'), ('fedh2l', 'FedH2L'))
    ),
    ask(above, 'FedMD with squared error', 'why-rmnist-loss', 'fedmd_mse', f'{ten}/fedmd', acc),
    *(
      ask(falls, change, 'why-fedmd-falls', row, 'why-fedmd-falls/fedmd', 'largest_drop', 'paper')
      for change, row in LESS_STEEP.items()
    ),
    ask(above, 'FedH2L with two optimizer states', 'why-rmnist-optimizer', 'fedh2l_separate', f'{ten}/fedh2l', acc),
    ask(above, 'FedMD, turned the other way', 'why-rmnist-direction', 'fedmd', f'{ten}/fedmd', acc),
    ask(above, 'FedH2L, turned the other way', 'why-rmnist-direction', 'fedh2l', f'{ten}/fedh2l', acc),
    *(
      ask(below, f'{NAMES[row]}, digits drawn per domain', 'why-rmnist-aligned', row, f'{five}/{row}', acc)
      for row in ('fedh2l', 'agg', 'ind', 'fedavg', 'fedprox')
    ),
    *(
      ask(
        good,
        f'{NAMES[beside]}, {rounds} rounds of {FEWER[rounds]["method.steps"]:,} steps, not 52 of 192',
        'why-rmnist-rounds',
        row,
        f'{ten}/{beside}',
        acc,
        'paper',
      )
      for row, beside, rounds in (
        ('fedavg_14', 'fedavg', 14),
        ('fedprox_14', 'fedprox', 14),
        ('fedavg', 'fedavg', 7),
        ('fedprox', 'fedprox', 7),
        ('fedavg_3', 'fedavg', 3),
        ('fedprox_3', 'fedprox', 3),
      )
    ),
    *(
      ask(
        good,
        f'{NAMES[name]} in {rounds} rounds, against FedH2L',
        'why-rmnist-rounds',
        f'{name}{suffix}',
        f'{ten}/fedh2l',
        acc,
        'paper',
      )
      for name in ('fedavg', 'fedprox')
      for rounds, suffix in ((14, '_14'), (7, ''), (3, '_3'))
    ),
    *(
      ask(passes, f'{where}: {NAMES[row]} with as many, against FedH2L', id, row, beside, acc, profile)
      for where, id, row, beside, profile in (
        ('alpha = 10 %', 'why-rmnist-steps', 'agg', f'{ten}/fedh2l', 'paper'),
        ('PACS, clean', 'why-pacs-steps', 'agg', 'h2l-pacs-clean/fedh2l', 'small'),
        ('PACS, clean', 'why-pacs-steps', 'ind', 'h2l-pacs-clean/fedh2l', 'small'),
      )
    ),
    ask(start, 'Felo that loads weights from the start', 'why-felo-start', 'felo_loaded', f'{homo}/felo', half),
    ask(start, 'Velo that loads weights from the start', 'why-felo-start', 'velo_loaded', f'{homo}/velo', half),
    ask(start, 'Felo without knowledge', 'why-felo-start', 'felo_alone', f'{homo}/felo', half),
    ask(
      start,
      'Felo that loads from the start and has no knowledge loss, against FedAvg',
      'why-felo-start',
      'felo_loaded_alone',
      f'{homo}/fedavg',
      half,
    ),
    ask(collapse, 'Velo, uploads per example', 'why-velo-generator', 'velo_samples', f'{extreme}/velo', half),
    ask(
      collapse,
      'Velo, uploads per example, against Felo with the same',
      'why-velo-generator',
      'velo_samples',
      'why-velo-generator/felo_samples',
      half,
    ),
    ask(
      collapse,
      'Velo, uploads per example, with noise of variance 0.01',
      'why-velo-generator',
      'velo_samples_0.01',
      'why-velo-generator/velo_samples',
      half,
    ),
    ask(collapse, 'Velo, noise of variance 0.01', 'why-velo-generator', 'velo_0.01', f'{extreme}/velo', half),
    ask(collapse, 'Velo, learned variance of the noise', 'why-velo-generator', 'velo_sigma', f'{extreme}/velo', half),
    *(
      ask(
        "Local and FedAvg above FedProto's printed values",
        f'{row}, {rounds} passes over the rows',
        'why-fedproto-length',
        f'{row}_{rounds}',
        f'fp-mnist-3/{row}',
        FEDPROTO['own classes'],
        'paper',
      )
      for row, rounds in SHORT.items()
    ),
    ask('FedGKT and HeteroFL above Felo', 'Felo on larger maps', 'why-felo-stem', 'felo', 'fv-cifar10-iid/felo', half),
  ]
