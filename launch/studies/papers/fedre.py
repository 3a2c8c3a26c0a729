"""FedRE (Yao et al., CVPR 2026): its CIFAR-10 columns, whose order alone can be tested without its networks."""

from launch.studies.papers.common import Claim, Experiment, Row

# Per cent of a client's own test rows: labels from Dirichlet 0.1, and two classes for each client.
TABLE = {
  'private': (81.20, 84.68),
  'agg': (),
  'fedproto': (78.36, 83.81),
  'fedgh': (78.66, 85.43),
  'fedtgp': (81.32, 84.68),
  'fedre': (82.60, 86.20),
}
SPLITS = {'pra': 'Dirichlet 0.1', 'pat': 'two classes a client'}
REMARKS = (
  "The paper's ten networks, from a CNN of four layers to a ViT-B and a ResNet-152, are five small CNNs here, so that "
  'the order of the rows says more than their values. The printed numbers were read in a summary of the paper; which '
  'round they are of, and of how many seeds, we do not know. Ours are last rounds. `fedre` is by the head that the '
  "server sends, `fedgh` by the clients' own, `fedproto` and `fedtgp` by prototypes, FedProto's by those of a client's "
  'own classes. `fedtgp` has no row: at e808ff8f the loss of a client became nan in round 50 of seed 1. Its prototypes '
  "are trained with a margin, up to 100, that grows with the distances of the clients' class means, which follow the "
  'prototypes, so that all grow, and SGD at 0.06 is near its limit: '
  'at 0fae517 the loss in seeds 1 and 2 went from 2.2 and 4.2 in round 20 to 21.9 and 16.8 in round 100; in two runs '
  'with other keys the nearest prototypes went from 3.1 and 3.9 apart in round 1 to 10.8 and 7.1 in round 50.'
)
WHY = 'The paper does not say by which head a client of FedRE is judged, the one that the server sends or its own.'


def registry() -> dict:
  """{id: Experiment}."""
  return {f'fr-cifar10-{split}': _table(split, column) for column, split in enumerate(SPLITS)}


def _table(split, column) -> Experiment:
  def row(name):
    printed = {'own rows': TABLE[name][column]} if TABLE[name] else {}
    return Row(name, 'fedre', f'method={name},split={split}', printed)

  about = f'FedRE, CIFAR-10, {SPLITS[split]}', 'Yao et al., 2026, its CIFAR-10 columns', tuple(map(row, TABLE))
  return Experiment(*about, {'own rows': 'final_local', 'all rows': 'final'}, '6 minutes a row', remarks=REMARKS)


def claims() -> list:
  """That FedRE beats the others, and that FedProto is below training alone."""
  out = []
  for split, called in SPLITS.items():
    of, where = f'fr-cifar10-{split}/{{}}'.format, f'CIFAR-10, {called}'
    beside = {'private': 'Local', 'fedproto': 'FedProto', 'fedgh': 'FedGH', 'fedtgp': 'FedTGP'}
    for row, name in beside.items():
      own = "by the clients' own heads", f'{of("fedre")}:final_own_head_local', of(row)
      out.append(Claim(f'FedRE beats {name}, {where}', of('fedre'), of(row), 'final_local', WHY, readings=(own,)))
    out.append(Claim(f'Local beats FedProto, {where}', of('private'), of('fedproto'), 'final_local'))
  return out
