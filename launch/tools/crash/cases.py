"""Small runs with every kind of file that a run directory can have: a second each, once their programs are compiled."""

import numpy as np

from fedkd import config as base

ONE = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
TWO = ({'model': 'MLP', 'clients': 2, 'hidden': (8,)}, {'model': 'MLP', 'clients': 2, 'hidden': (4,)})
PHASES = tuple({'name': name, 'rounds': 1, 'steps': 1, 'batch': 8} for name in ('public', 'private'))
# Methods, with states in files, and with clients on two devices.
NAMES = ('fedhe', 'fedavg', 'fedmd', 'velo', 'fedhe-store', 'fedavg-store', 'velo-store')
NAMES += ('fedhe-devices', 'fedavg-devices', 'velo-devices')


def save_images(path):
  """Twelve pixels square, three classes, each a bright band."""
  random, arrays = np.random.default_rng(0), {}
  for split, count in (('train', 120), ('test', 30)):
    label = np.arange(count) % 3
    image = random.integers(0, 160, (count, 12, 12, 1))
    for row, c in enumerate(label):
      image[row, 4 * c : 4 * c + 4] += 60
    arrays |= {f'x_{split}': image.astype(np.uint8), f'y_{split}': label}
  np.savez(path, **arrays)


def config(name, folder, rounds=3):
  """The config of a case: a checkpoint and an evaluation after every round.

  Args:
    name: of `NAMES`.
    folder: holds images.npz, and work/ for the run and the client store of the case that has one.
    rounds: of the last phase.
  """
  out = base.default()
  out.name, out.data.name, out.data.clients = name, f'npz:{folder}/images.npz', 4
  out.rounds, out.eval_every, out.checkpoint_every, out.eval_rows, out.groups = rounds, 1, 1, 20, TWO
  method, _, where = name.partition('-')
  if method == 'velo':
    velo = {'epochs': 1, 'initial': 1, 'interval': 1, 'cvae_epochs': 1, 'feature_align': 'group', 'limits': (8, 8)}
    out.method = base.method('velo', batch=8, **velo)
  elif method == 'fedmd':
    out.method = base.method('fedmd', steps=1, epochs=None, batch=8, subset=16, digest_batch=8)
    out.data.public_share, out.before = 0.2, PHASES
  else:
    out.method = base.method(method, steps=2, batch=8)
    out.groups = ONE if method == 'fedavg' else TWO
  if where == 'store':
    out.client_store = f'{folder}/work/store'
    out.plan = base.plan('sampled', ratio=0.5)
  if where == 'devices':
    out.devices = 2
  return out
