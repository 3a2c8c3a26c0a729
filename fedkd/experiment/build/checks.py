"""Early stopping from a config, checked against data and plan; and whether memory suffices."""

import math
import os
import pathlib
import warnings

import jax

from fedkd import config as configs
from fedkd.checks import kinds, ranges
from fedkd.errors import ConfigError
from fedkd.experiment import early_stopping
from fedkd.experiment.hosts import devices, hosts


def check_workdir(workdir):
  """Checks that a run directory can be one, before anything is read or made.

  Raises:
    ConfigError: for an empty name, one that no file system or checkpoint takes, or a path that is not a directory.
  """
  kinds.check_is('workdir', workdir, str | os.PathLike, 'the name of a directory, such as runs/try')
  path, name = pathlib.Path(workdir), str(workdir)
  try:
    name.encode()
    reason = '' if name and '\0' not in name and (path.is_dir() or not path.exists()) else 'it is not a directory'
  except UnicodeEncodeError:  # checkpoints cannot be written there
    reason = 'it is not UTF-8'
  except OSError as error:  # a name too long
    reason = str(error.strerror)
  if reason:
    raise ConfigError(
      f"workdir={kinds.short(name)} is no run directory ({reason}); give one such as runs/try, '.' for this one"
    )


def make_early_stop(block, last, config, source, splits) -> early_stopping.EarlyStop | None:
  """The `early_stop` of a phase, None without one. `last`: whether the phase follows `config.plan`.

  Raises:
    ConfigError: for an unknown field or an impossible value.
  """
  fields = block.early_stop
  if not fields or fields.get('watch') == '':
    return None
  configs.check_known(fields, early_stopping.EarlyStop._fields, 'early_stop')
  for field, allowed in ranges.annotations_of(early_stopping.EarlyStop).items():
    if field in fields or field == 'watch':
      ranges.check(f'early_stop.{field}', fields.get(field), allowed)
  early = early_stopping.EarlyStop(**fields)
  held = min(sum(map(len, split.validation)) for split in splits)
  if early.watch == 'validation_accuracy' and not held:
    raise ConfigError("early_stop.watch='validation_accuracy' needs held-out rows; raise data.validation")
  if early.watch == 'accuracy_public' and not (source.public_test and len(source.public_test[1])):
    raise ConfigError(
      "early_stop.watch='accuracy_public' needs public data with a test set; choose another data.public"
    )
  for field, usual in (('client_store', ''), ('eval_clients', 0)):
    if config[field] != usual:
      raise ConfigError(
        f'{field}={config[field]!r} cannot be combined with early_stop, which needs all clients; set it to {usual!r}'
      )
  if last and config.plan.name != 'synchronous':
    raise ConfigError(
      f'plan.name={config.plan.name!r} cannot be combined with early_stop: a rarely sampled client would stop before '
      "it has learned; set it to 'synchronous'"
    )
  return early


def check_batches(blocks, source):
  """Checks that one mini-batch of images fits in memory.

  Raises:
    ConfigError: that names the field.
  """
  numbers = math.prod(source.train_image.shape[1:])
  for number, block in enumerate(blocks):
    where = 'method' if number == len(blocks) - 1 else f'before[{number}]'
    for field, value in block.method.items():
      if field.endswith('batch'):
        what = f'{where}.{field}={value}'
        _check_memory(4 * numbers * value, what, f'images of {numbers} numbers', 'lower it')


def check_public(blocks, splits):
  """Warns of methods that use all public rows where the seeds have unequal numbers of them.

  Their tables have one width, and a seed with fewer rows uses some of its own twice: it is not what it is alone.
  """
  sizes = sorted({len(split.public) for split in splits})
  for block in blocks:
    subset = block.method.get('subset', sizes[0])
    if len(sizes) > 1 and not 0 < subset <= sizes[0]:
      warnings.warn(
        f'the seeds have {sizes[0]} to {sizes[-1]} public rows, and method.subset={subset} asks for all of them, so '
        f'that seeds with fewer use some twice; set method.subset to at most {sizes[0]}, or run each seed by itself',
        stacklevel=2,
      )


def check_states(tree, clients):
  """Checks that states fit in memory. `tree`: of ShapeDtypeStruct.

  Raises:
    ConfigError: that names what makes them smaller.
  """
  size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
  what = f'data.clients={clients} with the models of groups'
  _check_memory(size, what, 'states', 'lower data.clients, the seeds or the width of the models, or set client_store')


def _check_memory(size, what, of, remedy):
  there = devices.memory() * hosts.count()
  if size > there:
    raise ConfigError(f'{what} needs {size / 1e9:,.1f} GB for {of}, and there are {there / 1e9:,.1f} GB; {remedy}')
