"""Which clients form a group, those with equal models, and what it is called."""

from collections.abc import Hashable, Sequence
from typing import Any

import flax.linen as nn
import numpy as np

from fedkd.checks.kinds import what_is
from fedkd.models import base
from fedkd.models.identity import identity
from fedkd.types import Group

LONGEST = 60  # characters of a name


def group_names(nets: Sequence[nn.Module]) -> list[str]:
  """A name for each of several distinct modules: its class and first tuple of widths, and for duplicates the fields in
  which they differ."""
  fields = [{k: v for k, v in vars(net).items() if k in net.__dataclass_fields__} for net in nets]
  label = lambda net, values: ' '.join([type(net).__name__, *_widths(values)])
  names = [label(net, values) for net, values in zip(nets, fields, strict=True)]
  texts = [{k: str(v) for k, v in values.items() if k not in ('parent', 'name')} for values in fields]
  return distinct_names(names, texts)


def distinct_names(names: Sequence[str], fields: Sequence[dict[str, str]]) -> list[str]:
  """Names of which none is given twice: duplicates with the fields in which they differ, or a number.

  `fields`: of each named thing as text, '' for none.
  """
  out = list(names)
  for name in {name for name in names if names.count(name) > 1}:
    same = [i for i, other in enumerate(names) if other == name]
    differ = [k for k in fields[same[0]] if len({fields[i].get(k) for i in same}) > 1]
    more = [', '.join(f'{k}={fields[i][k]}' for k in differ if fields[i].get(k)) for i in same]
    for number, i in enumerate(same):
      unique = more.count(more[number]) == 1
      out[i] = ' '.join(filter(None, (name, more[number], '' if unique else f'({number + 1})')))
  return out


def _widths(fields):
  widths = next((v for v in fields.values() if isinstance(v, tuple | list) and v), ())
  return ['-'.join(map(str, widths))] if widths else []


def per_client(models: Any, clients: int) -> list[nn.Module]:
  """One module per client, from a list of them or one for all.

  Raises:
    ValueError: for another number of them, or something else than modules.
  """
  models = list(models) if isinstance(models, list | tuple) else [models] * clients
  if len(models) == 1:
    models *= clients
  if len(models) != clients:
    raise ValueError(f'models has {len(models)} entries for {clients} clients; give one per client, or one for all')
  for k, model in enumerate(models):
    if not base.is_linen(model):
      raise ValueError(
        f'models[{k}] is {_named(model)}, not a Flax linen module; give an instance such as MLP((64,)), or wrap an NNX '
        'class: flax.nnx.bridge.to_linen(MyModel, ...)'
      )
  return models


def _named(model) -> str:
  return f'the class {model.__name__}' if isinstance(model, type) else f'a {type(model).__name__}'


def grouped(nets: Sequence[nn.Module], models: Sequence[nn.Module]) -> tuple[Group, ...]:
  """The groups, in the order in which their modules appear first.

  Args:
    nets: per client, by whose `identity` clients are grouped and by which groups are named.
    models: what a group holds of them, per client.
  """
  known = {id(net): identity(net) for net in nets}  # of modules that several clients share, once
  members: dict[Hashable, list[int]] = {}
  for k, net in enumerate(nets):
    members.setdefault(known[id(net)], []).append(k)
  names = group_names([nets[clients[0]] for clients in members.values()])
  ids = [np.array(clients, np.int32) for clients in members.values()]
  return tuple(Group(name, models[clients[0]], clients) for name, clients in zip(names, ids, strict=True))
