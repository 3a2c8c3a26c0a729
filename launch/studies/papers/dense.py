"""DENSE (Zhang et al., 2022): Table 1 on MNIST, five clients that upload once."""

from launch.studies.papers.common import Claim, Experiment, Row

ALPHAS = ('0.1', '0.3', '0.5')
TABLE_1 = {
  'private': (),
  'agg': (),
  'fedavg': (48.24, 72.94, 90.55),
  'feddf': (60.15, 74.01, 92.18),
  'dense': (66.61, 76.48, 95.82),
  'coboosting': (),
}
ENSEMBLE = (86.81, 96.76, 97.22)  # of the clients' models, as FuseFL's authors measured it with networks of their own
METRICS = {'accuracy': 'final', 'ensemble': 'final_ensemble'}
REMARKS = (
  "FedDF's images are a random half of the official test images, and the other half is the test set of all rows; what "
  "the paper's FedDF has is not said. Which network the table has is not said either: ours is FedGen's "
  "with 16 and 32 channels, 55,434 weights with BatchNorm, where one of the authors' code has 29,034. "
  '`private` is the mean over clients. `small` has a sixth of the images, 30 of 400 passes in batches of 64 for 128, '
  "20 of 200 rounds of the server, DENSE's with 128 images each for 256, and a generator of 16 channels for 64, so "
  "that DENSE's model is far from its end. In all profiles nets see images less the mean image, where the authors' see "
  'numbers from 0 to 1. Not run: Fed-DAFL and Fed-ADI.'
)
WHY = (
  "in `small` DENSE's model is at its 20th of 200 rounds: at Dirichlet ALPHA it has "
  '{dn-mnist-ALPHA/dense; final; small} %, its ensemble {dn-mnist-ALPHA/dense; final_ensemble; small}, and '
  "Co-Boosting's model {dn-mnist-ALPHA/coboosting; final; small}."
)
LONG = {
  '0.1': ' After 200 rounds, of half as many images, it has {why-dense-rounds/dense_200; final; small} % (seed 0).'
}


def registry() -> dict:
  """{id: Experiment}."""
  return {f'dn-mnist-{alpha}': _table(alpha, column) for column, alpha in enumerate(ALPHAS)}


def _table(alpha, column) -> Experiment:
  def row(name):
    printed = {'accuracy': TABLE_1[name][column]} if TABLE_1[name] else {}
    more = {'ensemble': ENSEMBLE[column]} if name == 'dense' else {}
    return Row(name, 'one_shot_mnist', f'method={name},alpha={alpha}', printed | more)

  title = f'DENSE, MNIST, one upload, Dirichlet {alpha}'
  about = title, 'Zhang et al., 2022, Table 1; the ensemble from FuseFL', tuple(map(row, TABLE_1)), METRICS
  return Experiment(*about, '20 minutes', remarks=REMARKS)


def claims() -> list:
  """The order of the table, for every alpha."""
  out = []
  for alpha in ALPHAS:
    of, where, why = (
      f'dn-mnist-{alpha}/{{}}'.format,
      f'MNIST, Dirichlet {alpha}',
      WHY.replace('ALPHA', alpha) + LONG.get(alpha, ''),
    )
    out += [
      Claim(f'FedDF beats FedAvg after one upload, {where}', of('feddf'), of('fedavg')),
      Claim(f'DENSE beats FedAvg after one upload, {where}', of('dense'), of('fedavg'), why=why),
      Claim(f'DENSE beats FedDF after one upload, {where}', of('dense'), of('feddf'), why=why),
      # What is printed for the ensemble is another paper's.
      Claim(f"The ensemble beats DENSE's model, {where}", of('dense:final_ensemble'), of('dense'), printed=None),
    ]
  return out
