"""FedRE: Yao, Wang, Wu and others, "FedRE", CVPR 2026 (arXiv 2511.22265).

FedGH, whose clients send one random mixture of their class-mean features, and the same mixture of the labels.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, inference, keys, local
from fedkd.checks.ranges import Count, Positive, Scale, checked
from fedkd.methods.fedgh import head_sender, ways_of_heads
from fedkd.methods.lg_fedavg import with_part
from fedkd.servers import layer_subset
from fedkd.servers.trained_table import trained_table
from fedkd.types import Client, Masked, Method, Server


@checked
def fedre(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 32,
  resample: bool = True,
  server_epochs: Count = 1,
  server_batch: Positive = 32,
  server_rate: Scale = 0.01,
  reduction: Literal['sum', 'mean'] = 'sum',
  head: Literal['global', 'own'] = 'global',
  keep_optimizer: bool = False,
) -> Method:
  """One mixed feature vector and its mixed label up, a head that is trained on them down.

  Learned: every client's own body, and one linear head on the server. Sent: sum_c u_c z_c of a client's class-mean
  features z_c after training, and the vector u of weights, which add up to 1, up; the head down. Averaged: nothing.

  The weights are uniform random numbers of the own classes, from 0.001 to 1, so that their sum, by which they are
  divided, is never 0. The authors' released code for heterogeneous models does not run through, so that what it sends
  down and evaluates is our reading.

  Args:
    tx: optax optimizer of the clients.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    resample: whether the weights are drawn anew in every round; else they are those of a client's start.
    server_epochs, server_batch, server_rate: of the head: passes over the uploads of a round, uploads per step, and
      learning rate of plain SGD. With a batch of at least the number of uploads a pass is one step on all of them; else
      the last batch is filled up with others.
    reduction: whether the losses of a batch are added up, as in the code, or averaged.
    head: with which head `accuracy` is measured: the server's newest ('global'), or a client's 'own' after its
      training; the other is `accuracy_own_head` or `accuracy_global_head`.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each.

  Raises:
    ValueError: at init, for heads that are not one linear layer, or differ in shape.
  """
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    return {'learner': local.start(variables, tx), 'mix': jax.random.uniform(key, (model.classes,), minval=1e-3)}

  def step(key, t, model, state, down, data):
    learner = local.resume(with_part(state['learner'], down.shared), tx, keep_optimizer)
    learner, sums = local.fit(key, learner, tx, local.supervised(model, data.pool), data.private, work, t)
    means, count = inference.class_features(model, local.variables(learner), data)
    drawn = jax.random.uniform(jax.random.fold_in(key, keys.MIX), count.shape, minval=1e-3)
    message = mixture(means, count > 0, drawn if resample else state['mix'])
    return {**state, 'learner': learner}, message, local.report(sums)

  ways, others = ways_of_heads(head)
  own = lambda state, g: local.variables(state.client[g]['learner'])
  server = mixed_head(local.Work(server_batch, epochs=server_epochs), server_rate, reduction)
  return Method(Client(init, step), server, own, ways, predictions=others)


def mixture(means: jax.Array, seen: jax.Array, weight: jax.Array) -> dict:
  """The upload {'knowledge': Masked [1, d], 'label': Masked [1, C]}: class means [C, d] of the classes `seen`, and the
  classes themselves, both mixed by their share of the weights [C]."""
  share = jnp.where(seen, weight, 0)
  share /= jnp.maximum(jnp.sum(share), jnp.finfo(share.dtype).tiny)
  some = jnp.any(seen)[None]
  return {'knowledge': Masked((share @ means)[None], some), 'label': Masked(share[None], some)}


def mixed_head(work: local.Work, rate: float, reduction: str) -> Server:
  """A linear head, at first that of the first group, which SGD trains on soft labels; see `fedre`."""

  def first(key, groups, variables, data):
    return {'params': variables[0]['params']}

  def loss(params, value, label, valid):
    def reduced(params, rows, soft, counts):
      def one(row, soft, counts):
        return jnp.where(counts, optax.softmax_cross_entropy(layer_subset.linear(params, row[None])[0], soft), 0)

      total = aggregate.total(one, rows, soft, counts)  # an empty slot changes no bit of it
      return total if reduction == 'sum' else total / jnp.maximum(jnp.sum(counts), 1)

    def of_batch(params, rows, soft):
      # As many uploads as a batch, or fewer: a step is on all, each once, instead of on a batch that is filled up.
      together = lambda: reduced(params, value, label, valid)
      apart = lambda: reduced(params, rows, soft, jnp.ones(len(rows), bool))
      return together() if len(valid) <= work.batch else jax.lax.cond(jnp.sum(valid) <= work.batch, together, apart)

    return of_batch

  return layer_subset.part(layer_subset.linear_head, trained_table(first, loss, head_sender, optax.sgd(rate), work))
