"""Entries of `config.groups`: which clients have which model, and its name."""

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from fedkd import models
from fedkd.config.choices import label
from fedkd.config.trees import to_json
from fedkd.errors import ConfigError
from fedkd.models.groups import distinct_names

CLIENT_FIELDS = ('clients', 'first', 'weights')  # of an entry: which clients have the model, and its initial weights


def entries(config: ConfigDict) -> tuple[dict, ...]:
  """The groups of a config, each with its number of `clients`.

  Entries without `clients` share, in order, the clients of `data.clients` that the others leave: of 7 clients for three
  entries the first has 3, the others 2. Entries for which none is left are dropped.

  Raises:
    ConfigError: if an entry is not a dict with a model.
  """
  groups = [_entry(entry, i) for i, entry in enumerate(config.groups)]
  free = [i for i, entry in enumerate(groups) if entry.get('clients') is None]
  counts = [entry['clients'] for entry in groups if entry.get('clients') is not None]
  if not free or any(isinstance(n, bool) or not isinstance(n, int) for n in counts):
    return tuple(groups)
  left = config.data.clients - sum(counts)
  if left < 1:
    raise ConfigError(
      f'groups[{free[0]}] gets no client, since the other groups have all {config.data.clients} of data.clients; raise '
      'data.clients, or leave the entry out'
    )
  for place, i in enumerate(free):
    groups[i]['clients'] = len(range(place, left, len(free)))
  return tuple(entry for i, entry in enumerate(groups) if i not in free or entry['clients'])


def _entry(entry: Any, i: int) -> dict:
  if not isinstance(entry, dict | ConfigDict) or 'model' not in entry:
    raise ConfigError(
      f'groups[{i}] has no model: {to_json(entry)!r}; give {{"model": ..., "clients": ...}} with one of '
      f'{", ".join(models.__all__)}, or module:Class'
    )
  return dict(entry)


def spread(config: ConfigDict, clients: int) -> None:
  """Sets `data.clients`, and distributes the clients over the models of `groups` as evenly as possible.

  Groups that all hold the same clients (HeteroFL's) still do afterwards.
  """
  config.data.clients = clients
  together = len(config.groups) > 1 and all(entry.get('first') == 0 for entry in config.groups)
  if together:
    config.groups = tuple({**entry, 'clients': clients} for entry in config.groups)
    return
  config.groups = tuple({k: v for k, v in entry.items() if k not in ('clients', 'first')} for entry in config.groups)
  config.groups = entries(config)


def group_names(entries: Sequence[dict], nets: Sequence[Any] = ()) -> list[str]:
  """A name for each group: its model and first tuple of widths, and for duplicates the fields in which
  they differ.

  Args:
    entries: of `config.groups`.
    nets: their Flax modules, for the defaults of fields that an entry leaves out; without them, those of fedkd's own
      architectures, while fields of others have no text.
  """
  others = ('model', *CLIENT_FIELDS)
  fields = [{k: v for k, v in entry.items() if k not in others} for entry in entries]
  names = [_label(entry['model'], own) for entry, own in zip(entries, fields, strict=True)]
  keys = dict.fromkeys(key for own in fields for key in own)
  texts = lambda own, net: {k: _text(own.get(k, getattr(net, k, None))) for k in keys}
  nets = nets or [_own(entry['model']) for entry in entries]
  return distinct_names(names, [texts(own, net) for own, net in zip(fields, nets, strict=True)])


def _own(model) -> Any:
  """The class of that name, if it is one of fedkd's."""
  return getattr(models, model) if model in models.__all__ else None


def _label(model, fields) -> str:
  widths = next((v for v in fields.values() if isinstance(v, tuple | list)), ())
  return ' '.join([model if isinstance(model, str) else model.__name__, '-'.join(map(str, widths))]).strip()


def _text(value) -> str:
  """A field's value in a name; '' for none."""
  if isinstance(value, dict | ConfigDict):
    return label(value) if 'name' in value else ''
  return '-'.join(map(str, value)) if isinstance(value, tuple | list) else '' if value is None else str(value)
