"""HeFlwr, a framework: the table of its homepage on MNIST and CIFAR-10, sub-networks of one network."""

from launch.studies.papers.common import Claim, Experiment, Row

# The mean over eight clients of their sub-networks' accuracies: MNIST, iid and with a Dirichlet split, and CIFAR-10.
TABLE = {
  'fedavg': (99.30, 98.88, 86.14, 82.62),
  'heterofl': (98.44, 91.04, 80.71, 61.66),
  'fedrolex': (97.55, 91.17, 82.18, 67.67),
  'federated_dropout': (26.32, 11.35, 16.14, 14.05),
  'fedrolex_misplaced': (97.55, 91.17, 82.18, 67.67),
  'federated_dropout_misplaced': (26.32, 11.35, 16.14, 14.05),
  'private': (),
  'agg': (),
}
DATA = {'mnist': 'MNIST', 'cifar10': 'CIFAR-10'}
SPLITS = {'iid': 'iid', 'dirichlet': 'Dirichlet 0.5'}
WIDTHS = ('a quarter', 'a half', 'three quarters', 'the whole')
METRICS = {'own sub-network': 'final', 'whole network': 'final_network'}
FAILS = 40  # points that Federated Dropout is below HeteroFL, at least
ERROR = (
  'HeFlwr adds the first rows of an upload to every run of neighbouring channels that a client holds, which is right '
  'where there is one run, as in HeteroFL; the windows of FedRolex have two in some rounds, the random channels of '
  'Federated Dropout many.'
)
WITH_ERROR = (
  ' With this error ours has {hw-mnist-iid/federated_dropout_misplaced; final; paper} %, without it '
  '{hw-mnist-iid/federated_dropout; final; paper} (iid).'
)
SHARES = (
  "The homepage's numbers are of one split, which its scripts draw with a fixed seed: with the shares of that draw "
  'HeteroFL has {why-heflwr-shares/heterofl; final; paper} % and FedRolex {why-heflwr-shares/fedrolex; final; paper}, '
  'with draws of our seeds {hw-mnist-dirichlet/heterofl; final; paper} and {hw-mnist-dirichlet/fedrolex; final; paper}.'
)
SMALL_NET = (
  'The network is the LeNet of MNIST, with three input channels, where the homepage has a ResNet-18, so that the order '
  'of the rows says more than their values.'
)
REMARKS = (
  f'{ERROR} `fedrolex_misplaced` and `federated_dropout_misplaced` have this error. In its Federated Dropout the '
  'number of channels is random too, where ours are exactly the share. The homepage says neither which round it shows '
  'nor how many runs; ours are last rounds. Not run: MFL; FjORD, whose clients distil; and the selective client, of '
  'which it is not said which clients are selected. Our maps are flattened channels last and cut in blocks: '
  'the same sub-networks as channels first. Test images are normalised as training images are.'
)


def registry() -> dict:
  """{id: Experiment}."""
  each = [(data, split) for data in DATA for split in SPLITS]
  return {f'hw-{data}-{split}': _table(data, split, column) for column, (data, split) in enumerate(each)}


def _table(data, split, column) -> Experiment:
  def row(name):
    printed = {'own sub-network': TABLE[name][column]} if TABLE[name] else {}
    return Row(name, 'heflwr', f'method={name},split={split},data={data}', printed)

  kinds = tuple((name, (2 * i, 2 * i + 1)) for i, name in enumerate(WIDTHS))
  about = f'HeFlwr, {DATA[data]}, {SPLITS[split]}', "The table of HeFlwr's homepage", tuple(map(row, TABLE))
  remarks = f'{SMALL_NET} {REMARKS}' if data == 'cifar10' else REMARKS
  full = () if data == 'cifar10' else ('paper',)
  return Experiment(*about, METRICS, '25 minutes', full, kinds=kinds, remarks=remarks)


def claims() -> list:
  """The order of the rows, and that one of them fails."""
  return [claim for data in DATA for split in SPLITS for claim in _claims(data, split)]


def _claims(data, split) -> list:
  of, where = f'hw-{data}-{split}/{{}}'.format, f'{DATA[data]}, {SPLITS[split]}'
  row = {'HeteroFL': 'heterofl', 'FedRolex': 'fedrolex'}
  at_first = data == 'mnist' and split == 'iid'  # the one column in which HeteroFL is printed above FedRolex
  better, worse = row if at_first else reversed(row)
  failed = ERROR + (WITH_ERROR if data == 'mnist' else '')
  own = 'why-heflwr-shares/{}'.format
  drawn = ("with the shares of HeFlwr's own draw", own(row[better]), own(row[worse]))
  why, readings = (SHARES, (drawn,)) if (data, split) == ('mnist', 'dirichlet') else ('', ())
  text = f'Federated Dropout is more than {FAILS} points below HeteroFL, {where}'
  return [
    Claim(f'FedAvg of the whole network beats HeteroFL, {where}', of('fedavg'), of('heterofl')),
    Claim(f'{better} beats {worse}, {where}', of(row[better]), of(row[worse]), why=why, readings=readings),
    Claim(text, of('heterofl'), of('federated_dropout'), 'final', failed, -FAILS),
  ]
