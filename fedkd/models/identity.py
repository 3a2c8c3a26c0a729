"""When two modules are the same architecture: by the values of their fields, arrays and functions included."""

import dataclasses
import functools
import hashlib
import re
import types
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

ADDED = 'added'  # in the metadata of a field
SHOWN = 1000  # most numbers of an array that NumPy writes out
# NumPy's defaults: the text of a module must not depend on how its user likes to see numbers.
PRINT_OPTIONS = {'edgeitems': 3, 'threshold': SHOWN, 'floatmode': 'maxprec', 'precision': 8, 'suppress': False}
PRINT_OPTIONS |= {'linewidth': 75, 'nanstr': 'nan', 'infstr': 'inf', 'sign': '-', 'formatter': None, 'legacy': False}


class Itself:
  """An object that equals only itself. It is held, so that no other takes its address."""

  def __init__(self, held: Any):
    self.held = held

  def __eq__(self, other):
    return isinstance(other, Itself) and self.held is other.held

  def __hash__(self):
    return id(self.held)


def identity(value: Any, within: tuple = ()) -> Hashable:
  """What a module, or a value in its fields, is compared by: equal for equal ones.

  Arrays are compared by dtype, shape and bytes, also inside tuples and mappings. Functions are the same where they come
  from the same code of the same file, with the same defaults and the same values of the variables that they close over;
  `functools.partial` and bound methods where their parts are, jitted functions where the functions inside are. Other
  objects are compared by `==` where their class defines it and they can be hashed, and otherwise equal only themselves.

  Args:
    within: ids of the values that hold this one; a function may close over itself.
  """
  if id(value) in within:
    return ('inside', len(within) - within.index(id(value)))
  of = functools.partial(identity, within=(*within, id(value)))
  if isinstance(value, nn.Module):
    return (type(value), *((name, of(held)) for name, held in fields(value)))
  if _is_array(value):
    return _of_array(value, of)
  if isinstance(value, Mapping):
    return (Mapping, frozenset((of(key), of(held)) for key, held in value.items()))
  if isinstance(value, tuple | list):
    return (tuple if type(value) is list else type(value), *map(of, value))
  if isinstance(value, set | frozenset):
    return (frozenset, frozenset(map(of, value)))
  if (dtype := _dtype(value)) is not None:
    return (np.dtype, dtype)
  if (function := _of_function(value, of)) is not None:
    return function
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return (type(value), *((field.name, of(getattr(value, field.name))) for field in dataclasses.fields(value)))
  return _of_object(value)


def fields(net: nn.Module) -> Iterator[tuple[str, Any]]:
  """(name, value) of the fields by which modules are compared: all but the parent, and those with `compare=False`."""
  for field in dataclasses.fields(net):
    if field.name != 'parent' and field.compare:
      yield field.name, vars(net).get(field.name)


def _is_array(value) -> bool:
  return isinstance(value, np.ndarray | np.generic | jax.Array) and not isinstance(value, jax.core.Tracer)


def _of_array(value, of):
  if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
    return (str(value.dtype), of(jax.random.key_data(value)))
  weak = getattr(value, 'weak_type', False)  # a float that JAX has made an array of
  mask = of(np.ma.getmaskarray(value)) if isinstance(value, np.ma.MaskedArray) else None
  array = np.asarray(value)
  numbers = of(array.tolist()) if array.dtype == object else checksum(array)
  return ('array', array.dtype.str if array.dtype.kind != 'V' else str(array.dtype), array.shape, weak, mask, numbers)


def checksum(array: Any) -> str:
  """Of the bytes of an array."""
  return hashlib.sha256(np.asarray(array).tobytes()).hexdigest()


def _dtype(value) -> str | None:
  """The name of a dtype in any of its forms but a word, which may mean something else."""
  is_type = isinstance(value, type) and issubclass(value, np.generic)
  return np.dtype(value).name if is_type or isinstance(value, np.dtype | type(jnp.float32)) else None


def _of_function(value, of):
  if isinstance(value, functools.partial):
    return (functools.partial, of(value.func), of(value.args), of(value.keywords))
  if isinstance(value, types.MethodType):
    return (types.MethodType, of(value.__self__), of(value.__func__))
  if isinstance(value, type(JITTED)):
    return of(value.__wrapped__)
  if not isinstance(value, types.FunctionType):
    return None
  cells = tuple(of(cell.cell_contents) if _is_full(cell) else None for cell in value.__closure__ or ())
  kept = (of(value.__defaults__), of(value.__kwdefaults__), cells)
  return (types.FunctionType, value.__code__, value.__code__.co_filename, Itself(value.__globals__), *kept)


JITTED = jax.jit(lambda: None)


def _is_full(cell) -> bool:
  try:
    return cell.cell_contents is not cell
  except ValueError:  # of a function that is used before the variable is set
    return False


def _of_object(value):
  if isinstance(value, float) and value != value:
    return (float, 'nan')
  if isinstance(value, bool):
    return (bool, value)
  by_value = type(value).__eq__ is not object.__eq__ and not isinstance(value, type)
  try:
    hash(value)
  except TypeError:
    by_value = False
  return value if by_value else Itself(value)


def added(default: Any) -> Any:
  """The default of a field that a model got after runs were stored: with it the model draws the initial weights of
  before, which `name_of` decides."""
  return dataclasses.field(default=default, metadata={ADDED: True})


def name_of(model: Any) -> str:
  """The identity of an architecture as text, equal in all processes: without the lowering of convolutions and the
  addresses of functions; arrays too long to be written out with the checksums of their bytes. Fields that are `added`
  are left out while all of them have their defaults."""
  net = model.net.clone(lowering='auto') if hasattr(model.net, 'lowering') else model.net
  with np.printoptions(**PRINT_OPTIONS):  # type: ignore[arg-type]
    text = re.sub(r' at 0x[0-9a-f]+', '', repr(net))
  new = [field for field in dataclasses.fields(net) if ADDED in field.metadata]
  if all(getattr(net, field.name) == field.default for field in new):
    for field in new:
      text = text.replace(f'    {field.name} = {field.default!r}\n', '', 1)
  return text + ''.join(f'\n{checksum(array)}' for array in _arrays(net) if array.size > SHOWN)


def _arrays(value) -> Iterator[Any]:
  """The arrays in the fields of a module, in their order."""
  if _is_array(value):
    yield value
  elif isinstance(value, nn.Module):
    for _, held in fields(value):
      yield from _arrays(held)
  elif isinstance(value, Mapping):
    for held in value.values():
      yield from _arrays(held)
  elif isinstance(value, tuple | list):
    for held in value:
      yield from _arrays(held)
