"""What the functions of a method return, looked at while a round is traced: from shapes alone, in one sentence with the
function's name and line."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import FlaxError

from fedkd.checks import blame
from fedkd.checks.kinds import what_is
from fedkd.errors import ConfigError
from fedkd.types import is_partial

# What an evaluation says by itself: entries of an `info` with these names would take their places.
TAKEN = frozenset(('run', 'method', 'phase', 'round', 'seeds', 'clients', 'time', 'test_rows', 'turns', 'seconds'))
TAKEN |= {'examples', 'numbers_up', 'numbers_down', 'bytes_up', 'bytes_down'}
REFUSED = (ValueError, FlaxError)  # whose text stands for itself
UNFIT = (*REFUSED, TypeError, LookupError, AttributeError)  # of whoever reads what somebody else's functions return
ACCURACIES = ('accuracy', 'validation_accuracy')


def of_step(step: Callable, group: str, returned: Any) -> tuple:
  """(state, upload, info) of a `Client.step`, the upload's numbers as arrays.

  Raises:
    ConfigError: for anything else.
  """
  who = f'Client.step {blame.named(step)} returned'
  check_tuple(who, returned, 3, '(state, upload, info)')
  _check_dict(who, returned[2])
  for what, tree in zip(('state', 'upload', 'info'), returned, strict=True):
    check_arrays(f'{who} for a client of {group}', what, tree)
  _check_metrics(who, returned[2], TAKEN - {'examples'})
  upload = _as_arrays(returned[1])
  _check_valid(f'{who} for a client of {group}', 'upload', upload)
  return returned[0], upload, returned[2]


def of_receive(receive: Callable, before: Any, returned: Any, infos: Iterable[dict] = ()) -> tuple:
  """(state, info) of a `Server.receive`, whose state is like the one `before`; `infos`: of the clients of every group.

  Raises:
    ConfigError: for anything else.
  """
  who = f'Server.receive {blame.named(receive)} returned'
  check_tuple(who, returned, 2, '(state, info)')
  _check_dict(who, returned[1])
  for what, tree in zip(('state', 'info'), returned, strict=True):
    check_arrays(who, what, tree)
  _check_metrics(who, returned[1], TAKEN.union(*infos))
  check_state(who, before, returned[0], 'Server.init and Server.receive')
  return returned


def of_send(send: Callable, kind: Any, slots: tuple, returned: Any) -> tuple:
  """A `Download` per group, of a `Server.send`, numbers as arrays; `kind`: `Download`; `slots`: how many there are in
  each group.

  Raises:
    ConfigError: for anything else.
  """
  who, remedy = f'Server.send {blame.named(send)} returned', 'let it return a tuple with a Download per group'
  if not isinstance(returned, tuple | list) or isinstance(returned, kind) or len(returned) != len(slots):
    many = f' of {len(returned)}' if isinstance(returned, tuple | list) else ''
    raise ConfigError(f'{who} {what_is(returned)}{many} for {len(slots)} groups; {remedy}')
  for g, (down, count) in enumerate(zip(returned, slots, strict=True)):
    if not isinstance(down, kind):
      raise ConfigError(f'{who} {what_is(down)} for group {g}; {remedy}')
    check_arrays(who, f'Download for group {g}', down)
    for path, leaf in jax.tree_util.tree_leaves_with_path(down.own):
      if np.shape(leaf)[:1] != (count,):
        raise ConfigError(
          f'{who} a Download for group {g} whose own{jax.tree_util.keystr(path)} is {list(np.shape(leaf))}; let own '
          f'have leaves [{count}, ...], a row per slot'
        )
    _check_valid(who, f'Download for group {g}', _as_arrays(down))
  return tuple(map(_as_arrays, returned))


def check_state(who: str, before: Any, after: Any, functions: str) -> None:
  """Checks that a state can be carried into the next round.

  Raises:
    ConfigError: for another structure, shape or dtype; `functions`: which two have to agree.
  """
  now: Any = jax.tree.structure(after)
  was: Any = jax.tree.structure(before)
  if now != was:
    raise ConfigError(f'{who} the state {now}, and it was {was}; let {functions} return the same structure')
  for (path, old), new in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
    if _shape(old) != _shape(new):
      where = jax.tree_util.keystr(path) or 'its root'
      raise ConfigError(f'{who} a state with {_shape(new)} at {where}, and it had {_shape(old)}; let {functions} agree')


def check_like(who: str, expected: Any, found: Any, remedy: str, dtypes: bool = True) -> None:
  """Checks that a tree has the paths, shapes and (unless `dtypes` is False) dtypes of another.

  Raises:
    ConfigError: for the first place where it has not.
  """
  looked_at: Any = _shape if dtypes else np.shape
  structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, found)]
  shapes = [list(map(looked_at, jax.tree.leaves(tree))) for tree in (expected, found)]
  if structures[0] == structures[1] and shapes[0] == shapes[1]:
    return
  was, now = (
    {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    for tree in (expected, found)
  )
  for place in [*was, *now]:
    pair = [_shape(tree[place]) if place in tree else 'nothing' for tree in (was, now)]
    pair = pair if dtypes or 'nothing' in pair else [str(list(np.shape(tree[place]))) for tree in (was, now)]
    if pair[0] != pair[1]:
      raise ConfigError(f'{who} with {pair[1]} at {place or "its root"}, not {pair[0]}; {remedy}')


@contextlib.contextmanager
def explained(
  suspects: Iterable[tuple[str, Any]],
  failed: str = '',
  left: Callable[[Exception], bool] = lambda error: False,
  traced: str = 'a round',
) -> Iterator[None]:
  """Around the tracing of a round, or of what else is `traced`: one sentence in place of JAX's fifty lines.

  Args:
    suspects: (what it is, function or class) of all that a user may have written.
    failed: how a sentence begins about parts of this package that do not fit.
    left: whether an error is none of theirs.

  Raises:
    ConfigError: for an error in one of the suspects, with its line, and for parts that do not fit together.
  """
  try:
    yield
  except Exception as error:
    text = (str(error).strip() or 'no message').splitlines()[0]
    if isinstance(error, ConfigError):
      raise ConfigError(text) from None
    foreign = [(what, function) for what, function in suspects if blame.is_foreign(function)]
    for was_in in (blame.passed_through, blame.raised_in):
      for what, function in foreign:
        if was_in(function, error):
          raise ConfigError(blame.raised(what, function, error)) from None
    blamed = () if blame.is_refusal(error) else [one for one in foreign if one[0] != 'model']
    named = ', '.join(f'{what} {blame.named(function)}' for what, function in blamed)
    if left(error) or not isinstance(error, UNFIT if named else REFUSED):
      raise
    text = text if isinstance(error, REFUSED) else f'{type(error).__name__}: {text}'
    raise ConfigError(
      f'{failed}: {text}' if failed else f'{named}: {traced} fails with {text}' if named else text
    ) from None


def suspects(method: Any, modules: Iterable[type]) -> list[tuple[str, Any]]:
  """The functions of a method, and the classes of its models."""
  client = [(f'Client.{name}', getattr(method.client, name)) for name in ('init', 'step')]
  server = [(f'Server.{name}', getattr(method.server, name)) for name in ('init', 'receive', 'send')]
  return [*client, *server, *(('model', module) for module in modules)]


def named_step(step: Callable, group: str) -> str:
  """How a sentence about the state of a client begins."""
  return f'Client.step {blame.named(step)} returned for a client of {group}'


def _shape(leaf) -> str:
  dtype = leaf.dtype if hasattr(leaf, 'dtype') else jnp.result_type(leaf)
  keys = jnp.issubdtype(dtype, jax.dtypes.extended)
  return f'{dtype if keys else jax.dtypes.canonicalize_dtype(dtype)}{list(np.shape(leaf))}'


def check_tuple(who: str, returned: Any, count: int, words: str) -> None:
  """Checks that a function returned a tuple of so many; `words`: of what.

  Raises:
    ConfigError: if not.
  """
  if not isinstance(returned, tuple) or len(returned) != count:
    many = f' of {len(returned)}' if isinstance(returned, tuple) else ''
    raise ConfigError(f'{who} {what_is(returned)}{many}; let it return {words}')


def _check_dict(who, info):
  if not isinstance(info, dict):
    raise ConfigError(f'{who} {what_is(info)} as info; let it be a dict of scalars, or {{}}')


def _check_metrics(who, info, taken):
  """Checks that an `info` has numbers, under names that nothing else has in an evaluation."""
  for name, value in info.items():
    if not isinstance(name, str) or name in taken or name.startswith(ACCURACIES) or name.endswith('_per_client'):
      raise ConfigError(f'{who} {name!r} in info, a name that an evaluation has for something else; choose another')
    if not jax.tree_util.all_leaves([value]) or np.shape(value):
      raise ConfigError(f'{who} {what_is(value)} as {name!r} in info; let it be a scalar, for example its mean')


def _as_arrays(message):
  """A message with the numbers of Python and NumPy in it as arrays, which the ledger counts."""
  return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf), message)


def _check_valid(who, what, message):
  """Checks that what is valid of a message is told entry by entry: the ledger adds it up."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(message, is_leaf=is_partial):
    if not is_partial(leaf):
      continue
    where, value, valid = f'{jax.tree_util.keystr(path)} in its {what}', leaf.value, leaf.valid
    for name, array in leaf._asdict().items():
      if not isinstance(array, jax.Array):
        raise ConfigError(f'{who} {what_is(array)} as {name} of {where}; let it be one array, in a Masked of its own')
    if valid.dtype != bool:
      raise ConfigError(f'{who} {what_is(valid)} as valid of {where}; let it be bool, such as count > 0')
    if valid.shape != value.shape[: valid.ndim]:
      raise ConfigError(
        f'{who} {what_is(valid)} as valid of {where}, whose value is {what_is(value)}; let it have the first axes of '
        'value'
      )


def check_arrays(who: str, what: str, tree: Any) -> None:
  """Checks that the leaves of a tree are arrays or numbers.

  Raises:
    ConfigError: for the first that is not.
  """
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float) or np.dtype(object) == getattr(
      leaf, 'dtype', None
    ):
      where = f' at {jax.tree_util.keystr(path)}' if path else ''
      raise ConfigError(f'{who} {what_is(leaf)}{where} in its {what}; let it be a pytree of arrays')
