"""HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients", 2021, Algorithm 1.

Clients train sub-networks ("corners") of one network: the first channels of every layer, as many as their budget
allows. FjORD (Horvath, Laskaridis, Almeida, Leontiadis, Venieris, Lane, "FjORD: Fair and Accurate Federated Learning
under Heterogeneous Targets with Ordered Dropout", 2021) trains a corner of the corner in every step.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, examples, keys, local, servers
from fedkd.checks.ranges import Count, Positive, Ratio, checked
from fedkd.servers import corners, nested
from fedkd.types import Client, Masked, Method


@checked
def heterofl(
  tx: optax.GradientTransformation,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 10,
  masked: bool | None = None,
  rule: aggregate.AnyRule | None = None,
  ordered: tuple[Ratio, ...] = (),
  weighted: bool | None = None,
) -> Method:
  """Sub-networks of one network, averaged where they overlap.

  Learned: the parameters of the widest network, on the server. Sent: the corner of them that a client trains, both
  ways, and its class numbers (with `weighted` n_k) up. Averaged: every parameter over the clients that hold it, in the
  head only over those that also have the class; with `weighted` over all that hold it, by n_k. BatchNorm
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
      1, or n_k with `weighted`, for the clients that hold it), since different numbers may have different holders. A
      rule that takes the norm of whole uploads, such as `aggregate.centred_clipping`, therefore takes it of single
      numbers here; and it needs all uploads at the size of the widest network at once.
    ordered: rates of sub-networks for FjORD's ordered dropout: every step trains the client's own network or one of
      those below its `rate`, with equal probability. The loss and the mean are then those of Flower's FjORD: plain
      cross-entropy, and the mean by n_k over all clients that hold a number, whatever their classes. FjORD keeps
      BatchNorm statistics per rate; here they are HeteroFL's, and its self-distillation is missing.
    weighted: whether means are by n_k over all clients that hold a number, whatever their classes. None: as the authors
      of each, HeteroFL does not, FjORD does.

  Raises:
    ValueError: at init, for groups that are not sub-networks of the widest; in the first round, for `ordered` with
      models that have no `rate`, or whose smaller ones are not sub-networks.
  """
  masked = not ordered if masked is None else masked
  weighted = bool(ordered) if weighted is None else weighted
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
    weight = {'count': private.size} if weighted else {'label': label}
    return state, {'params': learner.params, **weight}, local.report(sums)

  def variables(state, g):
    return servers.as_rows({name: state.server[name][g] for name in ('params', 'batch_stats')})

  client = Client(lambda key, model, data, variables: (), step)
  return Method(client, nested.nested(rule), variables, calibrate=nested.static_batch_norm())


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
      raise ValueError(f'ordered={rates}: {nested.unaligned(f"rate {net.net.rate:g}", f"rate {model.net.rate:g}")}')

    def branch(params, key, index):
      narrow = jax.tree.map(lambda a, s: corners.corner(a, s.shape, corners.Cut(cut)), params, shapes)
      loss, (_, sums) = loss_fn_of(net)(narrow, statistics, key, index)
      return loss, sums

    return branch

  branches = list(map(of, nets, shapes, statistics, cuts))

  def loss_fn(params, batch_stats, key, index):
    which = jax.random.randint(jax.random.fold_in(key, keys.CHOICE), (), 0, len(nets))
    loss, sums = jax.lax.switch(which, branches, params, key, index)
    return loss, (batch_stats, sums)

  return loss_fn
