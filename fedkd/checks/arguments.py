"""Arguments of the door: examples, and who owns which rows of them.

Every function raises ValueError, in one sentence that names argument, value and remedy.
"""

import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks import blame
from fedkd.checks.kinds import as_array, is_integer, short, what_is
from fedkd.checks.numeric import examples, in_precision, in_range
from fedkd.errors import ConfigError

SIDE = 5  # rows and columns that an image has at least
TWO_FORMS = 'give a list with the row numbers of each client, or an array int[{count}] with the owner of each row'


def arrays(x: Any, y: Any) -> tuple[Any, np.ndarray]:
  """(x, y) as numbers [N, ...] of a dtype that JAX has, and labels int[N] from 0."""
  given = as_array('x', x, 'examples [N, ...]')
  x, y = examples('x', given), as_array('y', y, 'integers [N]')
  in_precision('x', given, x.dtype)
  _check_labels(x, y, len(x))
  if isinstance(y, jax.core.Tracer):
    raise ValueError('y is traced, and labels are read when a federation is made; make it outside jit, vmap and grad')
  if int(y.min()) < 0:
    raise ValueError(f'y has the label {int(y.min())}; number the classes from 0')
  warn_of_channels_first(x)
  return x, np.asarray(y)


def warn_of_channels_first(x: Any, field: str = 'x') -> None:
  """Warns of examples that look like images with their channels first, which the networks here take for rows."""
  example = x.shape[1:]
  if len(example) == 3 and example[0] in (1, 3) and example[-1] > example[0]:
    warnings.warn(
      f'{field} has examples {list(example)}, which look like images with their channels first; the networks of '
      'fedkd.models take [height, width, channels], so give np.moveaxis(x, 1, -1)',
      stacklevel=4,
    )


def warn_of_whole_images(x: Any, field: str = 'x') -> None:
  """Warns of examples that look like images but for their dtype: whole numbers reach the models as they are."""
  is_whole = not isinstance(x, jax.core.Tracer) and np.issubdtype(x.dtype, np.integer) and x.dtype != np.uint8
  if not is_whole or x.ndim < 3 or min(x.shape[1:3]) < SIDE:
    return
  if x.min() >= 0 and 1 < x.max() <= 255:
    warnings.warn(
      f'{field} has examples {list(x.shape[1:])} of whole numbers from {x.min()} to {x.max()}, which reach the models '
      'as they are, as tokens do; give images as uint8, which are normalised',
      stacklevel=4,
    )


def owned(parts: Any, count: int) -> list[np.ndarray]:
  """Row numbers per client, from either form of `parts`: lists of them, or int[count] with the owner of each row."""
  _check_form(parts, count)
  if isinstance(parts, np.ndarray | jax.Array) and parts.ndim == 1:
    return _rows_of_each(one_each('parts', parts, count))
  parts = [row_numbers(f'parts[{k}]', part, count) for k, part in enumerate(parts)]
  if not parts:
    raise ValueError('parts names no client; give a list of row numbers for each')
  if empty := [k for k, part in enumerate(parts) if not len(part)]:
    raise ValueError(f'parts[{empty[0]}] is empty, so client {empty[0]} has nothing to train on; leave it out')
  return parts


def _rows_of_each(owner) -> list:
  """Row numbers per client, from the owner of each row."""
  if owner.min() < -1:
    raise ValueError(f'parts has the owner {owner.min()}; number the clients from 0, and -1 is nobody')
  known, sizes = np.unique(owner[owner >= 0], return_counts=True)
  if not len(known):
    raise ValueError('parts names no client; give the number of the client that owns each row')
  if known[-1] >= len(known):
    gap = int(np.argmax(known != np.arange(len(known))))
    raise ValueError(
      f'parts has the owner {known[-1]} but no row of client {gap}, which has nothing to train on; number '
      'the clients from 0 without gaps, for example by np.unique(owner, return_inverse=True)[1]'
    )
  order = np.argsort(owner, kind='stable')[len(owner) - sizes.sum() :]
  return np.split(order, np.cumsum(sizes)[:-1])


def _check_form(parts, count) -> None:
  """Checks that `parts` has one of its two forms, as far as can be told from its first entry."""
  array = isinstance(parts, np.ndarray | jax.Array)
  if array and is_integer(parts.dtype) and parts.ndim in (1, 2):
    return
  if (array and parts.dtype != object) or isinstance(parts, str | Mapping) or not hasattr(parts, '__len__'):
    raise ValueError(f'parts is {what_is(parts)}; {TWO_FORMS.format(count=count)}')
  first = as_array('parts[0]', next(iter(parts)) if len(parts) else [], 'row numbers, integers [n]')
  if not first.ndim:
    raise ValueError(f'parts is a list of single entries such as {what_is(first[()])}; {TWO_FORMS.format(count=count)}')


def one_each(field: str, values: Any, count: int) -> np.ndarray:
  """Integers [count], one per example."""
  values = np.asarray(as_array(field, values, f'integers [{count}], one per example'))
  if values.shape != (count,) or not is_integer(values.dtype):
    raise ValueError(f'{field} is {values.dtype}{list(values.shape)}; give integers [{count}], one per example')
  return values


def row_numbers(field: str, rows: Any, count: int) -> np.ndarray:
  """int64[n], which are in range and do not repeat."""
  rows = np.asarray(as_array(field, rows, 'row numbers, integers [n]'))
  if not rows.size:
    return np.zeros(0, np.int64)
  if rows.ndim != 1 or not is_integer(rows.dtype):
    raise ValueError(f'{field} is {rows.dtype}{list(rows.shape)}; give row numbers, integers [n]')
  if rows.min() < 0 or rows.max() >= count:
    wrong = int(rows.min() if rows.min() < 0 else rows.max())
    raise ValueError(f'{field} names row {wrong} of {count}; row numbers are 0 to {count - 1}')
  if len(np.unique(rows)) < len(rows):
    values, times = np.unique(rows, return_counts=True)
    raise ValueError(f'{field} names row {values[times.argmax()]} twice; give every row once')
  return rows.astype(np.int64)


def held_out(field: str, rows: Any, count: int) -> np.ndarray | None:
  """As `row_numbers`, of examples that no client owns, at least one; None for None."""
  if rows is None:
    return None
  rows = row_numbers(field, rows, count)
  if not len(rows):
    raise ValueError(f'{field} is empty; give row numbers, at least one, or leave it out')
  return rows


def listed(field: str, lists: Any, count: int) -> list | None:
  """As `row_numbers`, for a list with an entry per client; None for None."""
  if lists is None:
    return None
  if isinstance(lists, str | Mapping) or not np.iterable(lists):
    raise ValueError(f'{field} is {what_is(lists)}; give a list with the row numbers of each client')
  return [None if rows is None else row_numbers(f'{field}[{k}]', rows, count) for k, rows in enumerate(lists)]


def domain_of_each(values: Any, count: int) -> np.ndarray | None:
  """int32[count] from 0 to below `count`; None for None."""
  if values is None:
    return None
  values = one_each('domains', values, count)
  if values.min() < 0:
    raise ValueError(f'domains has the domain {values.min()}; number the domains from 0')
  if values.max() >= count:
    raise ValueError(
      f'domains has the domain {values.max()} for {count} examples, and every number is a column of accuracies; number '
      'the domains from 0, for example by np.unique(domains, return_inverse=True)[1]'
    )
  return values.astype(np.int32)


def normalisation(given: Any, x: Any, default: Callable) -> tuple:
  """(mean, scale) for examples `x`, from either form of `normalise`; `default`: x -> them, for None."""
  if given is None:
    return default(x)
  found = blame.call('normalise', given, x) if callable(given) else given
  fits = lambda a: isinstance(a, int | float | np.ndarray | np.generic | jax.Array) and _stretches(a, x.shape[1:])
  if isinstance(found, tuple | list) and len(found) == 2:
    if all(a is None for a in found):
      return (None, None)
    if all(map(fits, found)):
      return tuple(_own(f'normalise[{i}]', a) for i, a in enumerate(found))
  who = f'normalise {blame.name_of(given)}{blame.place(given)} returned' if callable(given) else 'normalise is'
  several = f' of {", ".join(map(what_is, found))}' if isinstance(found, tuple | list) else ''
  raise ValueError(
    f'{who} {what_is(found)}{several}; give (mean, scale), which broadcast against an example {list(x.shape[1:])}, or '
    'a function from x to them'
  )


def _own(field, array) -> Any:
  """A number, or an array that nobody else writes to, of finite float32."""
  if isinstance(array, int | float | np.generic):
    in_range(field, np.reshape(array, 1), np.dtype(np.float32))
    return array
  array = as_array(field, array, 'numbers')
  in_range(field, array[None], np.dtype(np.float32))
  return array if isinstance(array, jax.Array) else np.array(array)


def _stretches(array, shape) -> bool:
  """Whether an array of numbers broadcasts against an example."""
  try:
    kind = array.dtype if isinstance(array, np.ndarray) else jnp.result_type(array)
    return np.broadcast_shapes(np.shape(array), shape) == shape and jnp.issubdtype(kind, np.number)
  except (TypeError, ValueError):
    return False


def check_numbered(field: str, y: np.ndarray) -> None:
  """Checks that labels are not the names of classes.

  Raises:
    ConfigError: if they are.
  """
  if y.dtype.kind == 'O' and all(isinstance(one, numbers.Integral) for one in y.flat):
    raise ConfigError(f'{field} holds numbers as objects; give {field.split()[-1]}.astype(int)')
  if y.dtype.kind in 'USO' and y.size:
    raise ConfigError(
      f'{field} holds {short(str(y.flat[0]))}, which is no number; number the classes from 0: '
      'classes, y = np.unique(y, return_inverse=True), those of training and test in one array'
    )


def _check_labels(x, y, count):
  check_numbered('y', y)
  if y.shape != x.shape[:1] or not is_integer(y.dtype):
    raise ValueError(f'y is {y.dtype}{list(y.shape)} for {len(x)} examples; give integers [{count}], one per example')


def tested(x: Any, y: Any, like: Any, classes: int) -> tuple[Any, Any]:
  """(x, y) for `accuracy`; `like`: the federation's examples. What is traced has no values yet."""
  x, y = like_those('x', x, like), as_array('y', y, 'integers [T]')
  _check_labels(x, y, 'T')
  if isinstance(y, jax.core.Tracer):
    return x, y
  least, most = int(np.asarray(y).min()), int(np.asarray(y).max())
  if least < 0 or most >= classes:
    wrong = least if least < 0 else most
    raise ValueError(
      f'y has the label {wrong}, but the models have {classes} classes, 0 to {classes - 1}; leave it out'
    )
  return x, y


def like_those(field: str, x: Any, like: Any) -> Any:
  """Examples [T, ...] of the shape, kind and scale of `like`, the federation's."""
  x = as_array(field, x, 'examples')
  if x.shape[1:] != like.shape[1:] or not len(x):
    shape = ', '.join(map(str, like.shape[1:]))
    raise ValueError(f'{field} has shape {list(x.shape)}; give examples [T, {shape}], at least one')
  kind = lambda dtype: next((k for k in (jnp.floating, jnp.integer) if jnp.issubdtype(dtype, k)), dtype)
  if kind(x.dtype) != kind(like.dtype) or (like.dtype == np.uint8) > (x.dtype == np.uint8):
    raise ValueError(
      f'{field} is {x.dtype}, and the examples of the federation are {like.dtype}; give {like.dtype} of the same scale'
    )
  return examples(field, x)


def check_disjoint(parts: Sequence[np.ndarray], public: np.ndarray | None, validation: np.ndarray | None) -> None:
  """Checks that no row has two owners."""
  named = [(f'parts[{k}]', rows) for k, rows in enumerate(parts)]
  named += [(field, rows) for field, rows in (('public', public), ('validation', validation)) if rows is not None]
  holder = np.full(max(int(rows.max(initial=-1)) for _, rows in named) + 1, -1)  # an entry of `named`
  for i, (field, rows) in enumerate(named):
    taken = rows[holder[rows] >= 0]
    if len(taken):
      other = named[int(holder[taken[0]])][0]
      raise ValueError(f'{field} and {other} both have row {int(taken[0])}; give it to one of them')
    holder[rows] = i


def check_shared(parts: Sequence[np.ndarray], shared: Sequence[np.ndarray | None], public: np.ndarray | None) -> None:
  """Checks that every client shares rows of its own, and that nothing else is public."""
  if public is not None:
    raise ValueError('public and shared are both given; what clients share is the public set, so leave out one')
  if len(shared) != len(parts):
    raise ValueError(f'shared has {len(shared)} entries for {len(parts)} clients; give one each')
  for k, (own, given) in enumerate(zip(parts, shared, strict=True)):
    if given is None or not len(given):
      raise ValueError(f'shared[{k}] is empty; let every client share at least one example, or leave out shared')
    if len(foreign := np.setdiff1d(given, own)):
      raise ValueError(f'shared[{k}] has row {foreign[0]}, which is not in parts[{k}]; share only own rows')
