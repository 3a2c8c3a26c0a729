"""The vocabulary of fedkd: what a client, a server, a method and a message are.

Everything is a NamedTuple of pure functions or of arrays. A method is written for ONE client and one
server; `fedkd.round` maps it over the slots of each group and names no method.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

PyTree = Any


class Client(NamedTuple):
  """What one client does. The round maps both functions over the clients of a group.

  init: (key, model, data, variables) -> state. `variables` are the initial ones of its architecture, or those an
    earlier phase left it with, then with 'opt', the state of the optimizer that trained them (if one did). `()` is a
    legal state.
  step: (key, t, model, state, down, data) -> (state, up, info). One turn in round `t`: `down` is what it
    receives, `up` what it sends, `info` a dict of scalars for the human reader (`loss` and `examples` are
    expected; NaN: this turn has no such number).
  """

  init: Callable[..., PyTree]
  step: Callable[..., tuple]


class Server(NamedTuple):
  """What the server does; a peer-to-peer method's server is a router.

  init: (key, groups, variables, data) -> state. `variables[g]` are group g's initial ones, without a
    client axis. Called once; the place to look at models and shapes, and to refuse them (ValueError).
  receive: (key, t, state, uploads, ids) -> (state, info). Per group `uploads[g]` has leaves [m, ...] and `ids[g]`
    int32[m] holds global client numbers, -1 for an empty slot, whose upload is zeros; m may be 0.
  send: (key, t, state, ids) -> tuple of Down, one per group.
  """

  init: Callable[..., PyTree]
  receive: Callable[..., tuple]
  send: Callable[..., tuple]


def apply_model(model, variables, server_state, x):
  """The default `Method.predict`: logits [B, C] of `model` on raw images `x` [B, H, W, channels]."""
  del server_state
  return model.apply(variables, x, False)[0]


class Method(NamedTuple):
  """A federated method.

  variables: (state, g) -> {'params', 'batch_stats'} with leaves [n, ...], or [1, ...] where one model
    serves the whole group: the model that a client of group g would use now.
  predict: (model, variables, server_state, x) -> logits [B, C].
  calibrate: (groups, State, data, which) -> State, what is left to do before anybody looks at the models of the groups
    numbered `which` (at an evaluation, or the end); training goes on from the state before. None: nothing.
  """

  client: Client
  server: Server
  variables: Callable[..., PyTree]
  predict: Callable[..., jax.Array] = apply_model
  calibrate: Callable[..., PyTree] | None = None


class Download(NamedTuple):
  """A download. `shared` has no client axis (stored once); `own` has leaves [m, ...], a row per slot.

  A client's step sees the same type with its own row.
  """

  shared: PyTree = ()
  own: PyTree = ()


class Masked(NamedTuple):
  """Part of a message that is not always full: only entries with `valid` crossed the wire.

  value: [*v, ...]; valid: bool[*v], a prefix of value's shape.
  """

  value: jax.Array
  valid: jax.Array


def is_masked(leaf) -> bool:
  """Whether a node of a message is a `Masked`, as `is_leaf` of `jax.tree.map` asks."""
  return isinstance(leaf, Masked)


class PeerMessages(NamedTuple):
  """A router's message with one row per client: a receiver's own row is its echo, not traffic.

  value: [K, ...]; valid: bool[K], who said something.
  """

  value: jax.Array
  valid: jax.Array


class Pool(NamedTuple):
  """All training examples of a run, on the device once. Clients, seeds and views hold row numbers of it."""

  example: jax.Array  # [N, ...] of any dtype: uint8 images, float vectors, integer tokens
  label: jax.Array  # int32[N]


class ExampleIndices(NamedTuple):
  """Examples that somebody owns: the first `size` entries of `index` are rows of the pool, the rest padding."""

  index: jax.Array  # int32[n_max]
  size: jax.Array  # int32[]
  id: jax.Array  # int32[], global number of the client; -1 for rows that belong to no one client


class Data(NamedTuple):
  """What a client sees: the images, its own rows, and everyone's rows (only upper bounds may use those).

  Held for a whole group, the leaves of `private` and `shared` have a leading axis [n].
  """

  pool: Pool
  private: ExampleIndices  # all rows of the client; those it gives to everybody are the last of them
  everyone: ExampleIndices
  shared: ExampleIndices | None = None  # the rows it gives to everybody; None: nobody gives any
  public: ExampleIndices | None = (
    None  # rows that everybody has: a public set, or what all clients share; None: there are none
  )


class Group(NamedTuple):
  """Clients of one architecture, stacked on axis 0 of their states."""

  name: str
  model: Any  # flax.linen.Module taking raw images
  ids: np.ndarray  # int32[n], global client numbers


def clients(groups) -> int:
  """How many clients there are, by their highest number: a client may sit in several groups."""
  return max(int(g.ids.max(initial=-1)) for g in groups) + 1


class State(NamedTuple):
  """All that outlives a round. `inbox` (stale plans only) holds each client's last download."""

  client: tuple  # per group, leaves [n, ...]
  server: PyTree
  inbox: tuple | None = None  # per group Down with leaves [n, ...]
