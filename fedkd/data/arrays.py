"""Arrays of a data set: what examples, labels and owners may be, and those of an `.npz` file."""

import warnings

import numpy as np

from fedkd.checks import npz
from fedkd.checks.arguments import check_numbered, warn_of_channels_first, warn_of_whole_images
from fedkd.checks.numeric import in_precision, in_range
from fedkd.errors import ConfigError, in_a_sentence

SPLITS = ('train', 'test')
KINDS = (
  'images uint8[N, H, W] or uint8[N, H, W, c], numbers float32[N, columns] or float32[N, length, c], or tokens '
  'int32[N, length]'
)


def is_images(example) -> bool:
  """Whether examples [N, ...] are images, of bytes; other integers are tokens, floats numbers."""
  return example.dtype == np.uint8 and example.ndim > 2


def read_npz(path, limit) -> dict:
  """The arrays of `npz:FILE`, at most `limit` bytes of them.

  Raises:
    ConfigError: for a file that cannot be read or lacks one.
  """
  keys = [f'{xy}_{split}' for split in SPLITS for xy in 'xy']
  remedy = f'give a file of {", ".join(keys)} written by numpy.savez'
  where = '' if path.is_absolute() or path.exists() else ', in data.dir, $FEDKD_IMAGES or the working directory'
  with in_a_sentence(lambda error: f'data.name=npz:{path} cannot be read ({error}); {remedy}{where}'):
    arrays, found = npz.read(path, limit, [*keys, 'origin'])
  if missing := [key for key in keys if key not in arrays]:
    raise ConfigError(f'data.name=npz:{path} has no {", ".join(missing)}, only {_listed(found) or "nothing"}; {remedy}')
  if unknown := [name for name in found if name not in arrays]:
    warnings.warn(
      f'data.name=npz:{path}: {_listed(unknown)} are not read; validation rows are held out of the training rows '
      '(data.validation), and further arrays have no use',
      stacklevel=4,
    )
  return arrays


def _listed(names) -> str:
  return ' '.join(', '.join(names).split())[:200]


def checked(name, arrays, names) -> dict:
  """The arrays with examples as images uint8[N, H, W, c], numbers float32[N, ...] or tokens int32[N, ...], and labels
  as int64[N].

  Args:
    name: of the set.
    arrays: {'x_train', 'y_train'}, and 'x_test', 'y_test', 'origin' where the set has them.
    names: class names by label, or None for the labels themselves.

  Raises:
    ConfigError: for examples of another kind, NaN, labels or owners that do not fit.
  """
  splits = [split for split in SPLITS if f'x_{split}' in arrays]
  out = dict(arrays)
  for split in splits:
    x, y = arrays[f'x_{split}'], arrays[f'y_{split}']
    what = f'data.name={name}: x_{split}'
    out[f'x_{split}'] = _examples(what, x)
    if split == 'train':
      in_precision(what, x, out['x_train'].dtype)
      warn_of_channels_first(x, what)
      warn_of_whole_images(x, what)
    out[f'y_{split}'] = _labels(f'data.name={name}: y_{split}', y, len(x), names)
  if 'origin' in arrays:
    _check_owners(name, arrays['origin'], len(arrays['y_train']))
  train, test = (out[f'x_{split}'] for split in (splits[0], splits[-1]))
  if train.shape[1:] != test.shape[1:]:
    told = f'training images are {list(train.shape[1:])}, test images {list(test.shape[1:])}'
    raise ConfigError(f'data.name={name}: {told if is_images(train) else told.replace("images", "examples")}; {EQUAL}')
  if train.dtype != test.dtype:
    raise ConfigError(f'data.name={name}: training examples are {train.dtype}, test examples {test.dtype}; {EQUAL}')
  return out


EQUAL = 'make them equal'


def _examples(what, x) -> np.ndarray:
  whole, real = np.issubdtype(x.dtype, np.integer), np.issubdtype(x.dtype, np.floating)
  is_bytes = x.dtype == np.uint8  # of one axis, they may be tokens or flattened images
  if not (whole or real) or x.ndim < (3 if is_bytes else 2) or (is_bytes and x.ndim > 4):
    raise ConfigError(f'{what} is {x.dtype}{list(x.shape)}; give {KINDS}')
  if not x.size:
    without = 'pixels' if is_bytes else 'numbers'
    raise ConfigError(f'{what} has shape {list(x.shape)}, without {without}; give at least one image or other example')
  if is_bytes:
    return x if x.ndim == 4 else x[..., None]
  dtype = np.dtype(np.int32 if whole else np.float32)
  in_range(what, x, dtype)
  return x.astype(dtype, copy=False)


def _labels(what, y, count, names) -> np.ndarray:
  check_numbered(what, y)
  if not np.issubdtype(y.dtype, np.integer) or y.shape != (count,):
    raise ConfigError(f'{what} is {y.dtype}{list(y.shape)}; give integers [{count}], one per image or other example')
  if len(y) and names is not None and not 0 <= y.min() <= y.max() < len(names):
    raise ConfigError(
      f'{what} has labels from {y.min()} to {y.max()} for {len(names)} class names; number the classes from 0 to '
      f'{len(names) - 1}'
    )
  if len(y) and y.max() > np.iinfo(np.int64).max:
    raise ConfigError(f'{what} has the label {y.max()}; give integers of 64 bits with a sign')
  return y.astype(np.int64, copy=False)  # NumPy compares others with these as floats


def _check_owners(name, origin, count):
  if origin.dtype.kind not in 'iuU' or origin.shape != (count,):
    raise ConfigError(
      f'data.name={name}: origin is {origin.dtype}{list(origin.shape)}; give integers or names [{count}], the owner of '
      'each training row'
    )
