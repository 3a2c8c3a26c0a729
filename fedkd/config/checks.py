"""Checks of configs, and the differences of two."""

import inspect
from typing import Any

from ml_collections import ConfigDict

from fedkd.config.choices import KINDS, block, factory
from fedkd.config.defaults import default
from fedkd.config.trees import flatten, to_json
from fedkd.errors import ConfigError, check_known

# These may change when a run is continued; they affect speed, not results.
RUN_FIELDS = ('data.dir', 'lowering', 'devices', 'chunk', 'seed_axis', 'eval_batch', 'checkpoint_every')
POSITIVE = ('rounds', 'eval_every', 'data.clients', 'devices')
NOT_NEGATIVE = (
  *('eval_rows', 'eval_clients', 'eval_batch', 'checkpoint_every', 'chunk'),
  *('data.classes', 'data.crop', 'data.rows', 'data.public_rows', 'data.size'),
)
WORDS = {'seed_axis': ('auto', 'map', 'vmap'), 'lowering': ('auto', 'native', 'matmul')}
KIND_OF = {bool: 'True or False', int: 'a whole number', float: 'a number', str: 'text', tuple: 'a tuple'}


def check(config: ConfigDict) -> None:
  """Checks fields, types and ranges, for the errors that no later stage could name as clearly.

  Raises:
    ConfigError: for an unknown field, or a value of another type or out of range.
  """
  known = default()
  check_known(config, known, 'config')
  check_known(config.data, known.data, 'data')
  _check_types(config, known, '')
  _check_types(config.data, known.data, 'data.')
  values = {**config, **{f'data.{key}': value for key, value in config.data.items()}}
  for field in POSITIVE:
    check_whole(field, values[field], 1)
  for field in NOT_NEGATIVE:
    if values[field] < 0:
      raise ConfigError(f'{field}={values[field]} must not be negative; 0 is automatic')
  for field, allowed in WORDS.items():
    if config[field] not in allowed:
      raise ConfigError(f'{field}={config[field]!r} is unknown; choose one of {", ".join(allowed)}')
  _check_tuples(config)
  _check_client_store(config)


def check_whole(field: str, value: Any, least: int) -> None:
  """Checks that a value is a whole number of at least `least`.

  Raises:
    ConfigError: with the field and the value.
  """
  if isinstance(value, bool) or not isinstance(value, int):
    raise ConfigError(f'{field}={value!r} must be a whole number of at least {least}')
  if value < least:
    raise ConfigError(f'{field}={value} must be at least {least}')


def _check_types(config, known, prefix):
  """Fields that have a number, text or tuple by default want one; a whole number is a number, True is none."""
  for key, usual in known.items():
    value, kind = config[key], type(usual)
    if kind not in KIND_OF or known.get_type(key) is object:
      continue
    given = (int, float) if kind is float else (tuple, list) if kind is tuple else kind
    if not isinstance(value, given) or (isinstance(value, bool) and kind is not bool):
      raise ConfigError(f'{prefix}{key}={value!r} must be {KIND_OF[kind]}, as {usual!r}')


def _check_tuples(config):
  for field in ('seeds', 'milestones'):
    values = tuple(config[field])
    if odd := [value for value in values if isinstance(value, bool) or not isinstance(value, int)]:
      raise ConfigError(
        f'{field}={values} has {odd[0]!r}, which is no whole number; write for example --config.{field}=1,2'
      )
  seeds = tuple(config.seeds)
  if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
    raise ConfigError(f'seeds={seeds} must be distinct and not negative; for example --config.seeds=0,1,2')


def _check_client_store(config):
  for field, usual in (('devices', 1), ('before', ()), ('init_from', '')) if config.client_store else ():
    if config[field] != usual:
      raise ConfigError(
        f"{field}={config[field]!r} does not go with client_store; set it to {usual!r}, or client_store to ''"
      )


def differences(old: dict, new: dict) -> list[str]:
  """Result fields in which two configs as JSON differ, as 'field: old -> new'; a larger `rounds` is no difference.

  A field that did not exist at the time of the old run counts as having had its default.
  """
  since = _defaults(old, new)
  flat_old, flat_new = flatten(old), flatten(new)
  flat_old = {**{k: v for k, v in flatten(since).items() if k in flat_new}, **flat_old}
  changed = [k for k in flat_old.keys() | flat_new.keys() if k not in RUN_FIELDS and flat_old.get(k) != flat_new.get(k)]
  told = {k: f'{k}: {flat_old.get(k)} -> {flat_new.get(k)}' for k in sorted(changed)}
  if 'rounds' in told and old.get('rounds', 0) <= new.get('rounds', 0):
    if _spans_all_rounds(new):
      told['rounds'] += f', over which schedule {new["schedule"]["name"]} stretches'
    else:
      del told['rounds']
  return list(told.values())


def _spans_all_rounds(config) -> bool:
  """Whether the learning rate depends on how many rounds there are, so that a longer run is another from the start."""
  return config.get('schedule', {}).get('rounds') == 0


def _defaults(old, new) -> dict:
  """The values of fields of `new` before the fields existed."""
  since = to_json(default())
  for field, kind in KINDS.items():
    usual = since.pop(field)
    name = old.get(field, usual)['name']
    if field not in new or new[field]['name'] != name:
      continue
    values = usual if field not in old and field == 'schedule' else {}
    if ':' not in name:
      _, parameters = factory(kind, name)
      needed = [key for key, p in parameters.items() if p.default is inspect.Parameter.empty]
      values = to_json(block(kind, name, {key: new[field][key] for key in needed}))
    since[field] = values
  return since
