"""A consensus on public rows: the server draws rows, clients predict them, and a rule reduces the predictions.

A message up is {'knowledge': [M, C]}, or `Masked` by row. Down go {'consensus': `Masked` [M, C], 'last': {'index':
`Masked`} its rows, 'index': the rows to predict next}; rows are numbers of the pool.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedkd import aggregate, examples, local
from fedkd.checks.ranges import Count, check
from fedkd.rows import store_rows
from fedkd.types import Data, Download, Masked, PyTree, Server, clients

# (key, label int32[n], size int32[], count) -> `count` of the positions 0..size-1
Draw = Callable[[jax.Array, jax.Array, jax.Array, int], jax.Array]


def stratified(key: jax.Array, label: jax.Array, size: jax.Array, count: int) -> jax.Array:
  """`count` of the positions 0..size-1 at random, every label in proportion to its share, to within one example.

  Args:
    label: int32[n]; entries from `size` on are padding.
    size: int32[], may be traced.
    count: at most `size`, and below 2^16 if below `size`.

  Returns:
    int32[count], in random order.
  """
  key_rank, key_start, key_order = jax.random.split(key, 3)
  label = jnp.where(jnp.arange(label.shape[0]) < size, label, label.max() + 1)
  order = jnp.lexsort((jax.random.uniform(key_rank, label.shape), label))
  # Label after label, every (size / count)-th from a random start: no label can get one more or less than its share.
  size, steps = size.astype(jnp.uint32), jnp.arange(count, dtype=jnp.uint32)
  start = jax.random.randint(key_start, (), 0, size.astype(jnp.int32)).astype(jnp.uint32)
  places = steps * (size // count) + (steps * (size % count) + start) // count
  return jax.random.permutation(key_order, order[places])


def uniform(key: jax.Array, label: jax.Array, size: jax.Array, count: int) -> jax.Array:
  """`count` of the positions 0..size-1 at random, whatever their labels; arguments as in `stratified`."""
  return local.draw(key, label.shape[0], size, count)


def public_rows(data: Sequence[Data], subset: int) -> tuple[dict, int]:
  """The public rows that a server draws from, {'index': rows of the pool, 'label', 'size'}, and how many per round.

  Where `subset` is 0, or more than there are (which it warns of), all.

  Raises:
    ValueError: without public rows, or for a negative number of them.
  """
  rows = examples.public(data[0])
  available = rows.index.shape[0]
  check('subset', subset, Count)
  if subset > available:
    warnings.warn(
      f'subset={subset} of {available} public rows: every round uses all of them; set subset=0 (method.subset=0 in a '
      'config) to say so',
      stacklevel=2,
    )
  count = min(subset or available, available)
  return {'index': rows.index, 'label': data[0].pool.label[rows.index], 'size': rows.size}, count


def drawn(key: jax.Array, public: dict, count: int, draw: Draw) -> jax.Array:
  """int32[count], rows of the pool, drawn from those of `public_rows`."""
  return public['index'][draw(key, public['label'], public['size'], count)]


def places(data: Data) -> jax.Array:
  """The position of each row of the pool among the public rows, int32[rows of the pool]; for other rows the last."""
  index = examples.public(data).index
  every = jnp.arange(index.shape[0], dtype=jnp.int32)
  return jnp.full(data.pool.label.shape, every[-1]).at[index].min(every)  # padding repeats a row: its first place


def first_request(key: jax.Array, groups: tuple, data: Sequence[Data], subset: int, draw: Draw) -> dict:
  """What the states of servers of public rows have in common, before the first round."""
  rows, nobody = drawn(key, *public_rows(data, subset), draw), jnp.zeros(clients(groups), bool)
  return {'participated': nobody, 'next_rows': rows, 'consensus_rows': rows, 'has_consensus': jnp.zeros((), bool)}


def next_request(key: jax.Array, state, ids: jax.Array, data: Sequence[Data], subset: int, draw: Draw) -> dict:
  """The fields of `first_request` after a round of the clients `ids`, -1 for an empty slot."""
  return {
    'participated': store_rows(jnp.zeros_like(state.participated), ids, jnp.ones_like(ids, bool)),
    'next_rows': drawn(key, *public_rows(data, subset), draw),
    'consensus_rows': state.next_rows,
    'has_consensus': jnp.ones((), bool),
  }


def row_numbers(state, ids: tuple, always: bool = False) -> dict:
  """What a download says of rows: those of the consensus, and those to predict next.

  Participants in the round before know the rows of the consensus: unless somebody else takes part, they are sent only
  if `always`.
  """
  every = jnp.concatenate(ids)
  missed = always or jnp.any((every >= 0) & ~state.participated[every])
  last = {'index': Masked(state.consensus_rows, state.has_consensus & missed)}
  return {'last': last, 'index': state.next_rows}


def distillation_targets(received: dict) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
  """What a download asks its client to distil, for `local.fit`: ((rows of the pool int32[M], targets [M, C]), how
  many)."""
  index, target, on = received['last']['index'].value, received['consensus'].value, received['consensus'].valid
  if not on.ndim:
    return (index, target), jnp.where(on, index.shape[0], 0)
  order = jnp.argsort(~on, stable=True)  # rows with a target first
  return (index[order], target[order]), jnp.sum(on, dtype=jnp.int32)


class ConsensusState(NamedTuple):
  """A consensus on M rows of the pool."""

  consensus: jax.Array  # [M, C]
  participated: jax.Array  # bool[K], who took part when its rows were sent
  next_rows: jax.Array  # int32[M], to predict next
  consensus_rows: jax.Array  # int32[M], those of the consensus
  has_consensus: jax.Array  # bool[], whether there is one, or bool[M], of which rows
  rule: PyTree


def consensus(
  subset: int,
  rule: aggregate.AnyRule = aggregate.mean,
  *,
  weights: tuple[float, ...] = (),
  draw: Draw = stratified,
  keep: Callable[[jax.Array], jax.Array] | None = None,
  sharpen: Callable[[jax.Array], jax.Array] = lambda p: p,
) -> Server:
  """The clients' predictions of a subset of the public rows, which the server draws, reduced by `rule`.

  Args:
    subset: public rows per round, new ones each round; 0, or more than there are, is all.
    rule: of the predictions, float[m, M, C]; with `keep`, of each row's separately, [m, C].
    weights: of every client, normalised over those of a round; () weights all equally.
    draw: draws the rows.
    keep: for uploads that are `Masked` by row: (consensus [M, C]) -> bool[M], which of the rows that any client
      predicted are sent; None: every client predicts all rows.
    sharpen: of what `rule` returns, [M, C], as `sharpening` makes it.

  Raises:
    ValueError: at init, as in `public_rows`, or for a number of weights that is not the number of clients.
  """
  checked = aggregate.as_rule(rule) if keep is None else aggregate.mapped(rule)

  def init(key, groups, variables, data):
    del variables
    if len(weights) not in (0, clients(groups)):
      raise ValueError(f'weights has {len(weights)} entries for {clients(groups)} clients; give one each, or ()')
    request = first_request(key, groups, data, subset, draw)
    blank = jnp.zeros((len(request['next_rows']), groups[0].model.classes))
    if keep is not None:
      request['has_consensus'] = jnp.zeros(len(blank), bool)
    return ConsensusState(consensus=blank, rule=checked.init(blank), **request)

  def receive(key, t, groups, state, uploads, ids, data):
    every = jnp.concatenate(ids)
    if not every.shape[0]:
      return state, {}
    trust = jnp.asarray(weights or (1.0,) * len(state.participated), jnp.float32)
    weight = jnp.where(every >= 0, trust[every], 0.0)
    knowledge = jax.tree.map(lambda *rows: jnp.concatenate(rows), *[up['knowledge'] for up in uploads])
    request = next_request(key, state, every, data, subset, draw)
    if keep is None:
      reduced, memory = checked.update(knowledge, weight, state.rule)
      reduced = sharpen(reduced)
    else:
      weight = jnp.where(knowledge.valid, weight[:, None], 0.0)
      reduced, memory = checked.update(knowledge.value, weight, state.rule)
      predicted, reduced = jnp.any(weight > 0, 0), sharpen(reduced)
      # A rule's result is undefined for a row that nobody predicted; +inf there must not reach a client.
      request['has_consensus'], reduced = predicted & keep(reduced), jnp.where(predicted[:, None], reduced, 0)
    # A consensus stays until somebody with weight has spoken; of rows that nobody selects there is none, and others
    # are asked for.
    some = jnp.any(weight > 0) if keep is None else jnp.any(every >= 0)
    new = state._replace(consensus=reduced, **request)
    new = jax.tree.map(lambda after, before: jnp.where(some, after, before), new, state)
    info = {} if keep is None else {'labelled_rows': jnp.sum(new.has_consensus)}
    return new._replace(rule=memory), info

  def send(key, t, groups, state, ids, data):
    # Participants in the round before do not know which rows were kept.
    rows = row_numbers(state, ids, always=keep is not None)
    shared = {'consensus': Masked(state.consensus, state.has_consensus), **rows}
    return tuple(Download(shared=shared) for _ in ids)

  return Server(init, receive, send, asks=True)
