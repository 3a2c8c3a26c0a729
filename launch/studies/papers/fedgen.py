"""FedGen (Zhu, Hong, Zhou, 2021): Table 1 on MNIST, and Table 4, where heads alone are shared."""

from launch.studies.papers.common import Claim, Experiment, Row

SOURCE = 'Zhu et al., 2021, Table {}; their ± is over seeds'
# Accuracy and its deviation over three seeds, for every concentration of the Dirichlet distribution.
TABLE_1 = {
  'private': {},
  'agg': {},
  'fedavg': {'0.05': (87.70, 2.07), '0.1': (90.16, 0.59), '1': (93.84, 0.25)},
  'fedprox': {'0.05': (87.49, 2.05), '0.1': (90.10, 0.39), '1': (93.83, 0.29)},
  'fedensemble': {'0.05': (88.85, 0.68), '0.1': (90.78, 0.39), '1': (93.91, 0.28)},
  'fd': {'0.05': (70.56, 1.24), '0.1': (64.11, 1.36), '1': (79.88, 0.66)},
  'feddistill_plus': {'0.05': (86.70, 2.27), '0.1': (90.28, 0.89), '1': (94.73, 0.15)},
  'feddf': {'0.05': (90.02, 0.96), '0.1': (91.11, 0.43), '1': (93.37, 0.40)},
  'fedgen': {'0.05': (91.30, 0.74), '0.1': (93.03, 0.32), '1': (95.52, 0.07)},
}
# FedDFusion, which is in the table too, has no such mode here.
TABLE_4 = {
  'private': {},
  'agg': {},
  'fedavg': {'0.05': (59.67, 0.76), '0.1': (58.39, 0.74), '1': (74.49, 0.57), '10': (86.35, 0.60)},
  'feddistill_plus': {'0.05': (58.83, 0.62), '0.1': (56.25, 0.98), '1': (74.24, 0.60), '10': (86.89, 0.26)},
  'fedgen': {'0.05': (63.60, 0.63), '0.1': (65.42, 0.29), '1': (79.72, 0.52), '10': (87.92, 0.46)},
}
CALLED = {
  **{'fedavg': 'FedAvg', 'fedprox': 'FedProx', 'fedensemble': 'FedEnsemble'},
  **{'fd': 'FedDistill', 'feddistill_plus': 'FedDistill+', 'feddf': 'FedDFusion'},
}
# The rows of a client's own labels, all clients' together, as the code counts and in the mean over clients; and the
# test rows of all clients.
METRICS = {
  'own labels': 'pooled',
  'own labels, ensemble': 'pooled_ensemble',
  'own labels, by client': 'final_local',
  'all labels': 'final',
  'all labels, ensemble': 'final_ensemble',
}


def registry() -> dict:
  """{id: Experiment}."""
  tables = {f'fg-mnist-{alpha}': _table(1, TABLE_1, alpha, 'all') for alpha in TABLE_1['fedgen']}
  return tables | {f'fg-head-mnist-{alpha}': _table(4, TABLE_4, alpha, 'head') for alpha in TABLE_4['fedgen']}


def _metric(name) -> str:
  return 'own labels, ensemble' if name == 'fedensemble' else 'own labels'


def _table(number, table, alpha, share) -> Experiment:
  def row(name):
    found = table[name].get(alpha)
    mean, around = ({_metric(name): value} for value in found) if found else ({}, {})
    return Row(name, 'fedgen', f'method={name},alpha={alpha},share={share}', mean, deviation=around)

  what = 'FedGen, MNIST' if share == 'all' else 'FedGen, MNIST, heads alone'
  title = f'{what}, Dirichlet {alpha}'
  return Experiment(
    title, SOURCE.format(number), tuple(map(row, table)), METRICS, '35 minutes' if share == 'all' else '10 minutes'
  )


def claims() -> list:
  """What both tables say for every concentration."""
  out = []
  for alpha in TABLE_1['fedgen']:
    of = lambda row, alpha=alpha: f'fg-mnist-{alpha}/{row}' + ':pooled_ensemble' * (row == 'fedensemble')
    for other, called in CALLED.items():
      out.append(Claim(f'FedGen beats {called}, MNIST, Dirichlet {alpha}', of('fedgen'), of(other), 'pooled'))
    out.append(Claim(f'FedAvg beats FedDistill, MNIST, Dirichlet {alpha}', of('fedavg'), of('fd'), 'pooled'))
  for alpha in TABLE_4['fedgen']:
    of = lambda row, alpha=alpha: f'fg-head-mnist-{alpha}/{row}'
    for other in ('fedavg', 'feddistill_plus'):
      title = f'FedGen beats {CALLED[other]} with heads alone, MNIST, Dirichlet {alpha}'
      out.append(Claim(title, of('fedgen'), of(other), 'pooled'))
  return out
