"""Checks of configs, and the differences of two."""

import copy
import inspect
import re

from ml_collections import ConfigDict

from fedkd.checks import kinds, ranges
from fedkd.config.choices import BLOCKS, KINDS, block, factory
from fedkd.config.defaults import RANGES, default
from fedkd.config.migrate import migrate
from fedkd.config.stored import check_stored
from fedkd.config.trackers import check_tracker
from fedkd.config.trees import at, flatten, put, to_json
from fedkd.errors import ConfigError, check_known

# These may change when a run is continued; they affect speed, not results.
RUN_FIELDS = (
  *('data.dir', 'data.limit', 'data.partition_out'),
  *('lowering', 'devices', 'chunk', 'seed_axis', 'eval_batch', 'checkpoint_every', 'tracker'),
)
AS_ONE = {'data.normalise': ('auto', 'mean_image')}  # on images; on other data only the first ever runs
BESIDE_A_STORE = (('devices', 1), ('before', ()), ('init_from', ''), ('initial', 'equal'))  # what client_store wants
KIND_OF = {bool: 'True or False', str: 'printable text', tuple: 'a tuple', ConfigDict: 'a block'}


GIVE = 'what get_config() of a file of configs/ returns, or fedkd.config.default() with your changes'


def check(config: ConfigDict) -> None:
  """Checks fields, types and ranges, to catch errors that no later stage could describe as clearly.

  Raises:
    ConfigError: for what is no config, an unknown field, or a value of another type or out of range.
  """
  kinds.check_is('config', config, ConfigDict, GIVE)
  known = default()
  _check_fields(config, known, 'config')
  _check_types(config, known, '')
  _check_fields(config.data, known.data, 'data')
  _check_types(config.data, known.data, 'data.')
  values = {**config, **_with_prefix(config, 'data'), **_with_prefix(config, 'early_stop')}
  for field in filter(values.__contains__, RANGES):  # an `early_stop` may leave its own out
    ranges.check(field, values[field], RANGES[field])
  _check_seeds(config)
  _check_before(config)
  _check_client_store(config)
  check_tracker(config.tracker)


def _check_fields(values, known, what):
  check_known(values, known, what)
  if missing := [field for field in known if field not in values]:
    raise ConfigError(f'{what} has no {missing[0]}; start from `fedkd.config.default()`')


def _with_prefix(config, block) -> dict:
  return {f'{block}.{key}': value for key, value in config[block].items()}


def _check_types(config, known, prefix):
  """Fields without a range that are text, a boolean, a tuple or a block by default require one."""
  for key, usual in known.items():
    value, kind = config[key], type(usual)
    if kind not in KIND_OF or known.get_type(key) is object or f'{prefix}{key}' in RANGES:
      continue
    one_line = kind is not str or (isinstance(value, str) and value.isprintable())
    if not (one_line and isinstance(value, (tuple, list) if kind is tuple else kind)):
      raise ConfigError(f'{prefix}{key}={kinds.short(to_json(value))} must be {KIND_OF[kind]}, as {to_json(usual)!r}')


def _check_seeds(config):
  seeds = tuple(config.seeds)
  if not seeds or len(set(seeds)) != len(seeds):
    raise ConfigError(f'seeds={seeds} must be distinct, at least one; for example 0,1,2')


def _check_before(config):
  for i, phase in enumerate(config.before):
    if not isinstance(phase, dict | ConfigDict) or 'name' not in phase:
      raise ConfigError(
        f"before[{i}]={kinds.short(to_json(phase))} must be a block such as {{'name': 'private', 'rounds': 10}}"
      )
    if not isinstance(phase.get('early_stop', {}), dict | ConfigDict):
      given = kinds.short(phase['early_stop'])
      raise ConfigError(f"before[{i}].early_stop={given} must be a block such as {{'watch': 'validation_accuracy'}}")
    ranges.check(f'before[{i}].rounds', phase.get('rounds', 1), RANGES['rounds'])


def _check_client_store(config):
  if re.fullmatch(r'[-+]?(inf|nan|[\d.e+-]+)', config.client_store):
    raise ConfigError(f"client_store={config.client_store!r} must be a directory, or ''; a number is written ./1")
  for field, usual in BESIDE_A_STORE if config.client_store else ():
    if config[field] != usual:
      raise ConfigError(
        f"{field}={config[field]!r} cannot be combined with client_store; set it to {usual!r}, or client_store to ''"
      )


def differences(old: dict, new: dict) -> list[str]:
  """Result fields in which two configs as JSON differ, as 'field: old -> new'; a larger `rounds` does not count.

  A field that did not exist at the time of the old run counts as having had its default.
  """
  new = migrate(copy.deepcopy(new))
  old = migrate(copy.deepcopy(check_stored(old, 'the older run', trust=True)), at(new, 'data.partition') or ())
  since = _defaults(old, new)
  flat_old, flat_new = flatten(old), flatten(new)
  flat_old = {**{k: v for k, v in flatten(since).items() if k in flat_new}, **flat_old}
  is_one = lambda k: all(value in AS_ONE.get(k, ()) for value in (flat_old.get(k), flat_new.get(k)))
  differs = lambda k: flat_old.get(k) != flat_new.get(k) and not is_one(k)
  changed = [k for k in flat_old.keys() | flat_new.keys() if k not in RUN_FIELDS and differs(k)]
  told = {k: f'{k}: {flat_old.get(k)} -> {flat_new.get(k)}' for k in sorted(changed)}
  lengths = old.get('rounds', 0), new.get('rounds', 0)
  if 'rounds' in told and all(isinstance(n, int) for n in lengths) and lengths[0] <= lengths[1]:
    if _spans_all_rounds(new):
      told['rounds'] += f', over which schedule {new["schedule"]["name"]} stretches'
    else:
      del told['rounds']
  return list(told.values())


def _spans_all_rounds(config) -> bool:
  """Whether the learning rate depends on how many rounds there are, so that a longer run differs from the start."""
  return config.get('schedule', {}).get('rounds') == 0


def _defaults(old, new) -> dict:
  """The values of fields of `new` before the fields existed."""
  since = migrate(to_json(default()))
  for field in BLOCKS:
    usual, kind = at(since, field), KINDS[field]
    put(since, field, {})
    name, now = (at(old, field) or usual).get('name'), at(new, field)
    if not now or name is None or now['name'] != name:
      continue
    values = usual if at(old, field) is None and field == 'schedule' else {}
    if ':' not in name:
      _, parameters = factory(kind, name)
      needed = [key for key, p in parameters.items() if p.default is inspect.Parameter.empty]
      values = to_json(block(kind, name, {key: now[key] for key in needed}))
    put(since, field, values)
  return since
