"""The state of an NNX module: what of it a round carries, and the refusal of the rest by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.traverse_util import unflatten_dict

from fedkd.errors import ConfigError
from fedkd.models.flags import ATTRIBUTES, NAMES

COLLECTIONS = {'params': nnx.Param, 'batch_stats': nnx.BatchStat}
CARRIED = tuple(COLLECTIONS.values())
RANDOM = (nnx.Rngs, nnx.RngStream, nnx.RngState)  # starts afresh in each pass, whoever shares it
MODES = (*NAMES, *ATTRIBUTES)  # attributes that each pass sets


def variables(module: nnx.Module) -> dict:
  """{'params', 'batch_stats'} of a module, nested by the names of its attributes; without those that are empty."""
  out = {}
  for collection, kind in COLLECTIONS.items():
    held = {
      _names(path): variable.get_value() for path, variable in nnx.iter_graph(module) if isinstance(variable, kind)
    }
    if held:
      out[collection] = unflatten_dict(jax.tree.map(jnp.asarray, held))
  return out


def merge(module: nnx.Module, variables: Mapping[str, Any]) -> None:
  """Sets the variables of a module, as `variables` returns them; those that are not given stay."""
  for path, variable in list(nnx.iter_graph(module)):
    collection = next((name for name, kind in COLLECTIONS.items() if isinstance(variable, kind)), None)
    tree = variables.get(collection) if collection else None
    for name in _names(path):
      tree = None if tree is None else tree.get(name)
    if tree is not None:
      variable.set_value(tree)


def _names(path) -> tuple[str, ...]:
  return tuple(map(str, path))


def reseed(module: nnx.Module, rngs: nnx.Rngs) -> None:
  """Starts every random stream of a module from a key of its own, whatever it was made with."""
  for _, stream in list(nnx.iter_graph(module)):
    if isinstance(stream, nnx.RngStream):
      key, shape = rngs(), stream.key.get_value().shape
      stream.key.set_value(jax.random.split(key, shape) if shape else key)
      stream.count.set_value(jnp.zeros(shape, jnp.uint32))


def attributes(module: nnx.Module) -> dict[str, Any]:
  """The numbers and words that a module holds itself; of one without, the number of its parameters."""
  plain = lambda name, value: name not in MODES and name[0] != '_' and isinstance(value, int | float | str)
  held = {name: value for name, value in vars(module).items() if plain(name, value)}
  return held or {'parameters': sum(leaf.size for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))}


def plain_arrays(module: nnx.Module) -> dict[str, jax.Array]:
  """{attribute: array} of those that are no variables."""
  return {'.'.join(_names(path)): node for path, node in nnx.iter_graph(module) if isinstance(node, jax.Array)}


def check(field: str, module: nnx.Module) -> None:
  """Checks that every variable is of a kind that a round carries, and is held in one place.

  Raises:
    ConfigError: that names the attribute, with the remedy.
  """
  who, places = f'{field}: {type(module).__name__}', dict[int, str]()
  for path, node in _held(module, (), ()):
    name = '.'.join(path)
    if id(node) in places:
      both = f'{name}, which is the module itself' if node is module else f'{places[id(node)]} and {name}'
      raise ConfigError(
        f'{who} holds one {type(node).__name__} in two places ({both}); keep it in one of them, and use it from there'
      )
    places[id(node)] = name
    if isinstance(node, nnx.Variable) and not isinstance(node, CARRIED):
      raise ConfigError(
        f'{who} has the variable {name} of the kind {type(node).__name__}, and a round carries nnx.Param and '
        'nnx.BatchStat alone; make it one of them, or a plain array if it never changes'
      )


def _held(node: Any, path: tuple[str, ...], above: tuple[int, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
  """(path, node) of every module and variable, as often as it is held; of a cycle once more."""
  is_node = isinstance(node, nnx.Pytree | nnx.Variable) and not isinstance(node, RANDOM)
  if is_node:
    yield path, node
  if id(node) in above or not (is_node or isinstance(node, Mapping | list | tuple)):
    return
  for name, child in _children(node):
    yield from _held(child, (*path, str(name)), (*above, id(node)))


def _children(node) -> list:
  if isinstance(node, nnx.Variable):
    return []
  if isinstance(node, nnx.Pytree):
    return [(name, child) for name, child in vars(node).items() if not name.startswith('_pytree__')]
  return list(node.items()) if isinstance(node, Mapping) else list(enumerate(node))


def check_constant(who: str, traced: Any, names: Sequence[str]) -> None:
  """Checks that arrays that no variable holds are the same in every pass.

  Args:
    who: the argument and the class of the module, for the message.
    traced: jaxpr of key -> arrays.
    names: of the arrays.

  Raises:
    ConfigError: for an array drawn from the key.
  """
  drawn = set(traced.invars)
  for equation in traced.eqns:
    if any(is_variable(v) and v in drawn for v in equation.invars):
      drawn |= set(equation.outvars)
  for name, out in zip(names, traced.outvars, strict=True):
    if is_variable(out) and out in drawn:
      raise ConfigError(
        f'{who} has the array {name}, drawn from rngs, which is no variable, so that each pass would draw another; '
        'make it an nnx.Param, or draw it from a key of its own, jax.random.key(0)'
      )


def is_variable(atom: Any) -> bool:
  """Whether an operand in a jaxpr is no literal, which cannot be hashed."""
  return not hasattr(atom, 'val')
