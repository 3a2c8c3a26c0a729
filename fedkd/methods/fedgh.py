"""FedGH: Yi, Wang, Liu, Shi, Yu, "FedGH: Heterogeneous Federated Learning with Generalized Global Header", 2023,
Algorithm 1.

Clients send class-mean features; the server trains one head on them, with which all clients begin the next round.
"""

from typing import Literal

import optax

from fedkd import inference, local, servers
from fedkd.checks.ranges import Count, Positive, Scale, checked
from fedkd.methods.lg_fedavg import with_part
from fedkd.models.base import features_in
from fedkd.servers import layer_subset
from fedkd.servers.trained_table import trained_table
from fedkd.types import Client, Download, Method, Server, apply_model, of_model


@checked
def fedgh(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  server_epochs: Count = 100,
  server_batch: Positive = 10,
  server_rate: Scale = 0.01,
  head: Literal['own', 'global'] = 'own',
  keep_optimizer: bool = False,
) -> Method:
  """Class-mean features up, a head that is trained on them down.

  Learned: every client's own body, and one linear head on the server. Sent: the mean feature vector per own class after
  training, and the class numbers, up; the head down. Averaged: nothing.

  The defaults are HtFLlib's. The paper's Algorithm 1 takes one step for every upload: server_epochs=1, server_batch=1.
  The authors' code trains with epochs=30, batch=512 and, since on the server it steps the optimizer of a client, never
  changes the head: server_epochs=0.

  Args:
    tx: optax optimizer of the clients.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    server_epochs, server_batch, server_rate: of the head: passes over the uploads of a round, in a random order,
      uploads per step, and learning rate of plain SGD (0.01 in all three). With 0 passes the head stays as it was
      initialised.
    head: with which head `accuracy` is measured: a client's 'own' after its training (the code), or the server's newest
      ('global'); the other is `accuracy_global_head` or `accuracy_own_head`.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each.

  Raises:
    ValueError: for an unknown choice; at init, for heads that are not one linear layer, or differ in shape.
  """
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, learner, down, data):
    private, learner = data.private, local.resume(with_part(learner, down.shared), tx, keep_optimizer)
    loss_fn = local.supervised(model, data.pool)
    learner, sums = local.fit(key, learner, tx, loss_fn, private, work, t)
    means, count = inference.class_features(model, local.variables(learner), data)
    return learner, servers.class_message(means, count > 0), local.report(sums)

  predict, others = ways_of_heads(head)
  server = trained_head(local.Work(server_batch, epochs=server_epochs), server_rate)
  return Method(Client(local.starting(tx), step), server, local.own_models, predict, predictions=others)


def ways_of_heads(head: str) -> tuple:
  """(how to predict with a client's 'own' head or the server's 'global' one, the other way with its name)."""

  def by_global(model, variables, server_state, x):
    features = features_in(model.apply(of_model(variables), x, False)[1], model)
    return layer_subset.linear(server_state.server['params'], features)

  ways = {'own': apply_model, 'global': by_global}
  return ways[head], tuple((f'{name}_head', way) for name, way in ways.items() if name != head)


def head_sender(key, t, groups, state, ids, data) -> tuple[Download, ...]:
  """The `send` of a server whose 'params' are a head."""
  return tuple(Download(shared={'params': state['params'], 'batch_stats': {}}) for _ in ids)


def trained_head(work: local.Work, rate: float) -> Server:
  """A linear head, at first that of the first group, which SGD trains at a `rate`."""

  def first(key, groups, variables, data):
    del key, groups, data
    return {'params': variables[0]['params']}

  def loss(params, value, label, valid):
    del params, value, label, valid
    return lambda params, value, label: local.cross_entropy(layer_subset.linear(params, value), label)

  return layer_subset.part(layer_subset.linear_head, trained_table(first, loss, head_sender, optax.sgd(rate), work))
