"""Tiny experiments for the tests that run the whole program."""

import numpy as np

from fedkd import config as base
from fedkd import experiment, files


def save_images(path, seed=0, train=240, test=90, size=12, classes=3):
  """An .npz of images that show their class as a bright band, and noise."""
  random = np.random.default_rng(seed)
  arrays = {}
  for split, count in (('train', train), ('test', test)):
    label = np.arange(count) % classes
    image = random.integers(0, 160, (count, size, size, 1))
    for row, c in enumerate(label):
      image[row, c * size // classes : (c + 1) * size // classes] += 60
    arrays[f'x_{split}'], arrays[f'y_{split}'] = image.astype(np.uint8), label
  np.savez(path, **arrays)
  return path


def config(images, method='fedhe', rounds=6, seeds=(0,), plan_name='synchronous', **method_values):
  """Four clients, two MLPs, on the images of `save_images`."""
  out = base.default()
  out.name = 'tiny'
  out.method = base.method(method, **{'steps': 2, 'batch': 8, **method_values})
  out.plan = base.plan(plan_name)
  out.groups = (
    {'model': 'MLP', 'clients': 2, 'hidden': (8,)},
    {'model': 'MLP', 'clients': 2, 'hidden': (4,)},
  )
  if method == 'fedavg':
    out.groups = ({'model': 'MLP', 'clients': 4, 'hidden': (8,)},)
  out.data.name = f'npz:{images}'
  out.data.clients = 4
  out.rounds, out.seeds, out.eval_every, out.eval_rows = rounds, seeds, 2, 30
  return base.migrate(out)


def halves_of(config, folder, half):
  """(the summary of a run without a break, that of one which was continued after `half` of the rounds)."""
  rounds, whole = config.rounds, experiment.run(config, folder / 'whole', show=False)
  config.rounds = half
  experiment.run(config, folder / 'parts', show=False)
  config.rounds = rounds
  return whole, experiment.run(config, folder / 'parts', show=False)


def change_config(workdir, change):
  """Changes the config of a finished run as if it had been run so; `change` is given the config as JSON."""
  config, summary = (files.read_sealed(workdir / name) for name in ('config.json', 'summary.json'))
  change(config)
  files.write_sealed(workdir / 'config.json', config)
  summary['digests']['config.json'] = files.checksum(workdir / 'config.json')
  files.write_sealed(workdir / 'summary.json', summary)


def change_data(workdir, to='0' * 64):
  """Makes a finished run one of other data, whose checksum is `to`; None: of a version that did not know it."""
  with np.load(workdir / 'split.npz') as split:
    arrays = {name: split[name] for name in split if name != 'data_sha256'}
  np.savez(workdir / 'split.npz', **arrays, **({} if to is None else {'data_sha256': np.array(to)}))
  summary = files.read_sealed(workdir / 'summary.json')
  summary['digests']['split.npz'] = files.checksum(workdir / 'split.npz')
  files.write_sealed(workdir / 'summary.json', summary)


def metrics(workdir):
  """The rows without what the clock decides."""
  return [{k: v for k, v in row.items() if k != 'seconds'} for row in files.read(workdir / 'metrics.jsonl')]


def damage(checkpoint):
  """Inverts eight bytes in the middle of the largest array of a checkpoint's state.

  Elsewhere in those files a bit need not matter: some are not read, and what ends a compressed array is padding.
  """
  places = _arrays(checkpoint / 'state')
  path, start, size = max(places, key=lambda place: place[2])
  content, middle = bytearray(path.read_bytes()), start + size // 2
  content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
  path.write_bytes(content)


def _arrays(folder) -> list:
  """(file, first byte, bytes) of the arrays that TensorStore has outside its index."""
  import tensorstore

  base = tensorstore.KvStore.open(f'file://{folder.absolute()}/').result()
  dump = lambda *node: tensorstore.ocdbt.dump(base, *node).result()
  entries = dump(dump()['versions'][-1]['root']['location'])['entries']  # 'value:FOLDER:FILE:FIRST:BYTES'
  places = [entry['indirect_value'].split(':')[1:] for entry in entries if 'indirect_value' in entry]
  return [(folder / within / name, int(start), int(size)) for within, name, start, size in places]
