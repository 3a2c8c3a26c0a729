"""From a config to the parts of a run: the only place that reads configs, and the only one that jits."""

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import config as configs
from fedkd import evaluate, methods, models, round
from fedkd import plan as plans
from fedkd.data import partition, sources, transforms
from fedkd.errors import ConfigError
from fedkd.models.layers import Preprocessed
from fedkd.types import Data, Group, Method, Pool, Rows, State

# The winners of `launch/bench.py` (README, "Speed"): clients mapped at once, by backend and kind of network.
AUTO_CHUNK = {('cpu', 'convolution'): 1, ('cpu', 'dense'): 10}
ACCELERATOR_CHUNK = 100
MOST_ROUNDS = 1000  # of one call; its reports are kept on the device


class Experiment(NamedTuple):
  """The parts of a run. Its programs take and return states whose leaves have a leading axis of seeds."""

  config: Any
  method: Method
  groups: tuple  # of Group
  plan: plans.Plan
  source: sources.Source
  parts: list  # per seed, per client: training rows of the source
  held_out: list  # per seed, per client: validation rows
  clients: np.ndarray  # int[], the clients to evaluate
  variables: tuple  # per group, initial {'params', 'batch_stats'}
  init: Callable  # () -> State
  rounds: Callable  # (State, start, count) -> (State, Report with leaves [seeds, length, ...]); takes the State over
  length: int  # most rounds of one call
  hits: Callable  # (State, image uint8[seeds, EVAL_BLOCK, ...], label) -> int32[seeds, clients evaluated]


def build(config) -> Experiment:
  """Checks a config, loads its data and makes the parts of its run; nothing is written or trained.

  Raises:
    ConfigError: in one sentence, for anything that cannot run.
  """
  configs.check(config)
  source = sources.load(config.data.name, config.data.dir or None)
  tx = configs.build_block(optax, config.optimizer)
  method = configs.build_block(methods, config.method, tx=tx)
  groups = make_groups(config, source)
  plan = configs.build_block(plans, config.plan, sizes=[len(g.ids) for g in groups], rounds=config.rounds)
  splits = [split(config, source.train_label, seed) for seed in config.seeds]
  parts, held_out = ([s[i] for s in splits] for i in (0, 1))
  variables = initial_variables(groups, config.seeds, source.train_image.shape[1:])
  _refuse_lone_examples(groups, variables, parts)
  clients = evaluated(config)
  programs = _programs(config, method, groups, plan, source, parts, variables, clients)
  init, rounds = programs[:2]
  try:
    # A whole round in shapes: what does not fit together ends here, not after minutes of compilation.
    jax.eval_shape(lambda state: rounds(state, 0, 0), jax.eval_shape(init))
  except ValueError as error:
    reason = str(error).split('\n')[0]
    raise ConfigError(f'method {configs.label(config.method)} does not fit its models or messages: {reason}') from error
  return Experiment(config, method, groups, plan, source, parts, held_out, clients, variables, *programs)


def make_groups(config, source) -> tuple:
  """The groups of a config, clients numbered in their order.

  Raises:
    ConfigError: for an unknown architecture or field, or counts that do not add up to `data.clients`.
  """
  classes = config.data.classes or source.classes
  if classes < source.classes:
    raise ConfigError(
      f'data.classes={classes} is less than the {source.classes} classes of {source.name}, so labels would lie '
      f'outside the head; set it to at least {source.classes}, or to 0'
    )
  if not config.groups:
    raise ConfigError('groups=() names no client; give at least one {"model": ..., "clients": ...}')
  normalise = configs.resolve(config.data.normalise, transforms, 'data.normalise', ('train_image', 'name'))
  mean, scale = normalise(source.train_image, source.name)
  groups, start = [], 0
  for i, entry in enumerate(config.groups):
    fields = dict(entry)
    name, count = fields.pop('model'), int(fields.pop('clients', 0))
    if count < 1:
      raise ConfigError(f'groups[{i}].clients={count} must be at least 1')
    make = _architecture(name, i)
    known = [f for f in getattr(make, '__dataclass_fields__', {}) if f not in ('parent', 'name', 'classes', 'lowering')]
    configs.refuse_unknown(fields, known, f'groups[{i}], a {name},')
    net = make(**configs.tuples(fields), classes=classes, lowering=config.lowering)
    model = Preprocessed(net, mean, scale, config.data.crop, config.data.flip)
    groups.append(Group(_label(name, fields), model, np.arange(start, start + count, dtype=np.int32)))
    start += count
  if start != config.data.clients:
    raise ConfigError(f'groups have {start} clients but data.clients={config.data.clients}; make them equal')
  return tuple(groups)


def _architecture(name, i):
  choices = {n: getattr(models, n) for n in models.__all__}
  if name not in choices and not callable(name) and ':' not in str(name):
    raise ConfigError(f'groups[{i}].model={name!r} is unknown; choose one of {", ".join(choices)}, or module:Class')
  return choices.get(name) or configs.resolve(name, models, f'groups[{i}].model')


def _label(name, fields) -> str:
  widths = next((v for v in fields.values() if isinstance(v, tuple | list)), ())
  return ' '.join([str(name), '-'.join(map(str, widths))]).strip()


def split(config, label, seed):
  """(training rows, held-out rows) per client, by the config's partitioner."""
  make = configs.resolve(config.data.partition, partition, 'data.partition', ('labels', 'clients', 'seed'))
  extra = {'concentration': config.data.concentration} if 'concentration' in configs.fields(make) else {}
  parts = make(label, config.data.clients, seed, **extra)
  return partition.hold_out(parts, config.data.validation, seed)


def initial_variables(groups, seeds, image_shape) -> tuple:
  """Initial {'params', 'batch_stats'} per group, leaves [seeds, ...]: equal for one architecture and seed, whatever
  the method or the grouping.

  Raises:
    ConfigError: if an architecture cannot take images of this shape.
  """
  image = jnp.zeros((1, *image_shape), jnp.uint8)

  def of_group(group):
    init = jax.jit(lambda key: {'batch_stats': {}, **group.model.init(key, image, False)})
    keys = (jax.random.fold_in(jax.random.key(seed), 0) for seed in seeds)
    return _stack([init(jax.random.fold_in(key, zlib.crc32(repr(group.model.net).encode()))) for key in keys])

  try:
    return tuple(of_group(group) for group in groups)
  except ValueError as error:
    raise ConfigError(str(error)) from error


def _refuse_lone_examples(groups, variables, parts):
  for group, initial in zip(groups, variables, strict=True):
    lone = [c for c in group.ids if any(len(p[c]) == 1 for p in parts)]
    if initial['batch_stats'] and lone:
      raise ConfigError(
        f'client {lone[0]} has a single training example, on which the BatchNorm of {group.name} is not defined; '
        'lower data.validation or data.clients, or choose another data.partition'
      )


def evaluated(config) -> np.ndarray:
  """The clients to evaluate: all, or a sample fixed by the plan's seed."""
  count = config.data.clients
  if not 0 < config.eval_clients < count:
    return np.arange(count)
  return np.sort(np.random.default_rng(config.plan.seed).choice(count, config.eval_clients, replace=False))


def _stack(trees):
  return jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *trees)


def _rows(parts, ids) -> Rows:
  """Rows of the clients `ids`, leaves [seeds, n, ...], all seeds padded alike."""
  width = max(len(p[c]) for p in parts for c in ids)
  pad = lambda r: r._replace(index=np.pad(r.index, ((0, 0), (0, width - r.index.shape[1]))))
  return _stack([pad(partition.rows([p[c] for c in ids], ids)) for p in parts])


def _everyone(parts) -> Rows:
  """All training rows, leaves [seeds, ...]."""
  merged = [np.concatenate(p) for p in parts]
  width = max(map(len, merged))
  return _stack([Rows(np.pad(m, (0, width - len(m))), np.int32(len(m)), np.int32(-1)) for m in merged])


def over_seeds(function, axis):
  """Maps a function over the leading axis of seeds: 'vmap', or 'map' one after the other (bit-equal to single runs)."""

  def mapped(*args):
    if jax.tree.leaves(args)[0].shape[0] == 1:  # no loop, so that a donated state is updated in place
      return jax.tree.map(lambda a: a[None], function(*jax.tree.map(lambda a: a[0], args)))
    return jax.vmap(function)(*args) if axis == 'vmap' else jax.lax.map(lambda a: function(*a), args)

  return mapped


def _programs(config, method, groups, plan, source, parts, variables, clients):
  """(init, rounds, length, hits) of `Experiment`."""
  backend = jax.default_backend()
  axis = config.seed_axis if config.seed_axis != 'auto' else ('map' if backend == 'cpu' else 'vmap')
  convolution = any(leaf.ndim == 5 for leaf in jax.tree.leaves(variables))  # a kernel, and the seeds
  auto = AUTO_CHUNK.get((backend, 'convolution' if convolution else 'dense'), ACCELERATOR_CHUNK)
  chunk, length = config.chunk or auto, min(config.eval_every, config.rounds, MOST_ROUNDS)
  keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 1) for seed in config.seeds])
  pool = Pool(jnp.asarray(source.train_image), jnp.asarray(source.train_label))
  rows = tuple(_rows(parts, g.ids) for g in groups), _everyone(parts)
  who = tuple(jnp.asarray(w) for w in plan.who)
  data = lambda pool, rows: tuple(Data(pool, private, rows[1]) for private in rows[0])

  def init(pool, key, rows, variables):
    key_client, key_server, key_inbox = jax.random.split(key, 3)
    seen = data(pool, rows)

    def client(group, of_group, initial):
      def one(private):
        own = jax.random.fold_in(key_client, private.id)
        return method.client.init(own, group.model, of_group._replace(private=private), initial)

      return jax.vmap(one)(of_group.private)

    states = tuple(client(*each) for each in zip(groups, seen, variables, strict=True))
    server = method.server.init(key_server, groups, variables, seen)
    return State(states, server, round.fill_inbox(key_inbox, method, groups, server) if plan.stale else None)

  def rounds(pool, who, start, count, key, rows, state):
    return round.run(key, start, count, length, method, groups, state, data(pool, rows), who, chunk)

  def hits(state, image, label):
    picked = [np.flatnonzero(np.isin(g.ids, clients)) for g in groups]
    return jnp.concatenate(evaluate.hits(method, groups, state, image, label, picked, config.eval_batch))

  start_program = jax.jit(lambda pool, *args: over_seeds(functools.partial(init, pool), axis)(*args))
  round_program = jax.jit(
    lambda pool, who, start, count, *args: over_seeds(functools.partial(rounds, pool, who, start, count), axis)(*args),
    donate_argnums=6,
  )
  return (
    lambda: start_program(pool, keys, rows, variables),
    lambda state, start, count: round_program(pool, who, np.int32(start), np.int32(count), keys, rows, state),
    length,
    jax.jit(over_seeds(hits, axis)),
  )
