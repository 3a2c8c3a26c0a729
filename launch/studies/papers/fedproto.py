"""FedProto (Tan et al., 2022): Table 1 on MNIST."""

from launch.studies.papers.common import Claim, Experiment, Row

WAYS = (3, 4, 5)
# Accuracy and its deviation over clients, for 3, 4 and 5 classes a client. LG-FedAvg is not in the table, whose FedPer
# shares the layers that LG-FedAvg keeps.
TABLE_1 = {
  'private': ((94.05, 2.93), (93.35, 3.26), (92.92, 3.17)),
  'agg': (),
  'fedavg': ((95.04, 6.48), (94.32, 4.89), (93.22, 4.39)),
  'fedprox': ((96.26, 2.89), (96.40, 3.33), (95.65, 3.38)),
  'lg_fedavg': (),
  'fedproto': ((97.13, 0.30), (96.80, 0.41), (96.70, 0.29)),
  'fedproto_mh': ((97.07, 0.50), (96.65, 0.31), (96.22, 0.36)),
}
# The clients' own classes, in the mean over clients; by the head alone; as the authors' evaluation adds up, by head and
# by prototypes; and on the test images of all clients.
METRICS = {
  'own classes': 'final_local',
  'own classes, head': 'final_head_local',
  'their sums': 'published',
  'their sums, head': 'published_head',
  'all classes': 'final',
}

LENGTH = 'why-fedproto-length-{}/{}'
WHY = (
  'Local and FedAvg are above their printed values after so many passes, so that little is left to gain. Local after 3 '
  'of 100 passes has {why-fedproto-length-3/private_3; final_local; paper} % (94.05 is printed), FedAvg after 20 of '
  '150 {why-fedproto-length-3/fedavg_20; final_local; paper} (95.04). FedProto after as many passes is '
  '{why-fedproto-length-3/fedproto_3 - why-fedproto-length-3/private_3; final_local; paper} and '
  '{why-fedproto-length-3/fedproto_20 - why-fedproto-length-3/fedavg_20; final_local; paper} points above these (3 '
  'classes a client); its head after 3 passes has {why-fedproto-length-3/fedproto_3; final_head_local; paper}.'
)
# Which rounds of a row the paper prints is not said: those after which the other side has its printed value.
SHORTER = {'private': ('both after three passes', 3), 'fedavg': ('both after twenty passes', 20)}


def registry() -> dict:
  """{id: Experiment}."""
  return {f'fp-mnist-{ways}': _table(ways, column) for column, ways in enumerate(WAYS)}


def _table(ways, column) -> Experiment:
  def row(name):
    method, zoo = ('fedproto', 'hetero') if name == 'fedproto_mh' else (name, 'homo')
    mean, around = TABLE_1[name][column] if TABLE_1[name] else (None, None)
    # Of FedProto's own rows it is not said which of the readings is printed.
    names = ('own classes', 'their sums', 'their sums, head') if method == 'fedproto' else ('own classes',)
    printed = dict.fromkeys(names, mean) if mean else {}
    deviation = dict.fromkeys(names, around) if mean else {}
    return Row(name, 'fedproto', f'method={method},ways={ways},zoo={zoo}', printed, deviation=deviation)

  title = f'FedProto, MNIST, about {ways} classes a client'
  rows = tuple(map(row, TABLE_1))
  return Experiment(title, 'Tan et al., 2022, Table 1; their ± is over clients', rows, METRICS, '5 minutes')


def claims() -> list:
  """What the table says for every number of classes."""
  out = []
  for ways in WAYS:
    of = lambda row, ways=ways: f'fp-mnist-{ways}/{row}'
    for other, called in (('private', 'Local'), ('fedavg', 'FedAvg'), ('fedprox', 'FedProx')):
      text = f'FedProto beats {called}, MNIST, {ways} classes a client'
      what, rounds = SHORTER.get(other, ('', 0))
      pair = tuple(LENGTH.format(ways, f'{row}_{rounds}') for row in ('fedproto', other))
      more = {'readings': ((what, *pair),)} if rounds else {}
      out.append(Claim(text, of('fedproto'), of(other), 'final_local', WHY, **more))
    text = f'FedProto with three architectures beats Local, MNIST, {ways} classes a client'
    out.append(Claim(text, of('fedproto_mh'), of('private'), 'final_local', WHY))
    text = f'FedAvg beats Local, MNIST, {ways} classes a client'
    out.append(Claim(text, of('fedavg'), of('private'), 'final_local'))
  return out
