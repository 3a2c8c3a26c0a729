"""HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients", 2021, Algorithm 1.

Clients train sub-networks ("corners") of one network: the first channels of every layer, as many as their budget
allows. FjORD (Horvath, Laskaridis, Almeida, Leontiadis, Venieris, Lane, "FjORD: Fair and Accurate Federated Learning
under Heterogeneous Targets with Ordered Dropout", 2021) trains a corner of the corner in every step.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, examples, inference, local, servers
from fedkd.checks.ranges import Count, Positive, Ratio, checked
from fedkd.servers import corners
from fedkd.servers.static import Static
from fedkd.types import Client, Download, Masked, Method, Server


@checked
def heterofl(
  tx: optax.GradientTransformation,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 10,
  masked: bool | None = None,
  rule: aggregate.AnyRule | None = None,
  ordered: tuple[Ratio, ...] = (),
) -> Method:
  """Sub-networks of one network, averaged where they overlap.

  Learned: the parameters of the widest network, on the server. Sent: the corner of them that a client trains, both
  ways, and its class numbers (with `ordered` n_k) up. Averaged: every parameter over the clients that hold it, in the
  head only over those that also have the class; with `ordered` over all that hold it, weighted by n_k. BatchNorm
  statistics are not: before an evaluation they are recomputed from all training images ("static BatchNorm").

  A group's models must have parameters that are leading corners of those of the widest group; behind the flattening of
  maps, where a dense layer's inputs are blocks of channels, the corners of each block. With a plan that moves clients
  between groups (`plan.dynamic`), all groups hold the same clients.

  Args:
    tx: optax optimizer, fresh in every client update.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    masked: whether a client's loss ignores classes of which it has no example: their logits are set to 0. None: as the
      authors of each, HeteroFL does, FjORD (`ordered`) does not.
    rule: None for the paper's mean; an aggregation rule instead reduces every number by itself (rows [m], with weight
      1, or n_k with `ordered`, for the clients that hold it), since different numbers may have different holders. A
      rule that takes the norm of whole uploads, such as `aggregate.centred_clipping`, therefore takes it of single
      numbers here; and it needs all uploads at the size of the widest network at once.
    ordered: rates of sub-networks for FjORD's ordered dropout: every step trains the client's own network or one of
      those below its `rate`, with equal probability. The loss and the mean are then those of Flower's FjORD: plain
      cross-entropy, and the mean by n_k over all clients that hold a number, whatever their classes. FjORD keeps
      BatchNorm statistics per rate; here they are HeteroFL's, and its self-distillation is missing.

  Raises:
    ValueError: at init, for groups that are not sub-networks of the widest; in the first round, for `ordered` with
      models that have no `rate`, or whose smaller ones are not sub-networks.
  """
  masked = not ordered if masked is None else masked
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, state, down, data):
    private, pool = data.private, data.pool
    present = examples.class_counts(private, pool, model.classes) > 0

    def loss_fn_of(net):
      def loss_fn(params, batch_stats, key, index):
        logits, out, batch_stats = local.forward(net, params, batch_stats, key, pool.example[index])
        loss = local.cross_entropy(jnp.where(present | (not masked), logits, 0), pool.label[index])
        return loss + local.penalty(out), (batch_stats, local.tally(index, loss=loss))

      return loss_fn

    learner = local.start({**down.shared, 'batch_stats': _statistics(model, pool)[1]}, tx)
    loss_fn = _ordered_dropout(model, ordered, pool, loss_fn_of) if ordered else loss_fn_of(model)
    learner, sums = local.fit(key, learner, tx, loss_fn, private, work, t)
    label = Masked(jnp.arange(model.classes, dtype=jnp.int32), present)
    weight = {'count': private.size} if ordered else {'label': label}
    return state, {'params': learner.params, **weight}, local.report(sums)

  def variables(state, g):
    return servers.as_rows({name: state.server[name][g] for name in ('params', 'batch_stats')})

  client = Client(lambda key, model, data, variables: (), step)
  return Method(client, _corners(rule), variables, calibrate=_static_batch_norm)


def _statistics(model, pool) -> tuple:
  """(the shapes of a model's parameters, BatchNorm statistics, which are not used)."""
  shapes = jax.eval_shape(lambda image: model.init(jax.random.key(0), image, False), pool.example[:1])
  return shapes['params'], jax.tree.map(jnp.zeros_like, shapes.get('batch_stats', {}))


def _ordered_dropout(model, rates, pool, loss_fn_of) -> local.LossFn:
  """The loss of one of the sub-networks of a client's model, drawn for every batch.

  Raises:
    ValueError: for a model without a rate.
  """
  if not hasattr(model.net, 'rate'):
    raise ValueError(
      f'ordered={rates} needs models with a rate, which {type(model.net).__name__} does not have; set it to ()'
    )
  below = sorted(rate for rate in set(rates) if rate < model.net.rate)
  nets = [model, *(model.clone(net=model.net.clone(rate=rate)) for rate in below)]
  shapes, statistics = zip(*(_statistics(net, pool) for net in nets), strict=True)
  cuts = corners.blocks_of(model, shapes[0], shapes, statistics[0], pool.example[:1])

  def of(net, shapes, statistics, cut):
    if cut is None:
      raise ValueError(f'ordered={rates}: {_unaligned(f"rate {net.net.rate:g}", f"rate {model.net.rate:g}")}')

    def branch(params, key, index):
      narrow = jax.tree.map(lambda a, s: corners.corner(a, s.shape, cut), params, shapes)
      loss, (_, sums) = loss_fn_of(net)(narrow, statistics, key, index)
      return loss, sums

    return branch

  branches = list(map(of, nets, shapes, statistics, cuts))

  def loss_fn(params, batch_stats, key, index):
    which = jax.random.randint(jax.random.fold_in(key, 1), (), 0, len(nets))
    loss, sums = jax.lax.switch(which, branches, params, key, index)
    return loss, (batch_stats, sums)

  return loss_fn


def _widest(params) -> int:
  """The group with the most parameters."""
  return max(range(len(params)), key=lambda g: optax.tree.size(params[g]))


def _corners(rule) -> Server:
  """Keeps every group's corner of one network; the widest is the network."""
  by_number = None if rule is None else aggregate.mapped(rule)

  def init(key, groups, variables, data):
    params = tuple(v['params'] for v in variables)
    widest = _widest(params)
    whole = params[widest]
    model, pool = groups[0].model, data[0].pool
    statistics = variables[widest]['batch_stats']
    cuts = _cuts(groups, params, widest, statistics, pool)
    f = jnp.zeros((1, *inference.feature_shape(model, pool)))
    head = jax.eval_shape(lambda f: model.init(key, f, method='head'), f)['params']
    in_head = {path for path, _ in jax.tree_util.tree_flatten_with_path(head)[0]}
    return {
      'params': _all_corners(whole, params, cuts),
      'batch_stats': tuple(v['batch_stats'] for v in variables),
      'head': jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(path in in_head), whole),
      'cuts': tuple(Static(tuple(cut.items())) for cut in cuts),
      'rule': () if rule is None else tuple(by_number.init(jnp.ravel(leaf)) for leaf in jax.tree.leaves(whole)),
    }

  def receive(key, t, groups, state, uploads, ids, data):
    whole, memory = state['params'][_widest(state['params'])], state['rule']
    cuts = [dict(cut.value) for cut in state['cuts']]
    uploaded = [up['params'] for up in uploads]
    held = [_holders(up, slots, state['head']) for up, slots in zip(uploads, ids, strict=True)]
    if rule is None:
      whole = _mean_of_holders(whole, uploaded, held, cuts)
    else:
      whole, memory = _by_rule(by_number, whole, uploaded, held, cuts, memory)
    return {**state, 'params': _all_corners(whole, state['params'], cuts), 'rule': memory}, {}

  def send(key, t, groups, state, ids, data):
    return tuple(Download(shared={'params': params}) for params in state['params'])

  return Server(init, receive, send)


def _holders(upload, slots, head):
  """The weight of a group's uploads for each number, leaves [m, ...] like those of its parameters.

  That is n_k where they say it (FjORD); else 1, or in the `head` 0 for the classes that a client does not have.
  """
  weight = (slots >= 0).astype(jnp.float32)
  if 'count' in upload:
    weight *= upload['count']
    return jax.tree.map(lambda a: jnp.broadcast_to(weight.reshape(-1, *[1] * (a.ndim - 1)), a.shape), upload['params'])
  classes = upload['label'].valid * weight[:, None]  # [m, C]

  def held(leaf, in_head):
    own = weight.reshape(-1, *[1] * (leaf.ndim - 1))
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
    products = aggregate.total(lambda p, w: jax.tree.map(jnp.multiply, p, w), group, holds)
    sums = jax.tree.map(add, sums, products)
    holders = jax.tree.map(add, holders, aggregate.total(lambda w: w, holds))
  return jax.tree.map(lambda s, h, old: jnp.where(h > 0, s / jnp.maximum(h, 1), old), sums, holders, whole)


def _by_rule(by_number, whole, uploaded, held, cuts, memory):
  """(every number reduced by a mapped rule, the rule's states per leaf); arguments as in `_mean_of_holders`."""

  def reduce(old, state, leaves, holders):
    padded = lambda a, cut: corners.padded(a, (a.shape[0], *old.shape), cut).reshape(-1, old.size)
    table = lambda trees: jnp.concatenate(list(map(padded, trees, cuts)))
    weight = table(holders)
    new, state = by_number.update(table(leaves), weight, state)
    return jnp.where(jnp.any(weight > 0, 0), new, old.reshape(-1)).reshape(old.shape), state

  leaves, structure = jax.tree.flatten(whole)
  per_leaf = lambda trees: zip(*map(jax.tree.leaves, trees), strict=True)
  if not sum(jax.tree.leaves(tree)[0].shape[0] for tree in uploaded):  # no slots at all
    return whole, memory
  reduced = list(map(reduce, leaves, memory, per_leaf(uploaded), per_leaf(held)))
  return jax.tree.unflatten(structure, [new for new, _ in reduced]), tuple(state for _, state in reduced)


def _all_corners(whole, of_groups, cuts):
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
      raise ValueError(f'groups: {_unaligned(group.name, wide.name)}')
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


def _unaligned(narrow: str, wide: str) -> str:
  return (
    f'the first channels of {wide} are no network with the shapes of {narrow}, because a concatenation, split or '
    'grouped convolution mixes them; use layers that keep channels in order'
  )


def _static_batch_norm(groups, state, data, which):
  """The state with BatchNorm statistics averaged over the batches of one pass over all training images."""
  statistics = list(state.server['batch_stats'])
  for g in which:
    variables = {'params': state.server['params'][g], 'batch_stats': statistics[g]}
    statistics[g] = inference.statistics(groups[g].model, variables, data[g].pool, data[g].everyone)
  return state._replace(server={**state.server, 'batch_stats': tuple(statistics)})
