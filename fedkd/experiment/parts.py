"""From the fields of a config to data, splits, groups, methods and plans."""

import inspect

import numpy as np

from fedkd import config as configs
from fedkd import methods, models
from fedkd import plan as plans
from fedkd.data import partition, sources, split, transforms
from fedkd.errors import ConfigError
from fedkd.models.base import Preprocessed
from fedkd.types import Group

PHASE_FIELDS = ('rounds', 'early_stop')  # of a block; the others are its method's


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


def make_plan(values, sizes, rounds):
  try:
    return configs.build_block(plans, values)(sizes, rounds)
  except ConfigError:
    raise
  except ValueError as error:
    raise ConfigError(f'plan {values["name"]} cannot be built: {error}') from error


def make_method(block, tx):
  values = {k: v for k, v in block.items() if k not in PHASE_FIELDS}
  if block['rounds'] < 1:
    raise ConfigError(f'before: rounds={block["rounds"]} of {configs.label(block)} must be at least 1')
  return configs.build_block(methods, values, tx=tx)
