"""What every method meets: data, nets by tier, plan and length, and why a method does not apply."""

from typing import NamedTuple

from fedkd import config as base
from fedkd import methods
from launch.studies.comparison import nets

SUITES = ('digits', 'letters', 'cifar10', 'cifar100', 'pacs')
TIERS = ('different', 'pairs', 'one')  # an architecture each; two clients per architecture; one for all
PROFILES = ('whole', 'smoke')
TUNED_ON = 100  # the seed whose validation rows decide about hyperparameters; no test seed


class Size(NamedTuple):
  """Of a profile: rounds in which everybody takes part, and what is trained in a client update."""

  rounds: int
  steps: int
  batch: int
  subset: int  # public rows of a round
  public_passes: int  # over them
  rows: int  # training images, of all clients
  seeds: tuple
  own_rows: int  # test rows of a client, at the end
  at_most: int  # of these in evaluations before the end


class Setting(NamedTuple):
  """A setting of a suite: the same for all methods."""

  title: str
  data: dict  # fields of `config.data`
  share: float = 1.0  # of the clients, that take part in a round
  length: float = 1.0  # times the profile's rounds
  tiers: tuple = TIERS


SIZES = {
  'whole': Size(60, 6, 32, 128, 2, 10_000, (0, 1, 2, 3, 4, 5), 400, 100),
  'smoke': Size(6, 1, 8, 16, 1, 800, (0, 1), 20, 10),
}
EVALUATIONS = 6  # of a run: every tenth of 60 rounds
CLIENTS = 10
FEW = 100  # training images of a client
SOURCES: dict[str, dict] = {
  'digits': {'name': 'mnist'},
  'letters': {'name': 'emnist/letters', 'keep': ('1', '2', '3', '4', '5', '6')},
  'cifar10': {'name': 'cifar10'},
  'cifar100': {'name': 'cifar100', 'label': 'coarse_label', 'keep': (0, 1, 2, 3, 4, 5)},
}
ALL_ROWS = {'cifar100': 3000}  # of those that have fewer than the profile asks for
ANGLES = tuple(range(0, 100, 10))  # of the rotated digits, a domain and a client each
# Of every client's rows, class by class; the public ones are those of all clients together.
SHARES = {'validation': 0.1, 'public_share': 0.2}
PACS = {'name': 'domains:pacs', 'size': 96, 'normalise': 'imagenet', 'clients': 4, 'test_share': 0.15}
TITLES = {
  'digits': 'MNIST',
  'letters': 'EMNIST, letters a to f',
  'cifar10': 'CIFAR-10',
  'cifar100': 'CIFAR-100, six superclasses',
  'pacs': 'PACS at 96 pixels',
}


def settings(suite: str, profile: str) -> dict:
  """{name: Setting} of a suite."""
  by_origin = {'partition': base.partition('by_origin'), **SHARES}
  if suite == 'pacs':
    return {'domains': Setting('four domains', {**PACS, **by_origin}, tiers=('different', 'one'))}
  rows = min(SIZES[profile].rows, ALL_ROWS.get(suite, SIZES[profile].rows))
  common = {**SOURCES[suite], 'clients': CLIENTS, 'normalise': 'standard', 'rows': rows, **SHARES}
  skew = lambda by, **more: {**common, 'partition': base.partition('inner_dirichlet', concentration=by), **more}
  few = min(FEW * CLIENTS, rows)
  found = {
    'skew-0.1': Setting('label skew, Dirichlet 0.1', skew(0.1)),
    'skew-0.5': Setting('label skew, Dirichlet 0.5', skew(0.5)),
    'few': Setting(f'label skew 0.5, {few // CLIENTS} images a client', skew(0.5, rows=few)),
    'partial': Setting('label skew 0.5, a fifth of the clients in a round', skew(0.5), share=0.2),
    'converged': Setting('label skew 0.5, 200 rounds', skew(0.5), length=10 / 3, tiers=('different',)),
  }
  if suite == 'digits':
    turned = {'name': 'rotated_mnist', 'angles': ANGLES, 'aligned': True, 'test_share': 0.2, 'rows': 0}
    found['domains'] = Setting('1000 digits at ten angles, one each', {**common, **turned, **by_origin})
  return found


def networks(suite: str, tier: str) -> tuple:
  """The entries of `config.groups` of a tier."""
  if suite == 'pacs':
    return nets.PHOTOS if tier == 'different' else nets.PHOTOS[:1]
  return {'different': nets.DIFFERENT, 'pairs': nets.DIFFERENT[:5], 'one': nets.DIFFERENT[:1]}[tier]


def config_of(suite: str, profile: str, tier: str, name: str):
  """The config of a setting in a tier, its method aside: data, groups and plan."""
  setting = settings(suite, profile)[name]
  config = base.default()
  config.name = f'benchmark_{suite}_{tier}_{name}'
  config.data.update(setting.data)
  entries = networks(suite, tier)
  each = setting.data['clients'] // len(entries)
  config.groups = tuple({**entry, 'clients': each} for entry in entries)
  config.plan = base.plan('sampled', ratio=setting.share) if setting.share < 1 else base.plan('synchronous')
  config.rounds = rounds(setting, SIZES[profile])
  return config


def rounds(setting: Setting, size: Size) -> int:
  """As many as give every client, on average, the number of updates that it has where all clients take part."""
  return round(size.rounds * setting.length / setting.share)


# Before the others, in this order.
LEADING = ('private', 'fedhe', 'fedmd', 'fedproto', 'feddf', 'felo', 'fml', 'fedgh', 'agg', 'fedtgp')
ON_PACS = ('private', 'agg', 'fedhe', 'fedmd', 'fedproto', 'feddf', 'felo', 'fml')
ONCE = ('fedkt', 'dense', 'coboosting')  # whose clients train and send in the first round alone
NEVER = {
  'public': 'the first phase of FedMD, no method of its own',
  **dict.fromkeys(ONCE, 'it uploads once, so that budgets of client updates do not compare'),
  'fedgkt': 'its clients are halves of one network, which no other method here trains',
}
MEANS = ('fedavg', 'fedprox', 'scaffold', 'moon', 'ditto', 'fedper', 'fedrep', 'fedbabu', 'fiarse')
CORNERS = ('heterofl', 'fedrolex', 'federated_dropout')
PER_ARCHITECTURE = ('fedavg', 'fedprox')  # which also average within each architecture
WHY = {
  'no mean': 'weights of different architectures have no mean',
  'corners': 'the nets are not parts of one network',
  'whole': 'all clients have the whole network, with which it is FedAvg',
  'single steps': 'its clients meet after single steps, so each step would have other clients',
}
REDUCES = {  # what is left of a method in a tier
  'different': {
    **dict.fromkeys(('felo', 'velo'), 'no weights are averaged; class means of features and logits are left'),
    'feddf': 'no weights are averaged; the server distils the ensemble into each model',
    'fedgen': 'heads are averaged, and the generator trains them',
    'lg_fedavg': 'the last layers are averaged',
    **dict.fromkeys(('fml', 'fedkd', 'fedmrl', 'fedapen'), 'the weights of the small common model are averaged'),
  },
  'pairs': {
    **dict.fromkeys(('fedavg', 'fedprox', 'felo', 'velo', 'feddf'), 'weights are averaged between two clients each'),
    'fedgen': 'heads are averaged, and the generator trains them',
    'lg_fedavg': 'the last layers are averaged',
    **dict.fromkeys(('fml', 'fedkd', 'fedmrl', 'fedapen'), 'the weights of the small common model are averaged'),
  },
  'one': {},
}


def reason(method: str, tier: str, setting: str, suite: str = 'digits') -> str:
  """Why a method does not apply in a tier and setting; '' where it does."""
  if method in NEVER:
    return NEVER[method]
  if tier != 'one' and method in MEANS and not (tier == 'pairs' and method in PER_ARCHITECTURE):
    return WHY['no mean']
  if method in CORNERS:
    return WHY['whole' if tier == 'one' else 'corners']
  if method == 'fedh2l' and setting == 'partial':
    return WHY['single steps']
  return f'only {", ".join(ON_PACS)} run here' if suite == 'pacs' and method not in ON_PACS else ''


def applying(suite: str, tier: str, setting: str) -> list:
  """The methods that apply, the leading ones first."""
  ordered = (*LEADING, *(name for name in methods.__all__ if name not in LEADING))
  return [name for name in ordered if not reason(name, tier, setting, suite)]
