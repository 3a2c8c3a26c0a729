"""Experiment configs: the fields, and how a config string chooses among them.

A config is an `ml_collections.ConfigDict`; `build.build` makes the parts of a run of it. Choices that
change the set of fields (method, plan, zoo, profile) come in the config string, everything else is
`--config.FIELD=VALUE`.
"""

import importlib
import inspect
import typing

import optax
from ml_collections import ConfigDict, config_dict

from fedkd import aggregate, methods, plan
from fedkd.errors import ConfigError

# These may change when a run is continued; they decide speed, not numbers.
RUN_FIELDS = ('data.dir', 'lowering', 'devices', 'chunk', 'seed_axis', 'eval_batch', 'checkpoint_every')


def default() -> ConfigDict:
  """Every field with its default; `method`, `plan` and `groups` are set by the experiment's config file."""
  config = ConfigDict()
  config.name = 'experiment'
  config.method = block(methods, 'private')
  config.optimizer = block(optax, 'adam', learning_rate=1e-3)  # any optax optimizer
  config.milestones = ()  # rounds from which the learning rate is `decay` times what it was before
  config.decay = 0.1
  config.groups = ()  # ({'model': name, 'clients': count, 'weights': optional file, **fields of the model}, ...)
  config.plan = block(plan, 'synchronous')
  config.rounds = 100
  # Phases that come first: ({'name': method, 'rounds': count, 'early_stop': {...}, **its hyperparameters}, ...)
  config.before = ()
  # Clients that no longer improve sit out the rest of the last phase: what to watch, '': never.
  config.early_stop = ConfigDict({'watch': '', 'patience': 3, 'min_delta': 0.0})
  config.init_from = ''  # RUN@PHASE: start from the models that phase PHASE (0, 1, ...) of the run beside this one left
  config.seeds = (0,)

  config.data = ConfigDict()
  config.data.name = 'mnist_5k'  # or a TFDS name, rotated_mnist, npz:FILE, mat:FILE, folder:DIR, domains:DIR
  config.data.dir = ''  # where sets lie; empty: $TFDS_DATA_DIR or TFDS's own default, and $FEDKD_IMAGES for folders
  config.data.size = 0  # resize images to so many pixels a side, 0: leave them (all must then be of one size)
  config.data.clients = 10
  config.data.label = 'label'  # the feature of a TFDS set to learn
  config.data.keep = ()  # class names or numbers to keep; (): all
  config.data.rows = 0  # training images to use, a random choice; 0: all
  config.data.public = ''  # a second data set that everybody has
  config.data.public_rows = 0  # of it, 0: all
  config.data.partition = 'iid'  # iid, contiguous, dirichlet, shards, by_origin, few, few_by_origin, writers
  config.data.concentration = 0.5  # of the Dirichlet partition
  config.data.per_class = 3  # rows of each class and client in `few` and `few_by_origin`
  config.data.smallest = 10  # rows of the smallest client in `dirichlet`
  config.data.minimum = 18  # rows that every client has in `writers`
  config.data.protocol = 'shares'  # or pacs_paper
  config.data.validation = 0.1  # share of each client's rows held out
  config.data.public_share = 0.0  # share that each client gives to everybody
  config.data.test_share = 0.0  # share that is the client's own test set
  config.data.aligned = False  # whether all clients divide their rows by the same draw
  config.data.classes = 0  # outputs of every head; 0: as many as the data has
  config.data.normalise = 'mean_image'  # mean_image, standard, unit
  config.data.crop = 0  # random crop after padding by so many pixels
  config.data.flip = False  # random horizontal flip

  config.eval_every = 10  # rounds
  config.eval_rows = 1000  # fixed subset of the test set during the run, 0: all; the end always uses all
  config.eval_clients = 0  # fixed sample of clients to evaluate, 0: all
  config.eval_batch = 0  # images per forward pass of an evaluation; 0: 100 on a CPU, 500 elsewhere
  config.checkpoint_every = 0  # rounds; 0: about every ten seconds, seldomer where saving would take long
  config.lowering = 'auto'  # of convolutions: auto, native, matmul
  config.devices = 1  # over which the clients are spread; on a CPU as many as it has cores is worth a try
  config.client_store = ''  # a directory for the clients' states, of which then only those at work are in memory
  config.chunk = 0  # clients mapped at once; 0: what the benchmark found
  config.seed_axis = 'auto'  # map (one after the other), vmap, auto
  return config


def resolve(name, module, field, takes=()):
  """A function by value, by name in `module`, or by dotted path 'file:function'.

  Args:
    name: what the config says.
    module: where plain names are looked up.
    field: of the config, for the message.
    takes: the first parameters that tell the module's choices from its other functions.

  Raises:
    ConfigError: if there is none of that name.
  """
  if callable(name):
    return name
  if ':' in str(name):
    path, _, attribute = name.partition(':')
    try:
      return getattr(importlib.import_module(path), attribute)
    except (ImportError, AttributeError) as error:
      raise ConfigError(
        f'{field}={name!r} cannot be loaded ({error}); give module:function on the Python path'
      ) from error
  public = getattr(module, '__all__', None) or [n for n in vars(module) if n[0] != '_']
  choices = {n: f for n in public if inspect.isfunction(f := getattr(module, n)) and _takes(f, takes)}
  if name not in choices:
    raise ConfigError(f'{field}={name!r} is unknown; choose one of {", ".join(sorted(choices))}, or module:function')
  return choices[name]


def _takes(function, first) -> bool:
  return not first or tuple(fields(function))[: len(first)] == first


def fields(function, exclude=()) -> dict:
  """The hyperparameters of a factory and their defaults (`inspect._empty` where it has none)."""
  return {n: p.default for n, p in inspect.signature(function).parameters.items() if n not in exclude}


TAKES = {methods: ('tx',), plan: (), optax: ('learning_rate',)}  # the signature of a choice
GIVEN = ('tx',)  # what `build.build` passes in, not the config
FIELD = {methods: 'method', plan: 'plan', optax: 'optimizer'}  # the config block whose names a module resolves


def block(module, name, **values) -> ConfigDict:
  """The config block of a method, plan or optimizer: its name and every hyperparameter, with defaults.

  Raises:
    ConfigError: for an unknown name, or a value that the factory does not take.
  """
  field = FIELD[module]
  factory = resolve(name, module, f'{field}.name', TAKES[module])
  known = fields(factory, GIVEN)
  check_known(values, known, f'{field} {name}')
  out = ConfigDict({'name': name}, convert_dict=False)
  for key, value in {**known, **values}.items():
    if value is inspect.Parameter.empty:
      raise ConfigError(f'{field} {name} needs a value for {key!r}')
    if key not in values and callable(value):
      value = value.__name__
    if value is None:
      value = config_dict.placeholder(_kind(factory, key))
    out[key] = value
  return out


def _kind(factory, key) -> type:
  """The type of an optional hyperparameter, from its annotation (`int | None`); text without one."""
  annotation = inspect.signature(factory).parameters[key].annotation
  return next((a for a in typing.get_args(annotation) if a in (int, float, str, bool)), str)


def check_known(values, known, what):
  """Raises ConfigError if `values` has a name that `known` lacks."""
  for key in values:
    if key not in known:
      raise ConfigError(f'{what} has no field {key!r}; it has {", ".join(known) or "none"}')


def parse(arg, profiles=('paper', 'small', 'smoke'), **choices) -> ConfigDict:
  """Reads a config string such as 'small,method=private,zoo=homo'.

  Args:
    arg: the string; None or '' for the defaults.
    profiles: allowed bare words, the first is the default.
    **choices: what may be set, with defaults; a tuple lists the words that are allowed, its first is the default.

  Returns:
    ConfigDict with `profile` and every choice.

  Raises:
    ConfigError: for any other word.
  """
  words = {key: known for key, known in choices.items() if isinstance(known, tuple)}
  out = ConfigDict({'profile': profiles[0], **choices, **{key: known[0] for key, known in words.items()}})
  for word in filter(None, (arg or '').split(',')):
    key, equals, value = word.partition('=')
    if not equals and key in profiles:
      out.profile = key
    elif equals and key in choices:
      out[key] = value
    else:
      raise ConfigError(
        f'config string has {word!r}; use a profile ({", ".join(profiles)}) or {", ".join(f"{k}=..." for k in choices)}'
      )
  for key, known in words.items():
    if out[key] not in known:
      raise ConfigError(f'{key}={out[key]!r} is unknown; choose one of {", ".join(filter(None, known))}')
  return out


def build_block(module, values, **given):
  """Calls the factory that a config block names, with `given` for those arguments that it takes.

  Raises:
    ConfigError: for an unknown name or hyperparameter, or a value the factory refuses.
  """
  values = dict(values)
  name = values.pop('name')
  field = FIELD[module]
  factory = resolve(name, module, f'{field}.name', TAKES[module])
  known = fields(factory)
  check_known(values, {k: v for k, v in known.items() if k not in GIVEN}, f'{field} {name}')
  if isinstance(values.get('rule'), str):
    values['rule'] = resolve(values['rule'], aggregate, f'{field}.rule', ('rows', 'weight'))
  try:
    return factory(**values, **{k: v for k, v in given.items() if k in known})
  except ConfigError:
    raise
  except (TypeError, ValueError) as error:
    raise ConfigError(f'{field} {name} cannot be built: {error}') from error


def to_json(value):
  """A config as JSON-ready data: tuples as lists, functions as 'module:name'."""
  if isinstance(value, ConfigDict | dict):
    return {key: to_json(v) for key, v in value.items()}
  if isinstance(value, tuple | list):
    return [to_json(v) for v in value]
  if callable(value):
    return f'{value.__module__}:{value.__qualname__}'
  return value


def label(values) -> str:
  """The name of a config block for tables and figures: a function's own name, without its module."""
  return to_json(values['name']).rpartition(':')[2]


def freeze(value):
  """Lists as tuples, all the way down: Flax fields and JSON do not agree otherwise."""
  if isinstance(value, dict):
    return {key: freeze(v) for key, v in value.items()}
  return tuple(freeze(v) for v in value) if isinstance(value, tuple | list) else value


def flatten(values, prefix='') -> dict:
  """A nested dict as {'a.b': leaf}."""
  out = {}
  for key, value in values.items():
    out.update(flatten(value, f'{prefix}{key}.') if isinstance(value, dict) else {f'{prefix}{key}': value})
  return out


def _needed(module, values) -> dict:
  """The values of those hyperparameters that have no default."""
  known = fields(resolve(values['name'], module, FIELD[module], TAKES[module]), GIVEN)
  return {k: values[k] for k, default in known.items() if default is inspect.Parameter.empty}


def differences(old, new) -> list[str]:
  """Result fields in which two plain configs differ, as 'field: old -> new'; a growing `rounds` is no difference.

  A field that is younger than the old run is taken to have had its default.
  """
  since = {k: v for k, v in to_json(default()).items() if k not in FIELD.values()}
  for module, field in FIELD.items():
    if field in new and ':' not in new[field]['name'] and new[field]['name'] == old.get(field, {}).get('name'):
      since[field] = to_json(block(module, new[field]['name'], **_needed(module, new[field])))
  since, old, new = flatten(since), flatten(old), flatten(new)
  old = {**{k: v for k, v in since.items() if k in new}, **old}
  changed = sorted(k for k in old.keys() | new.keys() if k not in RUN_FIELDS and old.get(k) != new.get(k))
  grown = old.get('rounds', 0) <= new.get('rounds', 0)
  return [f'{k}: {old.get(k)} -> {new.get(k)}' for k in changed if not (k == 'rounds' and grown)]


def check(config):
  """Refuses what no later stage could name as clearly.

  Raises:
    ConfigError: for an unknown field, or a value out of range.
  """
  known = default()
  check_known(config, known, 'config')
  check_known(config.data, known.data, 'data')
  for field in ('rounds', 'eval_every', 'data.clients', 'devices'):
    value = flatten(to_json(config))[field]
    if value < 1:
      raise ConfigError(f'{field}={value} must be at least 1')
  for field in (
    'eval_rows',
    'eval_clients',
    'eval_batch',
    'checkpoint_every',
    'chunk',
    'data.classes',
    'data.crop',
    'data.rows',
    'data.public_rows',
    'data.size',
  ):
    value = flatten(to_json(config))[field]
    if value < 0:
      raise ConfigError(f'{field}={value} must not be negative; 0 is automatic')
  if config.client_store:
    for field, usual in (('devices', 1), ('before', ()), ('init_from', '')):
      if config[field] != usual:
        raise ConfigError(
          f"{field}={config[field]!r} does not go with client_store; set it to {usual!r}, or client_store to ''"
        )
  for field in ('seeds', 'milestones'):
    values = tuple(config[field])
    if odd := [value for value in values if not isinstance(value, int)]:
      raise ConfigError(
        f'{field}={values} has {odd[0]!r}, which is no whole number; write for example --config.{field}=1,2'
      )
  seeds = tuple(config.seeds)
  if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
    raise ConfigError(f'seeds={seeds} must be distinct and not negative; for example --config.seeds=0,1,2')
  for field, allowed in (('seed_axis', ('auto', 'map', 'vmap')), ('lowering', ('auto', 'native', 'matmul'))):
    if config[field] not in allowed:
      raise ConfigError(f'{field}={config[field]!r} is unknown; choose one of {", ".join(allowed)}')
