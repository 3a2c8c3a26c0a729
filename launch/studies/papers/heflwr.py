"""HeFlwr, a framework: the table of its homepage on MNIST, sub-networks of one LeNet."""

from launch.studies.papers.common import Claim, Experiment, Row

# The mean over eight clients of their sub-networks' accuracies, iid and with a Dirichlet split.
TABLE = {
  'fedavg': (99.30, 98.88),
  'heterofl': (98.44, 91.04),
  'fedrolex': (97.55, 91.17),
  'federated_dropout': (26.32, 11.35),
  'fedrolex_misplaced': (97.55, 91.17),
  'federated_dropout_misplaced': (26.32, 11.35),
  'private': (),
  'agg': (),
}
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
REMARKS = (
  f'{ERROR} `fedrolex_misplaced` and `federated_dropout_misplaced` have this error. In its Federated Dropout the '
  'number of channels is random too, where ours are exactly the share. The homepage says neither which round it shows '
  'nor how many runs; ours are last rounds. Not run: MFL; FjORD, whose clients distil; and the selective client, of '
  'which it is not said which clients are selected. Our maps are flattened channels last and cut in blocks: '
  'the same sub-networks as channels first. Test images are normalised as training images are.'
)


def registry() -> dict:
  """{id: Experiment}."""
  return {f'hw-mnist-{split}': _table(split, column) for column, split in enumerate(SPLITS)}


def _table(split, column) -> Experiment:
  def row(name):
    printed = {'own sub-network': TABLE[name][column]} if TABLE[name] else {}
    return Row(name, 'heflwr', f'method={name},split={split}', printed)

  kinds = tuple((name, (2 * i, 2 * i + 1)) for i, name in enumerate(WIDTHS))
  about = f'HeFlwr, MNIST, {SPLITS[split]}', "The table of HeFlwr's homepage", tuple(map(row, TABLE))
  return Experiment(*about, METRICS, '25 minutes', kinds=kinds, remarks=REMARKS)


def claims() -> list:
  """The order of the rows, and that one of them fails."""
  out = []
  for split, called in SPLITS.items():
    of = lambda row, split=split: f'hw-mnist-{split}/{row}'
    better, worse = ('HeteroFL', 'FedRolex') if split == 'iid' else ('FedRolex', 'HeteroFL')
    text = f'Federated Dropout is more than {FAILS} points below HeteroFL, MNIST, {called}'
    out += [
      Claim(f'FedAvg of the whole network beats HeteroFL, MNIST, {called}', of('fedavg'), of('heterofl')),
      Claim(f'{better} beats {worse}, MNIST, {called}', of(better.lower()), of(worse.lower())),
      Claim(text, of('heterofl'), of('federated_dropout'), 'final', ERROR + WITH_ERROR, -FAILS),
    ]
  return out
