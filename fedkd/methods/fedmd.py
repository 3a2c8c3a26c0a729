"""FedMD: Li and Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", 2019, Algorithm 1.

Clients of any architecture reach a consensus on the logits of a public set. Transfer learning comes first: the phases
`public` and `private`. A round here is: distill the consensus on the last subset ("digest"), train on own data
("revisit"), upload logits on the next subset. Round 0 only uploads, so that R + 1 rounds are the paper's R.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, distillation, examples, inference, local, losses, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.types import Client, Method

LOSSES = {'mae': losses.mae, 'mse': losses.mse, 'kl': losses.kl}


@checked
def fedmd(
  tx: optax.GradientTransformation,
  subset: Count = 5000,
  digest_epochs: Positive = 1,
  digest_batch: Positive = 256,
  digest_loss: Literal['mae', 'mse', 'kl'] = 'mae',
  temperature: Scale = 1.0,
  epochs: Count | None = 2,
  steps: Count | None = None,
  batch: Positive = 5,
  weights: tuple[Weight, ...] = (),
  keep_optimizer: bool = True,
  rows: examples.Own = 'own',
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Consensus on the logits of public images.

  Learned: every client's own model, with two persistent optimizer states, one for distillation and one for the revisit
  (which continues from the phase before). Sent: logits on a subset of the public rows up, their mean and the rows of
  the next subset down. Averaged: logits, by `rule`.

  Args:
    tx: optax optimizer.
    subset: public rows per round, new ones each round, every label in proportion; 0, or more than there are, is all.
    digest_epochs, digest_batch: of the distillation, passes over the subset and examples per mini-batch.
    digest_loss: 'mae' (the authors' code), 'mse', or 'kl' at `temperature`.
    temperature: of 'kl'; may be traced.
    epochs: passes over the client's own data per round ("revisit"); or
    steps: mini-batches.
    batch: examples per mini-batch of the revisit.
    weights: c_k of every client; () weights all equally. Normalised over the clients of a round.
    rows: of the revisit, 'own' or 'unshared': whether the examples that the client shares are among them.
    keep_optimizer: whether the two optimizer states persist across rounds; else they are fresh in each.
    rule: aggregation rule of the logits, weighted by c_k; the mean is the paper's.

  Raises:
    ValueError: for an unknown digest_loss, a number out of range, without public rows, or with a number of weights that
      is not the number of clients.
  """
  work = local.Work(batch, steps, epochs)
  digest = local.Work(digest_batch, epochs=digest_epochs)

  def step(key, t, model, state, down, data):
    key_distill, key_revisit = jax.random.split(key)
    received, private = down.shared, examples.OWN[rows](data)
    distance = lambda logits, target: LOSSES[digest_loss](logits, target, temperature)
    away = distillation.towards(model, data.pool, distance)  # the consensus is of images without augmentation
    targets = servers.distillation_targets(received)
    private = private._replace(size=jnp.where(received['consensus'].valid, private.size, 0))
    loss_fn = local.supervised(model, data.pool)
    distill = lambda learner: local.fit(key_distill, learner, tx, away, targets, digest, t)
    revisit = lambda learner: local.fit(key_revisit, learner, tx, loss_fn, private, work, t)
    state, info = distillation.distill_and_revisit(state, tx, keep_optimizer, distill, revisit)
    variables = local.variables(state.learner)
    return state, {'knowledge': inference.infer(model, variables, data.pool.example, received['index'])}, info

  server = servers.consensus(subset, rule, weights=weights)
  return Method(Client(distillation.starting(tx), step), server, distillation.own_models)
