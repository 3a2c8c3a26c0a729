"""The targets of `launch.fuzz`: each makes, in a folder, a function from a random generator to a trial."""

import copy
import io
import json
import math
import pathlib
import shutil
import tempfile
import zipfile

import numpy as np

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
HUGE = (2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 10**12, -1, 0, 1)
NONSENSE = (
  *(-1, 0, 1, 2, 3, 7, 10**30, -(10**30), 2**31, 2**32, 0.5, -0.5, 1e300, math.nan, math.inf, -math.inf, True, False),
  *(
    None,
    '',
    'x',
    'inf',
    'nan',
    '-1',
    'os:system',
    'subprocess:getoutput',
    'fedkd.cli:main',
    'nowhere:f',
    ':',
    'a' * 500,
  ),
  *('\0', '\n', 'ä', '🐍', (), (1,), (1, 1), (-1,), ('a',), ((),), ({'a': 1},), {}, {'name': 'x'}, {'name': 3}, {1: 2}),
  *('mean', 'private', 'sampled', 'step', 'vmap', 'labels', 'npz:/dev/null', '../..', (1, 2, 3), (0.5, 2.5)),
)
TOKENS = [
  b'[' * 5000,
  b'{',
  b'}',
  b'null',
  b'NaN',
  b'1e999',
  b'-1',
  b'"',
  b'\\u0000',
  b'99999999999999999999',
  b'\n',
  b'true',
]


def mutated(rng, corpus) -> bytes:
  """A member of the corpus after one to four changes of its bytes."""
  data = bytearray(rng.choice(corpus))
  for _ in range(rng.choice((1, 1, 1, 2, 4))):
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(9)
    if kind == 0 and data:
      data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1:
      del data[at:]
    elif kind == 2:
      del data[at : at + rng.randrange(1, 30)]
    elif kind == 3:
      other = rng.choice(corpus)
      data[at:] = other[rng.randrange(len(other) + 1) :]
    elif kind == 4:
      data[at:at] = data[at : at + rng.randrange(1, 200)] * rng.randrange(1, 20)
    elif kind == 5:
      data[at:at] = bytes([rng.choice((0, 255))]) * rng.randrange(1, 20)
    elif kind == 6:
      size = rng.choice((2, 4, 8))
      value = rng.choice(HUGE) % 2 ** (8 * size)
      data[at : at + size] = value.to_bytes(size, rng.choice(('little', 'big')))
    elif kind == 7:
      data[at : at + rng.randrange(3)] = rng.choice(TOKENS)
    elif data:
      data[at % len(data)] = rng.randrange(256)
  return bytes(data)


def of_files(suffix, corpus, read):
  """A target whose inputs are changed files: (folder) -> (rng) -> (trial, text)."""

  def make(folder):
    members = corpus()

    def target(rng):
      content = mutated(rng, members)
      path = folder / f'input{suffix}'
      path.write_bytes(content)
      return lambda: read(path), content.hex

    return target

  return make


def _arrays(**changes) -> dict:
  image, label = np.arange(6 * 16, dtype=np.uint8).reshape(6, 4, 4), np.arange(6) % 3
  return {'x_train': image, 'y_train': label, 'x_test': image, 'y_test': label, **changes}


def _npy(array) -> bytes:
  file = io.BytesIO()
  np.save(file, array)
  return file.getvalue()


def _zipped(members, method=zipfile.ZIP_STORED) -> bytes:
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', method) as archive:
    for name, content in members.items():
      archive.writestr(name, content)
  return file.getvalue()


def npz(folder):
  """A file of images: its bytes, or those of an array inside it, whose checksum then is right."""
  from fedkd.data import sources

  members = {f'{name}.npy': _npy(array) for name, array in _arrays().items()}
  whole = [_zipped(members), _zipped(members, zipfile.ZIP_DEFLATED)]
  path = folder / 'input.npz'

  def target(rng):
    if rng.random() < 0.5:
      content = mutated(rng, whole)
    else:
      name = rng.choice(sorted(members))
      content = _zipped(
        {**members, name: mutated(rng, [members[name]])}, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
      )
    path.write_bytes(content)
    return lambda: sources.resize(sources.load(f'npz:{path}', size=2), 2), content.hex

  return target


def images(folder):
  """A folder of images, of which one is changed."""
  from PIL import Image

  from fedkd.data import sources

  root, grey = folder / 'set', np.arange(64, dtype=np.uint8).reshape(8, 8)
  corpus = []
  for form in ('PNG', 'JPEG', 'BMP', 'GIF', 'TIFF', 'PPM', 'WEBP'):
    for pixels in (grey, np.stack([grey] * 3, -1)):
      file = io.BytesIO()
      Image.fromarray(pixels).save(file, form)
      corpus.append(file.getvalue())
  for part in ('train', 'test'):
    (root / part / 'a').mkdir(parents=True)
    Image.fromarray(grey).save(root / part / 'a' / '0.png')

  def target(rng):
    content = mutated(rng, corpus)
    (root / 'train' / 'a' / '1.png').write_bytes(content)
    shutil.rmtree(folder / 'cache', ignore_errors=True)
    return lambda: sources.load(f'folder:{root}', size=rng.choice((0, 4))), content.hex

  return target


def _weight_files() -> list:
  header = {
    'a': {'dtype': 'F32', 'shape': [2, 2], 'data_offsets': [0, 16]},
    'b': {'dtype': 'BF16', 'shape': [4], 'data_offsets': [16, 24]},
    '__metadata__': {'format': 'pt'},
  }
  text = json.dumps(header).encode()
  return [len(text).to_bytes(8, 'little') + text + bytes(24)]


def _read_weights(path):
  from fedkd.models import pretrained

  pretrained.read(path)


def _npz_weights() -> list:
  members = {'a.npy': _npy(np.zeros((2, 2), np.float32)), 'b.npy': _npy(np.ones(3, np.float16))}
  return [_zipped(members), _zipped(members, zipfile.ZIP_DEFLATED), _zipped({**members, 'c.npy': _npy(np.arange(3))})]


def overrides(folder):
  """Words of a command line, and what a run makes of them before it traces anything."""
  from absl import flags

  from fedkd import config as configs
  from fedkd.config import command_line
  from fedkd.experiment.build import checks, from_config, groups

  np.savez(folder / 'data.npz', **_arrays(**{k: np.tile(v, (40, *[1] * (v.ndim - 1))) for k, v in _arrays().items()}))
  (folder / 'tiny.py').write_text(
    'from fedkd import config as base\ndef get_config(arg):\n  choice = base.parse(arg, ("small",), method="fedhe")\n'
    '  config = base.default()\n  config.method = base.method(choice.method)\n  config.data.clients = 4\n'
    f'  config.data.name = "npz:{folder}/data.npz"\n'
    '  config.groups = ({"model": "MLP", "clients": 2}, {"model": "TwoConv", "filters": (2, 2), "clients": 2})\n'
    '  return base.finish(config, choice)\n'
  )
  names = [*sorted(configs.flatten(configs.to_json(configs.default()))), 'method.rule', 'method.alpha', 'plan.ratio']
  names += ['groups', 'before', 'groups[0].clients', 'groups[1].penalty', 'optimizer', 'method', 'plan', 'data']

  def value(rng):
    one = rng.choice(NONSENSE)
    if rng.random() < 0.2:
      field = rng.choice(('clients', 'hidden', 'first', 'filters', 'dropout', 'learning_rate'))
      one = ({'model': rng.choice(('MLP', 'TwoConv', one)), field: one},)
    if rng.random() < 0.1:
      one = ({'name': 'private', rng.choice(('rounds', 'early_stop', 'batch', 'steps')): one},)
    return str(one)

  def target(rng):
    string = rng.choice(('', '', ':small', ':method=fedmd', ':method=velo', f':{rng.choice(NONSENSE)}'))
    words = [f'--config={folder}/tiny.py{string}']
    words += [f'--config.{rng.choice(names)}={value(rng)}' for _ in range(rng.choice((1, 1, 2, 3)))]
    return lambda: tried(words), lambda: ' '.join(words[1:])

  def tried(words):
    values = flags.FlagValues()
    holder = command_line.define(values)
    command_line.parse(['fuzz', *words], values)
    config = holder.value
    configs.check(config)
    source = from_config.load_data(config)
    made = groups.make_groups(config, source)
    blocks = from_config.make_blocks(config)
    for block in blocks:
      from_config.make_method(block, config, made)
    checks.check_batches(blocks, source)
    splits = [from_config.make_split(config, source, seed) for seed in config.seeds]
    for block in blocks:
      checks.make_early_stop(block, True, config, source, splits)
    from_config.make_plan(config.plan, [len(group.ids) for group in made], min(config.rounds, 100))

  return target


def stored(folder):
  """A config.json of which fields are replaced, or the bytes changed."""
  from fedkd import config as configs
  from fedkd.experiment.storage.loading import read_config

  plain = configs.to_json(configs.default())
  run = folder / 'run'
  run.mkdir()

  def target(rng):
    config = json.loads(json.dumps(plain))
    for _ in range(rng.choice((1, 2, 3))):
      block = config
      while isinstance(block, dict) and block and rng.random() < 0.6:
        key = rng.choice(sorted(block, key=str))
        if not isinstance(block[key], dict):
          break
        block = block[key]
      if isinstance(block, dict) and block:
        field = rng.choice([*sorted(block, key=str), 'colour'])
        block[field] = copy.deepcopy(rng.choice(NONSENSE))  # which the next change may change
    text = json.dumps(config, default=str, skipkeys=True).encode()
    if rng.random() < 0.4:
      text = mutated(rng, [text])
    (run / 'config.json').write_bytes(text)
    return tried, text.hex

  def tried():
    config = read_config(run)
    configs.differences(configs.to_json(config), plain)
    configs.check(config)
    configs.build('plan', config.plan)

  return target


def _metrics_files() -> list:
  row = {
    'phase': 0,
    'method': 'fedhe',
    'round': 1,
    'turns': [4],
    'accuracy': [0.5],
    'accuracy_per_client': [[0.5, 0.5]],
    'seconds': 1.5,
  }
  return [b''.join(json.dumps({**row, 'round': t}).encode() + b'\n' for t in range(4))]


def _read_metrics(path):
  from fedkd.analysis import frames

  shutil.copy(path, path.parent / 'metrics.jsonl')
  (path.parent / 'config.json').write_text('{"seeds": [0]}')
  frames.read(path.parent)


def _watch_metrics(path):
  """While a run is running, which is watched whatever its files hold."""
  import io

  import rich.console

  from fedkd.experiment.storage import lock
  from fedkd.watch import states, view

  shutil.copy(path, path.parent / 'metrics.jsonl')
  (path.parent / 'config.json').write_text('{"rounds": 4}')
  with lock.held(path.parent):
    rich.console.Console(file=io.StringIO(), width=100).print(view.table(states.below(path.parent)))


def _result_files() -> list:
  stored = sorted(pathlib.Path('results').glob('*/*/*.json')) or sorted(pathlib.Path('results').glob('**/*.json'))
  small = min(stored, key=lambda path: path.stat().st_size)
  return [small.read_bytes()]


def _read_result(path):
  from fedkd.analysis import results

  results.read(path)


TABLE = 'age,city,"who, said",label\n31,Bern,a,yes\n4.5,,b,no\n1e3,"Ro\nme",a,no\n60,Oslo,c,yes\n'


def _csv_files() -> list:
  return [TABLE.encode(), TABLE.replace('\n', '\r\n').encode('utf-8-sig'), TABLE.replace(',', ';').encode()]


def _parquet_files() -> list:
  import pandas as pd

  frame = pd.read_csv(io.StringIO(TABLE))
  return [frame.to_parquet(), frame.assign(nested=[[1], [2, 3], [], [4]]).to_parquet(compression='gzip')]


def _read_table(path):
  from fedkd.data import sources, tables

  sources.load(f'table:{path}', limit=1e8, roles=tables.Roles(user='who, said', missing='mean'))


def _partition_files(suffix):
  def files() -> list:
    from fedkd.data.splits import stored

    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / f'parts{suffix}'
      stored.write(path, [[0, 2], [1, 5]], np.arange(6) % 3)
      return [path.read_bytes()]

  return files


def _read_partition(path):
  from fedkd.data.splits import stored

  stored.stored(np.arange(6) % 3, 2, 0, str(path))


TARGETS = {
  'npz': npz,
  'images': images,
  'csv': of_files('.csv', _csv_files, _read_table),
  'parquet': of_files('.parquet', _parquet_files, _read_table),
  'partition_json': of_files('.json', _partition_files('.json'), _read_partition),
  'partition_npz': of_files('.npz', _partition_files('.npz'), _read_partition),
  'safetensors': of_files('.safetensors', _weight_files, _read_weights),
  'weights': of_files('.npz', _npz_weights, _read_weights),
  'overrides': overrides,
  'stored': stored,
  'metrics': of_files('.jsonl', _metrics_files, _read_metrics),
  'watch': of_files('.jsonl', _metrics_files, _watch_metrics),
  'results': of_files('.json', _result_files, _read_result),
}
