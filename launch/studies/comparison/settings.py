"""What every method meets: data, nets, plan and length, and why a method does not apply."""

from typing import NamedTuple

from fedkd import config as base
from fedkd import methods

SUITES = ('digits', 'photos')
PROFILES = ('paper', 'small', 'smoke')


class Size(NamedTuple):
  """Of a profile: rounds in which everybody takes part, and what is trained in a client update."""

  rounds: int
  steps: int
  batch: int
  subset: int  # public rows of a round
  public_passes: int  # over them
  seeds: tuple


class Setting(NamedTuple):
  """A setting of a suite: fields of a config, the same for all methods."""

  title: str
  data: dict
  groups: tuple
  plan: dict
  updates: float = 1.0  # client updates of a round, as a share of the clients; 0: a single one
  length: int = 1  # how many times the profile's rounds


SIZES = {
  'paper': Size(100, 50, 32, 1024, 2, (0, 1, 2)),
  'small': Size(20, 6, 32, 128, 2, (0, 1, 2)),
  'smoke': Size(2, 2, 8, 16, 1, (0, 1, 2)),
}
CLIENTS = 10
TOGETHER = {'name': 'synchronous'}
FIFTH = {'name': 'sampled', 'ratio': 0.2}
SINGLE = {'name': 'asynchronous', 'stale': True}
LENET, MLP = {'model': 'LeNet'}, {'model': 'MLP', 'hidden': (128, 84)}
COMMON = {'digits': {'model': 'MLP', 'hidden': (32,)}, 'photos': {'model': 'ResNet10', 'width': 0.125}}
WIDTH = {'paper': 1.0, 'small': 0.25, 'smoke': 0.125}
# Of every client's rows, class by class; the public ones are those of all clients together.
SHARES = {'validation': 0.1, 'public_share': 0.2}


def nets(suite, profile) -> tuple:
  """Two architectures with features of one width; the first is that of all clients where there is only one."""
  if suite == 'digits':
    return LENET, MLP
  return tuple({'model': name, 'width': WIDTH[profile]} for name in ('ResNet10', 'ResNet18'))


def settings(suite, profile) -> dict:
  """{name: Setting}."""
  one, both = nets(suite, profile)[:1], nets(suite, profile)
  pool = _pool(suite, profile)
  skew = lambda concentration: {**pool, 'partition': base.partition('inner_dirichlet', concentration=concentration)}
  few = {**pool, 'partition': base.partition('few', per_class=10)}
  return {
    'skew-0.1': Setting('Label skew, Dirichlet 0.1', skew(0.1), one, TOGETHER),
    'skew-1': Setting('Label skew, Dirichlet 1', skew(1.0), one, TOGETHER),
    'domains': Setting(*_domains(suite, profile), one, TOGETHER),
    'architectures': Setting('Label skew 1, two architectures by turns', skew(1.0), both, TOGETHER),
    'few': Setting('Ten examples of each class and client', few, one, TOGETHER),
    'partial': Setting('Label skew 1, a fifth of the clients in a round', skew(1.0), one, FIFTH, 0.2),
    'asynchronous': Setting('Label skew 1, one upload at a time, from stale downloads', skew(1.0), one, SINGLE, 0.0),
    'long': Setting('Label skew, Dirichlet 0.1, three times the rounds', skew(0.1), one, TOGETHER, length=3),
  }


def _pool(suite, profile) -> dict:
  common = {'clients': CLIENTS, 'normalise': 'standard', **SHARES}
  if suite == 'digits':  # short profiles on what needs no download: 400 training images a client, quick to evaluate
    return {'name': 'mnist' if profile == 'paper' else 'mnist_5k', **common}
  return {'name': 'cifar10', 'rows': {'paper': 0, 'small': 10_000, 'smoke': 4000}[profile], **common}


def _domains(suite, profile) -> tuple:
  """(title, fields of `config.data`): every client has a domain."""
  common = {'clients': 4, 'partition': base.partition('by_origin'), 'test_share': 0.15, **SHARES}
  if suite == 'digits':
    name = 'rotated_mnist' if profile == 'paper' else 'rotated_mnist_5k'
    return 'The same digits at four angles', {'name': name, 'normalise': 'standard', 'aligned': True, **common}
  size = {'paper': 224, 'small': 64, 'smoke': 64}[profile]
  return "PACS's four domains", {'name': 'domains:pacs', 'normalise': 'imagenet', 'size': size, **common}


def rounds(setting, size) -> int:
  """As many rounds as give every client, on average, the number of updates that it has where all clients take part."""
  together = size.rounds * setting.length
  if not setting.updates:
    return together * setting.data['clients']
  return round(together / setting.updates)


# Servers that combine what several clients send in one round, and remember nothing that would take its place.
MEETING = ('fedavg', 'fedprox', 'scaffold', 'moon', 'ditto', 'fedper', 'fedrep', 'fedbabu', 'lg_fedavg', 'feddf')
MEETING += ('fedgen', 'heterofl', 'fml', 'fedkd', 'fedmrl', 'felo', 'velo', 'fd', 'fedmd', 'dsfl', 'scarlet', 'ktpfl')
MEETING += ('fedapen', 'fiarse')
MEETING += ('fedrolex', 'federated_dropout', 'rhfl', 'fccl', 'selective_fd', 'fedh2l')
NEVER = {
  'public': 'the first phase of FedMD, no method of its own',
  'fedkt': 'it uploads once, so that client updates cannot be compared',
  'fedgkt': 'its clients are halves of one network, which no other method here trains',
}
OF_ONE_ARCHITECTURE = ('fedavg', 'fedprox', 'scaffold', 'moon', 'ditto', 'fedper', 'fedrep', 'fedbabu', 'fiarse')
BY_SETTING = {
  'architectures': {
    **dict.fromkeys(OF_ONE_ARCHITECTURE, 'weights of different architectures have no mean'),
    **dict.fromkeys(('heterofl', 'fedrolex', 'federated_dropout'), 'the nets are not corners of one network'),
  },
  'partial': {'fedh2l': 'its clients meet after single steps, so each step would have other clients'},
  'asynchronous': dict.fromkeys(MEETING, 'it combines the uploads of a round, and here a round has one'),
}


def reason(method, setting) -> str:
  """Why a method does not apply in a setting, by its name; '' where it does."""
  return NEVER.get(method) or BY_SETTING.get(setting, {}).get(method, '')


def applying(setting) -> list:
  """The methods that apply in a setting, those between which all others are judged first."""
  first = ('private', 'agg')
  return [name for name in (*first, *(n for n in methods.__all__ if n not in first)) if not reason(name, setting)]
