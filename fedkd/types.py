"""The vocabulary of fedkd: what a client, a server, a method and a message are.

Everything is a NamedTuple of pure functions or of arrays. A method is written for ONE client and one
server; `fedkd.round` maps it over the slots of each group and names no method.

The documentation's cheat sheet (`docs/`, `api/cheat_sheet`) is made from this file: fields with their comments,
arguments with their `Args:`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import flax.linen as nn
import jax
import numpy as np

PyTree = Any


class Pool(NamedTuple):
  """All training examples of a run, on the device once. Clients, seeds and views hold row numbers of it."""

  example: jax.Array  # [N, ...] of any dtype: uint8 images, float vectors, integer tokens
  label: jax.Array  # int32[N]


class ExampleIndices(NamedTuple):
  """A client's examples, or pooled ones: the first `size` entries of `index` are rows of the pool, the rest padding.

  The field `index` hides the method of tuples.
  """

  index: jax.Array | np.ndarray  # type: ignore[assignment]  # int32[n_max], rows of the pool
  size: jax.Array | np.ndarray  # int32[], how many entries of `index` are examples
  id: jax.Array | np.ndarray  # int32[], global number of the client; -1 for examples of no single client


class Data(NamedTuple):
  """What a client sees: the pool, its own examples, and everyone's (only centralised references may use those).

  Held for a whole group, the leaves of `private` and `shared` have a leading axis [n].
  """

  pool: Pool  # all examples, of all clients
  private: ExampleIndices  # all examples of the client, those it shares last; `private.id` is who it is
  everyone: ExampleIndices  # those of all clients together, for centralised references only
  shared: ExampleIndices | None = None  # the examples it shares with everybody; None: nobody shares
  public: ExampleIndices | None = None  # what everybody has: a public set, or all shared examples; None: nothing


class Group(NamedTuple):
  """Clients of one architecture, stacked on axis 0 of their states."""

  name: str  # of the architecture, as tables and figures print it
  model: Any  # a Flax linen module on raw examples, `models.base.Preprocessed`
  ids: np.ndarray  # int32[n], global client numbers


def clients(groups: Sequence[Group]) -> int:
  """How many clients there are, by their highest number: a client may belong to several groups."""
  return max(int(g.ids.max(initial=-1)) for g in groups) + 1


class Download(NamedTuple):
  """What the server sends. `shared` has no client axis (stored once); `own` has leaves [m, ...], a row per slot.

  A client's step sees the same type with its own row.
  """

  shared: PyTree = ()  # the same for all clients of the group
  own: PyTree = ()  # for one client; the server makes leaves [m, ...]


class Masked(NamedTuple):
  """A part of a message of which only the entries with `valid` are transmitted."""

  value: jax.Array  # [*v, ...]
  valid: jax.Array  # bool[*v], a prefix of value's shape: which entries are sent


def is_masked(leaf: Any) -> bool:
  """Whether a node of a message is a `Masked`, as `is_leaf` of `jax.tree.map` asks."""
  return isinstance(leaf, Masked)


class PeerMessages(NamedTuple):
  """A router's message with one row per client; a receiver's own row is not counted as traffic."""

  value: jax.Array  # [K, ...], by global client number
  valid: jax.Array  # bool[K], who has sent one


def is_partial(leaf: Any) -> bool:
  """Whether a node of a message is a `Masked` or a `PeerMessages`, of which only what is valid is transmitted."""
  return isinstance(leaf, Masked | PeerMessages)


def values_of(message: PyTree) -> PyTree:
  """A message with the value of every `Masked` and `PeerMessages` in its place, whatever is valid."""
  return jax.tree.map(lambda leaf: leaf.value if is_partial(leaf) else leaf, message, is_leaf=is_partial)


class Known(NamedTuple):
  """A part of a message that its receiver has already, and that is not transmitted."""

  value: PyTree  # what the receiver has


class State(NamedTuple):
  """What methods and servers keep between rounds. `inbox` (stale plans only) holds each client's last download."""

  client: tuple  # per group, leaves [n, ...]
  server: PyTree  # whatever the server's `init` returned
  inbox: tuple | None = None  # per group Download with leaves [n, ...]


class ClientInit(Protocol):
  """(key, model, data, variables) -> the client's state; `()` is a valid one.

  Args:
    key: the client's own, or the same for all where `Client.alike`.
    model: its Flax module, on raw examples: `model.apply(variables, x, train)` gives (logits, out).
    data: `Data`, its own view of all examples.
    variables: the initial {'params', 'batch_stats'} of its architecture, or those an earlier phase left it with, then
      with 'opt', the state of the optimizer that trained them (if one did).
  """

  def __call__(self, key: jax.Array, model: nn.Module, data: Data, variables: dict, /) -> PyTree: ...


class ClientStep(Protocol):
  """(key, t, model, state, download, data) -> (state, upload, info): one client update in round `t`.

  `info` is a dict of scalars for the human reader (`loss` and `examples` are expected; NaN: this update has no such
  metric).

  Args:
    key: of this round and this client.
    t: int32[], the round.
    model: as of `ClientInit`.
    state: the client's own, as it left it after its last update.
    download: `Download`, what the server sent, with the client's own row of `own`.
    data: as of `ClientInit`.
  """

  def __call__(
    self, key: jax.Array, t: jax.Array, model: nn.Module, state: PyTree, download: Download, data: Data, /
  ) -> tuple[PyTree, PyTree, dict]: ...


class Client(NamedTuple):
  """What one client does. The round maps both functions over the clients of a group.

  `alike`: whether `init` gets the same key for every client, so that what it draws from it is equal where shapes are,
  instead of a key of the client's own.
  """

  init: ClientInit  # makes a client's state
  step: ClientStep  # one client update
  alike: bool = False  # whether all clients get one key in `init`


class ServerInit(Protocol):
  """(key, groups, variables, data) -> the server's state. Called once: the place to check models and shapes
  (ValueError).

  Args:
    key: the server's own.
    groups: a `Group` per architecture.
    variables: per group the initial {'params', 'batch_stats'}, without a client axis.
    data: per group `Data`, whose `private` and `shared` have the axis [n].
  """

  def __call__(
    self, key: jax.Array, groups: tuple[Group, ...], variables: tuple[dict, ...], data: tuple[Data, ...], /
  ) -> PyTree: ...


class ServerReceive(Protocol):
  """(key, t, groups, state, uploads, ids, data) -> (state, info): the uploads of a round go into the state.

  Args:
    key: of this round.
    t: int32[], the round.
    groups: as of `ServerInit`.
    state: the server's own.
    uploads: per group what its clients returned, leaves [m, ...]; those of an empty slot are zeros. m may be 0.
    ids: per group int32[m], global client numbers, -1 for an empty slot.
    data: as of `ServerInit`, except that `private` and `shared` hold only the clients in memory where the others are
      on disk.
  """

  def __call__(
    self,
    key: jax.Array,
    t: jax.Array,
    groups: tuple[Group, ...],
    state: PyTree,
    uploads: tuple[PyTree, ...],
    ids: tuple[jax.Array, ...],
    data: tuple[Data, ...],
    /,
  ) -> tuple[PyTree, dict]: ...


class ServerSend(Protocol):
  """(key, t, groups, state, ids, data) -> a `Download` per group.

  Args:
    key: of this round.
    t: int32[], the round.
    groups: as of `ServerInit`.
    state: the server's own.
    ids: per group int32[m], who receives: global client numbers, -1 for an empty slot.
    data: as of `ServerReceive`.
  """

  def __call__(
    self,
    key: jax.Array,
    t: jax.Array,
    groups: tuple[Group, ...],
    state: PyTree,
    ids: tuple[jax.Array, ...],
    data: tuple[Data, ...],
    /,
  ) -> tuple[Download, ...]: ...


class Server(NamedTuple):
  """What the server does; a peer-to-peer method's server is a router.

  `asks`: whether it treats every upload as the answer to what it sent last, such as the rows to predict. Its clients
  cannot work on older downloads, as they do under a stale plan.
  `fresh`: whether it trains models of its own, which begin untrained also where clients go on with the models of an
  earlier phase. Other servers are then given those of the first client of every group.
  `alone`: whether what clients predict with goes on training in rounds without clients. A phase of such a method does
  not end early where all clients have stopped.
  """

  init: ServerInit  # makes the server's state
  receive: ServerReceive  # takes the uploads of a round
  send: ServerSend  # makes what clients download
  asks: bool = False  # whether every upload answers the last download
  fresh: bool = False  # whether `init` is given weights that no client has trained
  alone: bool = False  # whether a round without clients changes what they predict with


class Variables(Protocol):
  """(state, g) -> {'params', 'batch_stats'} with leaves [n, ...], or [1, ...] where one serves the whole group: the
  models that the clients of group g would use now.

  A server that keeps something of all clients, [K, ...], gives out the rows of the group: `rows.fetch_rows`, by the
  `data.private.id` that the clients keep in their states.

  Further entries are for the method's own predictions, which take them apart; nothing else uses them.
  """

  def __call__(self, state: State, g: int, /) -> dict: ...


class Deployed(Protocol):
  """(model, variables, server_state, g) -> (module, variables): what a client of group g would use, where that is not
  its own model alone."""

  def __call__(self, model: nn.Module, variables: dict, server_state: PyTree, g: int, /) -> tuple[nn.Module, dict]: ...


class Predict(Protocol):
  """(module, variables, server_state, x) -> logits [B, C] of a deployed module on raw examples `x` [B, ...]."""

  def __call__(self, model: nn.Module, variables: dict, server_state: PyTree, x: jax.Array, /) -> jax.Array: ...


class Calibrate(Protocol):
  """(groups, state, data, which) -> state, applied to a copy of the state before the models of the groups numbered
  `which` are evaluated; training goes on from the state before."""

  def __call__(
    self, groups: tuple[Group, ...], state: State, data: tuple[Data, ...], which: Sequence[int], /
  ) -> State: ...


def of_model(variables: dict) -> dict:
  """The {'params', 'batch_stats'} of a model among the entries of `Method.variables`."""
  return {name: variables[name] for name in ('params', 'batch_stats') if name in variables}


def own_model(model: nn.Module, variables: dict, server_state: PyTree, g: int) -> tuple[nn.Module, dict]:
  """The default `Method.deployed`: the client's own model."""
  del server_state, g
  return model, variables


def apply_model(model: nn.Module, variables: dict, server_state: PyTree, x: jax.Array) -> jax.Array:
  """The default `Method.predict`: logits [B, C] of `model` on raw examples `x` [B, ...]."""
  del server_state
  return model.apply(of_model(variables), x, False)[0]


class Method(NamedTuple):
  """A federated method. Its factory closes over the hyperparameters, whose scalars may be traced.

  `predictions` are (name, Predict) pairs of further ways in which its clients may predict: every evaluation reports
  them in addition to that of `predict`.
  """

  client: Client
  server: Server
  variables: Variables  # (state, g) -> the models that the clients of group g would use now
  predict: Predict = apply_model  # by what `accuracy` is measured
  calibrate: Calibrate | None = None  # before an evaluation
  deployed: Deployed = own_model  # (module, variables) that a client would use
  predictions: tuple[tuple[str, Predict], ...] = ()  # further ways to predict, by name
