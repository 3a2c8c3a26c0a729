"""Whether data are those that a run began with: a checksum of them lies in its `split.npz`."""

import numpy as np

from fedkd.checks import npz
from fedkd.errors import ConfigError, in_a_sentence, reason_of
from fedkd.experiment.storage import checkpoint

NAME = 'data_sha256'


def checksum(source) -> str:
  """SHA-256 of all examples and labels of a `sources.Source`, test rows included."""
  return checkpoint.checksum((*source[1:5], source.public_test or ()))


def check(workdir, source, now: str, remedy: str = 'restore them, or choose another workdir') -> None:
  """Checks the data against those of the run in `workdir`, if there is one and it knows; `now`: their checksum.

  Raises:
    ConfigError: if they have changed.
  """
  then = of(workdir)
  if then and then != now:
    raise ConfigError(f'workdir={workdir} holds a run on other data than data.name={source.name} has now; {remedy}')


def of(workdir) -> str:
  """The checksum of the data that the run in `workdir` began with; '' if it is not there, damaged or of an older
  version: who trains writes it again."""
  try:
    with in_a_sentence(reason_of):
      arrays, _ = npz.read(workdir / 'split.npz', 1e10, [NAME], members=10**6)
      return np.asarray(arrays[NAME]).item()
  except ConfigError:
    return ''
