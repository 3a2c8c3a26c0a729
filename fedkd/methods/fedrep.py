"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", 2021."""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, optimizers
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.methods.lg_fedavg import lg_fedavg, part_of, with_part
from fedkd.servers.layer_subset import body, head, training_only
from fedkd.types import Client, Method


@checked
def fedrep(
  tx: optax.GradientTransformation,
  head_epochs: Count = 10,
  epochs: Count | None = 1,
  steps: Count | None = None,
  head_steps: Count | None = None,
  batch: Positive = 10,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """FedPer whose clients first train the head on the received body, and then the body under that head (Algorithm 1).

  Learned, sent and averaged: as in `fedper`. What is not trained does not move at all; in the authors' code momentum
  and weight decay go on moving the head while the body is trained. Their last round, in which all clients train their
  heads alone, is a last phase `fedrep(head_epochs=10, epochs=0)`.

  Args:
    tx: optax optimizer, with one state for both parts.
    head_epochs: passes over the client's data in which the head is trained; 0: none.
    epochs: passes in which the body is trained after that; or
    steps: mini-batches. 0 or None of both: the body is never trained.
    head_steps: mini-batches for the head, in place of `head_epochs`.
    batch: examples per mini-batch.
    rule: aggregation rule, weighted by n_k.
    keep_optimizer: whether the optimizer's state persists across rounds; else it is fresh in each.

  Raises:
    ValueError: if neither part is trained; at init, for models without features, or bodies of different shapes.
  """
  of_head, of_body = (
    local.Work(batch, head_steps, None if head_steps else head_epochs),
    local.Work(batch, steps, epochs),
  )
  parts = [(paths, work) for paths, work in ((head, of_head), (body, of_body)) if any(map(local.given, work[1:]))]
  if not parts:
    raise ValueError('fedrep needs head_epochs, head_steps, epochs or steps above 0; all are 0')

  def step(key, t, model, learner, down, data):
    learner = local.resume(with_part(learner, down.shared), tx, keep_optimizer)
    loss_fn, totals = local.supervised(model, data.pool), []
    in_a_round = sum(local.steps_of(work, data.private.size) for _, work in parts)  # the parts follow one schedule
    learner = learner._replace(opt=optimizers.advanced(learner.opt, t * in_a_round))
    for i, (paths, work) in enumerate(parts):
      only = training_only(tx, paths(model, data))
      learner, sums = local.fit(jax.random.fold_in(key, i), learner, only, loss_fn, data.private, work, t, before=0)
      totals.append(sums)
    up = {**part_of(learner, down.shared), 'count': data.private.size}
    return learner, up, local.report(jax.tree.map(lambda *a: jnp.sum(jnp.stack(a), 0), *totals))

  method = lg_fedavg(tx, 'body', rule=rule)
  return method._replace(client=Client(method.client.init, step))
