"""FCCL: Huang, Ye, Du, "Learn from Others and Be Yourself in Heterogeneous Federated Learning", 2022.

Clients make each class of their outputs on public images correlate with the same class of everybody's mean output, and
with no other, and distil their own earlier models so as not to forget.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, distillation, examples, inference, keys, local, losses, optimizers, servers
from fedkd.checks.ranges import Count, Positive, Range, Scale, Weight, checked
from fedkd.models import base
from fedkd.types import Client, Method, PyTree

Batch = Annotated[int, Range(least=2)]
TINY = 1e-12  # added to variances


class ClientState(NamedTuple):
  """As `distillation.ClientState`, and the client's initial variables."""

  digest_opt: PyTree
  first: dict
  learner: local.Learner


@checked
def fccl(
  tx: optax.GradientTransformation,
  subset: Count = 5000,
  digest_epochs: Positive = 1,
  digest_batch: Batch = 512,
  epochs: Count | None = 6,
  steps: Count | None = None,
  batch: Positive = 512,
  off_diagonal: Weight = 0.0051,
  inter: Weight = 1.0,
  intra: Weight = 1.0,
  temperature: Scale = 1.0,
  restart: bool = True,
  keep_optimizer: bool = False,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Cross-correlation with the mean logits of public images.

  Learned: every client's own model. Sent: logits on a subset of the public rows up, their mean and the rows of the next
  subset down. Averaged: logits, by `rule`. Labels of public rows are not used: a client does not train on the rows that
  it shares.

  On its own rows a client distils two older models in addition to learning its labels: its model at the beginning of
  the round, and its initial model, which a phase of `private` has trained before (else set `intra` to 0).

  The authors predict public images anew in every batch (here: once per round); their teachers see augmented images.

  Args:
    tx: optax optimizer (the authors': Adam, 1e-3).
    subset: public rows per round, new ones each round; 0, or more than there are, is all.
    digest_epochs, digest_batch: passes over the subset, and examples per mini-batch, over which outputs correlate.
    epochs: passes over the client's own data per round, of which the authors' code gives each client another number: 6,
      and 10 to the smallest, with OfficeHome, 40, 35, 3 and 4 for 150, 80, 5 000 and 1 800 digits; or
    steps: mini-batches.
    batch: examples per mini-batch of them.
    off_diagonal: weight of the correlations between different classes. May be traced, as the weights below.
    inter: weight of the divergence from the client's model of the round before.
    intra: weight of the divergence from the client's initial model.
    temperature: of both, without the factor T^2.
    restart: whether every batch of the distillation has an optimizer of its own, as in the authors' code, in which a
      step of Adam there is about the learning rate times the sign of the gradient.
    keep_optimizer: whether the two optimizer states persist across rounds; else they are fresh in each.
    rule: aggregation rule of the logits, every client with weight 1; the mean is the paper's.

  Raises:
    ValueError: without public rows.
  """

  digest_tx = optimizers.restarted(tx) if restart else tx
  work = local.Work(batch, steps, epochs)
  digest = local.Work(digest_batch, epochs=digest_epochs)

  def init(key, model, data, variables):
    del key, model, data
    start = distillation.start(variables, tx)
    return ClientState(start.digest_opt, local.variables(start.learner), start.learner)

  def step(key, t, model, state, down, data):
    received, private, first = down.shared, examples.unshared(data), state.first
    targets = servers.distillation_targets(received)
    plain, before = base.unaugmented(model), local.variables(state.learner)

    def away(params, batch_stats, key, lesson):
      index, target = lesson
      logits, out, batch_stats = local.forward(plain, params, batch_stats, key, data.pool.example[index])
      loss = correlation_loss(logits, target, off_diagonal)
      return loss + local.penalty(out), (batch_stats, local.tally(index, distill_loss=loss))

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      loss = local.cross_entropy(logits, label) + local.penalty(out)
      for weight, teacher in ((inter, before), (intra, first)):
        target = jax.nn.softmax(local.alongside(model, teacher, key, image)[0] / temperature)
        loss += weight * jnp.mean(jax.vmap(losses.kl_divergence)(target, logits / temperature))
      return loss, (batch_stats, local.tally(label, loss=loss))

    distill = lambda learner: local.fit(
      jax.random.fold_in(key, keys.DISTILLATION), learner, digest_tx, away, targets, digest, t
    )
    revisit = lambda learner: local.fit(key, learner, tx, loss_fn, private, work, t)
    state, info = distillation.distill_and_revisit(state, tx, keep_optimizer, distill, revisit)
    logits = inference.infer(model, local.variables(state.learner), data.pool.example, received['index'])
    return state, {'knowledge': logits}, info

  server = servers.consensus(subset, rule, draw=servers.uniform)
  return Method(Client(init, step), server, distillation.own_models)


def correlation_loss(output: jax.Array, target: jax.Array, off_diagonal: float) -> jax.Array:
  """How far the cross-correlations over a batch, of outputs [B, C] with targets [B, C], are from 1 for the same class
  and from -1 for others, in squares; deviations are over B - 1 and the mean of products over B, as in the code."""

  absent = jnp.any(jnp.isneginf(output) | jnp.isneginf(target), 0)  # in a class that either side masks
  output, target = jnp.where(absent, 0, output), jnp.where(absent, 0, target)

  def standard(z):
    centred = z - jnp.mean(z, 0)
    return centred / jnp.sqrt(jnp.sum(jnp.square(centred), 0) / (len(z) - 1) + TINY)

  correlation = standard(output).T @ standard(jax.lax.stop_gradient(target)) / len(output)
  same = jnp.eye(len(correlation))
  apart = same * jnp.square(1 - correlation) + off_diagonal * (1 - same) * jnp.square(1 + correlation)
  return jnp.sum(jnp.where(absent | absent[:, None], 0, apart))
