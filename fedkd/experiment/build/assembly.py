"""From a config to the parts of a run: the only place that reads configs."""

import functools
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import config as configs
from fedkd import sharding
from fedkd.checks import blame, returned
from fedkd.checks.kinds import THREEFRY
from fedkd.data import sources
from fedkd.errors import ConfigError
from fedkd.evaluation import evaluated_of
from fedkd.experiment import offloaded_phase, phase, warm_up
from fedkd.experiment.build.checks import check_batches, check_public, check_states, make_early_stop
from fedkd.experiment.build.from_config import (
  load_data,
  make_blocks,
  make_method,
  make_plan,
  make_split,
  traced_numbers,
)
from fedkd.experiment.build.groups import make_groups
from fedkd.experiment.hosts import devices, hosts
from fedkd.experiment.programs import ExecutionOptions, Task
from fedkd.experiment.storage import warm_start
from fedkd.federation import Federation, everybodys, table
from fedkd.models import pretrained
from fedkd.models.base import class_of
from fedkd.models.initial import group_variables
from fedkd.types import ExampleIndices, Pool

PADDING_ID = 2**30  # padding clients are numbered from here


class Experiment(NamedTuple):
  """The parts of a run."""

  config: Any
  source: sources.Source
  splits: list  # per seed, of split.Split
  groups: tuple  # of Group
  federation: Federation  # with tables [seeds, ...]
  evaluated: np.ndarray  # int[K], the clients to evaluate
  variables: tuple  # per group, what the first phase starts from, leaves [seeds, 1 or n, ...]
  phases: tuple  # of phase.Phase
  stops: tuple  # per phase, early_stopping.EarlyStop or None
  decay: float  # the largest of BatchNorm's running statistics that start afresh, 0 without any


def build(config, beside='.', dry=False, evaluate=None) -> Experiment:
  """Checks a config, loads its data and builds the parts of its run; nothing is written or trained.

  Args:
    config: ConfigDict.
    beside: the folder in which `init_from` looks for another run.
    dry: weights are shapes only: nothing is compiled, nothing can run.
    evaluate: int[K], the clients to evaluate, if not those of the config.

  Raises:
    ConfigError: in one sentence, for anything that cannot run.
  """
  config = configs.migrate(config)
  configs.check(config)
  mesh = devices.mesh(config.devices)  # before anything else starts JAX
  source = load_data(config)
  blocks = make_blocks(config)
  groups = make_groups(config, source)
  made = [make_method(block, config, groups) for block in blocks]
  check_batches(blocks, source)
  splits = _splits(config, source)
  check_public(blocks, splits)
  stops = [make_early_stop(block, p == len(config.before), config, source, splits) for p, block in enumerate(blocks)]
  example = jax.ShapeDtypeStruct(source.train_image.shape[1:], source.train_image.dtype)
  # Programs that run once need not be fast, and LLVM takes seconds per architecture to optimise them.
  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None
  initial = initialisers(groups, example, cheap, config.initial)
  with warm_up.decays() as found:
    variables = initial_shapes(groups, initial, config.seeds)
  trained_before = config.init_from or any(dict(entry).get('weights') for entry in configs.entries(config))
  if trained_before and config.initial == 'own':
    raise ConfigError("initial='own' cannot be combined with init_from or with weights of groups; set it to 'equal'")
  decay = 0.0 if trained_before else max(found, default=0.0)
  check_states(variables, config.data.clients)
  _check_lone_examples(groups, variables, splits)
  if config.init_from and not dry:
    variables = warm_start.read(config, pathlib.Path(beside), variables, source)
  elif not dry:
    variables = _with_weights(
      configs.entries(config), initial_variables(initial, _fixed(config.model_seed, config.seeds))
    )
  federation = sharding.replicate(federate(source, splits, groups, mesh), None if dry else mesh)
  watched = evaluated(config) if evaluate is None else evaluate
  options = ExecutionOptions(config.seed_axis, config.chunk, config.eval_every, config.eval_batch)
  phases, before = [], variables
  for p, (block, method) in enumerate(zip(blocks, made, strict=True)):
    sizes = [len(g.ids) for g in groups]
    rhythm = config.plan if p == len(config.before) else {'name': 'synchronous'}
    plan = make_plan(rhythm, sizes, block.rounds)
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed, impl=THREEFRY), 1 + p) for seed in config.seeds])
    numbers = traced_numbers(config, block)
    remade = functools.partial(make_method, block, config, groups) if numbers else None
    label = configs.label(block.method)
    trained = p > 0 or bool(config.init_from)
    task = Task(label, method, plan, block.rounds, keys, federation, watched, before, trained, options, numbers, remade)
    factory = configs.resolve(block.method['name'], configs.KINDS['method'].choices, 'method.name')
    blamed = [('method', factory), *(('model', class_of(g.model)) for g in groups)]
    failed = f'method {label} does not fit its models or messages'
    one: Any  # `phase.Phase`
    with returned.explained(blamed, failed, hosts.is_lost_host):
      if config.client_store:
        one = offloaded_phase.make(task, config.client_store)
      else:
        one = phase.make(task, mesh, bool(stops[p]))
    phases.append(one)
    if p < len(config.before):
      before = jax.eval_shape(one.handover, one.state)
  for one in phases:
    check_states(one.saved, config.data.clients)
  learned = federation, watched, variables, tuple(phases), tuple(stops), decay
  return Experiment(config, source, splits, groups, *learned)


def _fixed(seed, seeds) -> tuple:
  """What draws one thing in each of the seeds: one number for all of them, or, where it is None, their own."""
  return tuple(seeds) if seed is None else (seed,) * len(seeds)


def _splits(config, source) -> list:
  """The split of each of the seeds."""
  drawn = _fixed(config.data.seed, config.seeds)
  made = {seed: make_split(config, source, seed) for seed in dict.fromkeys(drawn)}
  return [made[seed] for seed in drawn]


def initialisers(groups, example, compiler_options=None, initial='equal') -> tuple:
  """Per group, key -> {'params', 'batch_stats'}, leaves [1 or n, ...] (`models.initial.group_variables`), jitted:
  traced once, for the shapes and for the weights.

  Args:
    example: ShapeDtypeStruct of one example.
    compiler_options: as in `jax.jit`.
    initial: as in `models.initial.group_variables`.
  """
  fresh = lambda group: lambda key: group_variables(key, group, example, initial)
  return tuple(jax.jit(fresh(group), compiler_options=compiler_options) for group in groups)


def initial_shapes(groups, made, seeds) -> tuple:
  """The shapes of `initial_variables`.

  Raises:
    ConfigError: if an architecture cannot take such examples.
  """

  def of_group(group, init):
    net = class_of(group.model)
    with blame.guard(f'groups, {group.name}: model', net, f'groups, {group.name}'):
      shapes = init.eval_shape(jax.random.key(0, impl=THREEFRY))
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct((len(seeds), *s.shape), s.dtype), shapes)

  return tuple(map(of_group, groups, made))


def initial_variables(made, seeds) -> tuple:
  """Initial variables per group, leaves [seeds, 1 or n, ...] of NumPy, for which no program is compiled per shape;
  `made`: `initialisers`."""

  def of_group(init):
    return jax.tree.map(lambda *a: np.stack(a), *[init(jax.random.key(seed, impl=THREEFRY)) for seed in seeds])

  return tuple(map(of_group, made))


def _with_weights(entries, variables) -> tuple:
  """Initial variables, where a group names a file of `weights` those of the file (`models.pretrained`)."""

  def of_group(entry, initial):
    if not entry.get('weights'):
      return initial
    seeds = jax.tree.leaves(initial)[0].shape[0]
    rows = [jax.tree.map(lambda a, s=s: a[s, 0], initial) for s in range(seeds)]
    loaded = [pretrained.load(entry['weights'], row, entry['model']) for row in rows]
    return jax.tree.map(lambda *a: jnp.stack(a)[:, None], *loaded)

  return tuple(of_group(dict(entry), initial) for entry, initial in zip(entries, variables, strict=True))


def _check_lone_examples(groups, variables, splits):
  for group, initial in zip(groups, variables, strict=True):
    lone = [c for c in group.ids if any(len(s.private[c]) + len(s.shared[c]) == 1 for s in splits)]
    if initial['batch_stats'] and lone:
      raise ConfigError(
        f'client {lone[0]} has a single training example, on which the BatchNorm of {group.name} is not defined; '
        'lower data.validation or data.clients, or choose another data.partition'
      )


def evaluated(config) -> np.ndarray:
  """The clients to evaluate: all, or a sample fixed by the plan's seed."""
  seed = config.plan.get('seed', 0)  # a plan without one is refused when it is made
  return evaluated_of(config.data.clients, config.eval_clients, seed)


def owned(one) -> list:
  """All training rows of every client in a split, those it shares last."""
  return [np.concatenate(rows) for rows in zip(one.private, one.shared, strict=True)]


def _stack(trees):
  return jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *trees)


def _tables(lists, ids, mesh) -> ExampleIndices:
  """The rows of the clients `ids`, leaves [seeds, n, ...], all seeds padded alike; `lists`: per seed, per client.

  Clients that only pad n to a multiple of the devices own no examples; their numbers begin at PADDING_ID.
  """
  extra = sharding.rows(len(ids), mesh) - len(ids)
  every = np.concatenate([ids, PADDING_ID + np.arange(extra, dtype=np.int32)])
  widest = [rows[c] for rows in lists for c in ids]
  nothing = [np.zeros(0, np.int32)] * extra
  return _stack([table([*(rows[c] for c in ids), *nothing], every, widest) for rows in lists])


def _everybodys(lists) -> ExampleIndices:
  """Rows that belong to no one client, leaves [seeds, ...]; `lists`: one array per seed."""
  width = max(map(len, lists))
  tables = [everybodys(rows) for rows in lists]
  return _stack([one._replace(index=np.pad(one.index, (0, width - len(one.index)))) for one in tables])


def federate(source, splits, groups, mesh=None) -> Federation:
  """The federation of a data set's splits, one per seed: tables have a leading axis [seeds]."""
  own, shared = [owned(s) for s in splits], [s.shared for s in splits]
  some = any(len(rows) for s in shared for rows in s)
  return Federation(
    groups,
    Pool(jnp.asarray(source.train_image), jnp.asarray(source.train_label)),
    tuple(_tables(own, g.ids, mesh) for g in groups),
    _everybodys([np.concatenate(rows) for rows in own]),
    tuple(_tables(shared, g.ids, mesh) for g in groups) if some else None,
    _everybodys([s.public for s in splits]) if any(len(s.public) for s in splits) else None,
  )
