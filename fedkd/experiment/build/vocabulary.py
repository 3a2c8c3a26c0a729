"""The `vocabulary` of models for tokens: as many as the data have."""

import numpy as np

from fedkd.errors import ConfigError


def fitted(net, source, field: str):
  """A network whose `vocabulary` is that of the data where its entry leaves it out; any other network as it is.

  Args:
    net: a Flax module.
    source: `sources.Source`.
    field: of the config, for the message.

  Raises:
    ConfigError: for tokens of the data that the vocabulary lacks, which would have no vector.
  """
  given = getattr(net, 'vocabulary', None)
  if not isinstance(given, int) or not np.issubdtype(source.train_image.dtype, np.signedinteger):
    return net
  least, most = tokens(source)
  if least < 0:
    raise ConfigError(f'{field} looks up tokens, and data.name={source.name} has {least}; number them from 0')
  if 0 < given <= most:
    raise ConfigError(
      f'{field}.vocabulary={given} is too small for the tokens of data.name={source.name}, which go up to {most}; set '
      f'it to at least {most + 1}, or leave it out'
    )
  return net if given else net.clone(vocabulary=most + 1)


def tokens(source) -> tuple[int, int]:
  """The smallest and the largest integer of all examples, test examples included."""
  examples = [x for x in (source.train_image, source.test_image, *(source.public_test or ())[:1]) if x.size]
  return min(int(x.min()) for x in examples), max(int(x.max()) for x in examples)
