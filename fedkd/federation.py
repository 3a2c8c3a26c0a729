"""The clients of a simulation: arrays, who owns which of their rows, and every client's model."""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedkd.models import base
from fedkd.types import Data, ExampleIndices, Group, Pool

Indices = Sequence[int] | jax.Array | np.ndarray
INITIAL = ('equal', 'own')  # what the clients of one architecture start from: equal weights, or each its own


class Federation(NamedTuple):
  """Clients, their models and their examples. The runner's tables have a leading axis [seeds], a notebook's have none.

  A group holds the clients of one architecture; per-group entries are in the order of `groups`.
  """

  groups: tuple[Group, ...]
  pool: Pool
  private: tuple[ExampleIndices, ...]  # per group, leaves [n, ...]: all examples of a client, those it shares last
  everyone: ExampleIndices  # those of all clients together
  shared: tuple[ExampleIndices, ...] | None = None  # per group: what each client gives to everybody
  public: ExampleIndices | None = None  # what everybody has
  validation: ExampleIndices | None = None  # held out: nobody trains on them
  domain: jax.Array | None = None  # int32[N], the domain of every example

  def data(self) -> tuple[Data, ...]:
    """What the clients of each group see."""
    shared = self.shared or (None,) * len(self.groups)
    tables = zip(self.private, shared, strict=True)
    return tuple(Data(self.pool, private, self.everyone, given, self.public) for private, given in tables)


def federation(
  x: jax.Array | np.ndarray,
  y: jax.Array | np.ndarray,
  parts: Sequence[Indices] | jax.Array | np.ndarray,
  models: nn.Module | Sequence[nn.Module],
  *,
  public: Indices | None = None,
  shared: Sequence | None = None,
  validation: Indices | None = None,
  domains: Indices | None = None,
  normalise: Callable | tuple | None = None,
) -> Federation:
  """Clients from arrays.

  Args:
    x: [N, ...] examples of any dtype: uint8 images (normalised inside the step), float vectors, integer tokens.
    y: int[N], labels from 0.
    parts: per client the row numbers of its training examples; disjoint, none empty. Or int[N], the client that owns
      each example, -1 for nobody: the domains of a data set, for one client per domain.
    models: per client a Flax linen module (an NNX module through `flax.nnx.bridge.to_linen`), or one for all. Equal
      modules form a group. `fedkd.models` describes what a module may return; logits [B, C] alone are enough for
      methods that exchange no features.
    public: row numbers of labelled examples that everybody has and nobody owns (FedMD's public set).
    shared: per client row numbers, a subset of its own, that it shares with everybody (FedH2L's seed sets).
    validation: row numbers held out, for `Simulation.validation_accuracy`.
    domains: int[N], the domain of every example; validation accuracy is then per domain.
    normalise: (mean, scale), or x -> (mean, scale), so that a model sees (x - mean) * scale; None: uint8 images minus
      their mean image, by 255, and no normalisation of anything else.

  Raises:
    ValueError: naming argument, value and remedy, before anything is compiled.
  """
  x, y = _arrays(x, y)
  parts = _owned(parts, len(y))
  nets = _modules(models, len(parts))
  public, validation = _rows('public', public, len(y)), _rows('validation', validation, len(y))
  shared = None if shared is None else [_rows(f'shared[{k}]', rows, len(y)) for k, rows in enumerate(shared)]
  _check_disjoint(parts, public, validation)
  if shared is not None:
    _check_shared(parts, shared, public)
    parts = [np.concatenate([np.setdiff1d(own, given), given]) for own, given in zip(parts, shared, strict=True)]
    public = np.concatenate(shared)
  mean, scale = _normalisation(normalise, x)
  preprocessed = [base.Preprocessed(base.adapted(net, x[:1]), mean, scale) for net in nets]
  groups = _groups(nets, preprocessed)
  _check_heads(groups, x, y)
  if domains is not None:
    domains = _rows_of_labels('domains', domains, len(y))
  on_device = lambda tree: jax.tree.map(jnp.asarray, tree)
  per_group = lambda lists: on_device(tuple(table([lists[k] for k in g.ids], g.ids, lists) for g in groups))
  together = lambda rows: None if rows is None else on_device(everybodys(rows))
  return Federation(
    groups,
    Pool(jnp.asarray(x), jnp.asarray(y, jnp.int32)),
    per_group(parts),
    on_device(everybodys(np.concatenate(parts))),
    None if shared is None else per_group(shared),
    together(public),
    together(validation),
    None if domains is None else jnp.asarray(domains),
  )


def table(parts: Sequence[np.ndarray], ids: ArrayLike, width: Sequence[np.ndarray] = ()) -> ExampleIndices:
  """The parts of some clients as one padded table.

  Args:
    parts: list of n arrays int[n_k], the row numbers of the clients `ids`, in that order.
    ids: n global client numbers.
    width: further arrays; the table is as wide as the longest of all.

  Returns:
    ExampleIndices of index int32[n, n_max] padded with 0, size int32[n], id int32[n].
  """
  size = np.array([len(part) for part in parts], np.int32)
  index = np.zeros((len(parts), max(map(len, [*parts, *width]), default=0)), np.int32)
  for row, part in zip(index, parts, strict=True):
    row[: len(part)] = part
  return ExampleIndices(index, size, np.asarray(ids, np.int32))


def everybodys(rows: ArrayLike) -> ExampleIndices:
  """Examples of no single client."""
  index = np.asarray(rows, np.int32)
  return ExampleIndices(index, np.array(len(index), np.int32), np.array(-1, np.int32))


def initial_variables(
  key: jax.Array, model: nn.Module, example: jax.Array | jax.ShapeDtypeStruct, client: ArrayLike | None = None
) -> dict:
  """A model's initial {'params', 'batch_stats'}: equal for one architecture and key, whatever the method or grouping.

  Args:
    key: of the run; an architecture folds in its own name.
    model: `base.Preprocessed`.
    example: one example [...], or its ShapeDtypeStruct.
    client: the global number of a client that starts from weights of its own; may be traced.

  Raises:
    ValueError: if the architecture cannot take such an example, or has other variable collections.
  """
  return _first_pass(key, model, example, client)[1]


def group_variables(key: jax.Array, group: Group, example: jax.ShapeDtypeStruct, initial: str = 'equal') -> dict:
  """What the clients of a group start from: leaves [1, ...] where all start alike, else [n, ...].

  Args:
    initial: one of `INITIAL`: 'equal' weights for all clients of an architecture, or each its 'own'.
  """
  if initial == 'equal':
    return jax.tree.map(lambda a: a[None], initial_variables(key, group.model, example))
  return jax.vmap(lambda client: initial_variables(key, group.model, example, client))(jnp.asarray(group.ids))


def _first_pass(key, model, example, client=None):
  """(logits, initial variables)."""
  key = jax.random.fold_in(jax.random.fold_in(key, 0), zlib.crc32(name_of(model).encode()))
  key = key if client is None else jax.random.fold_in(key, client)
  output, variables = model.init_with_output(key, jnp.zeros((1, *example.shape), example.dtype), False)
  if other := set(variables) - {'params', 'batch_stats'}:
    raise ValueError(
      f'models: {type(model.net).__name__} has variables of the kind {sorted(other)[0]!r}; fedkd trains params and '
      'batch_stats, so keep other state out of the module'
    )
  return output[0], {'batch_stats': {}, **variables}


def name_of(model: Any) -> str:
  """The identity of an architecture, equal in all processes: without the lowering of convolutions and the addresses of
  functions."""
  net = model.net.clone(lowering='auto') if hasattr(model.net, 'lowering') else model.net
  return re.sub(r' at 0x[0-9a-f]+', '', repr(net))


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


def _arrays(x, y):
  x, y = (a if isinstance(a, np.ndarray | jax.Array) else np.asarray(a) for a in (x, y))
  if x.ndim < 1 or not x.size:
    raise ValueError(f'x has shape {list(x.shape)}; give examples [N, ...], at least one')
  if not (np.issubdtype(x.dtype, np.number) or x.dtype == bool or jnp.issubdtype(x.dtype, jnp.floating)):
    raise ValueError(f'x is {x.dtype}{list(x.shape)}; give numbers, for text integer tokens')
  if y.shape != x.shape[:1] or not np.issubdtype(y.dtype, np.integer):
    raise ValueError(f'y is {y.dtype}{list(y.shape)} for {len(x)} examples; give integers [{len(x)}], one per example')
  if int(y.min()) < 0:
    raise ValueError(f'y has the label {int(y.min())}; number the classes from 0')
  return x.astype(jax.dtypes.canonicalize_dtype(x.dtype)), np.asarray(y)


def _owned(parts, count) -> list:
  """Row numbers per client, from either form of `parts`."""
  if isinstance(parts, np.ndarray | jax.Array) and parts.ndim == 1 and np.issubdtype(parts.dtype, np.integer):
    owner = _rows_of_labels('parts', parts, count)
    parts = [np.flatnonzero(owner == k) for k in range(int(owner.max(initial=-1)) + 1)]
  parts = [_rows(f'parts[{k}]', part, count) for k, part in enumerate(parts)]
  if not parts:
    raise ValueError('parts names no client; give a list of row numbers for each')
  if empty := [k for k, part in enumerate(parts) if not len(part)]:
    raise ValueError(f'parts[{empty[0]}] is empty, so client {empty[0]} has nothing to train on; leave it out')
  return parts


def _rows_of_labels(field, values, count) -> np.ndarray:
  values = np.asarray(values)
  if values.shape != (count,) or not np.issubdtype(values.dtype, np.integer):
    raise ValueError(f'{field} is {values.dtype}{list(values.shape)}; give integers [{count}], one per example')
  return values.astype(np.int32)


def _rows(field, rows, count) -> np.ndarray | None:
  """Row numbers as an array, or None.

  Raises:
    ValueError: if they are not integers, are out of range or repeat.
  """
  if rows is None:
    return None
  rows = np.asarray(rows)
  if not rows.size:
    return np.zeros(0, np.int64)
  if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
    raise ValueError(f'{field} is {rows.dtype}{list(rows.shape)}; give row numbers, integers [n]')
  if rows.min() < 0 or rows.max() >= count:
    wrong = int(rows.min() if rows.min() < 0 else rows.max())
    raise ValueError(f'{field} names row {wrong} of {count}; row numbers are 0 to {count - 1}')
  if len(np.unique(rows)) < len(rows):
    values, times = np.unique(rows, return_counts=True)
    raise ValueError(f'{field} names row {values[times.argmax()]} twice; give every row once')
  return rows.astype(np.int64)


def _check_disjoint(parts, public, validation):
  """Raises ValueError for a row with two owners."""
  named = [(f'parts[{k}]', rows) for k, rows in enumerate(parts)]
  named += [(field, rows) for field, rows in (('public', public), ('validation', validation)) if rows is not None]
  owner, most = {}, max(int(rows.max(initial=-1)) for _, rows in named) + 1
  holder = np.full(most, -1)
  for i, (field, rows) in enumerate(named):
    owner[i] = field
    taken = rows[holder[rows] >= 0]
    if len(taken):
      raise ValueError(
        f'{field} and {owner[int(holder[taken[0]])]} both have row {int(taken[0])}; give it to one of them'
      )
    holder[rows] = i


def _check_shared(parts, shared, public):
  if public is not None:
    raise ValueError('public and shared are both given; what clients share is the public set, so leave out one')
  if len(shared) != len(parts):
    raise ValueError(f'shared has {len(shared)} entries for {len(parts)} clients; give one each')
  for k, (own, given) in enumerate(zip(parts, shared, strict=True)):
    if given is None or not len(given):
      raise ValueError(f'shared[{k}] is empty; let every client share at least one example, or leave out shared')
    if len(foreign := np.setdiff1d(given, own)):
      raise ValueError(f'shared[{k}] has row {foreign[0]}, which is not in parts[{k}]; share only own rows')


def _modules(models, clients) -> list:
  """One module per client."""
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


def _normalisation(normalise, x) -> tuple:
  if callable(normalise):
    normalise = normalise(x)
  if normalise is not None:
    return normalise
  return base.mean_image(x) if x.dtype == np.uint8 else (None, None)


def _groups(nets, models) -> tuple[Group, ...]:
  """Clients with equal modules form a group; groups are in the order of first appearance."""
  firsts: list[int] = []
  member: list[int] = []
  for k, net in enumerate(nets):
    same = [g for g, first in enumerate(firsts) if type(nets[first]) is type(net) and _same(nets[first], net)]
    if not same:
      firsts.append(k)
    member.append(same[0] if same else len(firsts) - 1)
  names = group_names([nets[first] for first in firsts])
  ids = [np.flatnonzero(np.array(member) == g).astype(np.int32) for g in range(len(firsts))]
  return tuple(Group(name, models[first], clients) for name, first, clients in zip(names, firsts, ids, strict=True))


def _same(one: Any, other: Any) -> bool:
  try:
    return one is other or bool(one == other)
  except ValueError:  # a field that is an array
    return repr(one) == repr(other)


def _check_heads(groups, x, y):
  """Raises ValueError for models that cannot take the examples, differ in their classes, or have too few for the
  labels."""
  example = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
  for group in groups:
    try:
      logits = jax.eval_shape(lambda group=group: _first_pass(jax.random.key(0), group.model, example)[0])
    except (TypeError, ValueError) as error:
      raise ValueError(
        f'models: {group.name} cannot take examples {x.dtype}{list(x.shape[1:])}: {str(error).splitlines()[0]}'
      ) from error
    if logits.ndim != 2 or logits.shape[1] != group.model.classes:
      raise ValueError(
        f'models: {group.name} returns logits {list(logits.shape)} for one example of {group.model.classes} classes; '
        'return [batch, classes]'
      )
  classes = [group.model.classes for group in groups]
  if len(set(classes)) > 1:
    heads = ', '.join(f'{g.name}: {c}' for g, c in zip(groups, classes, strict=True))
    raise ValueError(f'models have heads of different size ({heads}); give all the same number of classes')
  if int(y.max()) >= classes[0]:
    raise ValueError(
      f'y has the label {int(y.max())}, but the models have {classes[0]} classes; give them at least {int(y.max()) + 1}'
    )
