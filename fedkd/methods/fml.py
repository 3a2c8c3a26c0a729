"""FML, federated mutual learning: Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu, "Federated Mutual Learning",
2020.

A client trains its own model and a small one by mutual distillation; only the small one is averaged.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, losses, servers
from fedkd.checks.ranges import Count, Fraction, Positive, checked
from fedkd.methods import pair
from fedkd.types import Client, Method

CLIP = 10.0  # of HtFLlib's gradients


@checked
def fml(
  tx: optax.GradientTransformation,
  common: nn.Module,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 128,
  alpha: Fraction = 0.5,
  beta: Fraction = 0.5,
  mutual: Literal['paper', 'htfllib'] = 'paper',
  equal_weights: bool = False,
  keep_optimizer: bool = True,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Weights of a small common model as the only message, trained by mutual distillation with every client's own.

  Learned: every client's own model, and the common one (the paper's meme) on the server. Sent: the common model's
  weights and statistics both ways, and n_k up. Averaged: those, by `rule`. Clients are evaluated with their own models;
  `accuracy_common` is that of the common one.

  Args:
    tx: optax optimizer, with a separate state for each model.
    common: the common model, a module, or in a config {'model': 'MLP', 'hidden': (32,)}; its classes and preprocessing
      are those of the clients' models.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    alpha: the own model's weight of the cross-entropy, with 1 - alpha for the divergence from the common model's
      outputs; 1 is Private. May be traced.
    beta: the same for the common model; 1 is FedAvg of it.
    mutual: 'paper', in which the outputs that are learned from are constants; or 'htfllib', in which they are not, the
      divergence is divided by the number of classes, and the norm of either model's gradient is clipped to 10 (there
      with alpha = beta = 1, so without any distillation, unless set).
    equal_weights: whether clients count equally in the mean; else by their number of examples.
    keep_optimizer: whether the own model's optimizer state persists across rounds; the common model's is always fresh.
    rule: aggregation rule of the common model, weighted by n_k, or equally.

  Raises:
    ValueError: for an unknown choice, or a weight outside 0 to 1.
  """
  own_tx = optax.chain(optax.clip_by_global_norm(CLIP), tx) if mutual == 'htfllib' else tx
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, learner, down, data):
    nets = {'own': model, 'common': pair.common_model(model, common, data.pool.example)}

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      # The same key, so that both see the same crops, and the own model those of Private.
      passes = {n: local.forward(net, params[n], batch_stats[n], key, image) for n, net in nets.items()}
      logits, out, batch_stats = ({n: p[i] for n, p in passes.items()} for i in range(3))
      ce = {n: local.cross_entropy(z, label) for n, z in logits.items()}
      own = alpha * ce['own'] + (1 - alpha) * _away(logits['own'], logits['common'], mutual)
      shared = beta * ce['common'] + (1 - beta) * _away(logits['common'], logits['own'], mutual)
      own, shared = own + local.penalty(out['own']), shared + local.penalty(out['common'])
      return own + shared, (batch_stats, local.tally(label, loss=own, common_loss=shared))

    begin = pair.stack_learners(
      own=local.resume(learner, own_tx, keep_optimizer), common=local.start(down.shared, own_tx)
    )
    both, sums = local.fit(key, begin, pair.per_learner(own_tx), loss_fn, data.private, work, t)
    after = pair.unstack_learners(both)
    count = jnp.int32(1) if equal_weights else data.private.size
    return after['own'], {**local.variables(after['common']), 'count': count}, local.report(sums)

  server = pair.common(common, servers.weights(rule))
  by_common = pair.by_common(common, lambda state: servers.variables_of(state, 0))
  return Method(Client(local.starting(own_tx), step), server, local.own_models, predictions=(('common', by_common),))


def _away(logits, target, mutual):
  """The divergence of outputs [B, C] from those of the other model: mean over the batch."""
  if mutual == 'paper':
    return jnp.mean(jax.vmap(losses.kl_divergence)(jax.nn.softmax(target), logits))
  p = jax.nn.softmax(target)  # its gradient reaches the other model, too
  return jnp.mean(jax.vmap(losses.divergence)(p, logits)) / logits.shape[-1]
