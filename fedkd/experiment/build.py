"""From a config to the parts of a run: the only place that reads configs."""

import inspect
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import config as configs
from fedkd import methods, models, optimizers, sharding
from fedkd import plan as plans
from fedkd.data import partition, sources, split, transforms
from fedkd.errors import ConfigError
from fedkd.experiment import devices, early_stopping, hosts, offloaded_phase, phase, warm_start
from fedkd.experiment.programs import ExecutionOptions
from fedkd.federation import Federation, everybodys, table
from fedkd.federation import initial_variables as fresh_variables
from fedkd.models import pretrained
from fedkd.models.base import Preprocessed
from fedkd.types import ExampleIndices, Group, Pool

PHASE_FIELDS = ('rounds', 'early_stop')  # of a block; the others are its method's
PADDING_ID = 2**30  # the first number of clients that do not exist


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


def build(config, beside='.', dry=False, evaluate=None) -> Experiment:
  """Checks a config, loads its data and makes the parts of its run; nothing is written or trained.

  Args:
    config: ConfigDict.
    beside: the folder in which `init_from` looks for another run.
    dry: everything but the models' weights, of which only the shapes are made: nothing is compiled, nothing can run.
    evaluate: int[K], the clients to look at, if not those that the config says.

  Raises:
    ConfigError: in one sentence, for anything that cannot run.
  """
  configs.check(config)
  mesh = devices.mesh(config.devices)  # before anything else starts JAX
  source = load_data(config)
  tx = configs.build_block(optax, config.optimizer)
  tx = optimizers.scheduled(tx, config.milestones, config.decay)  # rounds of a phase, of whichever it is
  blocks = [
    *({'rounds': 1, **dict(b)} for b in config.before),
    {**config.method, 'rounds': config.rounds, 'early_stop': config.early_stop},
  ]
  made = [_method(block, tx) for block in blocks]
  groups = make_groups(config, source)
  splits = [make_split(config, source, seed) for seed in config.seeds]
  stops = [_early_stop(block, p == len(config.before), config, source, splits) for p, block in enumerate(blocks)]
  example = jax.ShapeDtypeStruct(source.train_image.shape[1:], source.train_image.dtype)
  initial = lambda how=None: initial_variables(groups, config.seeds, example, how)
  # What runs once need not be fast, and LLVM takes seconds per architecture to make it so.
  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None
  variables = jax.eval_shape(initial) if dry else _with_weights(config.groups, initial(cheap))
  _check_lone_examples(groups, variables, splits)
  if config.init_from and not dry:
    variables = warm_start.read(config, pathlib.Path(beside), variables)
  federation = sharding.replicate(federate(source, splits, groups, mesh), None if dry else mesh)
  watched = evaluated(config) if evaluate is None else evaluate
  options = ExecutionOptions(config.seed_axis, config.chunk, config.eval_every, config.eval_batch)
  phases, before = [], variables
  for p, (block, method) in enumerate(zip(blocks, made, strict=True)):
    sizes = [len(g.ids) for g in groups]
    rhythm = config.plan if p == len(config.before) else {'name': 'synchronous'}
    plan = _plan(rhythm, sizes, block['rounds'])
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 1 + p) for seed in config.seeds])
    common = (configs.label(block), method, plan, block['rounds'], keys, federation, watched, before, options)
    try:
      if config.client_store:
        one = offloaded_phase.make(*common, config.client_store)
      else:
        one = phase.make(*common, mesh, stops=bool(stops[p]))
    except ValueError as error:
      if hosts.lost(error):  # no matter of the method
        raise
      reason = str(error).split('\n')[0]
      raise ConfigError(f'method {configs.label(block)} does not fit its models or messages: {reason}') from error
    phases.append(one)
    if p < len(config.before):
      before = jax.eval_shape(one.handover, one.state)
  return Experiment(config, source, splits, groups, federation, watched, variables, tuple(phases), tuple(stops))


def _plan(values, sizes, rounds):
  try:
    return configs.build_block(plans, values)(sizes, rounds)
  except ConfigError:
    raise
  except ValueError as error:
    raise ConfigError(f'plan {values["name"]} cannot be built: {error}') from error


def _method(block, tx):
  values = {k: v for k, v in block.items() if k not in PHASE_FIELDS}
  if block['rounds'] < 1:
    raise ConfigError(f'before: rounds={block["rounds"]} of {configs.label(block)} must be at least 1')
  return configs.build_block(methods, values, tx=tx)


def _early_stop(block, last, config, source, splits) -> early_stopping.EarlyStop | None:
  """The `early_stop` of a phase, None without one. `last`: whether the phase follows `config.plan`.

  Raises:
    ConfigError: for a field or a value that cannot be.
  """
  fields = block.get('early_stop')
  if not fields or fields.get('watch') == '':
    return None
  configs.check_known(fields, early_stopping.EarlyStop._fields, 'early_stop')
  if fields.get('watch') not in early_stopping.WATCH:
    raise ConfigError(
      f'early_stop.watch={fields.get("watch")!r} is unknown; choose one of {", ".join(early_stopping.WATCH)}'
    )
  early = early_stopping.EarlyStop(**fields)
  if early.patience < 1:
    raise ConfigError(f'early_stop.patience={early.patience} must be at least 1')
  if not 0 <= early.min_delta < 1:
    raise ConfigError(
      f'early_stop.min_delta={early.min_delta} must be at least 0 and below 1; accuracies are fractions'
    )
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
        f'{field}={config[field]!r} does not go with early_stop, which needs all clients; set it to {usual!r}'
      )
  if last and config.plan.name != 'synchronous':
    raise ConfigError(
      f'plan.name={config.plan.name!r} does not go with early_stop: who is seldom drawn would stop before it has '
      "learned; set it to 'synchronous'"
    )
  return early


def load_data(config) -> sources.Source:
  """The data set of a config, with its public set behind it if it names one."""
  where, size = config.data.dir or None, config.data.size
  fit = lambda source: sources.resize(source, size) if size else source
  private = sources.load(config.data.name, where, config.data.label, configs.freeze(config.data.keep), size)
  private = fit(_some(private, config.data.rows, 'data.rows'))
  if not config.data.public:
    return private
  return sources.combine(
    private,
    fit(_some(sources.load(config.data.public, where, size=size), config.data.public_rows, 'data.public_rows')),
  )


def _some(source, limit, field) -> sources.Source:
  """A random choice of `limit` training images, the same for all seeds; all of them for 0."""
  found = len(source.train_label)
  if limit > found:
    raise ConfigError(f'{field}={limit} is more than the {found} images of {source.name}; lower it, or set it to 0')
  if not limit:
    return source
  pick = np.sort(np.random.default_rng(0).permutation(found)[:limit])
  origin = None if source.origin is None else source.origin[pick]
  return source._replace(train_image=source.train_image[pick], train_label=source.train_label[pick], origin=origin)


def make_groups(config, source) -> tuple:
  """The groups of a config, clients numbered in their order unless a group says what its `first` is: several groups may
  hold the same clients (HeteroFL's widths that change, Diao, Ding and Tarokh, 2021).

  Raises:
    ConfigError: for an unknown architecture, a missing, unknown or impossible field, or groups that do not hold exactly
      the clients 0 .. `data.clients` - 1.
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
    given = _entry(entry, i)
    name, count, start = given['model'], given.get('clients', 0), given.get('first', start)
    for field, value in (('clients', count), ('first', start)):
      if not isinstance(value, int):
        raise ConfigError(f'groups[{i}].{field}={value!r} must be a whole number')
    if count < 1:
      raise ConfigError(f'groups[{i}].clients={count} must be at least 1')
    fields = {k: v for k, v in given.items() if k not in ('model', 'clients', 'first', 'weights')}
    net = _network(name, fields, i, {'classes': classes, 'lowering': config.lowering})
    model = Preprocessed(net, mean, scale, config.data.crop, config.data.flip)
    groups.append(Group(_label(name, fields), model, np.arange(start, start + count, dtype=np.int32)))
    start += count
  _check_clients(groups, config.data.clients)
  return tuple(groups)


def _check_clients(groups, clients):
  held = np.unique(np.concatenate([g.ids for g in groups]))
  if len(held) != clients:
    raise ConfigError(f'groups have {len(held)} clients but data.clients={clients}; make them equal')
  if held[0] < 0 or held[-1] >= clients:
    raise ConfigError(
      f'groups have clients from {held[0]} to {held[-1]} and leave some out; let `first` number them 0 to {clients - 1}'
    )


def _entry(entry, i) -> dict:
  if not isinstance(entry, dict | configs.ConfigDict) or 'model' not in entry:
    raise ConfigError(
      f'groups[{i}] has no model: {configs.to_json(entry)!r}; give {{"model": ..., "clients": ...}} with one of '
      f'{", ".join(models.__all__)}, or module:Class'
    )
  return dict(entry)


def _network(name, fields, i, common):
  """The network of group `i` with the `fields` of its entry and those that all networks have in `common`."""
  make = _architecture(name, i)
  known = configs.fields(make, ('parent', 'name'))
  if lacking := [field for field in common if field not in known]:
    raise ConfigError(
      f'groups[{i}].model={name!r} has no field {lacking[0]!r}; add it, as fedkd/models/__init__.py says'
    )
  own = {field: usual for field, usual in known.items() if field not in common}
  configs.check_known(fields, own, f'groups[{i}], a {name},')
  if lacking := [field for field, usual in own.items() if usual is inspect.Parameter.empty and field not in fields]:
    raise ConfigError(f'groups[{i}], a {name}, needs a value for {lacking[0]!r}; add it to the entry')
  try:
    return make(**configs.freeze(fields), **common)
  except (TypeError, ValueError) as error:
    raise ConfigError(f'groups[{i}], a {name}, cannot be made: {error}') from error


def _architecture(name, i):
  choices = {n: getattr(models, n) for n in models.__all__}
  if name not in choices and not callable(name) and ':' not in str(name):
    raise ConfigError(f'groups[{i}].model={name!r} is unknown; choose one of {", ".join(choices)}, or module:Class')
  make = choices.get(name) or configs.resolve(name, models, f'groups[{i}].model')
  if not callable(make):
    raise ConfigError(f'groups[{i}].model={name!r} is no class; give one of {", ".join(choices)}, or module:Class')
  return make


def _label(name, fields) -> str:
  widths = next((v for v in fields.values() if isinstance(v, tuple | list)), ())
  return ' '.join([str(name), '-'.join(map(str, widths))]).strip()


def make_split(config, source, seed) -> split.Split:
  """Who owns which rows, by the config's partitioner, and what everybody does with them, by its protocol."""
  make = configs.resolve(config.data.partition, partition, 'data.partition', ('labels', 'clients', 'seed'))
  own = len(source.train_label) - source.public
  known = {'origin': None if source.origin is None else source.origin[:own], **config.data}
  extra = {name: known[name] for name in configs.fields(make, ('labels', 'clients', 'seed')) if name in known}
  parts = make(source.train_label[:own], config.data.clients, seed, **extra)
  protocol = configs.resolve(config.data.protocol, split, 'data.protocol', ('source', 'parts', 'seed'))
  shares = (config.data.validation, config.data.public_share, config.data.test_share, config.data.aligned)
  return protocol(source, parts, seed, *shares)


def initial_variables(groups, seeds, example, compiler_options=None) -> tuple:
  """Initial {'params', 'batch_stats'} per group, leaves [seeds, 1, ...] (`federation.initial_variables`).

  Args:
    example: ShapeDtypeStruct of one example.
    compiler_options: as in `jax.jit`; none under a transformation.

  Raises:
    ConfigError: if an architecture cannot take such examples.
  """

  def of_group(group):
    init = jax.jit(lambda key: fresh_variables(key, group.model, example), compiler_options=compiler_options)
    try:
      made = [init(jax.random.key(seed)) for seed in seeds]
    except (ValueError, TypeError) as error:
      raise ConfigError(f'groups, {group.name}: {str(error).splitlines()[0]}') from error
    return jax.tree.map(lambda *a: jnp.stack(a)[:, None], *made)

  return tuple(of_group(group) for group in groups)


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
  count = config.data.clients
  if not 0 < config.eval_clients < count:
    return np.arange(count)
  return np.sort(np.random.default_rng(config.plan.seed).choice(count, config.eval_clients, replace=False))


def owned(one) -> list:
  """All training rows of every client in a split, those it shares last."""
  return [np.concatenate(rows) for rows in zip(one.private, one.shared, strict=True)]


def _stack(trees):
  return jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *trees)


def _tables(lists, ids, mesh) -> ExampleIndices:
  """The rows of the clients `ids`, leaves [seeds, n, ...], all seeds padded alike; `lists`: per seed, per client.

  Clients that only make n a multiple of the devices own nothing and have numbers of their own.
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
    _everybodys([s.public for s in splits]) if some or source.public else None,
  )
