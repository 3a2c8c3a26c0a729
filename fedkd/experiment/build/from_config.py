"""From the fields of a config to data, splits, optimizers, methods and plans."""

import itertools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import optax

from fedkd import codecs, optimizers, schedules
from fedkd import config as configs
from fedkd.checks import blame
from fedkd.checks.method import check_method
from fedkd.data import sources, tables
from fedkd.data.splits import partition, split
from fedkd.errors import ConfigError, in_a_sentence
from fedkd.experiment.build.groups import OPTIMIZER_FIELDS
from fedkd.plan import Plan, fitting, of_planner
from fedkd.types import Method

TRACED = ('method', 'optimizer', 'schedule')  # blocks whose numbers programs may take as arguments
PHASE_FIELDS = ('rounds', 'early_stop')  # of an entry of `before`; its other fields are the method's


class Block(NamedTuple):
  """A phase as its config describes it."""

  method: dict  # name and hyperparameters
  rounds: int
  early_stop: dict  # {}: none
  field: str = 'method'  # of the config, where the method is


def make_blocks(config) -> list[Block]:
  """The phases of a run, the last that of `config.method`, whose own arguments may be called as fields of a phase."""

  def before(i, entry):
    method = {k: v for k, v in entry.items() if k not in PHASE_FIELDS}
    return Block(method, entry.get('rounds', 1), entry.get('early_stop') or {}, f'before[{i}]')

  last = Block(dict(config.method), config.rounds, config.early_stop)
  return [*itertools.starmap(before, enumerate(config.before)), last]


def traced_numbers(config, block: Block) -> dict[str, float]:
  """{field: value} of `config.traced` that matter to a phase.

  Raises:
    ConfigError: for a field that is not there, or is no number of a method, an optimizer or a schedule.
  """
  found = {}
  for field in config.traced:
    of, _, key = str(field).partition('.')
    value = config[of].get(key) if of in TRACED else None
    if not isinstance(value, float):
      raise ConfigError(
        f'traced has {field!r}, which is not a number with a decimal point of {", ".join(TRACED)}; give for example '
        "traced=('optimizer.learning_rate',)"
      )
    found[field] = value
  last = block.method == dict(config.method)
  return {field: value for field, value in found.items() if last or not field.startswith('method.')}


def load_data(config) -> sources.Source:
  """The data set of a config, with its public set appended if it names one."""
  where, size, limit = config.data.dir or None, config.data.size, config.data.limit * 1e9
  fit = lambda source: sources.resize(source, size, limit) if size else source
  keep, angles = configs.freeze(config.data.keep), configs.freeze(config.data.angles)
  private = sources.load(config.data.name, where, config.data.label, keep, size, angles, limit, _roles(config.data))
  if private.classes < 2:
    kept = ' after data.keep' if len(keep) else ''
    told = f'has a single class{kept}, {private.class_names[0]!r}, so that every prediction would be right'
    raise ConfigError(f'data.name={private.name} {told}; give two classes or more')
  private = fit(_some(private, config.data.rows, 'data.rows'))
  if config.data.merge_test or _tests_its_own(config):
    private = sources.merged(private, trainable=config.data.merge_test)
  if not config.data.public:
    return private
  roles = _roles(config.data)._replace(user='') if config.data.public.startswith('table:') else None
  public = sources.load(config.data.public, where, size=size, limit=limit, roles=roles)
  return sources.combine(private, fit(_some(public, config.data.public_rows, 'data.public_rows')))


def _roles(data) -> tables.Roles:
  """Of the columns of a table."""
  features = configs.freeze(data.columns)
  if odd := [column for column in features if not isinstance(column, str)]:
    raise ConfigError(f'data.columns={features!r} has {odd[0]!r}, which is no text; give names of columns')
  return tables.Roles(data.label, data.user, features, data.split, data.table_test, data.missing)


def _tests_its_own(config) -> bool:
  """Whether the partition takes official test rows for its clients' own."""
  choices = configs.KINDS['data.partition'].choices
  make = configs.resolve(config.data.partition.name, choices, 'data.partition.name')
  return 'test_labels' in configs.parameters_of(make)


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
  """Who owns which rows, by the config's partition, and what they are used for, by its protocol."""
  has_tests, share = _tests_its_own(config), config.data.test_share
  if has_tests:
    _check_tests(config)
  if share and len(source.test_label):
    raise ConfigError(
      f'data.test_share={share} would keep rows from training on which nobody is tested, since data.name={source.name} '
      'has a test set for all clients; set it to 0, or data.merge_test=True'
    )
  end = len(source.train_label) - source.public
  own = end - source.tested
  known = {'origin': None if source.origin is None else source.origin[:own], 'test_labels': source.train_label[own:end]}
  with partition.naming_fields():
    parts = configs.build(
      'data.partition', config.data.partition, source.train_label[:own], config.data.clients, seed, **known
    )
  parts, tests = parts if has_tests else (parts, None)
  _check_parts(config, parts, own)
  _check_owners(config, parts, own)
  if tests:
    _check_parts(config, tests, end, own)
  shares = [config.data[name] for name in configs.SHARES]
  with partition.naming_fields():
    made = configs.build('data.protocol', {'name': config.data.protocol}, source, parts, seed, *shares)
  return made._replace(test=tests) if tests else made


def _check_tests(config):
  """Checks that nothing else makes test rows than the partition."""
  for field in ('test_share', 'merge_test'):
    if config.data[field]:
      raise ConfigError(
        f'data.{field}={config.data[field]} cannot be combined with '
        f'data.partition={configs.label(config.data.partition)!r}, whose clients have test rows out of the official '
        f'test set; set it to {type(config.data[field])(0)}'
      )


def _check_parts(config, parts, count, first=0):
  """Checks what a partition returned: rows from `first` to below `count`."""
  what, clients = f'data.partition {configs.label(config.data.partition)} returned', config.data.clients
  if not isinstance(parts, list | tuple) or len(parts) != clients:
    returned = len(parts) if isinstance(parts, list | tuple) else type(parts).__name__
    raise ConfigError(
      f'{what} {returned} for data.clients={clients}; let it return one array of row numbers per client'
    )
  for k, part in enumerate(map(np.asarray, parts)):
    if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer) or not len(part):
      raise ConfigError(f'{what} {part.dtype}{list(part.shape)} for client {k}; let it be row numbers, at least one')
    if part.min() < first or part.max() >= count or len(np.unique(part)) < len(part):
      raise ConfigError(
        f'{what} rows {part.min()} to {part.max()} for client {k}; let them be distinct, from {first} to below {count}'
      )


def _check_owners(config, parts, count):
  """Checks that every row is of one client: one that holds it out would be tested on what another trains on."""
  owners = np.bincount(np.concatenate(parts), minlength=count)
  if owners.max(initial=0) > 1:
    row = int(owners.argmax())
    first, second, *_ = (k for k, part in enumerate(parts) if row in part)
    raise ConfigError(
      f'data.partition {configs.label(config.data.partition)} returned row {row} for the clients {first} and {second}; '
      'let every row be of one client, since others are tested on what one holds out'
    )


def make_plan(values, sizes, rounds) -> Plan:
  """The plan of a config block, for the given numbers of clients per group; tables of fewer rounds begin again.

  Raises:
    ConfigError: for a plan that does not fit these clients.
  """
  planner = configs.build('plan', values)
  try:
    with blame.guard('plan', planner, f'plan {configs.label(values)} cannot be built'):
      made = planner(sizes, rounds)
  except MemoryError as error:
    raise ConfigError(f'rounds={rounds} of {sum(sizes)} clients are too many for memory; lower them') from error
  made = of_planner(planner, made)
  if not blame.is_foreign(planner):
    return made
  with in_a_sentence(lambda error: f'plan.name={values["name"]!r}: {error}'):
    made = fitting(made, sizes, [str(g) for g in range(len(sizes))])
  again = np.arange(rounds) % len(made.participants[0])
  return made._replace(participants=tuple(table[again] for table in made.participants))


def make_method(block: Block, config, groups, numbers: Mapping[str, Any] = types.MappingProxyType({})) -> Method:
  """The method of one phase, whose clients train with the optimizer of their group.

  Args:
    block: of the phase.
    config: ConfigDict, for the optimizer and its schedule.
    groups: those of `make_groups`.
    numbers: {field: traced value} in place of those of the config (`config.traced`).

  Raises:
    ConfigError: for an unknown name or field, or a value that the factory refuses.
  """
  values = {**block.method, **_of('method', numbers)}
  of = lambda entry, where: make_optimizer(config, block.rounds, entry, numbers, where)
  make = lambda entry, where='': configs.build('method', values, of(entry, where), field=block.field)
  own = [{k: entry[k] for k in OPTIMIZER_FIELDS if entry.get(k) is not None} for entry in configs.entries(config)]
  method = make({})
  with in_a_sentence(lambda error: f'{block.field}.name={block.method["name"]!r}: {error}'):
    check_method(method)
  if any(own):
    made = [make(entry, f'groups[{i}].') if entry else method for i, entry in enumerate(own)]
    method = _with_optimizers(method, groups, made)
  return _with_codecs(method, config)


def _with_codecs(method, config) -> Method:
  """`method`, its messages coded as the config says; itself where they are not."""
  up, down = (configs.build(field, config[field]) for field in ('codec_up', 'codec_down'))
  if configs.label(config.codec_up) == configs.label(config.codec_down) == 'identity':
    return method
  with in_a_sentence(lambda error: f'codec_down {configs.label(config.codec_down)}: {error}'):
    return codecs.coded(method, up, down)


def _with_optimizers(method, groups, made) -> Method:
  """`method`, whose clients of group g are those of `made[g]`, in an evaluation too; its server stays that of `method`.

  The model identifies the group: it is static, and a distinct object in each.
  """
  of = lambda model: next(one for group, one in zip(groups, made, strict=True) if group.model is model).client
  init = lambda key, model, *rest: of(model).init(key, model, *rest)
  step = lambda key, t, model, *rest: of(model).step(key, t, model, *rest)

  def calibrate(groups, state, data, which):
    for one in {id(one): one for one in made}.values():
      if mine := [g for g in which if made[g] is one]:
        state = one.calibrate(groups, state, data, mine)
    return state

  client = method.client._replace(init=init, step=step)
  return method._replace(client=client, calibrate=calibrate if method.calibrate else None)


def _of(block, numbers) -> dict:
  """Those of a block, by argument."""
  return {field.partition('.')[2]: value for field, value in numbers.items() if field.partition('.')[0] == block}


def make_optimizer(
  config, rounds: int, entry=None, numbers: Mapping[str, Any] = types.MappingProxyType({}), where: str = ''
) -> optax.GradientTransformation:
  """The optimizer of a phase, its learning rate following the phase's rounds.

  Args:
    config: ConfigDict.
    rounds: of the phase.
    entry: of a group, for a `learning_rate` or an `optimizer` of its own.
    numbers: as in `make_method`.
    where: the group is in the config, as 'groups[0].'.

  Raises:
    ConfigError: for an unknown name or field, or a value that the factory refuses.
  """
  entry = entry or {}
  field, values = 'optimizer', {**config.optimizer, **_of('optimizer', numbers)}
  if 'optimizer' in entry:
    field, values = f'{where}optimizer', dict(entry['optimizer'])
  if 'learning_rate' in entry:
    values['learning_rate'] = entry['learning_rate']
  schedule, factors = {**config.schedule, **_of('schedule', numbers)}, []
  if schedule.get('rounds') == 0:
    schedule['rounds'] = rounds
  factor = configs.build('schedule', schedule)
  if configs.label(schedule) != 'constant':
    factors.append(factor)
  if config.milestones:
    factors.append(schedules.milestones(config.milestones, config.decay))
  return optimizers.scheduled(configs.build('optimizer', values, field=field), *factors)
