"""Which rows the suites of `launch.bench` have."""

import itertools
import os
from collections.abc import Sequence
from typing import NamedTuple

from fedkd.models import MLP
from launch.tools.speed.cases import Case

LAYOUTS = ('contiguous', 'channels_last')
PRECISIONS = ('highest', 'tensorfloat32', 'bfloat16')
SEEDS = (1, 2, 3)


class Config(NamedTuple):
  """What distinguishes the rows of a case.

  engine: 'fedkd'; 'one model', a single net on a batch as large as all clients' together; 'jit loop', a call a batch;
    'torch'; 'torch, files', which saves and loads every client's model; 'torch vmap', stacked models; 'flower', a
    simulation with PyTorch.
  """

  engine: str = 'fedkd'
  lowering: str = 'auto'  # of the convolution; for PyTorch its memory format
  mapping: str = 'one by one'  # or 'chunks', 'vmap'; 'auto' and 'one batch' are self-explanatory
  devices: int = 1
  precision: str = 'highest'  # jax_default_matmul_precision; 'bfloat16': also of images, maps and convolutions
  backend: str = 'cpu'  # or 'gpu', where PyTorch works too
  seeds: int = 1
  seed_axis: str = ''  # several seeds as one program, 'map' or 'vmap'; 'apart': run after run


def chunk_of(case: Case, config: Config) -> int:
  """Clients of a case that are mapped at once."""
  slots = case.clients // config.devices
  return {'chunks': min(case.chunk, slots), 'vmap': slots}.get(config.mapping, 1)


def configs(suite: str, case: Case, quick: bool, precisions: Sequence[str] = PRECISIONS) -> list[Config]:
  """The rows of a suite for one case in some precisions, PyTorch's first."""
  rows = {'cpu': _cpu, 'gpu': _gpu, 'peers': _peers, 'seeds': _seeds}[suite](case, quick)
  return [row for row in rows if row.precision in precisions]


def _mappings(case):
  return ['one by one', 'chunks', 'vmap'] if case.chunk < case.clients else ['one by one', 'vmap']


def _cpu(case, quick):
  cores = os.cpu_count()
  devices = [1] if cores == 1 or case.clients % cores else [1, cores]
  dense = isinstance(case.nets[0], MLP)
  lowerings = ['auto'] if quick else ['matmul'] if dense else ['native', 'matmul']
  mappings = ['chunks' if dense else 'one by one'] if quick else _mappings(case)  # as `sharding.mapped_at_once`
  torch = [Config('torch', layout) for layout in LAYOUTS]
  return torch + [Config('fedkd', *rest) for rest in itertools.product(lowerings, mappings, devices)]


def _gpu(case, quick):
  lowerings = ['auto'] if quick else ['native', 'matmul']
  if case.updates:  # one client at a time, so nothing is mapped; the pools of these nets are float32
    precisions, mappings, stacked, single = PRECISIONS[:2], ['auto'], [], []
  else:
    precisions, mappings, single = PRECISIONS, ['vmap'] if quick else _mappings(case), ['native']
    stacked = [mapping for mapping in mappings if mapping != 'one by one']
  kinds = [
    *(('torch', layout, 'one by one') for layout in LAYOUTS),
    *(('torch vmap', 'contiguous', mapping) for mapping in stacked),
    *(('one model', lowering, 'one batch') for lowering in single),
    *(('fedkd', *how) for how in itertools.product(lowerings, mappings)),
  ]
  return [Config(*kind, 1, precision, 'gpu') for kind, precision in itertools.product(kinds, precisions)]


def _peers(case, quick):
  del quick
  torch = [Config(engine, layout) for engine in ('torch', 'torch, files') for layout in LAYOUTS]
  others = [Config('jit loop', 'native'), *(Config('flower', layout) for layout in LAYOUTS)]
  others *= case.method == 'private'  # they know no method
  return [*torch, *others, *(c for c in _cpu(case, True) if c.engine == 'fedkd')]


def _seeds(case, quick):
  del case, quick
  axes = lambda seeds: ['apart', 'map', 'vmap'] if seeds > 1 else ['apart']  # one seed is not mapped at all
  return [Config(mapping='auto', seeds=seeds, seed_axis=axis) for seeds in SEEDS for axis in axes(seeds)]
