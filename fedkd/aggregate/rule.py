"""The type of aggregation rules, and the checks that every rule passes before it runs.

`fedkd.aggregate` has the rules; users find `Rule` there too.
"""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedkd.aggregate import law
from fedkd.checks import blame
from fedkd.checks.kinds import what_is
from fedkd.checks.returned import check_arrays
from fedkd.errors import ConfigError
from fedkd.types import PyTree


class PlainRule(Protocol):
  """A stateless rule."""

  def __call__(self, rows: PyTree, weight: jax.Array) -> PyTree:
    """One tree [...] of the rows [m, ...] with the weights float[m]."""


class Rule(NamedTuple):
  """A stateful rule, a pair of pure functions as in optax; accepted wherever a stateless rule is.

  init: like -> state. `like` is a tree with the shapes of a result: the initial weights where weights are reduced,
    zeros where knowledge is.
  update: (rows, weight, state) -> (tree, state). Servers keep the state as it was where all weights are 0.
  """

  init: Callable[[PyTree], PyTree]
  update: Callable[[PyTree, jax.Array, PyTree], tuple[PyTree, PyTree]]


AnyRule = PlainRule | Rule
CALL_IT = 'makes a rule; call it, and give what it returns'


def as_rule(rule: AnyRule) -> Rule:
  """Any rule as a checked pair, which is what servers call; its results have the dtypes of the rows.

  The state of a plain rule is `()`.

  Raises:
    ConfigError: for what cannot be called, such as the name of a rule; by `update`, from shapes alone and before
      anything is compiled, if the rule raises or returns anything but a tree like one of its rows. The message of
      `update` begins with the rule as 'module:name' and the line in it.
  """
  if not isinstance(rule, Rule) and not callable(rule):
    remedy = 'fedkd.aggregate.mean, median or trimmed_mean, or a rule of your own'
    raise ConfigError(f'rule is {what_is(rule)}; give a function: {remedy}')
  init, given = rule if isinstance(rule, Rule) else (_nothing, lambda rows, weight, state: (rule(rows, weight), state))

  def update(rows, weight, state):
    tree, after = jax.eval_shape(functools.partial(_returned, rule, given), rows, weight, state)
    _check(rule, 'returned', tree, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), rows))
    _check(rule, 'returned a state with', after, state)
    if blame.is_foreign(_function(rule)):
      law.look(
        _function(rule),
        _named(rule),
        functools.partial(blame.call, 'init of rule', init),
        functools.partial(_returned, rule, given),
        tree,
      )
    tree, after = given(rows, weight, state)
    some = jnp.any(weight > 0)
    tree = jax.tree.map(lambda new, row: jnp.asarray(new, row.dtype), tree, rows)
    return tree, jax.tree.map(lambda new, old: jnp.where(some, new, old).astype(jnp.result_type(old)), after, state)

  return Rule(lambda like: blame.call('init of rule', init, like), update)


def mapped(rule: AnyRule) -> Rule:
  """Applies a rule to every entry of axis 1 separately: rows [m, n, ...] with weights [m, n] make a tree [n, ...].

  A row may then have weight 0 in some entries only: in the classes that a client has not seen, or the numbers that its
  smaller model lacks.
  """
  one = as_rule(rule)
  return Rule(jax.vmap(one.init), jax.vmap(one.update, in_axes=(1, 1, 0)))


def name_of(rule: AnyRule) -> str:
  """'module:name' of a rule, for messages; for a pair, that of its factory."""
  name = blame.name_of(_function(rule))
  return name.partition('.<locals>')[0] if isinstance(rule, Rule) else name


def _nothing(like):
  del like
  return ()


def _function(rule):
  return blame.unwrapped(rule.update if isinstance(rule, Rule) else rule)


def _named(rule, error=None) -> str:
  """How a sentence about a rule begins."""
  return f'rule {name_of(rule)}{blame.place(_function(rule), error)}'


def _returned(rule, update, *args):
  """What a rule returns; an error in it becomes one sentence that begins with the rule's name and its own line."""
  try:
    inspect.signature(_function(rule)).bind(*args if isinstance(rule, Rule) else args[:2])
  except TypeError as error:
    given = '(rows, weight, state)' if isinstance(rule, Rule) else '(rows, weight)'
    raise ConfigError(
      f'{_named(rule)} cannot be called: {error}; let it take {given}, or give the rule that it makes'
    ) from error
  except ValueError:  # a builtin without signature
    pass
  if getattr(_function(rule), '__annotations__', {}).get('return') is Rule:
    raise ConfigError(f'{_named(rule)} {CALL_IT}')
  with blame.guard('rule', _function(rule)):
    returned = update(*args)
  if not (isinstance(returned, tuple) and len(returned) == 2):
    raise ConfigError(f'{_named(rule)} does not return a pair; let it return (tree, state)')
  if isinstance(returned[0], Rule):
    raise ConfigError(f'{_named(rule)} {CALL_IT}')
  for what, tree in zip(('tree', 'state'), returned, strict=True):
    check_arrays(f'{_named(rule)} returned', what, tree)
  return returned


def _check(rule, verb, returned, expected):
  """Checks that a tree has the expected paths and shapes."""
  returned, expected = _shapes(returned), _shapes(expected)
  several = lambda paths: ', '.join(path or 'array' for path in paths[:3]) + ', ...' * (len(paths) > 3)
  missing, extra = [p for p in expected if p not in returned], [p for p in returned if p not in expected]
  if missing or extra:
    reason = f'no {several(missing)}' if missing else f'{several(extra)}, which its rows do not have'
    raise ConfigError(f'{_named(rule)} {verb} {reason}; let it return a tree like one of its rows')
  for path, shape in expected.items():
    where = f' for {path}' if path else ''
    if returned[path].shape != shape.shape:
      raise ConfigError(f'{_named(rule)} {verb} {list(returned[path].shape)}{where}, expected {list(shape.shape)}')
    if jnp.issubdtype(shape.dtype, jnp.floating) and not jnp.issubdtype(returned[path].dtype, jnp.floating):
      raise ConfigError(
        f'{_named(rule)} {verb} {returned[path].dtype}{where}, expected {shape.dtype}; numbers would be cut off'
      )


def _shapes(tree) -> dict:
  """{path: ShapeDtypeStruct} of the leaves."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  dtype = lambda leaf: getattr(leaf, 'dtype', None) or jnp.result_type(leaf)
  shape = lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), dtype(leaf))
  return {jax.tree_util.keystr(path, simple=True, separator='.'): shape(leaf) for path, leaf in leaves}
