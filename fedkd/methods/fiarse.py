"""FIARSE: Wu, Wang, Wang, Liu, Su, Gao, "FIARSE: Model-Heterogeneous Federated Learning via Importance-Aware Submodel
Extraction", NeurIPS 2024.

One network, of which a client with a small capacity trains the largest weights: a weight's size is its importance.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local
from fedkd.checks import numeric
from fedkd.checks.ranges import Count, Positive, Ratio, Scale, checked
from fedkd.rows import where_valid
from fedkd.servers.weights import check_one_architecture
from fedkd.types import Client, Download, Masked, Method, PyTree, Server, is_masked


@checked
def fiarse(
  tx: optax.GradientTransformation,
  capacities: tuple[Ratio, ...] = (1.0, 0.25, 0.0625, 0.015625),
  epochs: Count | None = None,
  steps: Count | None = 20,
  batch: Positive = 20,
  surrogate: bool = True,
  server_rate: Scale = 1.0,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """The largest weights of one network both ways, as many as a client has room for.

  Learned: the network on the server; a client trains a share of its weights, those above a threshold that stays for the
  client update, under a mask that follows them: one that sinks below it computes as 0, and has no gradient, so that
  plain SGD leaves it where it is. Sent: those weights and their positions down, their changes and positions up, and all
  of the normalisation layers, which are never masked, without positions. Averaged: every weight's change over the
  clients that were sent it, all counting equally (the authors leave out clients whose change is exactly 0); BatchNorm's
  statistics over all.

  Client i has the capacity `capacities[i % len(capacities)]`, and is evaluated with that share of the server's network.

  Args:
    tx: optax optimizer, fresh in every client update; to a client, weights that it does not hold are zeros.
    capacities: shares of the weights, of all layers together, above 0 and up to 1.
    epochs: passes over the client's data per client update; or
    steps: mini-batches (the authors' 100).
    batch: examples per mini-batch.
    surrogate: whether the gradient passes through the mask, as in the paper: d mask / d |x| = 2 b / (|x| + b)^2 above
      the threshold b; else the mask is a constant.
    server_rate: of the mean change.
    rule: aggregation rule of every weight by itself, over the changes of the clients that hold it.

  Raises:
    ValueError: at init, for clients with different architectures.
  """
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, state, down, data):
    received = jax.tree.map(lambda leaf: where_valid(*leaf), down.own['params'], is_leaf=is_masked)
    held = jax.tree.map(lambda leaf: leaf.valid, down.own['params'], is_leaf=is_masked)
    batch_stats = down.shared['batch_stats']
    counted = counted_leaves(received, batch_stats)
    loss = local.supervised(model, data.pool)
    threshold = least(received, held, counted)
    effective = lambda params: largest(params, counted, threshold, surrogate)
    masked_loss = lambda params, *rest: loss(effective(params), *rest)
    learner = local.start({'params': received, 'batch_stats': batch_stats}, tx)
    learner, sums = local.fit(key, learner, tx, masked_loss, data.private, work, t)
    change = jax.tree.map(jnp.subtract, learner.params, received)
    return state, {**_message(change, held, counted), 'batch_stats': learner.batch_stats}, local.report(sums)

  def variables(state, g):
    whole = state.server['variables']
    held = jax.vmap(lambda i: part_of(whole, capacities, i))(state.client[g]['id'])
    params = jax.tree.map(lambda leaf, mask: jnp.where(mask, leaf, 0), whole['params'], held)
    each = lambda leaf: jnp.broadcast_to(leaf, (*state.client[g]['id'].shape, *leaf.shape))
    return {'params': params, 'batch_stats': jax.tree.map(each, whole['batch_stats'])}

  client = Client(lambda key, model, data, variables: {'id': data.private.id}, step)
  return Method(client, sub_models(capacities, server_rate, rule), variables)


def counted_leaves(params: PyTree, batch_stats: PyTree) -> PyTree:
  """Which leaves are weights that can be masked, as a tree of bool: all but those of normalisation layers, which have
  statistics, or a `scale` (whose ones would be kept before any other weight) and no more than a `bias`."""
  names: dict[tuple, set] = {}
  for (*module, leaf), _ in jax.tree_util.tree_flatten_with_path(params)[0]:
    names.setdefault(tuple(module), set()).add(leaf.key)
  norms = {module for module, leaves in names.items() if 'scale' in leaves <= {'scale', 'bias'}}
  norms |= {path[:-1] for path, _ in jax.tree_util.tree_flatten_with_path(batch_stats)[0]}
  return jax.tree_util.tree_map_with_path(lambda path, _: path[:-1] not in norms, params)


def part_of(variables: dict, capacities: tuple, id: jax.Array) -> PyTree:
  """Which numbers of the params a client holds: the largest of all counted ones, bool like them."""
  params = variables['params']
  counted = counted_leaves(params, variables['batch_stats'])
  sizes = [jnp.ravel(jnp.abs(a)) for a, c in zip(jax.tree.leaves(params), jax.tree.leaves(counted), strict=True) if c]
  ordered = jnp.sort(jnp.concatenate(sizes))
  least = jnp.stack(
    [ordered[len(ordered) - max(1, int(numeric.share_of(share, len(ordered))))] for share in capacities]
  )
  threshold = least[id % len(capacities)]
  return jax.tree.map(lambda a, c: (jnp.abs(a) >= threshold) | (not c), params, counted)


def least(params: PyTree, held: PyTree, counted: PyTree) -> jax.Array:
  """The smallest magnitude among the weights that are held, which is the threshold of a client."""
  smallest = lambda a, mask, c: jnp.min(jnp.where(mask, jnp.abs(a), jnp.inf)) if c else jnp.inf
  return jnp.min(jnp.stack(jax.tree.leaves(jax.tree.map(smallest, params, held, counted))))


def largest(params: PyTree, counted: PyTree, threshold: jax.Array, surrogate: bool) -> PyTree:
  """The weights as they compute: those below the threshold as 0."""
  return jax.tree.map(lambda a, c: _above(a, threshold, surrogate) if c else a, params, counted)


@jax.custom_vjp
def _through(x, threshold):
  return jnp.where(jnp.abs(x) >= threshold, x, 0)


def _backward(kept, g):
  x, threshold = kept
  size = jnp.abs(x)
  slope = 1 + 2 * size * threshold / jnp.maximum(jnp.square(size + threshold), jnp.finfo(x.dtype).tiny)
  return jnp.where(size >= threshold, slope * g, 0), jnp.zeros_like(threshold)


_through.defvjp(lambda x, threshold: (_through(x, threshold), (x, threshold)), _backward)


def _above(x, threshold, surrogate):
  return _through(x, threshold) if surrogate else jnp.where(jnp.abs(x) >= threshold, x, 0)


def _message(params: PyTree, held: PyTree, counted: PyTree) -> dict:
  """The numbers that are held, with their positions within arrays that can be masked; others are sent whole."""

  def position(leaf, mask, c):
    return Masked(jnp.arange(leaf.size, dtype=jnp.int32).reshape(leaf.shape), mask) if c else ()

  return {
    'params': jax.tree.map(Masked, params, held),
    'index': jax.tree.map(position, params, held, counted),
  }


def sub_models(capacities: tuple, rate: float, rule: aggregate.AnyRule) -> Server:
  """Holds one network, of which it sends every client the weights that it has room for; see `fiarse`."""
  by_number = aggregate.mapped(rule)

  def init(key, groups, variables, data):
    check_one_architecture(groups, variables, 'use heterofl, whose networks have several widths')
    no_change = [jnp.zeros(leaf.size, leaf.dtype) for leaf in jax.tree.leaves(variables[0]['params'])]
    states = map(by_number.init, no_change)
    return {'variables': variables[0], 'rule': tuple(states)}

  def receive(key, t, groups, state, uploads, ids, data):
    together = jax.tree.map(lambda *a: jnp.concatenate(a), *uploads)
    here = jnp.concatenate(ids) >= 0
    leaves, structure = jax.tree.flatten(state['variables']['params'])
    changes = jax.tree.leaves(together['params'], is_leaf=is_masked)
    every = zip(leaves, state['rule'], changes, strict=True)
    moved = [_moved(by_number, rate, here, *of_leaf) for of_leaf in every]
    mean = lambda new, old: jnp.where(jnp.any(here), aggregate.mean(new, here.astype(jnp.float32)), old)
    batch_stats = jax.tree.map(mean, together['batch_stats'], state['variables']['batch_stats'])
    params = jax.tree.unflatten(structure, [leaf for leaf, _ in moved])
    return {'variables': {'params': params, 'batch_stats': batch_stats}, 'rule': tuple(rule for _, rule in moved)}, {}

  def send(key, t, groups, state, ids, data):
    whole = state['variables']
    counted = counted_leaves(whole['params'], whole['batch_stats'])
    own = lambda id: _message(whole['params'], part_of(whole, capacities, id), counted)
    return tuple(Download({'batch_stats': whole['batch_stats']}, jax.vmap(own)(slots)) for slots in ids)

  return Server(init, receive, send)


def _moved(rule, rate, here, old, state, change) -> tuple:
  """(a leaf after the rule's step for each number that somebody holds, the rule's states)."""
  if not len(here):  # a rule need not handle zero rows
    return old, state
  rows = lambda a: a.reshape(len(here), -1)
  weight = (rows(change.valid) & here[:, None]).astype(jnp.float32)
  step, state = rule.update(rows(change.value), weight, state)
  return old + rate * jnp.where(jnp.any(weight > 0, 0), step, 0).reshape(old.shape), state
