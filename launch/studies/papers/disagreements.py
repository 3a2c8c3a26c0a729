"""What the experiments of `decide` are to explain: a row with one change, and the row against which it is judged."""

from launch.studies.papers.common import Question
from launch.studies.papers.decide import AS_FEDMD, FEWER, LESS_STEEP
from launch.studies.papers.fedh2l import H2L, NAMES
from launch.studies.papers.fedproto import METRICS as FEDPROTO
from launch.studies.papers.fedproto import WAYS
from launch.studies.papers.felo import SECOND_HALF

ACC, HALF = H2L['ACC'], SECOND_HALF['second half']
TEN, FIVE = 'h2l-rmnist-a10', 'h2l-rmnist-a5'
HOMO, EXTREME = 'fv-homo-cifar10-dir0.5', 'fv-extreme-cifar10-iid'
SUFFIX = {14: '_14', 7: '', 3: '_3'}  # of the rows of why-rmnist-rounds


def questions() -> list:
  """All questions, in the order of the report."""
  return [
    *_fedhe(),
    *_fedmd(),
    *_aligned_digits(),
    *_rounds_of_fedavg(),
    *_examples_of_fedh2l(),
    *_what_felo_starts_from(),
    *_velos_generator(),
    *_lengths_of_fedproto(),
    *_larger_maps(),
    *_six_more_seeds(),
    *_rounds_of_one_upload(),
    *_shares_of_heflwr(),
  ]


def _fedhe():
  worse, ours = 'FedHe below Private on CIFAR-10, different nets', 'he-cifar10-hetero'
  for weight in (0.1, 0.3):
    for beside in ('private', 'fedhe'):
      row = f'why-fedhe-weight/fedhe_{weight}'
      yield Question(worse, f'alpha = {weight}, against {beside}', row, f'{ours}/{beside}', 'final')
  yield Question(worse, 'means of all updates, never forgotten', 'why-fedhe-store/fedhe', f'{ours}/fedhe', 'final')
  wide = 'why-fedhe-width'
  yield Question(worse, 'twice the width, against Private', f'{wide}/fedhe', f'{wide}/private', 'final')
  text, own = 'FedHe below Private on CIFAR-10, one architecture', 'why-fedhe-initial'
  for change, row, beside in (
    ('FedHe', 'fedhe', 'he-cifar10-homo/fedhe'),
    ('Private', 'private', 'he-cifar10-homo/private'),
    ('FedHe against Private', 'fedhe', f'{own}/private'),
  ):
    yield Question(text, f'own initial weights, {change}', f'{own}/{row}', beside, 'final')
  for name, (data, zoo, turns) in AS_FEDMD.items():
    for row, called in (('private', 'Private'), ('fedhe', 'FedHe')):
      text, change = f'FedMD above FedHe and Private, {data}, {zoo}', f'{called} with {turns:,} turns, against FedMD'
      yield Question(text, change, f'why-fedmd-{name}/{row}', f'he-{data}-{zoo}/fedmd', 'final')


def _fedmd():
  above, loss, fedmd = 'FedMD above FedH2L on Rotated MNIST', 'why-rmnist-loss', f'{TEN}/fedmd'
  yield Question(above, 'FedMD with KL', f'{loss}/fedmd_kl', fedmd, ACC)
  for row, name in (('fedmd', 'FedMD'), ('fedh2l', 'FedH2L')):
    yield Question(above, f'FedMD with KL, against {name}', f'{loss}/fedmd_kl', f'{TEN}/{row}', ACC, 'paper')
  yield Question(above, 'FedMD with squared error', f'{loss}/fedmd_mse', fedmd, ACC)
  falls = 'FedMD loses up to 40 points for hundreds of rounds on Rotated MNIST, largest drop'
  for change, row in LESS_STEEP.items():
    yield Question(falls, change, f'why-fedmd-falls/{row}', 'why-fedmd-falls/fedmd', 'largest_drop', 'paper')
  separate = 'why-rmnist-optimizer/fedh2l_separate'
  yield Question(above, 'FedH2L with two optimizer states', separate, f'{TEN}/fedh2l', ACC)
  for row in ('fedmd', 'fedh2l'):
    turned = f'{NAMES[row]}, turned the other way'
    yield Question(above, turned, f'why-rmnist-direction/{row}', f'{TEN}/{row}', ACC)


def _aligned_digits():
  text = 'FedH2L below the printed value at alpha = 5 %'
  for row in ('fedh2l', 'agg', 'ind', 'fedavg', 'fedprox'):
    yield Question(text, f'{NAMES[row]}, digits drawn per domain', f'why-rmnist-aligned/{row}', f'{FIVE}/{row}', ACC)


def _rounds_of_fedavg():
  text = 'FedAvg and FedProx above the printed values on Rotated MNIST'
  for rounds, suffix in SUFFIX.items():
    for name in ('fedavg', 'fedprox'):
      change = f'{NAMES[name]}, {rounds} rounds of {FEWER[rounds]["method.steps"]:,} steps, not 52 of 192'
      yield Question(text, change, f'why-rmnist-rounds/{name}{suffix}', f'{TEN}/{name}', ACC, 'paper')
  for name in ('fedavg', 'fedprox'):
    for rounds, suffix in SUFFIX.items():
      change = f'{NAMES[name]} in {rounds} rounds, against FedH2L'
      yield Question(text, change, f'why-rmnist-rounds/{name}{suffix}', f'{TEN}/fedh2l', ACC, 'paper')


def _examples_of_fedh2l():
  text = 'FedH2L sees four times as many examples as its baselines'
  for where, row, name, beside, profile in (
    ('alpha = 10 %', 'why-rmnist-steps/agg', 'AGG', f'{TEN}/fedh2l', 'paper'),
    ('PACS, clean', 'why-pacs-steps/agg', 'AGG', 'h2l-pacs-clean/fedh2l', 'small'),
    ('PACS, clean', 'why-pacs-steps/ind', 'IND', 'h2l-pacs-clean/fedh2l', 'small'),
  ):
    yield Question(text, f'{where}: {name} with as many, against FedH2L', row, beside, ACC, profile)


def _what_felo_starts_from():
  for change, row, beside in (
    ('Felo that loads weights from the start', 'felo_loaded', 'felo'),
    ('Velo that loads weights from the start', 'velo_loaded', 'velo'),
    ('Felo without knowledge', 'felo_alone', 'felo'),
    ('Felo that loads from the start and has no knowledge loss, against FedAvg', 'felo_loaded_alone', 'fedavg'),
  ):
    yield Question('FedAvg above Felo and Velo, Dirichlet', change, f'why-felo-start/{row}', f'{HOMO}/{beside}', HALF)


def _velos_generator():
  id, samples = 'why-velo-generator', 'Velo, uploads per example'
  for change, row, beside in (
    (samples, 'velo_samples', f'{EXTREME}/velo'),
    (f'{samples}, against Felo with the same', 'velo_samples', f'{id}/felo_samples'),
    (f'{samples}, with noise of variance 0.01', 'velo_samples_0.01', f'{id}/velo_samples'),
    ('Velo, noise of variance 0.01', 'velo_0.01', f'{EXTREME}/velo'),
    ('Velo, learned variance of the noise', 'velo_sigma', f'{EXTREME}/velo'),
  ):
    yield Question('Velo no better than Felo with ResNet10 to 50', change, f'{id}/{row}', beside, HALF)


def _lengths_of_fedproto():
  text, metric = "Local and FedAvg above FedProto's printed values", FEDPROTO['own classes']
  for ways in WAYS:
    of = f'why-fedproto-length-{ways}/{{}}'.format
    for row, rounds in (('private', 3), ('fedavg', 20)):
      change, long = f'{row}, {rounds} passes over the rows, {ways} classes', f'fp-mnist-{ways}/{row}'
      yield Question(text, change, of(f'{row}_{rounds}'), long, metric, 'paper')
  text = 'FedProto beside Local and FedAvg after as many passes'
  for ways in WAYS:
    of = f'why-fedproto-length-{ways}/{{}}'.format
    for row, rounds in (('private', 3), ('private', 5), ('private', 10), ('fedavg', 20)):
      change = f'FedProto and {row} after {rounds} passes, {ways} classes'
      yield Question(text, change, of(f'fedproto_{rounds}'), of(f'{row}_{rounds}'), metric, 'paper')


def _larger_maps():
  row, beside = 'why-felo-stem/felo', 'fv-cifar10-iid/felo'
  text = 'FedGKT and HeteroFL above Felo'
  yield Question(text, 'Felo on larger maps', row, beside, HALF)
  for other in ('fedgkt', 'heterofl'):
    row, name = f'why-felo-maps/{other}', {'fedgkt': 'FedGKT', 'heterofl': 'HeteroFL'}[other]
    yield Question(text, f'{name} on smaller maps', row, f'fv-cifar10-iid/{other}', HALF)
    yield Question(text, f'{name} on smaller maps, against Felo', row, beside, HALF)


def _six_more_seeds():
  row, beside = 'why-velo-iid/velo', 'why-velo-iid/felo'
  yield Question('Velo no better than Felo, iid', 'six more seeds, one commit', row, beside, HALF)


def _rounds_of_one_upload():
  text, table = "DENSE's model below its ensemble", 'dn-mnist-0.1'
  for row, called in (('dense', 'DENSE'), ('coboosting', 'Co-Boosting')):
    for beside, against in ((row, '20 rounds'), ('feddf', 'FedDF'), ('fedavg', 'FedAvg')):
      change = f'200 rounds of the server with 128 images each, {called} against {against}'
      yield Question(text, change, f'why-dense-rounds/{row}_200', f'{table}/{beside}', 'final')


def _shares_of_heflwr():
  for row, name in (('heterofl', 'HeteroFL'), ('fedrolex', 'FedRolex')):
    text, change = f"{name} above HeFlwr's printed value, Dirichlet", "the shares of HeFlwr's own draw"
    yield Question(text, change, f'why-heflwr-shares/{row}', f'hw-mnist-dirichlet/{row}', 'final', 'paper')
