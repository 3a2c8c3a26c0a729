"""RHFL: Fang and Ye, "Robust Federated Learning with Noisy and Heterogeneous Clients", 2022.

Clients with noisy labels learn from the others' predictions of public images, weighting each client by its confidence,
and from their own labels by a symmetric loss.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import distillation, examples, inference, keys, local, losses, optimizers, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.types import Client, Method

LEAST = 1e-4  # what a label gives to every other class


@checked
def rhfl(
  tx: optax.GradientTransformation,
  subset: Count = 5000,
  digest_epochs: Positive = 1,
  digest_batch: Positive = 256,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 256,
  ce: Weight = 0.1,
  rce: Weight = 1.0,
  beta: Weight = 0.5,
  restart: bool = True,
  keep_optimizer: bool = False,
) -> Method:
  """Predictions of public images, weighted by the confidence in each client, and a loss that tolerates wrong labels.

  Learned: every client's own model. Sent: probabilities on a subset of the public rows and the mean loss on its own
  examples up; for each client the others' probabilities, weighted and added, and the rows of the next subset down.
  Averaged: probabilities. Labels of public rows are not used: a client does not train on the rows that it shares.

  Round 0 is a private pass, as the paper's models are trained before its first round; a phase of `private` before it
  trains longer. The authors predict public images anew in every batch (here: once per round), and measure losses in
  training mode.

  Args:
    tx: optax optimizer (the authors': Adam, 1e-3).
    subset: public rows per round, new ones each round; 0, or more than there are, is all.
    digest_epochs, digest_batch: of the distillation, passes over the subset and examples per mini-batch.
    epochs: passes over the client's own data per round; or
    steps: mini-batches.
    batch: examples per mini-batch of them.
    ce, rce: weights of the cross-entropy and of the reverse cross-entropy, in which labels of 0 are 1e-4. May be
      traced.
    beta: coefficient of a client's share of all gains, in its weight (`servers.confidences`); 0 weights all equally.
      May be traced.
    restart: whether every batch of the distillation has an optimizer of its own, as in the authors' code, in which a
      step of Adam there is about the learning rate times the sign of the gradient.
    keep_optimizer: whether the two optimizer states persist across rounds; else they are fresh in each.

  Raises:
    ValueError: without public rows.
  """

  digest_tx = optimizers.restarted(tx) if restart else tx
  work = local.Work(batch, steps, epochs)
  digest = local.Work(digest_batch, epochs=digest_epochs)

  def step(key, t, model, state, down, data):
    private, index = examples.unshared(data), down.shared['index']
    targets = servers.distillation_targets({**down.own, 'last': down.shared['last']})
    # The gradient of the weighted sum of divergences from all others, in one cross-entropy.
    away = distillation.towards(model, data.pool, losses.cross_entropy)

    def loss_fn(params, batch_stats, key, index):
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, data.pool.example[index])
      loss = jnp.mean(symmetric(logits, data.pool.label[index], ce, rce)) + local.penalty(out)
      return loss, (batch_stats, local.tally(index, loss=loss))

    distill = lambda learner: local.fit(
      jax.random.fold_in(key, keys.DISTILLATION), learner, digest_tx, away, targets, digest, t
    )
    revisit = lambda learner: local.fit(key, learner, tx, loss_fn, private, work, t)
    state, info = distillation.distill_and_revisit(state, tx, keep_optimizer, distill, revisit)
    predict = lambda rows: inference.infer(model, local.variables(state.learner), data.pool.example, rows)
    lost = symmetric(predict(private.index), data.pool.label[private.index], ce, rce)
    mean = jnp.sum(jnp.where(examples.owned(private), lost, 0)) / jnp.maximum(private.size, 1)
    return state, {'knowledge': jax.nn.softmax(predict(index)), 'loss': mean}, info

  server = servers.confident(subset, beta)
  return Method(Client(distillation.starting(tx), step), server, distillation.own_models)


def symmetric(logits: jax.Array, label: jax.Array, ce: float, rce: float) -> jax.Array:
  """Symmetric cross-entropy [B] (Wang, Ma, Chen, Luo, Yi, Bailey, 2019) of logits [B, C] with labels int[B]."""
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels(logits, label)
  return ce * cross_entropy - rce * jnp.log(LEAST) * (1 - jnp.exp(-cross_entropy))
