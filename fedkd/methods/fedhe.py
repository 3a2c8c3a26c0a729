"""FedHe: Chan and Ngai, "FedHe: Heterogeneous Models and Communication-Efficient Federated Learning", 2021.

Clients of any architecture exchange the mean logits of each class; no public data, no weights.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.losses import class_sums, masked_squared_error
from fedkd.types import Client, Method


@checked
def fedhe(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  alpha: Weight = 1.0,
  count_offset: Weight = 1.0,
  cold_start: Weight = 1.0,
  refresh_every: Weight = 10.0,
  rule: aggregate.AnyRule | None = None,
  keep_optimizer: bool = True,
) -> Method:
  """Class-mean logits as the only message.

  Learned: every client's own model. Sent: mean logits per class seen, and the class numbers, both ways. Averaged: class
  means, over all client updates so far.

  Args:
    tx: optax optimizer.
    steps: mini-batches per client update (the paper's "inner training epoch 3" means three batches); or
    epochs: passes over the client's data per client update.
    batch: examples per mini-batch.
    alpha: weight of the knowledge loss (Eq. 13); 0 is Private. May be traced.
    count_offset: delta in the client's mean, sum / (count + delta): 1 is Eq. 8 as printed, 0 the authors' code.
    cold_start: updates per client before anything is published.
    refresh_every: updates per client between collapses of the server's sums to means (the authors' code: 10); 0 never
      (the paper).
    rule: None for the paper's running mean (Eqs. 9, 10); an aggregation rule instead reduces the clients' latest
      uploads, class by class.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each.
  """
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, learner, down, data):
    received = down.shared['knowledge']  # Masked: value [C, C], valid [C]

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      ce = local.cross_entropy(logits, label) + local.penalty(out)
      distill = jnp.mean(jax.vmap(masked_squared_error)(logits, received.value[label], received.valid[label]))
      loss = ce + alpha * distill
      seen = jax.nn.one_hot(label, logits.shape[-1])  # [B, C]
      sums = {'logits': class_sums(seen, jax.lax.stop_gradient(logits)), 'count': jnp.sum(seen, 0)}
      return loss, (batch_stats, {**sums, **local.tally(label, loss=loss, distill_loss=distill)})

    private, learner = data.private, local.resume(learner, tx, keep_optimizer)
    learner, sums = local.fit(key, learner, tx, loss_fn, private, work, t)
    # Eq. 8, from the passes that trained; a class without examples is not sent, whatever the offset.
    means = sums['logits'] / jnp.maximum(sums['count'] + count_offset, 1)[:, None]
    return learner, servers.class_message(means, sums['count'] > 0), local.report(sums)

  if rule is None:
    server = servers.class_means(cold_start=cold_start, refresh_every=refresh_every)
  else:
    server = servers.latest_class_knowledge(rule, cold_start=cold_start)
  return Method(Client(local.starting(tx), step), server, local.own_models)
