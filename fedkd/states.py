"""States of a method on a federation: before the first round, and as they are evaluated."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import keys, round
from fedkd.checks import blame, evaluated, returned
from fedkd.federation import Federation
from fedkd.models.initial import group_variables
from fedkd.types import Method, PyTree, State, of_model


def initial_state(
  key: jax.Array,
  method: Method,
  federation: Federation,
  variables: Sequence[dict],
  stale: bool = False,
  trained: bool = False,
) -> State:
  """The state before the first round.

  Args:
    key: of the run (or phase).
    variables: per group, leaves [1, ...] (all clients alike) or [n, ...].
    stale: whether clients train on what they downloaded last.
    trained: whether the variables are the clients' own, of earlier training.

  Raises:
    ValueError: where they do, and the server `asks`.
  """
  if stale and method.server.asks:
    raise ValueError(
      'clients of a stale plan answer older downloads, and this server asks for other public rows in every round; set '
      'stale=False (plan.stale in a config)'
    )
  states = first_clients(key, method, federation, variables)
  server = first_server(key, method, federation, variables, trained)
  if not stale:
    return State(states, server)
  key_inbox = _first(key)[2]
  return State(states, server, round.fill_inbox(key_inbox, method, federation.groups, server, federation.data()))


def _first(key: jax.Array) -> jax.Array:
  """Keys for the clients, the server, the inbox, and the models that a server trains."""
  return jax.random.split(jax.random.fold_in(key, keys.FIRST), 4)


def first_clients(key: jax.Array, method: Method, federation: Federation, variables: Sequence[dict]) -> tuple:
  """The clients' states before their first update, per group; arguments as `initial_state`."""
  key_client = _first(key)[0]

  def of_group(group, data, variables):
    def one(row, initial):
      of_client = round.of_client(data, row)
      key = key_client if method.client.alike else jax.random.fold_in(key_client, of_client.private.id)
      return _checked('Client.init', method.client.init, key, group.model, of_client, initial)

    rows, given = data.private.size.shape[0], jax.tree.leaves(variables)[0].shape[0]
    if given == 1:
      return jax.vmap(one, (0, None))(jnp.arange(rows), jax.tree.map(lambda a: jax.lax.squeeze(a, (0,)), variables))
    if given < rows:  # padding clients start like the last
      variables = jax.tree.map(lambda a: jnp.take(a, np.minimum(np.arange(rows), given - 1), 0), variables)
    return jax.vmap(one)(jnp.arange(rows), variables)

  return tuple(map(of_group, federation.groups, federation.data(), variables))


def first_server(
  key: jax.Array, method: Method, federation: Federation, variables: Sequence[dict], trained: bool = False
) -> PyTree:
  """The server's state before the first round; arguments as `initial_state`."""
  if trained and method.server.fresh:
    example = jax.ShapeDtypeStruct(federation.pool.example.shape[1:], federation.pool.example.dtype)
    key_fresh = _first(key)[3]
    variables = [group_variables(key_fresh, group, example) for group in federation.groups]
  of_first = lambda a: jax.lax.index_in_dim(a, 0, keepdims=False)
  first = tuple(jax.tree.map(of_first, of_model(v)) for v in variables)  # an optimizer's state is the clients' own
  key_server, init = _first(key)[1], method.server.init
  return _checked('Server.init', init, key_server, federation.groups, first, federation.data())


def _checked(name: str, init: Callable, *args: Any) -> PyTree:
  """What an `init` returns, as arrays of the dtypes that its leaves have: after a round a Python number, or an array
  made of one as by `jnp.full(n, 0.5)`, would be of another kind to JAX, and so the second round another program."""
  state = init(*args)
  returned.check_arrays(f'{name} {blame.named(init)} returned', 'state', state)
  return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), state)


def calibrated(method: Method, federation: Federation, state: State, which: Sequence[int]) -> State:
  """The state whose models of the groups numbered `which` may be evaluated (`Method.calibrate`)."""
  if method.calibrate is None:
    return state
  return evaluated.of_calibrate(method, federation.groups, state, federation.data(), which)
