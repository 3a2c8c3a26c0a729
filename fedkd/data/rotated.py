"""One set of digits rotated by several angles: a domain per angle (FedH2L, Li et al., 2021; M0, M20, M40, M60)."""

import numpy as np

from fedkd.errors import ConfigError

ANGLES = (0, 20, 40, 60)  # degrees, clockwise
PER_CLASS = 100
DRAW = 0  # seed of the images chosen: part of the data set, not of a run


def rotate(image, degrees) -> np.ndarray:
  """uint8[N, H, W, c] rotated clockwise about the centre as seen with row 0 on top: bilinear, zeros from outside."""
  from scipy import ndimage

  rotated = ndimage.rotate(
    image.astype(np.float32), -degrees, axes=(1, 2), reshape=False, order=1, mode='grid-constant'
  )
  return np.rint(rotated).clip(0, 255).astype(np.uint8)


def choose(label) -> np.ndarray:
  """Ascending row numbers of PER_CLASS random examples of each class, always the same ones."""
  rng = np.random.default_rng(DRAW)
  rows = [rng.permutation(np.flatnonzero(label == c))[:PER_CLASS] for c in np.unique(label)]
  return np.sort(np.concatenate(rows))


def domains(arrays, angles=ANGLES) -> tuple:
  """Copies of the chosen images, domain after domain and equally ordered: row i of each is the same digit.

  Args:
    arrays: {'x_train': uint8[N, H, W, c], 'y_train': int[N], ...}.
    angles: degrees clockwise, one domain each; negative ones turn counterclockwise.

  Returns:
    (arrays x_train, y_train and origin, the number of the domain; None for class names; names of the domains).

  Raises:
    ConfigError: for angles that are not distinct finite numbers.
  """
  numbers = isinstance(angles, tuple | list) and all(type(a) in (int, float) and np.isfinite(a) for a in angles)
  if not numbers or not angles or len(set(angles)) < len(angles):
    raise ConfigError(f'data.angles={angles!r} must be distinct degrees, one for each domain, such as {ANGLES}')
  image, label = arrays['x_train'], arrays['y_train']
  rows = choose(label)
  copies = {
    'x_train': np.concatenate([rotate(image[rows], degrees) if degrees else image[rows] for degrees in angles]),
    'y_train': np.tile(label[rows], len(angles)),
    'origin': np.repeat(np.arange(len(angles)), len(rows)),
  }
  return copies, None, tuple(f'M{degrees:g}' for degrees in angles)
