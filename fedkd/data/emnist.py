"""EMNIST in the MATLAB form it was published in (Cohen et al., 2017), the only form that records the writers."""

import numpy as np

from fedkd.data import matlab
from fedkd.data.limits import LIMIT
from fedkd.errors import ConfigError

SPLITS = ('train', 'test')


def load(path, limit=LIMIT) -> tuple:
  """(arrays, class names by original label, or None) of a file such as emnist-letters.mat.

  It holds dataset.{train,test}.{images [N, H H], labels [N, 1], writers [N, 1]} and dataset.mapping, whose rows are a
  label and the codes of its characters. Images are stored column by column and are turned upright. 'origin' is the
  writer's number, missing where the file has none.

  `limit`: bytes that the file may take, unpacked.
  """
  dataset = _dataset(path, limit)
  arrays = {}
  for split in SPLITS:
    pixels = _array(path, f'images of {split}', dataset[split]['images'])
    pixels = np.atleast_2d(pixels)
    side = int(np.sqrt(pixels.shape[-1]))
    if pixels.ndim != 2 or pixels.shape[-1] != side**2 or not pixels.size:
      raise ConfigError(f'data.name=mat:{path}: images of {split} have shape {list(pixels.shape)}; give [N, 784]')
    arrays[f'x_{split}'] = np.ascontiguousarray(pixels.reshape(-1, side, side).swapaxes(1, 2))
    arrays[f'y_{split}'] = _integers(path, f'labels of {split}', dataset[split]['labels'], 2**16)
  if 'writers' in dataset['train']:
    arrays['origin'] = _integers(path, 'writers', dataset['train']['writers'], 2**31)
    if arrays['origin'].shape != arrays['y_train'].shape:
      raise ConfigError(
        f'data.name=mat:{path} has {len(arrays["origin"])} writers of {len(arrays["y_train"])} training images; give '
        'one for each'
      )
  return arrays, _names(path, dataset, arrays['y_train'])


def _dataset(path, limit) -> dict:
  remedy = 'give a file as published with EMNIST, such as emnist-letters.mat'
  try:
    dataset = matlab.load(path, limit)['dataset']
    found = [dataset[split][key] for split in SPLITS for key in ('images', 'labels')]
  except ConfigError:
    raise
  except Exception as error:
    raise ConfigError(f'data.name=mat:{path} cannot be read ({error!r}); {remedy}') from error
  del found
  return dataset


def _array(path, what, value) -> np.ndarray:
  """A part of the file that is an array of numbers."""
  array = np.asarray(value) if not isinstance(value, dict | list) else np.zeros(0, object)
  if array.dtype.kind not in 'uif':
    kind = 'text' if array.dtype.kind in 'US' else 'something else'
    raise ConfigError(f'data.name=mat:{path}: {what} are {kind}; give numbers, as published with EMNIST')
  return array


def _integers(path, what, value, most) -> np.ndarray:
  """int64[N] of [N, 1] in whichever type of number, since MATLAB's own is floating point."""
  array = np.atleast_1d(_array(path, what, value))
  whole = np.isfinite(array) & (array >= 0) & (array < most)
  if not whole.all() or (array != np.floor(array)).any():
    odd = array[~whole].ravel()[0] if not whole.all() else array[array != np.floor(array)].ravel()[0]
    raise ConfigError(f'data.name=mat:{path}: {what} have {odd}; give whole numbers from 0, below {most}')
  return array.astype(np.int64)


def _names(path, dataset, labels) -> dict | None:
  """The last character of each label: the small letter where capitals are the same class."""
  mapping = np.atleast_2d(_array(path, 'mapping', dataset.get('mapping', np.zeros((0, 2)))))
  if mapping.ndim != 2 or mapping.shape[1] < 2:
    return None
  codes = _integers(path, 'mapping', mapping, 0x110000)
  names = {int(row[0]): chr(int(row[-1])) for row in codes}
  return names if set(labels.ravel().tolist()) <= set(names) else None
