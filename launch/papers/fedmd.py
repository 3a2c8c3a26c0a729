"""FedMD (Li and Wang, 2019): Figure 2 and Table 4, and the run stored with its authors' code."""

from launch.papers.common import Claim, Experiment, Row

# FedMD on pooled data, models 0-9: Table 4; and the run stored in its authors' first repository (Tzq2doc/FedMD), which
# numbers the letters from 0 and takes 10-15 for private classes: k to p. The later one adds 10 to the letters: a to f.
POOLED_FEDMD = {
  'femnist_first': (92.9, 91.9, 93.6, 94.0, 94.3, 94.5, 91.6, 91.8, 90.9, 94.4),
  'femnist_iid': (89.5, 88.6, 87.5, 88.9, 88.5, 89.9, 90.3, 90.2, 90.2, 90.1),
  'femnist_noniid': (85.8, 82.5, 86.7, 85.8, 87.0, 90.1, 89.6, 89.9, 90.0, 89.4),
  'cifar_iid': (83.5, 82.3, 77.8, 81.8, 82.3, 84.2, 84.5, 84.3, 84.7, 80.7),
  'cifar_noniid': (47.8, 58.3, 58.1, 57.3, 58.4, 57.4, 59.1, 56.8, 58.6, 53.5),
  'cifar_weak': (),
}
STORED = {
  'start': (76.0, 73.0, 77.3, 65.6, 71.4, 75.4, 77.9, 75.5, 77.3, 77.3),
  'final': (88.7, 88.3, 88.5, 89.3, 88.5, 88.1, 87.3, 85.8, 85.1, 88.7),
}
MD = {'start': 'start', 'final': 'final'}


def registry() -> dict:
  """{id: Experiment}."""
  out = {}
  for setting, pooled in POOLED_FEDMD.items():
    arg = lambda method, setting=setting: f'method={method},setting={setting}'
    rows = [
      Row('fedmd', 'fedmd', arg('fedmd'), STORED if setting == 'femnist_first' else {}),
      Row('private', 'fedmd', arg('private'), {}),
      Row('pooled', 'fedmd', arg('pooled'), {'final': pooled} if pooled else {}),
    ]
    if setting == 'cifar_weak':
      rows.append(Row('fedmd_reduced', 'fedmd', f'{arg("fedmd")},weights=paper', {}))
    name = {'cifar_weak': 'md-cifar-iid-weak'}.get(setting, f'md-{setting.replace("_", "-")}')
    source = 'Li and Wang, 2019, Figure 2, Table 4'
    if setting == 'femnist_first':
      source = 'the run stored in the first repository of Li and Wang, 2019, on the letters k to p'
    out[name] = Experiment(f'FedMD, {setting.replace("_", ", ")}', source, tuple(rows), MD, '40 minutes, one seed')
  return out


def claims() -> list:
  """The paper's claims about its tables."""
  return [
    Claim(
      'FedMD: collaboration lifts the mean over transfer learning', 'md-femnist-iid/fedmd', 'md-femnist-iid/private'
    ),
    Claim('FedMD: pooled data is better still', 'md-femnist-iid/pooled', 'md-femnist-iid/fedmd'),
    Claim(
      'FedMD: a lower weight for weak members is better', 'md-cifar-iid-weak/fedmd_reduced', 'md-cifar-iid-weak/fedmd'
    ),
  ]
