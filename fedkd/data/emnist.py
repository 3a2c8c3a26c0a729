"""EMNIST in the MATLAB form it was published in (Cohen et al., 2017), the only form that records the writers."""

import numpy as np

from fedkd.errors import ConfigError

SPLITS = ('train', 'test')


def load(path) -> tuple:
  """(arrays, class names by original label, or None) of a file such as emnist-letters.mat.

  It holds dataset.{train,test}.{images [N, H H], labels [N, 1], writers [N, 1]} and dataset.mapping, whose rows are a
  label and the codes of its characters. Images are stored column by column and are turned upright. 'origin' is the
  writer's number, missing where the file has none.
  """
  dataset = _dataset(path)
  arrays = {}
  for split in SPLITS:
    pixels = np.atleast_2d(dataset[split]['images'])
    side = int(np.sqrt(pixels.shape[-1]))
    if pixels.ndim != 2 or pixels.shape[-1] != side**2:
      raise ConfigError(f'data.name=mat:{path}: images of {split} have shape {list(pixels.shape)}; give [N, 784]')
    arrays[f'x_{split}'] = np.ascontiguousarray(pixels.reshape(-1, side, side).swapaxes(1, 2))
    arrays[f'y_{split}'] = _integers(dataset[split]['labels'])
  if 'writers' in dataset['train']:
    arrays['origin'] = _integers(dataset['train']['writers'])
    if arrays['origin'].shape != arrays['y_train'].shape:
      raise ConfigError(
        f'data.name=mat:{path} has {len(arrays["origin"])} writers of {len(arrays["y_train"])} training images; give '
        'one for each'
      )
  return arrays, _names(dataset, arrays['y_train'])


def _dataset(path) -> dict:
  from scipy.io import loadmat

  remedy = 'give a file as published with EMNIST, such as emnist-letters.mat'
  try:
    dataset = loadmat(path, simplify_cells=True)['dataset']
    found = [dataset[split][key] for split in SPLITS for key in ('images', 'labels')]
  except Exception as error:  # a file that is none raises whatever its first bytes suggest
    raise ConfigError(f'data.name=mat:{path} cannot be read ({error!r}); {remedy}') from error
  del found
  return dataset


def _integers(array) -> np.ndarray:
  """int64[N] of [N, 1] in whichever type of number, since MATLAB's own is floating point."""
  return np.atleast_1d(array).astype(np.int64)


def _names(dataset, labels) -> dict | None:
  """The last character of each label: the small letter where capitals are the same class."""
  mapping = np.atleast_2d(dataset.get('mapping', np.zeros((0, 2))))
  names = {int(row[0]): chr(int(row[-1])) for row in mapping if len(row) > 1}
  return names if set(labels.tolist()) <= set(names) else None
