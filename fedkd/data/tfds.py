"""Data sets prepared by TensorFlow Datasets, read without TensorFlow."""

import json
import logging
import math
import os
import pathlib
import re

import numpy as np

from fedkd.checks.kinds import short
from fedkd.data.cache import cached, fingerprint
from fedkd.data.limits import LIMIT, check_size
from fedkd.errors import ConfigError, in_a_sentence, reason_of

SPLITS = ('train', 'test')
BLOCK = 1000  # images decoded at once
# TensorFlow Datasets also takes NAMESPACE:NAME, which fetches code and runs it.
NAME = re.compile(r'\w+(/[\w.+-]+)?(:[\d.*]+)?', re.ASCII)
FEATURE = re.compile(r'tensorflow_datasets(\.\w+)+', re.ASCII)


def load(name, directory, label, limit=LIMIT) -> tuple:
  """(arrays, class names by original label) of a set that TensorFlow Datasets has prepared.

  A label other than 'label' is a coarser one: 'origin' is then the rank of a row's label within its coarse label.

  Raises:
    ConfigError: if it is not there, is damaged, is more than `limit` bytes, or names code outside TensorFlow Datasets.
  """
  if not NAME.fullmatch(name):
    raise ConfigError(_not_prepared(name, directory, 'a name is NAME, NAME/CONFIG or NAME:VERSION')) from None
  _check_code(name, directory)
  import tensorflow_datasets as tfds

  logging.getLogger('absl').addFilter(_not_about_opencv)
  with in_a_sentence(lambda error: _not_prepared(name, directory, error)):
    builder = tfds.builder(name, data_dir=directory)
    if not builder.is_prepared():
      raise FileNotFoundError(f'nothing in {builder.data_path}')
    data = {split: builder.as_data_source(split) for split in SPLITS}
  with in_a_sentence(lambda error: _damaged(name, builder, error), through=(ConfigError,)):
    names = _checked(name, builder, data, label, limit)
  version = f'{builder.version} {fingerprint(pathlib.Path(builder.data_path).iterdir())}'
  key = name if label == 'label' else f'{name} {label}'
  arrays = cached(key, version, lambda: _read(name, builder, data, label))
  labels = np.concatenate([arrays[f'y_{split}'] for split in SPLITS])
  if strange := labels[(labels < 0) | (labels >= len(names))][:1].tolist():
    raise ConfigError(_damaged(name, builder, f'{strange[0]} is not a label of {len(names)} classes'))
  return arrays, names


def tfds_folder(directory=None) -> pathlib.Path:
  """Where prepared sets lie."""
  usual = os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  return pathlib.Path(directory or usual).expanduser()


def _check_code(name, directory):
  """Checks the classes that a set's features name, before TensorFlow Datasets imports their modules."""
  where = tfds_folder(directory) / name.partition('/')[0].partition(':')[0]
  for path in sorted([*where.glob('*/features.json'), *where.glob('*/*/features.json')]):
    try:
      found = set(_class_names(json.loads(path.read_bytes())))
    except (OSError, ValueError, RecursionError) as error:
      raise ConfigError(f'data.name={name}: {path} is damaged ({reason_of(error)}); copy the set again') from None
    if foreign := sorted(one for one in found if not FEATURE.fullmatch(one)):
      raise ConfigError(
        f'data.name={name}: {path} names code outside TensorFlow Datasets ({short(foreign[0])}), which would be '
        'executed; convert the set and use data.name=npz:FILE'
      )


def _class_names(value):
  """The names of classes, of which the module is imported; `type` in the older of the two forms."""
  if isinstance(value, dict):
    texts = [value.get(key) for key in ('pythonClassName', 'python_class_name', 'type')]
    yield from [text for text in texts if isinstance(text, str) and '.' in text]
  for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
    yield from _class_names(inner)


def _checked(name, builder, data, label, limit) -> list:
  """The class names of a set whose features and size are what fedkd takes."""
  features = builder.info.features
  _check_features(name, features, label)
  image = features['image']
  check_size(name, sum(map(len, data.values())) * math.prod(image.shape) * np.dtype(image.np_dtype).itemsize, limit)
  return features[label].names


def _damaged(name, builder, error) -> str:
  return (
    f'data.name={name}: the files in {builder.data_path} are damaged or incomplete ({reason_of(error)}); copy them '
    f'again or prepare them again with `tfds build {name} --file_format=array_record`'
  )


def _not_about_opencv(record) -> bool:
  return 'OpenCV' not in record.getMessage()


def _not_prepared(name, directory, error) -> str:
  return (
    f'data.name={name} is not a data set that TensorFlow Datasets has prepared in '
    f'{directory or "$TFDS_DATA_DIR or its default folder"} ({reason_of(error)}): check the name; or prepare it '
    f'where TensorFlow is installed with `tfds build {name} --file_format=array_record` and point data.dir or '
    'TFDS_DATA_DIR there; or use data.name=npz:FILE, data.name=folder:DIR or data.name=mnist_5k'
  )


def _check_features(name, features, label):
  shape = features['image'].shape if 'image' in features else ()
  classes = [feature for feature in features if hasattr(features[feature], 'names')]
  if not classes or not shape or None in shape:
    raise ConfigError(
      f'data.name={name} has the features {", ".join(features)}, but fedkd needs an `image` of one fixed size and a '
      'class `label`; convert it and use data.name=npz:FILE'
    )
  if label not in classes:
    raise ConfigError(
      f'data.label={label} is not a class label of data.name={name}; set it to {" or ".join(sorted(classes))}'
    )


def _read(name, builder, data, label) -> dict:
  """The arrays; for a coarser label than `label`, also the rank of `label` within it."""
  arrays, fine = {}, {}
  for split in SPLITS:
    examples = data[split]
    image = np.empty((len(examples), *builder.info.features['image'].shape), builder.info.features['image'].np_dtype)
    labels = np.empty((len(examples), 2), np.int64)
    for start in range(0, len(examples), BLOCK):
      rows = range(start, min(start + BLOCK, len(examples)))
      for row, example in zip(rows, _fetch(name, builder, examples, list(rows)), strict=True):
        _check_image(name, builder, example['image'], image.shape[1:])
        image[row], labels[row] = example['image'], (example[label], example.get('label', 0))
    # EMNIST is stored column by column.
    arrays[f'x_{split}'] = image.swapaxes(1, 2).copy() if builder.name == 'emnist' else image
    if labels.size and not 0 <= labels.min() <= labels.max() < 2**31:
      raise ConfigError(_damaged(name, builder, f'labels from {labels.min()} to {labels.max()}'))
    arrays[f'y_{split}'], fine[split] = labels.T.astype(np.int32)
  has_fine = label != 'label' and 'label' in builder.info.features
  return {**arrays, 'origin': _rank(arrays['y_train'], fine['train'])} if has_fine else arrays


def _check_image(name, builder, image, shape):
  if np.shape(image) != shape:
    raise ConfigError(_damaged(name, builder, f'an image is {list(np.shape(image))}, not {list(shape)}'))


def _rank(coarse, fine) -> np.ndarray:
  """int32[N]: 0 where `fine` is the lowest label found with that coarse label, 1 where it is the next, ..."""
  rank = np.empty(len(fine), np.int32)
  for label in np.unique(coarse):
    inside = coarse == label
    rank[inside] = np.unique(fine[inside], return_inverse=True)[1]
  return rank


def _fetch(name, builder, examples, rows) -> list:
  with in_a_sentence(
    lambda error: _damaged(name, builder, error)
  ):  # array_record, Riegeli and Pillow each have their own
    return examples.__getitems__(rows)
