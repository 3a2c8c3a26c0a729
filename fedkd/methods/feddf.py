"""FedDF: Lin, Kong, Stich, Jaggi, "Ensemble Distillation for Robust Model Fusion in Federated Learning", 2020,
Algorithms 1 and 3.

FedAvg within each architecture, after which the server distils all models that it received into every average.
"""

from typing import Any, Literal

import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.methods.fedavg import averaging
from fedkd.servers.ensemble_distillation import Start, Targets
from fedkd.types import Method


@checked
def feddf(
  tx: optax.GradientTransformation,
  epochs: Count | None = 40,
  steps: Count | None = None,
  batch: Positive = 64,
  server_steps: Count = 10_000,
  server_batch: Positive = 128,
  server_rate: Weight = 1e-3,
  clip: Scale = 5.0,
  patience: Positive = 1000,
  targets: Targets = 'avg_logits',
  start: Start = 'average',
  drop_worst: bool = False,
  validate: Literal['none', 'public'] = 'none',
  distill_data: Literal['public', 'noise'] = 'public',
  server_tx: optax.GradientTransformation | None = None,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """Averages that learn from the ensemble, on the server.

  Learned: one model per architecture, on the server. Sent: weights, BatchNorm statistics and n_k up, weights and
  statistics down; images never travel. Averaged: weights and statistics within each architecture, weighted by n_k (the
  code weights all equally), and the outputs of all models of all architectures.

  Args:
    tx: optax optimizer of the clients.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    server_steps: of the distillation at most; 0 is FedAvg within each architecture.
    server_batch: images per step (128 in the paper, 64 in the code).
    server_rate: of its Adam, fresh in every round, with a cosine to 0 over `server_steps`.
    clip: of its gradient's norm (the code).
    patience: with `validate`, steps without a better validation accuracy after which it stops.
    targets: the softmax of the mean logits ('avg_logits', the paper), the mean of the teachers' probabilities
      ('avg_probs'), or the mean of the divergences from each ('avg_losses'), whose gradient is that of 'avg_probs'.
    start: a student begins at the round's 'average' of its architecture or at the 'previous' one.
    drop_worst: whether to leave out models whose validation accuracy is near chance, and teachers far below the others.
    validate: 'none', or on the labels of the 'public' rows: students are then the best of every 100 steps.
    distill_data: the 'public' images, or 5000 images of 'noise'.
    server_tx: optimizer of the distillation in place of Adam, cosine and clipping.
    rule: aggregation rule of the weights inside each architecture, weighted by n_k; the ensemble's outputs stay means.
    keep_optimizer: whether the state of the clients' optimizer persists across updates; else it is fresh in each.

  Raises:
    ValueError: for an unknown choice, drop_worst without validation, or without public rows.
  """
  if drop_worst and validate == 'none':
    raise ValueError("drop_worst=True needs validation accuracies; set validate='public'")
  cosine = optax.cosine_decay_schedule(server_rate, max(server_steps, 1))
  # Schedules count the steps of the run, and this one begins anew in every round.
  adam = optax.adam(lambda count: cosine(count % max(server_steps, 1)))
  adam = server_tx or optax.chain(optax.clip_by_global_norm(clip), adam)
  training: dict[str, Any] = {'tx': adam, 'work': local.Work(server_batch, server_steps), 'start': start}
  ensemble: dict[str, Any] = {'targets': targets, 'drop_worst': drop_worst, 'noise': distill_data == 'noise'}
  waits = patience if validate == 'public' else None
  server = servers.distilled(servers.weights(rule, per_group=True), patience=waits, **training, **ensemble)
  loss = lambda model, data, received: local.supervised(model, data.pool)
  made = averaging(tx, loss, local.Work(batch, steps, epochs), keep_optimizer, server=server)
  return made._replace(variables=lambda state, g: servers.global_model(state.server['weights'], g))
