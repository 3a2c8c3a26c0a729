"""FedHe (Chan and Ngai, 2021): Figures 3 to 8."""

from launch.studies.papers.common import Claim, Experiment, Row

FINAL = {'accuracy': 'final'}
FIGURES = {
  ('mnist', 'homo'): (3, {'fedhe': 98.9, 'private': 98.4, 'fedavg': 99.0, 'fedmd': 97.9}),
  ('mnist', 'hetero'): (5, {'fedhe': 98.5, 'private': 98.0, 'fedmd': 98.0}),
  ('cifar10', 'homo'): (4, {'fedhe': 66.0, 'private': 62.5, 'fedavg': 69.0, 'fedmd': 60.9}),
  ('cifar10', 'hetero'): (6, {'fedhe': 62.0, 'private': 57.0, 'fedmd': 57.5}),
}
# CIFAR-10, hetero. Figure 7: the ranges of the clients with two layers and with three; Figure 8: the means of both,
# of which Private's first is the middle of 52 and 53, as far as it can be read.
FIGURE_7 = {'fedhe': ('57 to 59',) * 5 + ('62 to 66',) * 5}
FIGURE_8 = {'fedhe': (58.0, 65.0), 'private': (52.5, 61.0)}
KINDS = (('two layers', (0, 1, 2, 3, 4)), ('three layers', (5, 6, 7, 8, 9)))


WHY = {  # what experiments say about claims; differences are of points
  'private': (
    'In `small`, where the means reach a client 150 times, the distance to them costs points: FedHe minus Private is '
    '{he-cifar10-hetero/fedhe - he-cifar10-hetero/private; final; small} on CIFAR-10 with different nets, and '
    '{why-fedhe-weight/fedhe_0.3 - he-cifar10-hetero/private; final; small} at 0.3 of the weight. After ten times as '
    'many rounds (`medium`) it is {he-cifar10-hetero/fedhe - he-cifar10-hetero/private; final; medium}, and '
    '{he-cifar10-homo/fedhe - he-cifar10-homo/private; final; medium} with one architecture, where it was '
    '{he-cifar10-homo/fedhe - he-cifar10-homo/private; final; small} in `small`, and {why-fedhe-initial/fedhe - '
    'why-fedhe-initial/private; final; small} where clients start from weights of their own. Means that are never '
    'refreshed change FedHe by {why-fedhe-store/fedhe - he-cifar10-hetero/fedhe; final; small}, the offset of counts '
    'by {he-cifar10-hetero/fedhe_offset - he-cifar10-hetero/fedhe; final; small}. On MNIST with different nets FedHe '
    'minus Private is {he-mnist-hetero/fedhe - he-mnist-hetero/private; final; small} in `small` and '
    '{he-mnist-hetero/fedhe - he-mnist-hetero/private; final; medium} in `medium`. On the embedded digits, with five '
    'architectures and sixty rounds, FedHe is above Private (configs/fedhe_digits.py). With nets of twice '
    'the width it is {why-fedhe-width/fedhe - why-fedhe-width/private; final; small} on CIFAR-10 with different nets. '
    'The paper has 50 000 turns and 8 times the width of `small`.'
  ),
  'kinds': (
    'The class means are those of all nets. In `medium` they change the weaker nets, of two layers, by '
    '{he-cifar10-hetero/fedhe - he-cifar10-hetero/private; kind_0; medium} on CIFAR-10 and '
    '{he-mnist-hetero/fedhe - he-mnist-hetero/private; kind_0; medium} on MNIST, and the better ones, of three, by '
    '{he-cifar10-hetero/fedhe - he-cifar10-hetero/private; kind_1; medium} and '
    '{he-mnist-hetero/fedhe - he-mnist-hetero/private; kind_1; medium}.'
  ),
  'fedhe fedmd': (
    'FedMD sees 2.8 (MNIST) and 2.5 (CIFAR-10) times as many examples, two fifths of them public. Given as many, with '
    'one architecture, Private minus FedMD is {why-fedmd-mnist/private - he-mnist-homo/fedmd; final; small} on MNIST '
    'and {why-fedmd-cifar10/private - he-cifar10-homo/fedmd; final; small} on CIFAR-10, FedHe minus FedMD '
    '{why-fedmd-mnist/fedhe - he-mnist-homo/fedmd; final; small} on MNIST and '
    '{why-fedmd-cifar10/fedhe - he-cifar10-homo/fedmd; final; small} on CIFAR-10. With different nets, on CIFAR-10, '
    'Private minus FedMD is {why-fedmd-cifar10-hetero/private - he-cifar10-hetero/fedmd; final; small} and FedHe minus '
    'FedMD {why-fedmd-cifar10-hetero/fedhe - he-cifar10-hetero/fedmd; final; small}.'
  ),
}


# Where Private and FedHe were also given as many examples as FedMD sees.
AS_FEDMD = {
  ('mnist', 'homo'): 'why-fedmd-mnist',
  ('cifar10', 'homo'): 'why-fedmd-cifar10',
  ('cifar10', 'hetero'): 'why-fedmd-cifar10-hetero',
}


def registry() -> dict:
  """{id: Experiment}."""
  out = {}
  for (data, zoo), (figure, printed) in FIGURES.items():
    names = ('fedhe', 'private', 'agg', 'fedmd') + ('fedavg',) * (zoo == 'homo')
    printed_of = lambda name, printed=printed: {'accuracy': printed[name]} if name in printed else {}
    ours = (data, zoo) == ('cifar10', 'hetero')
    each = lambda name, ours=ours: {'accuracy': FIGURE_7[name]} if ours and name in FIGURE_7 else ()
    means = FIGURE_8 if ours else {}
    of = lambda name, data=data, zoo=zoo: (f'fedhe_{data}', f'method={name},zoo={zoo}')
    rows = [Row(name, *of(name), printed_of(name), parts=each(name), kinds=means.get(name, ())) for name in names]
    rows.append(Row('fedhe_offset', *of('fedhe'), {}, (('method.count_offset', 1.0),)))
    source = f'Chan and Ngai, 2021, Figure {figure}'
    about = f'FedHe, {data}, {zoo}', source, tuple(rows), FINAL, '30 minutes'
    out[f'he-{data}-{zoo}'] = Experiment(*about, kinds=KINDS if zoo == 'hetero' else ())
  return out


def claims() -> list:
  """The paper's claims about its figures."""
  out = []
  for data, zoo in FIGURES:
    of = lambda row, data=data, zoo=zoo: f'he-{data}-{zoo}/{row}'
    as_long = AS_FEDMD.get((data, zoo), '')
    long = lambda more, less, as_long=as_long: {'equal': (more, less)} if as_long else {}
    out.append(Claim(f'FedHe beats Private, {data}, {zoo}', of('fedhe'), of('private'), why=WHY['private']))
    out.append(
      Claim(
        f'FedHe beats FedMD, {data}, {zoo}',
        of('fedhe'),
        of('fedmd'),
        why=WHY['fedhe fedmd'],
        **long(f'{as_long}/fedhe', of('fedmd')),
      )
    )
    if zoo == 'hetero':
      out.append(
        Claim(
          f'FedMD is no worse than Private, {data}, {zoo}',
          of('fedmd'),
          of('private'),
          **long(of('fedmd'), f'{as_long}/private'),
        )
      )
    if zoo == 'homo':
      out.append(
        Claim(
          f'Private beats FedMD, {data}, {zoo}',
          of('private'),
          of('fedmd'),
          why=WHY['fedhe fedmd'],
          **long(f'{as_long}/private', of('fedmd')),
        )
      )
      out.append(Claim(f'FedAvg beats FedHe, {data}, {zoo}', of('fedavg'), of('fedhe')))
  fedhe, private = 'he-cifar10-hetero/fedhe', 'he-cifar10-hetero/private'
  for i, (name, _) in enumerate(KINDS):
    about = f'FedHe beats Private among nets of {name}, cifar10, hetero'
    out.append(Claim(about, fedhe, private, f'kind_{i}', why=WHY['kinds']))
  both = f'{fedhe}:kind_1', f'{fedhe}:kind_0'
  out.append(Claim('FedHe: nets of three layers beat those of two, cifar10, hetero', *both, why=WHY['kinds']))
  return out
