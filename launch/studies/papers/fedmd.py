"""FedMD (Li and Wang, 2019): Figure 2 and Table 4, and the run stored with its authors' code."""

from configs.fedmd import SMALL
from launch.studies.papers.common import Claim, Experiment, Row

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
  'round 1': (81.6, 77.9, 84.9, 82.6, 79.7, 80.9, 81.4, 82.2, 79.3, 82.0),
  'round 5': (89.7, 84.9, 88.1, 88.3, 87.5, 86.7, 88.3, 89.0, 87.3, 88.3),
  'final': (88.7, 88.3, 88.5, 89.3, 88.5, 88.1, 87.3, 85.8, 85.1, 88.7),
  'public': (98.4, 98.2, 98.6, 98.7, 98.5, 99.0, 99.2, 99.1, 99.1, 99.1),
}
# Tables 1 and 2: test accuracy on the public data after the public phase, models 0-9.
PUBLIC = {
  'femnist': (98.6, 98.8, 98.4, 98.3, 98.2, 98.9, 99.0, 99.1, 99.2, 98.9),
  'cifar': (71.5, 78.8, 75.5, 74.5, 74.9, 74.8, 77.5, 77.7, 78.8, 75.4),
}
MD = {'public': 'public', 'start': 'start', 'final': 'final'}
# Their round 1 is our second: our first only exchanges logits.
FIRST = {'public': 'public', 'start': 'start', 'round 1': 'round_2', 'round 5': 'round_6', 'final': 'final'}
WHY = {  # what is to be known of claims
  'start': (
    'Without the two of four models that still answer with public classes after the private phase, whose 25 passes are '
    'of one step each in `small`.'
  ),
  'private': (
    'The 50 passes are of one step each in `small`, after which the deepest net still answers with public classes; '
    'as many passes as FedMD has are the fairer comparison.'
  ),
  'private_long': "As many passes as FedMD's private phase and revisits have, in the batches of the revisits.",
}
GAIN = 20.0  # points over transfer learning, in the mean over all settings, as the abstract says
BELOW = 5  # points, our reading of the abstract's "a few percent" below pooled data
NEEDS = {'femnist_first': 'EMNIST with the letters k to p', 'femnist_noniid': 'EMNIST with its writers'}


def registry() -> dict:
  """{id: Experiment}."""
  out = {}
  for setting, pooled in POOLED_FEDMD.items():
    arg = lambda method, setting=setting: f'method={method},setting={setting}'
    first, public = setting == 'femnist_first', {'public': PUBLIC[setting.split('_')[0]]}
    known = STORED if first else {} if setting == 'cifar_weak' else public
    bound = {'final': pooled} if pooled else {}
    rows = [
      Row('fedmd', 'fedmd', arg('fedmd'), known, parts=known),
      Row('private', 'fedmd', arg('private'), {}),
      Row('private_long', 'fedmd', arg('private_long'), {}),
      Row('pooled', 'fedmd', arg('pooled'), bound, parts=bound),
    ]
    if setting == 'cifar_weak':
      rows.append(Row('fedmd_reduced', 'fedmd', f'{arg("fedmd")},weights=paper', {}))
    name = {'cifar_weak': 'md-cifar-iid-weak'}.get(setting, f'md-{setting.replace("_", "-")}')
    source = 'Li and Wang, 2019, Figure 2, Tables 1, 2 and 4'
    if first:
      source = 'the run stored in the first repository of Li and Wang, 2019, on the letters k to p'
    title, metrics = f'FedMD, {setting.replace("_", ", ")}', FIRST if first else MD
    about = title, source, tuple(rows), metrics, '20 minutes a seed' if 'femnist' in setting else '11 minutes a seed'
    out[name] = Experiment(*about, small=SMALL, needs=NEEDS.get(setting, ''))
  return out


def claims() -> list:
  """The paper's claims about its tables."""
  out = []
  for where in ('femnist-iid', 'femnist-first', 'cifar-iid', 'cifar-noniid'):
    of = lambda row, where=where: f'md-{where}/{row}'
    text = f'FedMD beats transfer learning, {where}'
    started = of('fedmd:final_begun'), of('fedmd:start_begun')
    out.append(Claim(text, *started, why=WHY['start'] * (where == 'cifar-iid'), printed=GAIN))
    for row, passes in (('private', '50 passes'), ('private_long', 'as many passes')):
      why = WHY[row] if where == 'cifar-iid' or row == 'private_long' else ''
      out.append(Claim(f'FedMD beats {passes} alone (our comparison), {where}', of('fedmd'), of(row), why=why))
    out.append(Claim(f'Pooled data beats FedMD, {where}', of('pooled'), of('fedmd')))
    text = f'FedMD is at most {BELOW} points below pooled data, {where}'
    out.append(Claim(text, of('fedmd'), of('pooled'), margin=BELOW))
  weak = 'md-cifar-iid-weak/fedmd_reduced', 'md-cifar-iid-weak/fedmd'
  out.append(Claim('FedMD: a lower weight for weak members is better', *weak))
  return out
