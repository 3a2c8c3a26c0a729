"""FedH2L (Li, Zhou, Wang, Mi and Hospedales, 2021): Tables 2 to 7."""

from launch.papers import fedh2l_tables as tables
from launch.papers.common import Claim, Experiment, Row

H2L = {'ACC': 'best_on_validation', 'BWT': 'best_on_validation_local', 'FWT': 'best_on_validation_others'}
NAMES = {'fedh2l': 'FedH2L', 'agg': 'AGG', 'ind': 'IND', 'fedmd': 'FedMD', 'fedavg': 'FedAvg', 'fedprox': 'FedProx'}
NOTHING = dict.fromkeys(('fedh2l', 'ind', 'agg', 'fedmd'), '')
WHY = {  # what we know of claims that were not kept
  'fedmd': (
    'Probably the loss: with KL in the place of MAE, FedMD is about where FedH2L is (why-rmnist-loss). Its transfer '
    'phases and its number of rows in an exchange are not it (configs/fedh2l.py: one seed, alpha = 10 %, `small`). '
    'Over 10 000 rounds single seeds lose up to 40 points for hundreds of rounds. The constant gradient of MAE is not '
    'all of that: with squared error they fall as deep, but recover within 100 rounds. With KL, or with a tenth of the '
    'learning rate, they do not fall (why-fedmd-falls, two seeds).'
  ),
  'fedavg': (
    'At paper length FedAvg and FedProx are 4.8 to 5.8 points above the printed values, because of the number of '
    'rounds in which they make their 10 000 steps: FedAvg has 92.3 % with 52 rounds, all that the bandwidth of FedH2L '
    'affords our LeNet, 89.2 with 7, as many as a LeNet of 431 080 weights could send, and 86.1 with 3; 86.5 is '
    'printed (why-rmnist-rounds, alpha = 10 %). The paper says neither which LeNet nor how many rounds. FedH2L is 3.6 '
    'and 2.2 points below the printed value at alpha = 5 and 10 %. With digits drawn in each domain by itself, so '
    'that rotated copies of test digits are trained on, it gains 4.4 points, FedAvg 4.2 (why-rmnist-aligned, `small`).'
  ),
  'agg': 'Not that seed digits are aligned: where they are not, FedH2L is below AGG and IND in BWT too.',
}


def _h2l(setting, methods, alpha='10', protocol='clean') -> tuple:
  """Rows {name: a line of a table of the paper, or ''}."""
  rows = []
  for name, line in methods.items():
    base, _, special = name.partition(' ')
    choice = {'method': {'ind': 'private'}.get(base, base), 'setting': setting, 'alpha': alpha}
    choice |= {'protocol': protocol} if protocol != 'clean' else {}
    choice |= {'variant': special} if base == 'fedh2l' and special else {}
    arg, family = ','.join(f'{k}={v}' for k, v in choice.items()), setting.split('_')[0]
    printed = tables.average(line), tables.nodes(line, family)
    rows.append(Row(name.replace(' ', '_'), 'fedh2l', arg, printed[0], parts=printed[1] or ()))
  return tuple(rows)


def nodes_of(family) -> tuple:
  """The paper's names of the clients, in our order."""
  return tuple(tables.NODES[family][i] for i in tables.ORDER[family])


def registry() -> dict:
  """{id: Experiment}."""
  paper, out = 'Li, Zhou, Wang, Mi, Hospedales, 2021', {}
  minutes, digits = '40 minutes on two cores', nodes_of('rmnist')
  for alpha, rows in tables.TABLE_2.items():
    title = f'FedH2L, Rotated MNIST, alpha = {alpha} %'
    pca = ('fedh2l', 'ind', 'agg') if alpha == '10' else ()  # Figure 1
    about = f'{paper}, Table 2', _h2l('rmnist', rows, alpha), H2L, minutes
    out[f'h2l-rmnist-a{alpha}'] = Experiment(title, *about, features=pca, parts=digits)
  for name, (where, line) in tables.VARIANTS.items():
    about = f'{paper}, {where}', _h2l('rmnist', {f'fedh2l {name}': line}), H2L, '8 minutes'
    out[f'h2l-rmnist-{name}'] = Experiment(f'FedH2L, Rotated MNIST, {name}', *about, parts=digits)
  about = f'{paper}: values not printed', _h2l('rmnist_hetero', NOTHING), H2L, minutes
  out['h2l-rmnist-hetero'] = Experiment('FedH2L, Rotated MNIST, four architectures', *about)
  for family, table, number in (('pacs', tables.TABLE_3, 3), ('officehome', tables.TABLE_4, 4)):
    needs = 'Office-Home' if family == 'officehome' else ''
    for protocol in ('paper', 'clean'):
      if (family, protocol) == ('officehome', 'paper'):
        continue  # its test rows do not overlap: the clean protocol is the paper's
      about = f'{paper}, Table {number}', _h2l(family, table, protocol=protocol), H2L, minutes
      title = f'FedH2L, {family}, {protocol} protocol'
      out[f'h2l-{family}-{protocol}'] = Experiment(title, *about, parts=nodes_of(family), needs=needs)
    rows = _h2l(f'{family}_homo', {**NOTHING, 'fedavg': '', 'fedprox': ''})
    about = f'{paper}, supplement: values not printed', rows, H2L, minutes
    out[f'h2l-{family}-homo'] = Experiment(f'FedH2L, {family}, ResNet18 everywhere', *about, needs=needs)
  return out


def claims() -> list:
  """The paper's claims about its tables."""
  acc, bwt, fwt = H2L.values()
  out = []
  for alpha in tables.TABLE_2:
    of = lambda row, alpha=alpha: f'h2l-rmnist-a{alpha}/{row}'
    for other in ('agg', 'ind', 'fedmd', 'fedavg', 'fedprox'):
      why = WHY.get({'fedprox': 'fedavg', 'ind': 'agg'}.get(other, other), '')
      lines = (tables.average(tables.TABLE_2[alpha][row]) for row in ('fedh2l', other))
      above = {name: more > less for (name, more), less in zip(next(lines).items(), next(lines).values(), strict=True)}
      for name in filter(above.get, H2L):
        text = f'FedH2L beats {NAMES[other]} in average {name}, alpha = {alpha} %'
        out.append(Claim(text, of('fedh2l'), of(other), H2L[name], why))
    out.append(Claim(f'FedMD is no better than AGG, alpha = {alpha} %', of('agg'), of('fedmd'), acc, WHY['fedmd']))
  for setting in ('pacs-clean', 'pacs-paper', 'officehome-clean'):
    for more, less in (('fedh2l', 'agg'), ('agg', 'ind'), ('fedh2l', 'ind'), ('fedh2l', 'fedmd')):
      text = f'{NAMES[more]} beats {NAMES[less]} on {setting.replace("-", ", ")}'
      out.append(Claim(text, f'h2l-{setting}/{more}', f'h2l-{setting}/{less}', acc))
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
