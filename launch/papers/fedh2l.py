"""FedH2L (Li, Zhou, Wang, Mi and Hospedales, 2021): Tables 2 to 7."""

from launch.papers.common import Claim, Experiment, Row

H2L = {'ACC': 'best_on_validation', 'BWT': 'best_on_validation_local', 'FWT': 'best_on_validation_others'}
IND = (68.45, 92.56, 60.47)
MATCHED = {'fedavg': (86.50, 86.50, 86.50), 'fedprox': (86.67, 86.67, 86.67)}
TABLE_2 = {
  '5': {
    'fedh2l': (86.79, 92.83, 85.11),
    'ind': IND,
    'agg': (85.13, 92.33, 82.73),
    'fedmd': (85.09, 89.11, 82.95),
    **MATCHED,
  },
  '10': {
    'fedh2l': (89.13, 93.33, 87.72),
    'ind': IND,
    'agg': (85.25, 92.00, 83.00),
    'fedmd': (85.09, 91.17, 83.06),
    **MATCHED,
  },
  '15': {
    'fedh2l': (89.63, 92.67, 88.61),
    'ind': IND,
    'agg': (87.83, 92.47, 86.22),
    'fedmd': (86.75, 91.33, 85.22),
    **MATCHED,
  },
}
NODES = ('M0', 'M20', 'M40', 'M60')
IND_NODES = (66.39, 78.11, 72.39, 56.89)
TABLE_2_NODES = {
  '5': {
    'fedh2l': (86.17, 86.33, 87.50, 87.17),
    'ind': IND_NODES,
    'agg': (85.50, 87.50, 83.67, 83.83),
    'fedmd': (84.17, 85.33, 86.67, 84.17),
  },
  '10': {
    'fedh2l': (90.17, 91.67, 86.50, 88.17),
    'ind': IND_NODES,
    'agg': (86.50, 87.17, 86.67, 80.67),
    'fedmd': (85.00, 87.67, 82.00, 85.67),
  },
  '15': {
    'fedh2l': (89.67, 90.00, 90.50, 88.33),
    'ind': IND_NODES,
    'agg': (87.83, 89.67, 87.83, 86.00),
    'fedmd': (88.67, 89.00, 85.00, 84.33),
  },
}
UNLABELED_NODES = (88.83, 91.00, 87.83, 87.00)
VARIANTS = {
  'unlabeled': ('Table 2, unlabeled', (88.67, 93.00, 87.23)),
  'nokl': ('Table 5, no KL', (86.79, 91.67, 84.50)),
  'noproj': ('Table 5, no projection', (88.46, 92.67, 87.45)),
  'pcgrad': ('Table 5, PCGrad', (88.34, 92.67, 86.89)),
  'E5': ('Table 6, E = 5', (88.04, 92.17, 86.67)),
  'E10': ('Table 6, E = 10', (87.25, 93.17, 85.28)),
  'async': ('Table 7, asynchronous pairs', (88.21, 92.17, 86.89)),
  'localpub': ('local batch from the own public rows only; the paper says "slightly" worse', ()),
}
TABLE_3 = {
  'fedh2l': (77.33, 94.94, 70.66),
  'ind': (60.53, 94.25, 48.83),
  'agg': (77.00, 94.20, 70.14),
  'fedmd': (74.11, 92.55, 67.08),
  'fedh2l unlabeled': (69.94, 90.10, 62.87),
}
TABLE_4 = {
  'fedh2l': (64.92, 71.58, 61.85),
  'ind': (47.59, 69.59, 39.73),
  'agg': (59.24, 68.08, 55.39),
  'fedmd': (56.97, 67.03, 52.95),
  'fedh2l unlabeled': (60.43, 66.56, 57.40),
}
# Of Tables 3 and 4: the nodes, and their ACC.
DOMAINS = {
  'pacs': ('Art ResNet34', 'Cartoon AlexNet', 'Photo ResNet18', 'Sketch VGG11'),
  'officehome': ('Art ResNet34', 'Clipart MobileNet', 'Product AlexNet', 'Real World ResNet50'),
}
DOMAIN_NODES = {
  'pacs': {
    'fedh2l': (90.91, 81.68, 83.86, 52.87),
    'ind': (77.72, 68.52, 51.08, 44.79),
    'agg': (89.50, 80.80, 84.90, 52.81),
    'fedmd': (86.90, 78.07, 80.05, 51.40),
    'fedh2l unlabeled': (84.48, 72.63, 78.38, 44.26),
  },
  'officehome': {
    'fedh2l': (65.52, 73.55, 59.64, 60.97),
    'ind': (41.00, 55.14, 46.60, 47.61),
    'agg': (57.34, 70.61, 54.32, 54.68),
    'fedmd': (55.46, 67.49, 53.17, 51.74),
    'fedh2l unlabeled': (58.26, 70.71, 57.48, 55.28),
  },
}
NOTHING = dict.fromkeys(('fedh2l', 'ind', 'agg', 'fedmd'), ())
WHY = {  # what we know of claims that were not kept
  'fedmd': (
    'Consensus logits with MAE teach more here than posteriors with KL: without its transfer phases, or with as few '
    'rows in an exchange as FedH2L has, FedMD stays ahead (one seed, alpha = 10 %, `small`). The paper has it level '
    'with AGG, we 4 points above; over 10 000 rounds single seeds lose up to 30 points for hundreds of rounds.'
  ),
  'fedavg': 'Ours is 1.2 to 2.7 points above the printed value and FedH2L 1.3 to 4.0 below; no cause was found.',
}


def _h2l(setting, methods, alpha='10', protocol='clean', parts=None) -> tuple:
  """Rows {name: (ACC, BWT, FWT) printed, or ()}; `parts` is {name: ACC printed for every node}."""
  rows = []
  for name, printed in methods.items():
    base, _, special = name.partition(' ')
    choice = {'method': {'ind': 'private'}.get(base, base), 'setting': setting, 'alpha': alpha}
    choice |= {'protocol': protocol} if protocol != 'clean' else {}
    choice |= {'variant': special} if base == 'fedh2l' and special else {}
    arg = ','.join(f'{k}={v}' for k, v in choice.items())
    of_nodes = (parts or {}).get(name, ())
    rows.append(Row(name.replace(' ', '_'), 'fedh2l', arg, dict(zip(H2L, printed, strict=False)), parts=of_nodes))
  return tuple(rows)


def registry() -> dict:
  """{id: Experiment}."""
  paper, out = 'Li, Zhou, Wang, Mi, Hospedales, 2021', {}
  minutes = '40 minutes on two cores'
  for alpha, rows in TABLE_2.items():
    title = f'FedH2L, Rotated MNIST, alpha = {alpha} %'
    pca = ('fedh2l', 'ind', 'agg') if alpha == '10' else ()  # Figure 1
    table = _h2l('rmnist', rows, alpha, parts=TABLE_2_NODES[alpha])
    about = f'{paper}, Table 2', table, H2L, minutes
    out[f'h2l-rmnist-a{alpha}'] = Experiment(title, *about, features=pca, parts=NODES)
  for name, (where, printed) in VARIANTS.items():
    of_nodes = {'fedh2l unlabeled': UNLABELED_NODES}
    about = f'{paper}, {where}', _h2l('rmnist', {f'fedh2l {name}': printed}, parts=of_nodes), H2L, '8 minutes'
    out[f'h2l-rmnist-{name}'] = Experiment(f'FedH2L, Rotated MNIST, {name}', *about, parts=NODES)
  out['h2l-rmnist-hetero'] = Experiment(
    'FedH2L, Rotated MNIST, four architectures',
    f'{paper}: values not printed',
    _h2l('rmnist_hetero', NOTHING),
    H2L,
    minutes,
  )
  for family, table, number in (('pacs', TABLE_3, 3), ('officehome', TABLE_4, 4)):
    for protocol in ('paper', 'clean'):
      if (family, protocol) == ('officehome', 'paper'):
        continue  # its test rows do not overlap: the clean protocol is the paper's
      rows = _h2l(family, table, protocol=protocol, parts=DOMAIN_NODES[family])
      title, about = f'FedH2L, {family}, {protocol} protocol', (f'{paper}, Table {number}', rows, H2L, '40 minutes')
      out[f'h2l-{family}-{protocol}'] = Experiment(title, *about, parts=DOMAINS[family])
    rows = _h2l(f'{family}_homo', {**NOTHING, 'fedavg': (), 'fedprox': ()})
    out[f'h2l-{family}-homo'] = Experiment(
      f'FedH2L, {family}, ResNet18 everywhere', f'{paper}, supplement: values not printed', rows, H2L, '40 minutes'
    )
  return out


def claims() -> list:
  """The paper's claims about its tables."""
  acc, bwt, fwt = H2L.values()
  out = []
  for alpha in TABLE_2:
    for other in ('agg', 'ind', 'fedmd', 'fedavg', 'fedprox'):
      text = f'FedH2L beats {other.upper()} in average ACC, alpha = {alpha} %'
      why = WHY.get({'fedprox': 'fedavg'}.get(other, other), '')
      out.append(Claim(text, f'h2l-rmnist-a{alpha}/fedh2l', f'h2l-rmnist-a{alpha}/{other}', acc, why))
  full = 'h2l-rmnist-a10/fedh2l'
  variant = lambda name: f'h2l-rmnist-{name}/fedh2l_{name}'
  out += [
    Claim('FedH2L: ACC grows from alpha = 5 % to 10 %', full, 'h2l-rmnist-a5/fedh2l', acc),
    Claim('FedH2L: ACC grows from alpha = 10 % to 15 %', 'h2l-rmnist-a15/fedh2l', full, acc),
    Claim('FedH2L: the KL term helps FWT', full, variant('nokl'), fwt),
    Claim('FedH2L: the KL term helps BWT', full, variant('nokl'), bwt),
    Claim('FedH2L: without projection BWT drops', full, variant('noproj'), bwt),
    Claim('FedH2L: PCGrad is slightly worse than no projection', variant('noproj'), variant('pcgrad'), acc),
    Claim('FedH2L: accuracy falls from E = 1 to 5', full, variant('E5'), acc),
    Claim('FedH2L: accuracy falls from E = 5 to 10', variant('E5'), variant('E10'), acc),
    Claim('FedH2L: asynchronous pairs cost accuracy', full, variant('async'), acc),
    Claim('FedH2L: unlabeled public data still beats IND', variant('unlabeled'), 'h2l-rmnist-a10/ind', acc),
    Claim("FedH2L: everybody's public data in the local batch is better than the own", full, variant('localpub'), acc),
  ]
  return out
