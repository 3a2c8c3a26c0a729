"""FedGen: Zhu, Hong, Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", 2021, Algorithm 1.

The server trains a generator of features from labels, with the clients' heads as teachers; clients train their own head
on what it generates as well.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, keys, local, losses, optimizers, servers
from fedkd.checks.ranges import Count, Positive, Ratio, Scale, Weight, checked
from fedkd.methods.lg_fedavg import part_of, selected, with_part, with_part_in_each
from fedkd.models.generator import NOISE
from fedkd.servers import layer_subset
from fedkd.servers.feature_generator import DRAWS, Ensemble, Noise, draw, feature_generator, generator_of
from fedkd.types import Client, Method

LEAST = 1e-4  # to which the weights of generated features decay
WEIGHT_DECAY = 1e-2  # of the generator's Adam, in the authors' code


@checked
def fedgen(
  tx: optax.GradientTransformation,
  steps: Count | None = 20,
  epochs: Count | None = None,
  batch: Positive = 32,
  alpha: Weight = 10.0,
  beta: Weight = 10.0,
  decay: Ratio = 0.98,
  generated: Positive = 32,
  share: Literal['all', 'head'] = 'all',
  ensemble: Ensemble = 'losses',
  noise: Noise = 'uniform',
  eta: Weight = 1.0,
  server_steps: Positive = 50,
  server_batch: Positive = 32,
  server_rate: Scale = 3e-4,
  server_decay: Ratio = 0.98,
  hidden: Positive = 256,
  early_stop: Count | None = 20,
  equal_weights: bool = False,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """Weights and label counts up, weights and a generator of features down.

  Learned: the weights, or one head for all, and a generator, on the server; BatchNorm statistics stay a client's own,
  as do all other weights with share='head'. Sent: weights, n_k, and one more than the examples seen of each class up;
  weights, the generator and the classes that any client has down. Averaged: weights, by n_k.

  The authors' learning rate is 0.01 times 0.99 in every round. `beta` trains the whole model on its own labels once
  more, so that rates that suit other methods may be too high: at 0.05, with heads alone, it is below Private
  (`configs/personal_digits.py`).

  Args:
    tx: optax optimizer of the clients.
    steps: mini-batches per client update; or
    epochs: passes over the client's data.
    batch: examples per mini-batch.
    alpha: weight of the cross-entropy of the head on generated features, per generated and real example. May be
      traced, as beta.
    beta: weight of the divergence of the client's outputs from those of its head on features generated for the labels
      of the batch; it is only in the authors' code; 0 is the paper.
    decay: factor by which both weights shrink in every round, down to 1e-4; a smaller one stays as it is.
    generated: generated features per mini-batch.
    share: which weights travel: 'all' (one architecture), or only the 'head' (the paper's Table 4).
    ensemble: what the generator learns: the sum of the clients' 'losses', each weighted by its share of the label (the
      code), or the loss of their mean 'logits' (Eq. 4).
    noise: 'uniform' (the code) or 'normal' (the paper).
    eta: weight of the generator's term for the diversity of features.
    server_steps, server_batch, server_rate, server_decay: of the generator in every round: steps, features per step,
      Adam's learning rate, and its factor in every round.
    hidden: width of the generator.
    early_stop: mini-batches of a client update after which the terms of both weights stop (20 in the authors' code,
      whatever its `steps`; the paper has no such bound); None: never.
    equal_weights: whether clients count equally in the mean (the paper); else by their number of examples (the code).
    rule: aggregation rule of the weights, weighted likewise; the generator learns from every client's own head.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each, as in the code.

  Raises:
    ValueError: for an unknown choice; at init, for features that are not vectors, for heads that are not one linear
      layer, or differ in shape, or with share='all' for different architectures.
  """
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, learner, down, data):
    received, known, made = down.shared['weights'], down.shared['label'], down.shared['generator']
    net, some = generator_of(model, data, hidden), jnp.any(known)
    weights = [jnp.where(some, jnp.maximum(jnp.minimum(LEAST, w), w * decay**t), 0) for w in (alpha, beta)]

    def loss_fn(params, carried, key, index):
      batch_stats, done = carried
      weight, weight_of_own = (w if early_stop is None else jnp.where(done < early_stop, w, 0) for w in weights)
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      key_label, key_noise, key_own = jax.random.split(jax.random.fold_in(key, keys.DISTILLATION), 3)

      def of_generated(key, label):
        feature = net.apply(made, DRAWS[noise](key, (len(label), NOISE)), label, False)
        return model.apply({'params': params, 'batch_stats': batch_stats}, feature, method='head')

      drawn = draw(key_label, known, generated)
      fake = local.cross_entropy(of_generated(key_noise, drawn), drawn)
      target = jax.nn.softmax(jax.lax.stop_gradient(of_generated(key_own, label)))
      away = jnp.mean(jax.vmap(losses.kl_divergence)(target, logits))
      loss = local.cross_entropy(logits, label) + local.penalty(out)
      loss += generated / batch * weight * fake + weight_of_own * away
      sums = local.tally(label, loss=loss, generated_loss=fake, distill_loss=away)
      return loss, ((batch_stats, done + 1), {'seen': jnp.sum(jax.nn.one_hot(label, logits.shape[-1]), 0), **sums})

    learner = local.resume(with_part(learner, received), tx, keep_optimizer)
    # What a forward pass hands to the next one: the statistics, and the number of the step.
    learner = learner._replace(batch_stats=(learner.batch_stats, jnp.int32(0)))
    learner, sums = local.fit(key, learner, tx, loss_fn, data.private, work, t)
    learner = learner._replace(batch_stats=learner.batch_stats[0])
    count = jnp.int32(1) if equal_weights else data.private.size
    up = {'weights': {**part_of(learner, received), 'count': count}, 'label': 1 + sums['seen'].astype(jnp.int32)}
    return learner, up, local.report(sums)

  def variables(state, g):
    return with_part_in_each(local.variables(state.client[g]), layer_subset.global_part(state.server.weights, g))

  adam = optimizers.scheduled(optimizers.adam(server_rate, WEIGHT_DECAY), lambda t: server_decay**t)
  shared = layer_subset.part(lambda *model: selected(share, *model), servers.weights(rule))
  server = feature_generator(
    shared, tx=adam, work=local.Work(server_batch, server_steps), hidden=hidden, noise=noise, ensemble=ensemble, eta=eta
  )
  return Method(Client(local.starting(tx), step), server, variables)
