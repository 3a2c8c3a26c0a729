"""What every method may spend: the same client updates, and the same eight runs to choose its hyperparameters."""

import itertools
import math

from launch.studies.comparison import theirs
from launch.studies.comparison.settings import SIZES, networks, rounds, settings

RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # of Adam, for every method
DECAYS = (1.0, 0.1)  # factor on the rate in the last third of the rounds, where there is nothing else to choose
DECAY = 0.1  # for methods that choose something else
BUDGET = 2 * len(RATES)  # runs to choose from
# One more hyperparameter with two values: those of the papers or their codes, or around them.
WEIGHTS = {
  'dsfl': ('temperature', (0.1, 0.5)),
  'fccl': ('intra', (0.0, 1.0)),
  'fd': ('gamma', (0.1, 1.0)),
  'feddf': ('server_rate', (1e-4, 1e-3)),
  'fedgen': ('alpha', (1.0, 10.0)),
  'fedgh': ('server_rate', (0.01, 0.1)),
  'fedhe': ('alpha', (0.1, 1.0)),
  'fedmd': ('digest_loss', ('mae', 'kl')),
  'fedprox': ('mu', (0.01, 0.1)),
  'fedproto': ('weight', (0.1, 1.0)),
  'fedre': ('server_rate', (1e-3, 1e-2)),
  'fedtgp': ('weight', (0.1, 10.0)),
  'felo': ('alpha', (0.1, 0.5)),
  'fiarse': ('server_rate', (0.5, 1.0)),
  'fml': ('alpha', (0.5, 0.9)),
  'ditto': ('weight', (0.1, 1.0)),
  'ktpfl': ('rho', (0.1, 0.7)),
  'moon': ('mu', (1.0, 5.0)),
  'rhfl': ('ce', (0.1, 1.0)),
  'scarlet': ('exponent', (1.0, 2.0)),
  'selective_fd': ('ambiguity', (1.0, 2.0)),
  'velo': ('alpha', (0.1, 0.5)),
}
# Constants of a program: a word, a number that Python looks at. All others are its arguments.
STATIC = ('digest_loss', 'rows')
# Who holds the raw public images: each client, which learns from those of all others, or the server alone.
ON_PUBLIC = ('dsfl', 'fccl', 'fedmd', 'ktpfl', 'rhfl', 'scarlet', 'selective_fd')
PUBLIC_CLIENTS = (*ON_PUBLIC, 'fedh2l')
PUBLIC_SERVER = ('feddf',)
# Those that start from models which their clients have trained alone, for one in so many rounds, and what `private` is
# given then: they do not learn the labels of rows that they share in these rounds either.
BEFORE, BEFORE_SHARE = ('fedmd', 'fccl', 'rhfl'), 6
ALONE = {'rows': 'unshared'}
# Whose clients predict with more than their own model: with what, and the further prediction by that model alone.
SHARED = {
  'fedapen': ('the ensemble of own and common model', 'own'),
  'fedmrl': ('features of own and common model', None),
  'fedre': ('the head that the server sends', 'own_head'),
}
COMMON = {'model': 'MLP', 'hidden': (32,)}
COMMON_PHOTOS = {'model': 'ResNet10', 'width': 0.0625}


def keeps_by_default(method: str) -> bool:
  """Whether clients go on with their optimizer where nobody says otherwise; FedH2L's rounds are single steps."""
  keep = theirs.factory(method)[1].get('keep_optimizer')
  return keep.default is True if keep else method == 'fedh2l'  # without a default it has to be given


def grid(method: str) -> list:
  """The hyperparameters to choose from: `BUDGET` dicts of `learning_rate`, `decay`, and one more where there is one."""
  one_more = theirs.tuned(method) or WEIGHTS.get(method)
  if not one_more:
    return [{'learning_rate': rate, 'decay': decay} for rate, decay in itertools.product(RATES, DECAYS)]
  field, values = one_more
  return [{'learning_rate': rate, 'decay': DECAY, field: value} for rate, value in itertools.product(RATES, values)]


def split_choice(choice: dict) -> tuple[dict, dict]:
  """(what the program takes as arguments, what is constant in it)."""
  traced = {key: value for key, value in choice.items() if key not in STATIC}
  return traced, {key: value for key, value in choice.items() if key in STATIC}


def alone(choice: dict) -> dict:
  """The choice of `private` before a method, which has the method's rate and none of its own hyperparameters."""
  return {'learning_rate': choice['learning_rate'], 'decay': choice['decay'], **ALONE}


def lengths(suite: str, profile: str, setting: str, method: str, share: float = 1.0) -> tuple[int, int]:
  """(rounds that clients train alone, rounds of the method); a round of FedH2L is one local step, and in its first
  nobody has heard anything. `share`: of all rounds, no more than that."""
  size = SIZES[profile]
  total = rounds(settings(suite, profile)[setting], size)
  if method == 'fedh2l':
    total = total * size.steps + 1
  total = math.floor(total * share * (1 + 1e-9))
  # Rounds alone learn from no public rows: rounded up, a share of the rounds has no more than its share of examples.
  alone = math.ceil(total / BEFORE_SHARE) if method in BEFORE else 0
  return alone, total - alone


def learns_on_public(method: str) -> bool:
  """Whether clients learn from the raw public images; one of somebody else's says so by an argument `subset`."""
  if not theirs.is_added(method):
    return method in PUBLIC_CLIENTS
  return 'subset' in theirs.factory(method)[1]


def fields(suite: str, profile: str, tier: str, setting: str, method: str) -> dict:
  """What a method, somebody else's too, is given in a setting, besides its choice: mini-batches of every client update,
  and of what is learned in addition."""
  size = SIZES[profile]
  if method == 'fedh2l':
    return {'batch': size.batch, 'interval': size.steps}
  _, known = theirs.factory(method)
  out = {'steps': size.steps, 'batch': size.batch, 'epochs': None}
  if learns_on_public(method):
    steps = {'digest_steps': size.subset * size.public_passes // size.batch}
    passes = {'digest_epochs': size.public_passes} if 'digest_epochs' in known else steps
    out |= {'subset': size.subset, 'digest_batch': size.batch, **passes}
  if 'common' in known:
    out['common'] = COMMON_PHOTOS if suite == 'pacs' else COMMON
  if not keeps_by_default(method):
    out['keep_optimizer'] = True
  out = {key: value for key, value in out.items() if key in known}
  return {**out, **_special(suite, profile, tier, setting, size).get(method, {})}


def _special(suite, profile, tier, setting, size) -> dict:
  """{method: what is of it alone}."""
  several = len(networks(suite, tier)) > 1
  total = rounds(settings(suite, profile)[setting], size)
  return {
    'dsfl': {'inference': 'own'},  # the client's model, as of the others; that of the server is in the results too
    'scarlet': {'duration': 5, 'inference': 'own'},
    'fedavg': {'per_group': several},
    'fedprox': {'per_group': several},
    'fedmd': {'rows': 'unshared'},  # as the others that learn from predictions of public rows
    'fedhe': {'count_offset': 0.0},  # as the authors' code
    'feddf': {'server_steps': 5 * size.steps, 'server_batch': 2 * size.batch},
    **{method: {'restart': False} for method in ('fccl', 'rhfl')},  # they go on with their optimizer, as all others
    'fedgen': {'share': 'head' if several else 'all', 'generated': size.batch},
    'fedgh': {'server_epochs': 1, 'server_batch': 1},  # as in the paper
    'fedkd': {'rounds': total},
    'fedproto': {'memory': 'latest' if setting == 'partial' else 'round'},
    'fedtgp': {'server_epochs': 20},
    'ktpfl': {'temperature': 1.0, 'reduction': 'batchmean'},
  }
