"""Data sets of the Hugging Face hub, or in their files, through the library `datasets`."""

import os
import pathlib
import socket
from typing import Any

import numpy as np

from fedkd.data import tables
from fedkd.data.folders import DEEP, MODES
from fedkd.data.limits import LIMIT, check_size
from fedkd.errors import ConfigError, in_a_sentence, reason_of

FILES = {'.csv': 'csv', '.json': 'json', '.jsonl': 'json', '.parquet': 'parquet', '.arrow': 'arrow'}
SAVED = ('dataset_dict.json', 'state.json')  # of `save_to_disk`
HOST = 'huggingface.co'


def read(path: str, roles: tables.Roles, size: int = 0, limit: float = LIMIT) -> tuple:
  """(arrays, class names or None, None) of a data set, as `sources` wants them.

  Columns that hold images, or lists of equal length, are examples by themselves; all others are a table.

  Args:
    path: a folder of `save_to_disk`, a folder or a file of CSV, JSON, Parquet or images, or a name on the hub, with
      the configuration of the set behind a colon if it has several.
    roles: of the columns. Test rows are those of the split `test`, or else as the roles say.
    size: side in pixels to which images are resized; 0: they must be of one size.
    limit: bytes that the examples may take.

  Raises:
    ConfigError: without the library `datasets`, for a set that cannot be read, or with the row and column of what does
      not fit.
  """
  name = f'hf:{path}'
  parts = _splits(path, name)
  features = tables.features_of(list(parts['train'].features), name, roles)
  whole, is_test = _together(parts, name)
  chosen = _examples(whole, features, name, roles)
  place = lambda row: f'row {row + 1}'
  if chosen is None:
    frame = _named(whole, whole.to_pandas(), roles.label)
    return tables.arrays(frame, place, name, roles, limit, is_test)
  where = lambda row, column: f'data.name={name}, {place(row)}, column {column!r}'
  beside = [column for column in (roles.label, roles.user, roles.split) if column]
  frame = _named(whole, whole.select_columns(beside).to_pandas(), roles.label)
  rows = tables.labelled(frame, roles, where, is_test)
  read = _images if _is_image(whole.features[chosen]) else _lists
  return tables.in_splits(read(whole, chosen, name, where, size, limit), rows), rows.names, None


def _splits(path, name) -> dict:
  """{'train', and 'test' if there is one} of `datasets.Dataset`."""
  local = pathlib.Path(path).exists()
  if not local:
    _check_reachable(name, path)
  try:
    import datasets
  except ImportError as error:
    raise ConfigError(f"data.name={name} needs datasets; install it with pip install 'fedkd[datasets]'") from error
  datasets.disable_progress_bars()
  remedy = 'check the files' if local else 'check the name and the network'
  with in_a_sentence(lambda error: f'data.name={name} cannot be read ({reason_of(error)}); {remedy}'):
    found = _loaded(datasets, path)
  parts = dict(found) if isinstance(found, dict) else {'train': found}
  if 'train' not in parts:
    raise ConfigError(f'data.name={name} has no split train, only {", ".join(parts)}; choose another set')
  return {split: parts[split] for split in ('train', 'test') if split in parts}


def _loaded(datasets, path) -> Any:
  folder = pathlib.Path(path)
  if any((folder / file).exists() for file in SAVED):
    return datasets.load_from_disk(path)
  if folder.is_file():
    return datasets.load_dataset(FILES[folder.suffix.lower()], data_files=path)
  if folder.is_dir():
    return datasets.load_dataset(path)
  of, _, configuration = path.partition(':')
  return datasets.load_dataset(of, configuration or None)


def _check_reachable(name, path):
  """Checks that the hub has an address, since `datasets` would try for half a minute; behind a proxy it need not."""
  if os.environ.get('HF_ENDPOINT') or os.environ.get('HTTPS_PROXY') or os.environ.get('https_proxy'):
    return
  try:
    socket.getaddrinfo(HOST, 443)
  except OSError as error:
    if os.environ.get('HF_HUB_OFFLINE') == '1':  # it may be in the cache
      return
    raise ConfigError(
      f'data.name={name}: there is no folder or file {path}, and {HOST} is not reachable ({error.strerror}); check the '
      'path or the network, or set HF_HUB_OFFLINE=1 for a set that was downloaded before'
    ) from error


def _together(parts, name) -> tuple:
  """(all rows, which of them are test rows or None if no split says so)."""
  import datasets

  if len(parts) == 1:
    return parts['train'], None
  with in_a_sentence(lambda error: f'data.name={name}: train and test differ ({reason_of(error)}); make them equal'):
    whole = datasets.concatenate_datasets([parts['train'], parts['test']])
  return whole, np.arange(len(whole)) >= len(parts['train'])


def _is_image(feature) -> bool:
  return type(feature).__name__ == 'Image'


def _is_list(feature) -> bool:
  return type(feature).__name__ in ('List', 'LargeList', 'Sequence', 'Array2D', 'Array3D')


def _examples(whole, features, name, roles) -> str | None:
  """The column whose values are examples by themselves; None where each is one number of an example."""
  alone = [column for column in features if _is_image(whole.features[column]) or _is_list(whole.features[column])]
  if not alone:
    return None
  if len(alone) > 1 or (roles.features and len(features) > 1):
    raise ConfigError(
      f'data.name={name} has several columns to learn from, {", ".join(features)}; set data.columns to one of '
      f'{", ".join(alone)}'
    )
  return alone[0]


def _named(whole, frame, label):
  """A frame whose labels are the names of classes where the set has them."""
  feature = whole.features[label]
  if hasattr(feature, 'int2str'):
    names = [str(one) for one in feature.names]
    numbers = frame[label].fillna(-1).astype(int)  # -1 is the hub's sign for a missing label
    frame[label] = [names[number] if 0 <= number < len(names) else None for number in numbers]
  return frame


def _lists(whole, column, name, where, size, limit) -> np.ndarray:
  """Lists of equal length as [N, ...]."""
  del size
  held = whole.with_format('numpy', columns=[column])[:][column]
  first = np.asarray(held[0])
  for row, value in enumerate(held):
    if np.shape(value) != first.shape or not first.size:
      raise ConfigError(
        f'{where(row, column)}: {list(np.shape(value))} where the first row has {list(first.shape)}; pad or cut all '
        'rows to one length'
      )
  check_size(name, len(held) * first.nbytes, limit)
  x = np.stack(held)
  if x.dtype.kind not in 'iu' or _declared(whole.features[column]) != 'uint8':
    return x
  return x.astype(np.uint8 if x.ndim > 2 else np.int32)  # images; a row of bytes is tokens


def _declared(feature) -> str:
  """The type of the numbers in a list, which `datasets` hands out as others."""
  while hasattr(feature, 'feature'):
    feature = feature.feature
  return feature.dtype


def _images(whole, column, name, where, size, limit) -> np.ndarray:
  """uint8[N, H, W, c], grey if all images are."""
  out = None
  for row in range(len(whole)):
    pixels = _pixels(whole, row, column, where, size)
    if out is None:
      check_size(name, len(whole) * pixels.size, limit)
      out = np.empty((len(whole), *pixels.shape), np.uint8)
    if pixels.shape[:2] != out.shape[1:3]:
      raise ConfigError(
        f'{where(row, column)}: {list(pixels.shape)} where the first image is {list(out.shape[1:])}; set data.size'
      )
    if pixels.shape[-1] > out.shape[-1]:  # the first of several in colour
      check_size(name, len(whole) * pixels.size, limit)
      out = np.repeat(out, pixels.shape[-1], -1)
    out[row] = pixels
  assert out is not None  # there are rows
  return out


def _pixels(whole, row, column, where, size) -> np.ndarray:
  """uint8[H, W, 1] of a grey image, [H, W, 3] of others."""
  from PIL import Image

  with in_a_sentence(lambda error: f'{where(row, column)}: {reason_of(error)}; replace the image'):
    image = whole[row][column]
    mode, image = image.mode, image.convert('L' if image.mode in ('1', 'L') else 'RGB')
  if mode not in MODES:
    raise ConfigError(f'{where(row, column)}: pixels of mode {mode}, {DEEP}')
  if size:
    image = image.resize((size, size), Image.Resampling.BOX)
  return np.asarray(image).reshape(*image.size[::-1], -1)
