"""A server of one network whose clients hold sub-networks of it: every number is averaged over those that hold it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, inference
from fedkd.rows import aligned
from fedkd.servers import corners, layer_subset
from fedkd.servers.static import Network, Static
from fedkd.types import Calibrate, Download, Server

# (round, group, n) -> int32[n], the channels of an axis in the order in which sub-networks have the first of them.
Order = Callable[[jax.Array, int, int], jax.Array]


def leading(t: jax.Array, g: int, n: int) -> jax.Array:
  """The order in which sub-networks have the first channels in every round."""
  del t, g
  return jnp.arange(n)


def widest(params) -> int:
  """The group with the most parameters."""
  return max(range(len(params)), key=lambda g: optax.tree.size(params[g]))


def nested(rule: aggregate.AnyRule | None = None, order: Order = leading) -> Server:
  """Holds the widest network, and sends every group its sub-network.

  Uploads are {'params', 'label': the classes of the client, or 'count': n_k}. Every parameter becomes the mean over the
  clients that hold it, in the head over those that also have the class, or by n_k over all that hold it.

  Args:
    rule: instead of the mean, an aggregation rule for every number by itself.
    order: which channels sub-networks have, of every axis on which they are narrower than the widest.

  Raises:
    ValueError: at init, for groups that are not sub-networks of the widest.
  """
  by_number = None if rule is None else aggregate.mapped(rule)

  def init(key, groups, variables, data):
    params = tuple(v['params'] for v in variables)
    at = widest(params)
    whole = params[at]
    cuts = _cuts(groups, params, at, variables[at]['batch_stats'], data[0].pool)
    moving = {} if order is leading else {'network': Static(Network(groups[at].model)), 'next': jnp.int32(0)}
    in_head = layer_subset.head(groups[0].model, data[0])
    is_in_head = lambda path, _: jnp.asarray(jax.tree_util.keystr(path, simple=True, separator='/') in in_head)
    return {
      'params': all_corners(whole, params, list(map(corners.Cut, cuts))),
      'batch_stats': tuple(v['batch_stats'] for v in variables),
      'head': jax.tree_util.tree_map_with_path(is_in_head, whole),
      'cuts': tuple(Static(tuple(cut.items())) for cut in cuts),
      **moving,
      'rule': () if rule is None else tuple(by_number.init(jnp.ravel(leaf)) for leaf in jax.tree.leaves(whole)),
    }

  def receive(key, t, groups, state, uploads, ids, data):
    whole, memory = state['params'][widest(state['params'])], state['rule']
    cuts = cuts_of(state, t, order)
    uploaded = [up['params'] for up in uploads]
    held = [_holders(up, slots, state['head']) for up, slots in zip(uploads, ids, strict=True)]
    if rule is None:
      whole = _mean_of_holders(whole, uploaded, held, cuts)
    else:
      whole, memory = _by_rule(by_number, whole, uploaded, held, cuts, memory)
    after = {**state, 'params': all_corners(whole, state['params'], cuts_of(state, t)), 'rule': memory}
    if order is not leading:
      after['next'] = jnp.where(jnp.any(jnp.concatenate(ids) >= 0), jnp.int32(t + 1), state['next'])
    return after, {}

  def send(key, t, groups, state, ids, data):
    return tuple(Download(shared={'params': params}) for params in sub_networks(state, t, order))

  return Server(init, receive, send)


def _holders(upload, slots, head):
  """The weight of a group's uploads for each number, leaves [m, ...] like those of its parameters.

  That is n_k where they say it (FjORD); else 1, or in the `head` 0 for the classes that a client does not have.
  """
  weight = (slots >= 0).astype(jnp.float32)
  if 'count' in upload:
    weight *= upload['count']
    return jax.tree.map(lambda a: jnp.broadcast_to(aligned(weight, a), a.shape), upload['params'])
  classes = upload['label'].valid * weight[:, None]  # [m, C]

  def held(leaf, in_head):
    own = aligned(weight, leaf)
    if leaf.shape[-1] == classes.shape[1]:  # the last axis of a head's parameters is the class
      own = jnp.where(in_head, classes.reshape(-1, *[1] * (leaf.ndim - 2), classes.shape[1]), own)
    return jnp.broadcast_to(own, leaf.shape)

  return jax.tree.map(held, upload['params'], head)


def _mean_of_holders(whole, uploaded, held, cuts):
  """Every number's mean over the uploads that hold it; `whole` where none does. `uploaded`, `held`: trees per group,
  the latter of weights."""
  sums, holders = jax.tree.map(jnp.zeros_like, whole), jax.tree.map(jnp.zeros_like, whole)
  for group, holds, cut in zip(uploaded, held, cuts, strict=True):
    # Padding, not `at[corner].add`, which would be a scatter.
    add = lambda old, new, cut=cut: old + corners.padded(new, old.shape, cut)
    products = aggregate.total(lambda p, w: jax.tree.map(_counted, p, w), group, holds)
    sums = jax.tree.map(add, sums, products)
    holders = jax.tree.map(add, holders, aggregate.total(lambda w: w, holds))
  mean = lambda s, h, old: jnp.where(h > 0, s / jnp.maximum(h, 1), old).astype(old.dtype)
  return jax.tree.map(mean, sums, holders, whole)


def _counted(value, weight):
  """Their product; 0 where nothing counts, whatever is there."""
  return jnp.where(weight > 0, value, 0) * weight


def _by_rule(by_number, whole, uploaded, held, cuts, memory):
  """(every number reduced by a mapped rule, the rule's states per leaf); arguments as in `_mean_of_holders`."""

  def reduce(old, state, leaves, holders):
    padded = lambda a, cut: corners.padded(a, (a.shape[0], *old.shape), cut).reshape(-1, old.size)
    table = lambda trees: jnp.concatenate(list(map(padded, trees, cuts)))
    weight = table(holders)
    new, state = by_number.update(table(leaves), weight, state)
    return jnp.where(jnp.any(weight > 0, 0), new, old.reshape(-1)).reshape(old.shape).astype(old.dtype), state

  leaves, structure = jax.tree.flatten(whole)
  per_leaf = lambda trees: zip(*map(jax.tree.leaves, trees), strict=True)
  if not sum(jax.tree.leaves(tree)[0].shape[0] for tree in uploaded):  # no slots at all
    return whole, memory
  reduced = list(map(reduce, leaves, memory, per_leaf(uploaded), per_leaf(held)))
  return jax.tree.unflatten(structure, [new for new, _ in reduced]), tuple(state for _, state in reduced)


def cuts_of(state: dict, t: jax.Array, order: Order = leading) -> list[corners.Cut]:
  """How every group's sub-network is cut from the whole in round `t`."""
  of = lambda g: None if order is leading else lambda n: order(t, g, n)
  return [corners.Cut(dict(cut.value), of(g)) for g, cut in enumerate(state['cuts'])]


def sub_networks(state: dict, t: jax.Array | None, order: Order = leading) -> tuple:
  """The parameters of every group's sub-network in round `t`; None: in the one that comes next."""
  if order is leading:
    return state['params']
  t = state['next'] if t is None else t
  return all_corners(state['params'][widest(state['params'])], state['params'], cuts_of(state, t, order))


def all_corners(whole, of_groups, cuts):
  """The corner of every group; `of_groups`: their parameters, of which only the shapes are read."""
  of = lambda narrow, cut: jax.tree.map(lambda a, b: corners.corner(a, b.shape, cut), whole, narrow)
  return tuple(map(of, of_groups, cuts))


def _cuts(groups, params, widest, batch_stats, pool) -> list[corners.Blocks]:
  """How every group's parameters are cut from those of the widest.

  Raises:
    ValueError: for other trees, more channels somewhere, or channels that do not belong together.
  """
  whole, wide = params[widest], groups[widest]
  for group, narrow in zip(groups, params, strict=True):
    _check_related(group, narrow, wide, whole)
  cuts = corners.blocks_of(wide.model, whole, params, batch_stats, pool.example[:1])
  checked = []
  for group, cut in zip(groups, cuts, strict=True):
    if cut is None:
      raise ValueError(f'groups: {unaligned(group.name, wide.name)}')
    checked.append(cut)
  return checked


def _check_related(group, narrow, widest, whole):
  fits = jax.tree.structure(narrow) == jax.tree.structure(whole) and all(
    a.ndim == b.ndim and all(n <= m for n, m in zip(a.shape, b.shape, strict=True))
    for a, b in zip(jax.tree.leaves(narrow), jax.tree.leaves(whole), strict=True)
  )
  if not fits:
    raise ValueError(
      f'groups: {group.name} is not a sub-network of {widest.name}, so heterofl cannot slice it; '
      'use one architecture with several values of rate'
    )


def unaligned(narrow: str, wide: str) -> str:
  """The error for networks of which one is no sub-network of the other."""
  return (
    f'the first channels of {wide} are no network with the shapes of {narrow}, because a concatenation, split or '
    'grouped convolution mixes them; use layers that keep channels in order'
  )


def static_batch_norm(order: Order = leading, *, whole: bool = False) -> Calibrate:
  """Replaces BatchNorm statistics by means over the batches of one pass over all training images.

  `whole`: also those of the widest network, whoever is evaluated.
  """

  def calibrate(groups, state, data, which):
    statistics, params = list(state.server['batch_stats']), sub_networks(state.server, None, order)
    for g in sorted({*which, widest(params)} if whole else which):
      variables = {'params': params[g], 'batch_stats': statistics[g]}
      statistics[g] = inference.statistics(groups[g].model, variables, data[g].pool, data[g].everyone)
    return state._replace(server={**state.server, 'batch_stats': tuple(statistics)})

  return calibrate
