"""What state of an NNX module a round can carry, and the refusal of the rest by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from flax import nnx

from fedkd.errors import ConfigError

CARRIED = (nnx.Param, nnx.BatchStat)
RANDOM = (
  nnx.Rngs,
  nnx.RngStream,
  nnx.RngState,
)  # start afresh in each pass, so that it does not matter who shares them


def check(field: str, module: nnx.Module) -> None:
  """Checks that every variable is of a kind that a round carries, and is held in one place.

  Raises:
    ConfigError: that names the attribute, with the remedy.
  """
  who, places = f'{field}: {type(module).__name__}', {}
  for path, node in _walk(module, (), ()):
    name = '.'.join(map(str, path))
    if id(node) in places:
      first = places[id(node)]
      raise ConfigError(
        f'{who} holds one {type(node).__name__} in two places, {_told(first)} and {_told(name)}; keep it in one of '
        'them, and use it from there'
      )
    places[id(node)] = name
    if isinstance(node, nnx.Variable) and not isinstance(node, CARRIED):
      raise ConfigError(
        f'{who} has the variable {name} of the kind {type(node).__name__}, and rounds carry nnx.Param and '
        'nnx.BatchStat alone; make it one of them, or a plain array if it never changes'
      )


def _told(name):
  return name or 'itself'


def _walk(node: Any, path: tuple, above: tuple) -> Iterator[tuple[tuple, Any]]:
  """(path, node) of every module and variable, as often as it is held; a cycle once more than it has nodes."""
  is_held = isinstance(node, nnx.Pytree | nnx.Variable) and not isinstance(node, RANDOM)
  if is_held:
    yield path, node
  if id(node) in above or (not is_held and not isinstance(node, Mapping | list | tuple)):
    return
  for name, child in _children(node):
    yield from _walk(child, (*path, name), (*above, id(node)))


def _children(node):
  if isinstance(node, nnx.Variable):
    return ()
  if isinstance(node, nnx.Pytree):
    return [(name, child) for name, child in vars(node).items() if not name.startswith('_pytree__')]
  return list(node.items()) if isinstance(node, Mapping) else list(enumerate(node))


def arrays(module: nnx.Module) -> dict[str, jax.Array]:
  """Arrays that are attributes and no variables, by name."""
  found = ((path, node) for path, node in nnx.iter_graph(module) if isinstance(node, jax.Array))
  return {'.'.join(map(str, path)): node for path, node in found}


def check_constant(field: str, kind: type, traced: Any, names: Sequence[str]) -> None:
  """Checks that arrays that no variable holds are the same in every pass.

  Args:
    field, kind: the argument and the class of the module, for the message.
    traced: jaxpr of key -> arrays.
    names: of the arrays.

  Raises:
    ConfigError: for an array drawn from the key.
  """
  drawn = set(traced.invars)
  for equation in traced.eqns:
    if any(v in drawn for v in equation.invars if not hasattr(v, 'val')):
      drawn |= set(equation.outvars)
  for name, out in zip(sorted(names), traced.outvars, strict=True):
    if not hasattr(out, 'val') and out in drawn:
      raise ConfigError(
        f'{field}: {kind.__name__} has the array {name}, drawn from rngs, which is no variable, so that each pass would '
        'draw another; make it an nnx.Param, or draw it from a key of its own, jax.random.key(0)'
      )
