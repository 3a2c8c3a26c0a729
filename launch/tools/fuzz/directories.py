"""Targets of `launch.fuzz` that are directories: one file of each is changed, deleted, or replaced by another of them.

What is taken must be what was saved: an `AssertionError` is a finding.
"""

import io
import json
import os
import shutil

import numpy as np

from launch.tools.fuzz.targets import NONSENSE, mutated


def of_directories(make):
  """A target: (folder) -> (rng) -> (trial, text).

  Args:
    make: (folder) -> (directory, () -> None that reads it); called once.
  """

  def whole(folder):
    directory, read = make(folder)
    paths = sorted(path.relative_to(directory) for path in directory.rglob('*') if path.is_file())
    contents = {path: (directory / path).read_bytes() for path in paths}

    def target(rng):
      path, content = _changed(rng, contents)

      def trial():
        try:
          (directory / path).unlink() if content is None else (directory / path).write_bytes(content)
          read()
        finally:
          (directory / path).write_bytes(contents[path])

      return trial, lambda: f'{path} {"deleted" if content is None else content.hex()}'

    return target

  return whole


def _changed(rng, contents) -> tuple:
  """(path, content) of the file that is another one now; None for a content that is gone."""
  path = rng.choice(list(contents))
  kind = rng.randrange(20)
  if kind == 0:
    return path, None
  if kind == 1:
    return path, contents[rng.choice(list(contents))]
  if kind < 12 and path.suffix == '.json':
    return path, _another(rng, contents[path])
  return path, mutated(rng, [contents[path]])


def _another(rng, text) -> bytes:
  """JSON of which a value or a key is another."""
  whole = found = json.loads(text)
  while isinstance(found, (dict, list)) and found:
    key = rng.choice(list(found) if isinstance(found, dict) else range(len(found)))
    if not isinstance(found[key], (dict, list)) or not found[key] or rng.random() < 0.2:
      found[key] = rng.choice(NONSENSE)
      if isinstance(found, dict) and rng.random() < 0.2:
        found[str(rng.choice(NONSENSE))] = found.pop(key)
      break
    found = found[key]
  return json.dumps(whole, default=str, skipkeys=True).encode()


def _varint(number) -> bytes:
  head, rest = number & 127, number >> 7
  return bytes([head | 128]) + _varint(rest) if rest else bytes([head])


def _field(number, content) -> bytes:
  """A field of a protocol buffer that holds bytes."""
  return _varint(number << 3 | 2) + _varint(len(content)) + content


def example(image, label) -> bytes:
  """A `tf.train.Example` as TensorFlow Datasets writes it: a PNG and a number."""
  from PIL import Image

  file = io.BytesIO()
  Image.fromarray(image).save(file, 'PNG')
  features = {b'image': _field(1, _field(1, file.getvalue())), b'label': _field(3, _field(1, _varint(label)))}
  return _field(1, b''.join(_field(1, _field(1, name) + _field(2, value)) for name, value in features.items()))


def prepare(directory, name='tiny', classes=3, examples=6):
  """A data set as prepared by TensorFlow Datasets, whose builder nobody has: `directory`/`name`/1.0.0."""
  from array_record.python import array_record_module

  path = directory / name / '1.0.0'
  path.mkdir(parents=True)
  prefix = 'tensorflow_datasets.core.features.'
  image = {'image': {'dtype': 'uint8', 'shape': {'dimensions': ['4', '4', '1']}}}
  features = {
    'image': {**image, 'pythonClassName': f'{prefix}image_feature.Image'},
    'label': {
      'classLabel': {'numClasses': str(classes)},
      'pythonClassName': f'{prefix}class_label_feature.ClassLabel',
    },
  }
  whole = {'featuresDict': {'features': features}, 'pythonClassName': f'{prefix}features_dict.FeaturesDict'}
  (path / 'features.json').write_text(json.dumps(whole))
  (path / 'label.labels.txt').write_text('\n'.join('abc'[:classes]) + '\n')
  template = '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}'
  splits = []
  for split in ('train', 'test'):
    shard = path / f'{name}-{split}.array_record-00000-of-00001'
    writer, size = array_record_module.ArrayRecordWriter(str(shard), 'group_size:1'), 0
    for row in range(examples):
      text = example(np.full((4, 4), 40 * row, np.uint8), row % classes)
      writer.write(text)
      size += len(text)
    writer.close()
    entry = {'filepathTemplate': template, 'name': split, 'numBytes': str(size), 'shardLengths': [str(examples)]}
    splits.append(entry)
  info = {'fileFormat': 'array_record', 'moduleName': 'tiny', 'name': name, 'splits': splits, 'version': '1.0.0'}
  (path / 'dataset_info.json').write_text(json.dumps(info))


def _tfds(folder):
  from fedkd.data import sources

  directory = folder / 'prepared'
  prepare(directory)

  def read():
    shutil.rmtree(os.environ['FEDKD_CACHE'], ignore_errors=True)
    sources.load('tiny', str(directory))

  read()
  return directory, read


def _state() -> dict:
  return {'a': np.arange(12, dtype=np.float32).reshape(3, 4), 'b': np.int32(7), 'none': np.zeros((0, 3), np.float32)}


def _assert_same(found, wanted):
  """Bit by bit."""
  from fedkd.experiment.storage import checkpoint

  if checkpoint.checksum(found) != checkpoint.checksum(wanted):
    raise AssertionError('a state came back that nobody saved')


def _checkpoints(folder):
  from fedkd.experiment.storage import checkpoint

  directory = folder / 'checkpoints'
  with checkpoint.manager(directory) as saved:
    for step in (1, 2):
      checkpoint.save(saved, step, {**_state(), 'b': np.int32(step)}, {'round': step})

  def read():
    with checkpoint.manager(directory, tidy=False) as saved:
      found = checkpoint.restore(saved, lambda step: _state(), lambda text: None, tidy=False)
    if found:
      step, state, notes = found
      _assert_same((state, np.int32(notes['round'])), ({**_state(), 'b': np.int32(step)}, np.int32(step)))

  return directory, read


def _warm_starts(folder):
  from fedkd import config as configs
  from fedkd import files
  from fedkd.data.sources import Source
  from fedkd.experiment.storage import warm_start

  config = configs.default()
  config.data.clients, config.groups = 2, ({'model': 'MLP', 'clients': 2},)
  directory = folder / 'runs' / 'first'
  directory.mkdir(parents=True)
  plain = configs.to_json(config)
  files.write_sealed(directory / 'config.json', plain)
  variables = ({'params': {'w': np.ones((1, 1, 3), np.float32)}, 'batch_stats': {}},)
  warm_start.write(directory, 0, variables, [2], plain)
  config.init_from = 'first@0'
  source = Source('none', *[np.zeros(1)] * 4, 1, ())
  read = lambda: warm_start.read(config, directory.parent, variables, source)
  wanted = read()
  return directory, lambda: _assert_same(read(), wanted)


def _client_store(folder):
  from fedkd.errors import ConfigError, StoreError
  from fedkd.experiment.storage import client_store

  directory, config = folder / 'store', {'seeds': [0]}
  client_store.claim(directory, config, folder)
  like = {name: leaf[None] for name, leaf in _state().items()}  # of one seed
  records = client_store.Records(directory / 'group0', like)
  records.clear()
  states = {name: np.stack([leaf, leaf])[None] for name, leaf in _state().items()}
  table = records.write(client_store.blank(3), [0, 2], states)
  records.keep(table)

  def read():
    client_store.claim(directory, config, folder)
    again = client_store.Records(directory / 'group0', like)
    found = {name: np.zeros_like(leaf) for name, leaf in states.items()}
    try:
      again.resume(table)
      again.read(table, [0, 2], found, [0, 1])
    except StoreError as error:  # of one sentence, too
      raise ConfigError(str(error)) from error
    _assert_same(found, states)

  return directory, read


TARGETS = {
  'tfds': of_directories(_tfds),
  'checkpoints': of_directories(_checkpoints),
  'warm_starts': of_directories(_warm_starts),
  'client_store': of_directories(_client_store),
}
