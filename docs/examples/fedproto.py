"""FedProto: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous
Clients", 2022.

Clients of any architecture with features of one width exchange prototypes: the mean feature vector of each class.
"""

import jax
import jax.numpy as jnp

from fedkd import Client, Method, examples, local, losses, servers
from fedkd.checks.ranges import checked


def prototypes(model, learner, data):
  """Mean features [C, width] of a client's own examples of each class, and how many there are, [C]."""
  index = data.private.index
  _, out = model.apply(local.variables(learner), data.pool.example[index], False)
  own = examples.owned(data.private)  # the other entries are padding
  member = jax.nn.one_hot(data.pool.label[index], model.classes) * own[:, None]  # [n, C]
  count = member.sum(0)
  return member.T @ out['features'] / jnp.maximum(count, 1)[:, None], count


@checked
def fedproto(tx, steps: int | None = None, epochs: int | None = 1, batch=32, weight=1.0) -> Method:
  """Class-mean features as the only message.

  Args:
    tx: optax optimizer.
    steps: mini-batches per client update; or
    epochs: passes over the client's data per client update.
    batch: examples per mini-batch.
    weight: lambda of Eq. 7, of the distance between an example's features and the prototype of its class; 0 is Private.
  """
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    return local.start(variables, tx)

  def step(key, t, model, learner, download, data):
    received = download.shared['knowledge']  # Masked: value [C, width], valid [C]

    def loss_fn(params, batch_stats, key, index):
      x, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, x)
      away = jax.vmap(losses.masked_squared_error)(out['features'], received.value[label], received.valid[label])
      ce, distance = local.cross_entropy(logits, label), jnp.mean(away)
      loss = ce + weight * distance
      return loss, (batch_stats, local.tally(label, loss=loss, distance=distance))

    learner, sums = local.fit(key, learner, tx, loss_fn, data.private, work, t)
    value, count = prototypes(model, learner, data)
    return learner, servers.class_message(value, count > 0, count), local.report(sums)

  server = servers.class_means(of='features', per_round=True, weighted=True)  # Eq. 6
  return Method(Client(init, step), server, lambda state, g: local.variables(state.client[g]))
