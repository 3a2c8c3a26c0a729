"""From the fields of a config to data, splits, optimizers, methods and plans."""

from typing import NamedTuple

import numpy as np
import optax

from fedkd import codecs, optimizers, schedules
from fedkd import config as configs
from fedkd.checks import blame
from fedkd.data.splits import personal_splits, partition, skews, split
from fedkd.data import sources
from fedkd.errors import ConfigError
from fedkd.experiment.build.groups import OPTIMIZER_FIELDS
from fedkd.plan import Plan
from fedkd.types import Method

PARTITIONS = configs.functions(partition) | configs.functions(skews) | configs.functions(personal_splits)
GIVEN = ('labels', 'clients', 'seed')  # what every partition is passed
PHASE_FIELDS = ('rounds', 'early_stop')  # of an entry of `before`; its other fields are the method's


class Block(NamedTuple):
  """A phase as its config describes it."""

  method: dict  # name and hyperparameters
  rounds: int
  early_stop: dict  # {}: none


def make_blocks(config) -> list[Block]:
  """The phases of a run, the last that of `config.method`, whose own arguments may be called as fields of a phase."""

  def before(entry):
    method = {k: v for k, v in entry.items() if k not in PHASE_FIELDS}
    return Block(method, entry.get('rounds', 1), entry.get('early_stop') or {})

  return [*map(before, config.before), Block(dict(config.method), config.rounds, config.early_stop)]


def load_data(config) -> sources.Source:
  """The data set of a config, with its public set appended if it names one."""
  where, size, limit = config.data.dir or None, config.data.size, config.data.limit * 1e9
  fit = lambda source: sources.resize(source, size, limit) if size else source
  keep, angles = configs.freeze(config.data.keep), configs.freeze(config.data.angles)
  private = sources.load(config.data.name, where, config.data.label, keep, size, angles, limit)
  private = fit(_some(private, config.data.rows, 'data.rows'))
  if config.data.merge_test or _tests_its_own(_partition(config)):
    private = sources.merged(private, trainable=config.data.merge_test)
  if not config.data.public:
    return private
  public = sources.load(config.data.public, where, size=size, limit=limit)
  return sources.combine(private, fit(_some(public, config.data.public_rows, 'data.public_rows')))


def _partition(config):
  return configs.resolve(config.data.partition, PARTITIONS, 'data.partition')


def _tests_its_own(make) -> bool:
  """Whether a partition takes official test rows for its clients' own."""
  return 'test_labels' in configs.fields(make)


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


def make_split(config, source, seed) -> split.Split:
  """Who owns which rows, by the config's partitioner, and what they are used for, by its protocol."""
  make = _partition(config)
  if _tests_its_own(make):
    _check_tests(config)
  end = len(source.train_label) - source.public
  own = end - source.tested
  known = {'origin': None if source.origin is None else source.origin[:own], **config.data}
  known['test_labels'] = source.train_label[own:end]
  extra = {name: known[name] for name in configs.fields(make, GIVEN) if name in known}
  configs.check_call(_field(config, 'partition'), make, GIVEN, extra)
  parts = blame.call('data.partition', make, source.train_label[:own], config.data.clients, seed, **extra)
  parts, tests = parts if _tests_its_own(make) else (parts, None)
  if blame.is_foreign(make) or tests:
    _check_parts(make, parts, config.data.clients, own)
  if tests:
    _check_parts(make, tests, config.data.clients, end, own)
  protocol = configs.resolve(config.data.protocol, configs.functions(split), 'data.protocol')
  shares = {name: config.data[name] for name in ('validation', 'public_share', 'test_share', 'aligned')}
  configs.check_call(_field(config, 'protocol'), protocol, ('source', 'parts', 'seed', *shares))
  made = blame.call('data.protocol', protocol, source, parts, seed, *shares.values())
  if not isinstance(made, split.Split):
    raise ConfigError(
      f'data.protocol {blame.name_of(protocol)}{blame.place(protocol)} returned {type(made).__name__}; let it return a '
      'fedkd.data.splits.split.Split'
    )
  return made._replace(test=tests) if tests else made


def _check_tests(config):
  """Checks that nothing else makes test rows than the partition."""
  for field in ('test_share', 'merge_test'):
    if config.data[field]:
      raise ConfigError(
        f'data.{field}={config.data[field]} cannot be combined with {_field(config, "partition")}, whose clients have '
        f'test rows out of the official test set; set it to {type(config.data[field])(0)}'
      )


def _field(config, name) -> str:
  return f'data.{name}={configs.to_json(config.data[name])!r}'


def _check_parts(make, parts, clients, count, first=0):
  """Checks what a partition returned: rows from `first` to below `count`."""
  what = f'data.partition {blame.name_of(make)}{blame.place(make)} returned'
  if not isinstance(parts, list | tuple) or len(parts) != clients:
    many = len(parts) if isinstance(parts, list | tuple) else type(parts).__name__
    raise ConfigError(f'{what} {many} for data.clients={clients}; let it return one array of row numbers per client')
  for k, part in enumerate(map(np.asarray, parts)):
    if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer) or not len(part):
      raise ConfigError(f'{what} {part.dtype}{list(part.shape)} for client {k}; let it be row numbers, at least one')
    if part.min() < first or part.max() >= count or len(np.unique(part)) < len(part):
      raise ConfigError(
        f'{what} rows {part.min()} to {part.max()} for client {k}; let them be distinct, from {first} to below {count}'
      )


def make_plan(values, sizes, rounds) -> Plan:
  """The plan of a config block, for the given numbers of clients per group.

  Raises:
    ConfigError: for a plan that does not fit these clients.
  """
  planner = configs.build('plan', values)
  try:
    made = planner(sizes, rounds)
  except ConfigError:
    raise
  except MemoryError as error:
    raise ConfigError(f'rounds={rounds} of {sum(sizes)} clients are too many for memory; lower them') from error
  except Exception as error:
    if blame.is_foreign(planner):
      raise ConfigError(blame.raised('plan', planner, error)) from error
    if not isinstance(error, ValueError):
      raise
    raise ConfigError(f'plan {configs.label(values)} cannot be built: {error}') from error
  if not isinstance(made, Plan):
    raise ConfigError(
      f'plan {blame.name_of(planner)}{blame.place(planner)} returned {type(made).__name__}; let it return a Plan'
    )
  return made


def make_method(block: Block, config, groups) -> Method:
  """The method of one phase, whose clients train with the optimizer of their group.

  Args:
    block: of the phase.
    config: ConfigDict, for the optimizer and its schedule.
    groups: those of `make_groups`.

  Raises:
    ConfigError: for an unknown name or field, or a value that the factory refuses.
  """
  make = lambda entry: configs.build('method', block.method, make_optimizer(config, block.rounds, entry))
  own = [{k: entry[k] for k in OPTIMIZER_FIELDS if entry.get(k) is not None} for entry in configs.entries(config)]
  method = make({})
  if any(own):
    method = _with_optimizers(method, groups, [make(entry) if entry else method for entry in own])
  return _with_codecs(method, config)


def _with_codecs(method, config) -> Method:
  """`method`, its messages coded as the config says; itself where they are not."""
  up, down = (configs.build(field, config[field]) for field in ('codec_up', 'codec_down'))
  if configs.label(config.codec_up) == configs.label(config.codec_down) == 'identity':
    return method
  try:
    return codecs.coded(method, up, down)
  except ValueError as error:
    raise ConfigError(f'codec_down {configs.label(config.codec_down)}: {error}') from error


def _with_optimizers(method, groups, made) -> Method:
  """`method`, whose clients of group g are those of `made[g]`.

  The model identifies the group: it is static, and a distinct object in each.
  """
  of = lambda model: next(one for group, one in zip(groups, made, strict=True) if group.model is model).client
  init = lambda key, model, *rest: of(model).init(key, model, *rest)
  step = lambda key, t, model, *rest: of(model).step(key, t, model, *rest)
  return method._replace(client=method.client._replace(init=init, step=step))


def make_optimizer(config, rounds: int, entry=None) -> optax.GradientTransformation:
  """The optimizer of a phase, its learning rate following the phase's rounds.

  Args:
    config: ConfigDict.
    rounds: of the phase.
    entry: of a group, for a `learning_rate` or an `optimizer` of its own.

  Raises:
    ConfigError: for an unknown name or field, or a value that the factory refuses.
  """
  entry = entry or {}
  values = dict(entry.get('optimizer', config.optimizer))
  if 'learning_rate' in entry:
    values['learning_rate'] = entry['learning_rate']
  schedule, factors = dict(config.schedule), []
  if schedule.get('rounds') == 0:
    schedule['rounds'] = rounds
  factor = configs.build('schedule', schedule)
  if configs.label(schedule) != 'constant':
    factors.append(factor)
  if config.milestones:
    factors.append(schedules.milestones(config.milestones, config.decay))
  return optimizers.scheduled(configs.build('optimizer', values), *factors)
