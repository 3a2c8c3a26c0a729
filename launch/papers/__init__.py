"""The tables and figures of the papers: which runs make them, what was printed, and what was claimed.

Printed values are percent. An id's rows run on the same splits and seeds.
"""

import itertools
from typing import NamedTuple

PROFILES = ('paper', 'light', 'small', 'smoke')  # from the longest to the shortest; few ids have a light one


class Row(NamedTuple):
  """One run of an experiment, and what the paper prints for it."""

  name: str
  config: str  # a file of configs/
  arg: str  # of its config string, without the profile
  printed: dict  # {metric: percent, or a list of them per client}
  overrides: tuple = ()  # ((field, value), ...) of the config
  parts: tuple = ()  # the first metric as printed for every client


class Experiment(NamedTuple):
  """An id of the registry. `metrics` are the printed names and the fields of a result that answer them."""

  title: str
  source: str
  rows: tuple
  metrics: dict
  cost: str  # of the small profile
  full: tuple = ('paper',)  # profiles of full nets, the cheapest last
  features: tuple = ()  # rows whose first client's features of all test rows are kept, as principal components
  parts: tuple = ()  # what the paper calls the clients; empty: they are told apart by their nets


H2L = {'ACC': 'best_on_validation', 'BWT': 'best_on_validation_local', 'FWT': 'best_on_validation_others'}
FINAL = {'accuracy': 'final'}


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


def _fedh2l() -> dict:
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


def _fedmd() -> dict:
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


FIGURES = {
  ('mnist', 'homo'): (3, {'fedhe': 98.9, 'private': 98.4, 'fedavg': 99.0, 'fedmd': 97.9}),
  ('mnist', 'hetero'): (5, {'fedhe': 98.5, 'private': 98.0, 'fedmd': 98.0}),
  ('cifar10', 'homo'): (4, {'fedhe': 66.0, 'private': 62.5, 'fedavg': 69.0, 'fedmd': 60.9}),
  ('cifar10', 'hetero'): (6, {'fedhe': 62.0, 'private': 57.0, 'fedmd': 57.5}),
}
# Figure 8, CIFAR-10, hetero: the mean of the nets of two and of three layers.
FIGURE_8 = {'fedhe': (58.0,) * 5 + (65.0,) * 5, 'private': (52.5,) * 5 + (61.0,) * 5}


def _fedhe() -> dict:
  out = {}
  for (data, zoo), (figure, printed) in FIGURES.items():
    names = ('fedhe', 'private', 'agg', 'fedmd') + ('fedavg',) * (zoo == 'homo')
    printed_of = lambda name, printed=printed: {'accuracy': printed[name]} if name in printed else {}
    means = FIGURE_8 if (data, zoo) == ('cifar10', 'hetero') else {}
    of = lambda name, data=data, zoo=zoo: (f'fedhe_{data}', f'method={name},zoo={zoo}')
    rows = [Row(name, *of(name), printed_of(name), parts=means.get(name, ())) for name in names]
    rows.append(Row('fedhe_offset', *of('fedhe'), {}, (('method.count_offset', 1.0),)))
    source = f'Chan and Ngai, 2021, Figure {figure}'
    out[f'he-{data}-{zoo}'] = Experiment(f'FedHe, {data}, {zoo}', source, tuple(rows), FINAL, '30 minutes')
  return out


# Felo and Velo: mean accuracy over the second half of the rounds, by data set and split.
SPLITS = (('cifar10', 'iid'), ('cifar10', 'dir0.5'), ('cinic10', 'iid'), ('cinic10', 'dir0.5'))
SECOND_HALF = {'second half': 'second_half_mean', 'final': 'final'}
LIGHT = ('paper', 'light')
FIGURE_4 = {'felo': (76.10, 56.88, 61.08, 47.35), 'velo': (76.33, 57.17, 61.16, 47.61)}
TABLE_2_FELO = {
  'fedavg': (84.582, 59.229, 70.26, 46.837),
  'felo': (84.451, 60.357, 70.697, 48.528),
  'velo': (85.077, 60.882, 70.858, 47.885),
}
TABLE_3_FELO = {
  'fedhe': (55.16, 38.97, 50.25, 37.81),
  'fedgkt': (65.82, 37.13, 55.30, 35.62),
  'felo': (70.451, 52.63, 57.27, 44.23),
  'velo': (74.13, 56.92, 60.24, 46.03),
}
STABLE = 2  # points, our reading of "stable": what is printed is so close to an interval of 1
TABLE_4_FELO = {  # rounds between trainings of the autoencoder: CIFAR-10 iid, non-iid
  1: (76.33, 57.17),
  2: (75.52, 58.02),
  3: (76.81, 58.72),
  4: (75.79, 56.53),
  5: (76.40, 58.39),
  6: (75.89, 57.46),
  8: (77.37, 55.24),
  10: (75.91, 57.75),
}


def _felo() -> dict:
  paper, out, cost = 'Chan and Ngai, 2022', {}, '6 minutes a row on one core'

  def table(names, printed, number, arg):
    shown = lambda name: {'second half': printed[name][number]} if name in printed else {}
    zoo = lambda name: ',zoo=resnet18' if name == 'fedavg' and 'zoo' not in arg else ''  # it needs one architecture
    return tuple(Row(name, 'felo', f'method={name},{arg}{zoo(name)}', shown(name)) for name in names)

  everything = ('felo', 'velo', 'fedhe', 'fedmd', 'fedgkt', 'heterofl', 'fedavg', 'private', 'agg')
  for number, (data, split) in enumerate(SPLITS):
    arg, title = f'data={data},split={split}', f'{data}, {split}'
    rows = table(everything, FIGURE_4, number, arg)
    if data == 'cifar10':  # the weight of FedHe's knowledge loss is to be chosen among 0.1, 0.5 and 1
      rows += tuple(Row(f'fedhe_{w}', 'felo', f'method=fedhe,{arg}', {}, (('method.alpha', w),)) for w in (0.1, 0.5))
    if (data, split) == SPLITS[0]:  # what the paper leaves open
      open_ends = {'felo_per_round': 'store', 'felo_latest': 'store', 'velo_lag': 'cvae_lag'}
      values = ('per_round', 'latest_per_client', 1)
      rows += tuple(
        Row(name, 'felo', f'method={name.split("_")[0]},{arg}', {}, ((f'method.{field}', value),))
        for (name, field), value in zip(open_ends.items(), values, strict=True)
      )
    out[f'fv-{data}-{split}'] = Experiment(
      f'Felo and Velo, {title}',
      f'{paper}, Figures 4 and 5',
      rows,
      SECOND_HALF,
      f'{cost}, FedMD 20, FedGKT 60',
      LIGHT,
    )
    rows = table((*TABLE_2_FELO, 'private', 'agg'), TABLE_2_FELO, number, f'{arg},zoo=homo')
    out[f'fv-homo-{data}-{split}'] = Experiment(
      f'Felo and Velo, {title}, ResNet18 everywhere', f'{paper}, Table 2', rows, SECOND_HALF, cost, LIGHT
    )
    if split == 'iid':  # the paper does not say which ratio its iid row has
      rows = table((*TABLE_2_FELO, 'private', 'agg'), TABLE_2_FELO, number, f'{arg},zoo=homo,ratio=1.0')
      about = f'{paper}, Table 2', rows, SECOND_HALF, cost, LIGHT
      called = f'Felo and Velo, {title}, ResNet18 everywhere, everybody in every round'
      out[f'fv-homo-all-{data}-{split}'] = Experiment(called, *about)
    rows = table((*TABLE_3_FELO, 'private', 'agg'), TABLE_3_FELO, number, f'{arg},zoo=extreme')
    if (data, split) == SPLITS[0]:
      rows += tuple(
        Row(f'{name}_group', 'felo', f'method={name},{arg},zoo=extreme,align=group', {}) for name in FIGURE_4
      )
    out[f'fv-extreme-{data}-{split}'] = Experiment(
      f'Felo and Velo, {title}, ResNet10 to 50',
      f'{paper}, Table 3',
      rows,
      SECOND_HALF,
      '11 minutes a row on one core, FedGKT 60',
      LIGHT,
    )
  for interval, printed in TABLE_4_FELO.items():
    rows = tuple(
      Row(f'velo_{split}', 'felo', f'method=velo,split={split},interval={interval}', {'second half': value})
      for (_, split), value in zip(SPLITS[:2], printed, strict=True)
    )
    title = f'Velo, CIFAR-10, autoencoder trained every {interval} rounds'
    out[f'fv-interval-{interval}'] = Experiment(title, f'{paper}, Table 4', rows, SECOND_HALF, cost, LIGHT)
  return out


def _felo_claims() -> list:
  half, others, out = SECOND_HALF['second half'], ('fedhe', 'fedmd', 'fedgkt', 'heterofl'), []
  for data, split in SPLITS:
    where = f'{data}, {split}'
    of = lambda row, kind='', data=data, split=split: f'fv-{kind}{data}-{split}/{row}'
    out.append(Claim(f'Velo beats Felo, {where}', of('velo'), of('felo'), half, WHY['velo felo']))
    for row in others:
      why = WHY.get(f'felo {row}', '')
      out += [Claim(f'{ours} beats {row}, {where}', of(ours.lower()), of(row), half, why) for ours in ('Felo', 'Velo')]
      if split == 'iid':
        for ours in ('felo', 'velo') if row in ('heterofl', 'fedgkt') else ():
          steadier = of(row), of(ours), 'second_half_swing', WHY['steady']
          out.append(Claim(f'{ours} is steadier than {row}, {where}', *steadier))
    for row in ('felo', 'velo'):
      homo = of(row, 'homo-'), of('fedavg', 'homo-')
      out.append(Claim(f'{row} beats fedavg, {where}, ResNet18 everywhere', *homo, half, WHY['felo fedavg']))
      for other in ('fedhe', 'fedgkt'):
        extreme = of(row, 'extreme-'), of(other, 'extreme-')
        out.append(Claim(f'{row} beats {other}, {where}, ResNet10 to 50', *extreme, half, WHY.get(f'felo {other}', '')))
    lost = [f'{of(row)} - {of(row, "extreme-")}' for row in ('felo', 'velo')]
    out.append(Claim(f'Velo loses less than Felo when ResNet34 and 50 come in, {where}', *lost, half))
  for data, row in itertools.product(('cifar10', 'cinic10'), ('felo', 'velo', *others)):
    pair = f'fv-{data}-dir0.5/{row}', f'fv-{data}-iid/{row}'
    out.append(Claim(f'{row} is less steady on non-iid data, {data}', *pair, 'second_half_swing', WHY['steady']))
  for row in ('fedhe', 'fedmd', 'fedgkt'):
    pair = f'fv-cinic10-dir0.5/{row}', f'fv-cifar10-dir0.5/{row}'
    out.append(Claim(f'{row} is worse on non-iid CIFAR-10 (20 clients) than CINIC-10 (10)', *pair, half))
  for (_, split), interval in itertools.product(SPLITS[:2], list(TABLE_4_FELO)[1:]):
    pair = f'fv-interval-{interval}/velo_{split}', f'fv-interval-1/velo_{split}'
    text = f'Velo: trained every {interval} rounds at most {STABLE} points below every round, {split}'
    out.append(Claim(text, *pair, half, margin=STABLE))
  return out


class Claim(NamedTuple):
  """A sentence of a paper as an inequality: the first row's metric is at least the second's, less a margin of ours.

  `more` and `less` are `id/row`, or the difference of two, `id/row - id/row`.
  """

  text: str
  more: str
  less: str
  metric: str = 'final'
  why: str = ''  # what we know of a claim that was not kept
  margin: float = 0  # points by which the first may be lower


MAPS = (
  'but maps of 32 by 32 pixels, where the first stage of the ResNets has 8 by 8. Which of it decides was not tested.'
)
# Of claims that were not kept.
WHY = {
  'fedmd': (
    'Consensus logits with MAE teach more here than posteriors with KL: without its transfer phases, or with as few '
    'rows in an exchange as FedH2L has, FedMD stays ahead (one seed, alpha = 10 %, `small`). The paper has it level '
    'with AGG, we 4 points above; over 10 000 rounds single seeds lose up to 30 points for hundreds of rounds.'
  ),
  'fedavg': 'Ours is 1.2 to 2.7 points above the printed value and FedH2L 1.3 to 4.0 below; no cause was found.',
  'private': 'In `small` the means reach a client 150 times, in the paper 5 000 times, with nets of 8 times the width.',
  'fedhe fedmd': 'In `small` FedMD makes 2.3 times the steps, a third on public images, and begins with transfer.',
  'velo felo': 'What is printed differs by 0.1 to 0.3 points, less than our seeds do.',
  'felo heterofl': 'In `small` HeteroFL has at most a quarter of the weights, ' + MAPS,
  'felo fedgkt': 'In `small` FedGKT has less than a twentieth of the weights, ' + MAPS,
  'felo fedavg': (
    'In `small` Felo and Velo begin to load averaged weights after five of 30 rounds, in the paper perhaps after as '
    'many of 100. Whether it is that was not tested.'
  ),
  'steady': 'The second half of `small` has four evaluations of 1,000 images, so two differences a seed.',
}


def claims() -> tuple:
  """What the papers say of their tables."""
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
    Claim(
      'FedMD: collaboration lifts the mean over transfer learning', 'md-femnist-iid/fedmd', 'md-femnist-iid/private'
    ),
    Claim('FedMD: pooled data is better still', 'md-femnist-iid/pooled', 'md-femnist-iid/fedmd'),
    Claim(
      'FedMD: a lower weight for weak members is better', 'md-cifar-iid-weak/fedmd_reduced', 'md-cifar-iid-weak/fedmd'
    ),
  ]
  for data, zoo in FIGURES:
    of = lambda row, data=data, zoo=zoo: f'he-{data}-{zoo}/{row}'
    out.append(Claim(f'FedHe beats Private, {data}, {zoo}', of('fedhe'), of('private'), why=WHY['private']))
    out.append(Claim(f'FedHe beats FedMD, {data}, {zoo}', of('fedhe'), of('fedmd'), why=WHY['fedhe fedmd']))
    if zoo == 'homo':
      out.append(Claim(f'FedAvg beats FedHe, {data}, {zoo}', of('fedavg'), of('fedhe')))
  return (*out, *_felo_claims())


def registry() -> dict:
  """{id: Experiment}."""
  return {**_fedmd(), **_fedhe(), **_fedh2l(), **_felo()}
