"""Experiments that name the cause of a disagreement with a paper: one thing is changed beside a row of its tables."""

from typing import NamedTuple

from launch.papers import fedh2l_tables as tables
from launch.papers.common import Experiment, Row
from launch.papers.fedh2l import H2L
from launch.papers.felo import LIGHT, SECOND_HALF

RMNIST, FIVE = 'method={},setting=rmnist,alpha=10', 'method={},setting=rmnist,alpha=5'
HOMO, EXTREME = 'method={},split=dir0.5,zoo=homo', 'method={},zoo=extreme'
SEVEN = {'rounds': 7, 'method.steps': 1428}  # as many local steps in as few rounds as the bandwidth of `small` allows
BACK = {'data.angles': (0, -20, -40, -60)}
SAMPLES = {'method.upload': 'per_sample'}
# id: (title, config, its string, {row: (method, what is changed)})
CHANGES = {
  'why-rmnist-loss': (
    'the loss with which FedMD learns on Rotated MNIST',
    'fedh2l',
    RMNIST,
    {f'fedmd_{loss}': ('fedmd', {'method.digest_loss': loss}) for loss in ('kl', 'mse')},
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
      row: (method, {'data.aligned': False})
      for row, method in (('fedh2l', 'fedh2l'), ('agg', 'agg'), ('ind', 'private'))
    },
  ),
  'why-rmnist-rounds': (
    'seven long rounds of FedAvg and FedProx instead of 52',
    'fedh2l',
    RMNIST,
    {method: (method, SEVEN) for method in ('fedavg', 'fedprox')},
  ),
  'why-rmnist-direction': (
    'digits turned counterclockwise',
    'fedh2l',
    RMNIST,
    {row: ({'ind': 'private'}.get(row, row), BACK) for row in ('fedh2l', 'ind', 'agg', 'fedmd')},
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
}


class Question(NamedTuple):
  """What a change decides."""

  text: str
  answers: tuple  # ((what is compared, row, row that is subtracted), ...), each as `id/row`
  metric: str
  profiles: tuple = ('small',)  # in which to look, the first that has both rows


def registry() -> dict:
  """{id: Experiment}."""
  out = {}
  for id, (title, config, arg, changes) in CHANGES.items():
    rows = tuple(Row(row, config, arg.format(m), {}, tuple(changed.items())) for row, (m, changed) in changes.items())
    if id == 'why-rmnist-direction':
      lines = tables.TABLE_2['10']
      of = lambda row, lines=lines: {'printed': tables.average(lines[row]), 'parts': tables.nodes(lines[row], 'rmnist')}
      rows = tuple(row._replace(**of(row.name)) for row in rows)
    how = (H2L, '10 minutes a row') if config == 'fedh2l' else (SECOND_HALF, '7 minutes a row', LIGHT)
    out[id] = Experiment(f'What decides: {title}', 'ours', rows, *how)
  return out
