"""Which clients form a group, those with equal models, and what it is called."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from fedkd.checks.kinds import check_is, what_is
from fedkd.models import base
from fedkd.models.from_nnx import FromNNX, as_linen, together
from fedkd.models.identity import fields, identity
from fedkd.types import Group

LONGEST = 60  # characters of a name


def group_names(nets: Sequence[nn.Module]) -> list[str]:
  """A name for each of several distinct modules: its class and first tuple of widths, and for duplicates the fields in
  which they differ."""
  values = [dict(net.values) if isinstance(net, FromNNX) else dict(fields(net)) for net in nets]
  label = lambda net, own: ' '.join([_text(base.class_of(net)), *_widths(own)])
  names = [label(net, own) for net, own in zip(nets, values, strict=True)]
  return distinct_names(names, [{k: _text(v) for k, v in own.items() if k != 'name'} for own in values])


def distinct_names(names: Sequence[str], fields: Sequence[dict[str, str]]) -> list[str]:
  """Names of which none is given twice: duplicates with the fields in which they differ, or a number. They are one
  line of at most `LONGEST` characters before that number.

  `fields`: of each named thing as text, '' for none.
  """
  names = [_clipped(name) for name in names]
  out = list(names)
  for name in {name for name in names if names.count(name) > 1}:
    same = [i for i, other in enumerate(names) if other == name]
    differ = [k for k in fields[same[0]] if len({fields[i].get(k) for i in same}) > 1]
    more = [', '.join(f'{k}={fields[i][k]}' for k in differ if fields[i].get(k)) for i in same]
    told = [_clipped(f'{name} {text}'.strip()) for text in more]
    for number, i in enumerate(same):
      out[i] = told[number] if told.count(told[number]) == 1 else f'{told[number]} ({number + 1})'
  return out


def _clipped(text) -> str:
  line = ' '.join(text.split())
  return line if len(line) <= LONGEST else f'{line[: LONGEST - 3]}...'


def _text(value) -> str:
  """A field's value in a name: its numbers and words, the kind of an array, the name of a function."""
  if isinstance(value, np.ndarray | jax.Array):
    return what_is(value)
  if isinstance(value, tuple | list):
    return f'({", ".join(map(_text, value))}{"," if len(value) == 1 else ""})'
  if isinstance(value, Mapping):
    return f'{{{", ".join(f"{_text(key)}: {_text(held)}" for key, held in value.items())}}}'
  if isinstance(value, nn.Module):
    return type(value).__name__
  return getattr(value, '__name__', str(value))


def _widths(values):
  """The first tuple of numbers or words."""
  plain = lambda v: isinstance(v, tuple | list) and v and all(isinstance(n, int | float | str) for n in v)
  widths = next((v for v in values.values() if plain(v)), ())
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
  known = {id(model): k for k, model in reversed(list(enumerate(models)))}  # of those that several clients share, once
  linen = {place: as_linen(models[k], f'models[{k}]') for place, k in known.items()}
  for k, model in enumerate(models):
    remedy = 'a Flax module, an instance such as MLP((64,)), or an NNX module, or its class'
    check_is(f'models[{k}]', linen[id(model)], nn.Module, remedy)
  return [linen[id(model)] for model in models]


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
  of_group = [together([models[k] for k in clients]) for clients in members.values()]
  return tuple(itertools.starmap(Group, zip(names, of_group, ids, strict=True)))
