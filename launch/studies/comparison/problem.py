"""A setting for one seed as arrays, all of which are arguments of the programs: of one shape for as many seeds and
settings as possible, so that they share their programs."""

import functools
from typing import NamedTuple

import jax
import numpy as np

from fedkd import config as base
from fedkd.checks.kinds import THREEFRY
from fedkd.data import sources
from fedkd.experiment.build import assembly
from fedkd.experiment.build.from_config import load_data, make_plan, make_split
from fedkd.experiment.build.groups import make_groups
from fedkd.experiment.build.normalisation import normalisation
from fedkd.plan import Plan
from fedkd.types import ExampleIndices
from launch.studies.comparison import settings

SHAPES = {
  'digits': (28, 28, 1),
  'letters': (28, 28, 1),
  'cifar10': (32, 32, 3),
  'cifar100': (32, 32, 3),
  'pacs': (96, 96, 3),
}
UNIT = 128  # tables are as long as a multiple of it, or a power of two times it


class Problem(NamedTuple):
  """What the methods of a setting meet with one seed."""

  groups: tuple  # of Group, equal objects for all seeds and settings of a tier
  arrays: tuple  # the fields of a `Federation` but its groups
  variables: tuple  # initial, per group
  key: jax.Array  # of the method's own rounds
  key_alone: jax.Array  # of rounds that its clients train alone before
  plan: Plan
  own: list  # per client int[n], its test rows of the pool
  held: list  # per client int[n], its validation rows
  image_bytes: int  # of one raw image


@functools.lru_cache(6)
def _source(suite, profile, name):
  """The data set of a setting, normalised once and outside the programs: a mean in them would be another program for
  every data set. Also how many bytes a raw image has."""
  config = settings.config_of(suite, profile, 'one', name)
  base.check(config)
  source = load_data(config)
  mean, scale = normalisation(config.data.normalise, source)
  image = ((source.train_image.astype(np.float32) - mean) * scale).astype(np.float32)
  test = ((source.test_image.astype(np.float32) - mean) * scale).astype(np.float32)
  return source._replace(train_image=image, test_image=test), int(np.prod(image.shape[1:]))


@functools.cache
def groups_of(suite: str, tier: str, classes: int) -> tuple:
  """The clients by architecture: one tuple for all settings, since programs are found by it."""
  config = settings.config_of(suite, 'whole', tier, next(iter(settings.settings(suite, 'whole'))))
  config.data.normalise = 'none'
  blank, label = np.zeros((2, *SHAPES[suite]), np.float32), np.arange(2, dtype=np.int32)
  names = tuple(map(str, range(classes)))
  return make_groups(config, sources.Source(suite, blank, label, blank[:0], label[:0], classes, names))


@functools.cache
def _initialisers(suite, tier, classes):
  """Programs that run once per seed need not be fast, and LLVM takes seconds per architecture to optimise them."""
  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None
  example = jax.ShapeDtypeStruct(SHAPES[suite], np.float32)
  return assembly.initialisers(groups_of(suite, tier, classes), example, cheap)


def make(cell_setting: tuple, seed: int) -> Problem:
  """The problem of (suite, profile, tier, name of the setting) for a seed."""
  suite, profile, tier, name = cell_setting
  config = settings.config_of(suite, profile, tier, name)
  source, image_bytes = _source(suite, profile, name)
  groups = groups_of(suite, tier, source.classes)
  split = make_split(config, source, seed)
  _, pool, *tables = assembly.federate(source, [split], groups)
  initial = _initialisers(suite, tier, source.classes)
  variables = jax.tree.map(lambda a: a[0], assembly.initial_variables(initial, (seed,)))
  plan = make_plan(config.plan, [len(g.ids) for g in groups], 10 * config.rounds)
  keys = (jax.random.fold_in(jax.random.key(seed, impl=THREEFRY), 1 + phase) for phase in range(2))
  arrays = (pool, *_padded(jax.tree.map(lambda a: a[0], tables)))
  return Problem(groups, arrays, variables, *keys, plan, split.test, split.validation, image_bytes)


def _padded(arrays) -> tuple:
  """Tables of row numbers, made longer so that other seeds and settings have equal shapes."""

  def of_table(table):
    if not isinstance(table, ExampleIndices):
      return table
    more = _length(table.index.shape[-1]) - table.index.shape[-1]
    padding = [(0, 0)] * (table.index.ndim - 1) + [(0, more)]
    return table._replace(index=np.pad(np.asarray(table.index), padding))

  return jax.tree.map(of_table, arrays, is_leaf=lambda node: isinstance(node, ExampleIndices))


def _length(count) -> int:
  """The least power of two times `UNIT` that is not less."""
  return UNIT * 2 ** max(0, int(np.ceil(np.log2(max(count, 1) / UNIT))))
