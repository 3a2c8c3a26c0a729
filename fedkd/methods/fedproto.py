"""FedProto: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous
Clients", 2022, Algorithm 1.

Clients of any architecture with features of one width exchange prototypes, the mean feature vector of each class, and
predict the class of the nearest prototype.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, examples, inference, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.losses import masked_squared_error
from fedkd.models.base import features_in
from fedkd.types import Client, Method, Predict, Server, State, apply_model, of_model

Inference = Literal['head', 'prototypes']


class ClientState(NamedTuple):
  """A learner, and how many examples of each class the client has, int32[C]."""

  learner: local.Learner
  classes: jax.Array


@checked
def fedproto(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 4,
  weight: Weight = 1.0,
  average: Literal['uniform', 'counts'] = 'uniform',
  memory: Literal['round', 'latest'] = 'round',
  inference: Inference = 'head',
  candidates: Literal['own', 'known'] = 'own',
  keep_optimizer: bool = False,
  rule: aggregate.AnyRule | None = None,
) -> Method:
  """Class-mean features as the only message, and as a way to predict.

  Learned: every client's own model. Sent: the mean feature vector per class seen, and the class numbers, both ways.
  Averaged: prototypes over the clients that sent the class in the last round. Every evaluation reports the accuracies
  by the client's own head, which is `Simulation.model`, and by the nearest prototype, among the client's own classes
  or among all that are known; where no prototype is known, the head decides. The paper's table is by prototypes
  among the own classes.

  `analysis.published` computes from them what the authors' evaluation prints.

  Args:
    tx: optax optimizer.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    weight: lambda of Eq. 7, of the mean squared distance of a feature to the prototype of its class; 0 is Private. May
      be traced.
    average: 'uniform', the clients that sent a class count alike (the authors' code); 'counts', by their examples of it
      (Eq. 6 without its second division by the number of clients), which are sent too.
    memory: 'round', prototypes of the last round alone; 'latest', the latest of every client.
    inference: what `accuracy` is: by the 'head', as of other methods, or by 'prototypes'.
    candidates: the classes whose prototypes compete in the latter: the client's 'own' (the authors' code), or all
      'known'.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each, as in the code.
    rule: None for the paper's mean; an aggregation rule reduces the prototypes of the clients, class by class, instead,
      weighted as `average` says.

  Raises:
    ValueError: for an unknown choice; at init, for features that are not vectors of one width.
  """
  counts = average == 'counts'
  client = client_of(tx, local.Work(batch, steps, epochs), weight, keep_optimizer, counts=counts)
  per_round = memory == 'round'
  if rule is None and per_round:
    server = servers.class_means(of='features', per_round=True, weighted=counts)
  else:
    reduce = aggregate.mean if rule is None else rule
    server = servers.latest_class_knowledge(reduce, of='features', per_round=per_round, weighted=counts)
  ways = {f'prototypes_{which}': by_prototypes(server, which == 'own') for which in ('own', 'known')}
  return predicting(client, server, ways, 'head' if inference == 'head' else f'prototypes_{candidates}')


def client_of(
  tx: optax.GradientTransformation,
  work: local.Work,
  weight: Weight,
  keep_optimizer: bool = False,
  counts: bool = False,
  after: bool = False,
) -> Client:
  """The client of FedProto and of FedTGP.

  Args:
    counts: whether the examples behind each prototype are sent too.
    after: prototypes are means over the client's examples after training; else over the last pass that trained.
    (others): as in `fedproto`.
  """

  def init(key, model, data, variables):
    del key
    return ClientState(local.start(variables, tx), examples.class_counts(data.private, data.pool, model.classes))

  def step(key, t, model, state, down, data):
    received = down.shared['knowledge']  # Masked: value [C, d], valid [C]

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      f = features_in(out, model)
      away = jnp.mean(jax.vmap(masked_squared_error)(f, received.value[label], received.valid[label]))
      loss = local.cross_entropy(logits, label) + local.penalty(out) + weight * away
      seen = jax.nn.one_hot(label, logits.shape[-1])  # [B, C]
      sums = {'feature': seen.T @ jax.lax.stop_gradient(f), 'count': jnp.sum(seen, 0)}
      return loss, (batch_stats, {**sums, **local.tally(label, loss=loss, distance=away)})

    learner = local.resume(state.learner, tx, keep_optimizer)
    learner, sums = local.fit(key, learner, tx, loss_fn, data.private, work, t, last_pass=('feature', 'count'))
    if after:
      means, count = inference.class_features(model, local.variables(learner), data)
    else:
      means, count = sums['feature'] / jnp.maximum(sums['count'], 1)[:, None], sums['count']
    up = servers.class_message(means, count > 0, state.classes if counts else None)
    return state._replace(learner=learner), up, local.report(sums)

  return Client(init, step)


def nearest(feature: jax.Array, prototype: jax.Array, valid: jax.Array, logits: jax.Array) -> jax.Array:
  """Minus the mean squared distances of features [B, d] to prototypes [C, d] as logits [B, C]; minus infinity where a
  prototype is not valid, and the given logits where none is."""
  away = jnp.mean(jnp.square(feature[:, None] - prototype), -1)
  return jnp.where(jnp.any(valid), jnp.where(valid, -away, -jnp.inf), logits)


def by_prototypes(server: Server, own: bool = False) -> Predict:
  """Predicts the class of the nearest prototype that `server` sends; `own`: of the client's own classes alone."""

  def predict(model, variables, server_state, x):
    logits, out = model.apply(of_model(variables), x, False)
    nobody = (jnp.zeros(0, jnp.int32),)
    known = server.send(jax.random.key(0), jnp.int32(0), (), server_state, nobody, ())[0].shared['knowledge']
    valid = known.valid & (variables['classes'] > 0) if own else known.valid
    return nearest(features_in(out, model), known.value, valid, logits)

  return predict


def predicting(client: Client, server: Server, ways: dict[str, Predict], first: str) -> Method:
  """The method whose clients predict as `first` says, and additionally in all other `ways` and by the 'head'."""
  ways = {**ways, 'head': apply_model}

  def variables(state: State, g: int) -> dict:
    own = state.client[g]
    return {**local.variables(own.learner), 'classes': own.classes}

  others = tuple((name, way) for name, way in ways.items() if name != first)
  return Method(client, server, variables, ways[first], predictions=others)
