"""Configs of earlier versions, and short ones: a partition by its name alone, its arguments fields of `data`."""

from typing import Any

from ml_collections import ConfigDict, config_dict

from fedkd.checks import ranges
from fedkd.config.choices import KINDS, PARTITIONS, block, factory

# Arguments of partitions, which were fields of `data`.
FLAT = (
  *('concentration', 'per_class', 'smallest', 'minimum', 'per_client', 'ways', 'stdev', 'shots', 'stride'),
  *('test_shots', 'legacy_shots', 'ratio', 'all_labels', 'balanced'),
)
ARGUMENTS = {key: a for make in PARTITIONS.values() for key, a in ranges.annotations_of(make).items() if key in FLAT}
MOVED = {
  'fedkd.data.partition:': 'fedkd.data.splits.partition:',
  'fedkd.data.own_test:': 'fedkd.data.splits.personal_splits:',
  'fedkd.data.skews:': 'fedkd.data.splits.skews:',
  'fedkd.data.split:': 'fedkd.data.splits.split:',
}


def migrate(config: Any, like: Any = ()) -> Any:
  """A config, or one as JSON, with `data.partition` as a block; changed in place where it is not.

  Fields of `data` that are arguments of its partition are moved into the block, and others of `FLAT` dropped, which
  say nothing about that partition. Of one outside fedkd that is named in JSON, which is not looked up, `like` says what
  its arguments are.
  """
  data = config.get('data') if isinstance(config, dict | ConfigDict) else None
  if not isinstance(data, dict | ConfigDict) or 'partition' not in data:
    return config
  for field in ('partition', 'protocol', 'normalise'):
    data[field] = moved(data.get(field))
  chosen = data['partition']
  is_block = isinstance(chosen, dict | ConfigDict)
  flat = {name: _popped(data, name) for name in FLAT if name in data}
  if is_block and not flat:
    return config
  name = chosen['name'] if is_block else chosen
  values = {**({k: v for k, v in chosen.items() if k != 'name'} if is_block else {}), **flat}
  made = _block(name, values, isinstance(data, ConfigDict), like)
  # Of no type of its own, so that a name may take its place.
  data['partition'] = config_dict.FieldReference(made, field_type=object) if isinstance(data, ConfigDict) else made
  return config


def _popped(data, name) -> Any:
  """As `dict.pop`, which a ConfigDict lacks."""
  value = data[name]
  del data[name]
  return value


def moved(name: Any) -> Any:
  """What stands now for a stored 'module:function'."""
  if isinstance(name, str):
    for old, new in MOVED.items():
      name = new + name.removeprefix(old) if name.startswith(old) else name
  return name


def _block(name, values, as_config, like) -> Any:
  """The block of a partition, with those of the values that are its arguments."""
  if isinstance(name, str) and ':' in name and not as_config:
    return {'name': name, **{key: value for key, value in values.items() if key in like}}
  known = factory(KINDS['data.partition'], name)[1]
  for key in values.keys() - known.keys():  # of no use here, but no nonsense either
    ranges.check(f'data.{key}', values[key], ARGUMENTS.get(key))
  made = block(KINDS['data.partition'], name, {key: value for key, value in values.items() if key in known})
  return made if as_config else made.to_dict()
