"""Baselines without communication: training on own, public or pooled data; also the phases before FedMD.

Private is IND in FedH2L's paper. AGG is a centralised reference, not a federated method: every client's architecture
trains on all clients' data, with the same number of steps.
"""

from typing import Literal

import optax

from fedkd import examples, local
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.servers import silent
from fedkd.types import Client, Method


def _alone(tx, work, keep_optimizer, examples_of) -> Method:
  """Cross-entropy on `examples_of(data)`; nothing is sent, nothing is averaged."""

  def step(key, t, model, learner, down, data):
    del down
    learner = local.resume(learner, tx, keep_optimizer)
    learner, sums = local.fit(key, learner, tx, local.supervised(model, data.pool), examples_of(data), work, t)
    return learner, {}, local.report(sums)

  return Method(Client(local.starting(tx), step), silent(), local.own_models)


@checked
def private(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  keep_optimizer: bool = True,
  rows: examples.Own = 'own',
) -> Method:
  """Every client trains alone on its own data.

  Learned: every client's own model. Sent, averaged: nothing.

  Args:
    tx: optax optimizer.
    steps: mini-batches per round; or
    epochs: passes over the client's data per round.
    batch: examples per mini-batch.
    keep_optimizer: whether the optimizer's state persists across rounds; else it is fresh in each.
    rows: 'own', all of its examples, or 'unshared', all but those that it shares with everybody.
  """
  return _alone(tx, local.Work(batch, steps, epochs), keep_optimizer, examples.OWN[rows])


@checked
def agg(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  keep_optimizer: bool = True,
  scope: Literal['everyone', 'public'] = 'everyone',
) -> Method:
  """Every client's architecture, trained on more than its own data.

  Learned: every client's own model. Sent, averaged: nothing, as if the examples lay in one place.

  Arguments as in `private`, except `rows`, and

  scope: 'everyone', the training data of all clients (FedMD's pooled training); or 'public', its own and the public
    rows (AGG in FedH2L's paper).
  """
  examples_of = examples.known if scope == 'public' else lambda data: data.everyone
  return _alone(tx, local.Work(batch, steps, epochs), keep_optimizer, examples_of)


@checked
def public(
  tx: optax.GradientTransformation,
  steps: Count | None = 3,
  epochs: Count | None = None,
  batch: Positive = 50,
  keep_optimizer: bool = True,
) -> Method:
  """Every client trains on the labelled public rows: the first phase of FedMD.

  Learned: every client's own model. Sent, averaged: nothing, since everybody has the public rows.

  Arguments as in `private`, except `rows`.
  """
  return _alone(tx, local.Work(batch, steps, epochs), keep_optimizer, examples.public)
