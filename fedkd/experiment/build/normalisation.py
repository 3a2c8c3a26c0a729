"""`data.normalise`: the constants with which models see their examples."""

import numpy as np

from fedkd import config as configs
from fedkd.data import sources
from fedkd.errors import ConfigError


def normalisation(choice, source) -> tuple[np.ndarray | None, np.ndarray | None]:
  """(mean, scale), float32, each to be broadcast against an example; a model sees (x - mean) * scale.

  (None, None) leaves examples as they are.

  Args:
    choice: the value of `data.normalise`: a name in `fedkd.data.transforms`, or a function of the training examples
      [N, ...] alone, or of them and the name of their source.
    source: `sources.Source`.

  Raises:
    ConfigError: for an unknown name, or a function that returns something else.
  """
  images = sources.trained(source)
  returned = configs.build('data.normalise', {'name': choice}, images, name=source.name)
  image = source.train_image.shape[1:]
  where = f'data.normalise={configs.to_json(choice)!r} returned'
  if not isinstance(returned, tuple | list) or len(returned) != 2:
    raise ConfigError(f'{where} {type(returned).__name__}; return (mean, scale), to be broadcast against {list(image)}')
  if all(value is None for value in returned):
    return None, None
  mean, scale = (_constant(value, name, image, where) for value, name in zip(returned, ('mean', 'scale'), strict=True))
  return mean, scale


def _constant(value, name, image, where) -> np.ndarray:
  try:
    value = np.asarray(value, np.float32)
    fits = np.broadcast_shapes(value.shape, image) == image
  except (TypeError, ValueError):
    value, fits = np.asarray(value, object), False
  if not fits:
    raise ConfigError(f'{where} a {name} of shape {list(value.shape)}; it must broadcast against images {list(image)}')
  if not np.isfinite(value).all():
    raise ConfigError(f'{where} a {name} that is not finite; check for channels without variance')
  return value
