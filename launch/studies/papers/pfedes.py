"""pFedES (Yi et al., AAAI 2025): Table 1 on MNIST with ten clients, where FML, FedKD and FedAPEN toss a coin."""

from launch.studies.papers.common import Claim, Experiment, Row

# Mean accuracy on a client's own test rows, and the deviation that is printed beside it: with different nets, and with
# the same net everywhere. Not run: FD, FedTGP and pFedES itself.
TABLE_1 = {
  'private': ((99.94, 0.45), (99.93, None)),
  'agg': (),
  'fml': ((53.20, 0.84), (99.93, None)),
  'fedkd': ((55.36, 0.95), (99.71, None)),
  'fedapen': ((53.54, 0.34), (99.94, None)),
  'fedproto': ((99.95, 0.81), (99.91, None)),
  'lg_fedavg': ((99.88, 0.64), (99.90, None)),
  'fedgh': ((99.95, 0.26), (99.93, None)),
}
ZOOS = {'hetero': 'different nets', 'homo': 'one net'}
CALLED = {'fml': 'FML', 'fedkd': 'FedKD', 'fedapen': 'FedAPEN'}
PERSONAL = {'fedproto': 'FedProto', 'lg_fedavg': 'LG-FedAvg', 'fedgh': 'FedGH'}
# What might have been measured instead: {row: (method, what is changed)}.
MISREADINGS = {
  'fml_alpha_0': ('fml', (('method.alpha', 0.0),)),  # the own model never sees a label
  'blank': ('private', (('data.normalise', 'configs.pfedes:blank'),)),  # nets that see no image
}
# A client's own classes, by its own model (FedAPEN's: its ensemble) and by the common one; and the test rows of all.
METRICS = {
  'own classes': 'final_local',
  'own classes, common model': 'final_common_local',
  'own classes, own model alone': 'final_own_local',
  'all classes': 'final',
  'all classes, common model': 'final_common',
}
COIN = 40  # points that a coin toss between two classes is below Standalone, at least
REMARKS = (
  'Ours: five nets of 33,094 to 223,398 weights (a LeNet, two CNNs, two MLPs), since those of the paper are in its '
  'appendix, which we did not have; official test rows in the shares of a client, where the paper cuts 20 % of its '
  'rows; one choice of rounds, passes and batches, which the paper searched for each method. Some printed ± are larger '
  'than the distance to 100, so that they are no deviations of accuracies. `fml_alpha_0` is FML whose own models learn '
  'from the common one alone; `blank` is Standalone on images without content, which learns how frequent its two '
  'classes are.'
)
WHY = (
  'A client that always answers its more frequent class has {pe-mnist-hetero/blank; final_local; small} %, close to '
  'what is printed (53.20 to 55.36): as if these nets had seen labels and no image. The common model alone has '
  '{pe-mnist-hetero/fml; final_common_local; small} % of the own classes, FML whose own models see no label '
  '{pe-mnist-hetero/fml_alpha_0; final_local; small}.'
)


def registry() -> dict:
  """{id: Experiment}."""
  return {f'pe-mnist-{zoo}': _table(zoo, column) for column, zoo in enumerate(ZOOS)}


def _table(zoo, column) -> Experiment:
  def row(name):
    mean, around = TABLE_1[name][column] if TABLE_1[name] else (None, None)
    printed, deviation = ({'own classes': value} if value else {} for value in (mean, around))
    return Row(name, 'pfedes', f'method={name},zoo={zoo}', printed, deviation=deviation)

  other = lambda name, method, changed: Row(name, 'pfedes', f'method={method},zoo={zoo}', {}, changed)
  rows = tuple(map(row, TABLE_1))
  if zoo == 'hetero':
    rows += tuple(other(name, *of) for name, of in MISREADINGS.items())
  title = f'pFedES, MNIST, two classes a client, {ZOOS[zoo]}'
  return Experiment(title, 'Yi et al., 2025, Table 1, N = 10', rows, METRICS, '15 minutes', remarks=REMARKS)


def claims() -> list:
  """That three methods fail with different nets, which they do not with one, and others never."""
  out, one = [], lambda row, zoo='hetero': f'pe-mnist-{zoo}/{row}'
  for name, called in CALLED.items():
    text = f'{called} is more than {COIN} points below Standalone, MNIST, two classes a client, different nets'
    common = ('the common model alone', one('private'), f'{one(name)}:final_common_local')
    out.append(Claim(text, one('private'), one(name), 'final_local', WHY, -COIN, readings=(common,)))
  for zoo, names in (('homo', CALLED), ('hetero', PERSONAL), ('homo', PERSONAL)):
    for name, called in names.items():
      text = f'{called} is less than a point below Standalone, MNIST, two classes a client, {ZOOS[zoo]}'
      out.append(Claim(text, one(name, zoo), one('private', zoo), 'final_local', margin=1))
  return out
