"""What every method may spend: the same client updates, and the same number of runs to choose its hyperparameters."""

import itertools

from fedkd import config as base
from launch.studies.comparison.settings import COMMON, SIZES, rounds, settings

RATES = (3e-4, 1e-3, 3e-3, 1e-2)  # of Adam: all four where there is nothing else to choose, else the middle two
BUDGET = len(RATES)  # runs to choose from, of every method in every setting
TUNED_ON = (0,)  # the seed whose validation rows decide
# One more hyperparameter with two values: those of the papers or their codes, or around them.
WEIGHTS = {
  'dsfl': ('temperature', (0.1, 0.5)),
  'fccl': ('off_diagonal', (0.0051, 0.05)),
  'fd': ('gamma', (0.1, 1.0)),
  'feddf': ('server_rate', (1e-4, 1e-3)),
  'fedgen': ('alpha', (1.0, 10.0)),
  'fedgh': ('server_rate', (0.01, 0.1)),
  'fedhe': ('alpha', (0.1, 1.0)),
  'fedmd': ('digest_loss', ('mae', 'kl')),
  'fedprox': ('mu', (0.01, 0.1)),
  'fedproto': ('weight', (0.1, 1.0)),
  'fedtgp': ('weight', (0.1, 10.0)),
  'felo': ('alpha', (0.1, 0.5)),
  'fiarse': ('surrogate', (False, True)),
  'fml': ('alpha', (0.5, 0.9)),
  'heterofl': ('masked', (False, True)),
  'ditto': ('weight', (0.1, 1.0)),
  'ktpfl': ('rho', (0.1, 0.7)),
  'moon': ('mu', (1.0, 5.0)),
  'rhfl': ('ce', (0.1, 1.0)),
  'scarlet': ('exponent', (1.0, 2.0)),
  'selective_fd': ('ambiguity', (1.0, 2.0)),
  'velo': ('alpha', (0.1, 0.5)),
}
ON_PUBLIC = ('dsfl', 'fccl', 'fedmd', 'ktpfl', 'rhfl', 'scarlet', 'selective_fd')  # clients learn from public rows


def grid(method) -> list:
  """The hyperparameters to choose from: `BUDGET` dicts of fields of the method, and `learning_rate`."""
  if method not in WEIGHTS:
    return [{'learning_rate': rate} for rate in RATES]
  field, values = WEIGHTS[method]
  return [{'learning_rate': rate, field: value} for rate, value in itertools.product(RATES[1:3], values)]


def config_of(suite, profile, name, method, choice, seeds=None):
  """The config of a run.

  Args:
    suite, profile: see `settings`.
    name: of the setting.
    method: of `fedkd.methods`.
    choice: an entry of `grid`.
    seeds: None for those of the profile.
  """
  setting, size = settings(suite, profile)[name], SIZES[profile]
  config = base.default()
  config.name = f'benchmark_{suite}_{name}'
  config.data.update(setting.data)
  config.groups, config.plan = setting.groups, base.plan(**setting.plan)
  config.seeds = tuple(seeds or size.seeds)
  config.rounds = rounds(setting, size)
  fields = {**_fields(suite, name, method, size), **choice}
  config.optimizer = base.optimizer('adam', learning_rate=fields.pop('learning_rate'))
  if method == 'fedkd':
    fields['rounds'] = config.rounds
  if method == 'fedh2l':  # a round of it is one local step; in the first nobody has heard anything
    config.rounds = config.rounds * size.steps + 1
  config.method = base.method(method, **fields)
  config.eval_every, config.eval_rows = max(1, -(-config.rounds // 4)), 1000
  return config


def _fields(suite, name, method, size) -> dict:
  """What a method is given: mini-batches of every client update, and of what is learned in addition."""
  updates = {'steps': size.steps, 'batch': size.batch}
  if method == 'fedh2l':
    return {'batch': size.batch, 'interval': size.steps}
  known = base.method(method, **({'common': COMMON[suite]} if method in ('fml', 'fedapen', 'fedkd', 'fedmrl') else {}))
  if 'epochs' in known:
    updates['epochs'] = None
  if method in ON_PUBLIC:
    updates |= {'subset': size.subset, 'digest_batch': size.batch}
    public = {'digest_epochs': size.public_passes}
    updates |= {'digest_steps': size.subset * size.public_passes // size.batch} if method == 'selective_fd' else public
  return {**{k: v for k, v in known.items() if k == 'common'}, **updates, **_special(name, method, size)}


def _special(name, method, size) -> dict:
  """What is of a method alone, and of a setting."""
  return {
    'fedmd': {'rows': 'unshared'},  # as the others that learn from predictions of public rows
    'fedhe': {'count_offset': 0.0},  # as the authors' code
    'feddf': {'server_steps': 5 * size.steps, 'server_batch': 2 * size.batch},
    'fedgen': {'share': 'head' if name == 'architectures' else 'all', 'generated': size.batch},
    'fedgh': {'server_epochs': 1, 'server_batch': 1},  # as in the paper
    'fccl': {'intra': 0.0},  # no phase comes before
    'fedproto': {'memory': 'latest' if name in ('partial', 'asynchronous') else 'round', 'inference': 'prototypes'},
    'fedtgp': {'server_epochs': 20, 'inference': 'prototypes'},
    'ktpfl': {'temperature': 1.0, 'reduction': 'batchmean'},
    'scarlet': {'duration': 5},
  }.get(method, {})
