"""How large a data set may be, so that a damaged or hostile file is refused before it fills the memory."""

from fedkd.errors import ConfigError

LIMIT = 2e9  # bytes of examples, unpacked; `data.limit` of a config
MOST_SIDE = 4096  # pixels


def check_size(name, size, limit):
  """Checks the bytes of a data set's examples, before they are unpacked.

  Raises:
    ConfigError: if they are too many.
  """
  if size > limit:
    raise ConfigError(
      f'data.name={name} has {size / 1e9:,.1f} GB of examples, more than data.limit={limit / 1e9:g}; raise it if that '
      'is right, or use fewer or smaller ones'
    )
