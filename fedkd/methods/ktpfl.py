"""KT-pFL: Zhang, Guo, Ma, Wang, Xu, Wu, "Parameterized Knowledge Transfer for Personalized Federated Learning", 2021.

Every client distils its own mixture of everybody's predictions of public images; the server learns the mixing
coefficients.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import distillation, examples, inference, keys, local, losses, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.types import Client, Method


@checked
def ktpfl(
  tx: optax.GradientTransformation,
  subset: Count = 5000,
  digest_epochs: Positive = 1,
  digest_batch: Positive = 256,
  epochs: Count | None = 10,
  steps: Count | None = None,
  batch: Positive = 16,
  temperature: Scale = 10.0,
  rho: Weight = 0.7,
  sharpen: Weight = 5.0,
  coefficient_loss: Literal['mse', 'kl'] = 'mse',
  order: Literal['before', 'after'] = 'before',
  rate: Weight | None = None,
  reduction: Literal['mean', 'batchmean'] = 'mean',
  keep_optimizer: bool = False,
) -> Method:
  """A mixture of predictions for every client, with learned coefficients.

  Learned: every client's own model, and K x K coefficients on the server. Sent: probabilities at `temperature` on a
  subset of the public rows up, the client's own mixture of them and the rows of the next subset down. Averaged:
  probabilities, with the client's coefficients. Labels of public rows are not used: a client does not train on the rows
  that it shares.

  Round 0 is the private pass that comes before the paper's first round. The code draws public rows with replacement;
  here no row occurs twice in a round.

  Args:
    tx: optax optimizer.
    subset: public rows per round, new ones each round; 0, or more than there are, is all.
    digest_epochs, digest_batch: of the distillation, passes over the subset and examples per mini-batch.
    epochs: passes over the client's own data at most: 1 in the rounds 0 and 1, and then one more in each; or
    steps: mini-batches of it, the same number in every round.
    batch: examples per mini-batch of them.
    temperature: of all probabilities, without the factor T^2. May be traced.
    rho: weight of the distance of the coefficients from equal ones. May be traced.
    sharpen: after a step a row is replaced by the softmax of `sharpen` times itself. May be traced.
    coefficient_loss: between own and mixed probabilities, 'mse' (the code) or 'kl' (the paper).
    order: whether coefficients are learned 'before' the targets are mixed with them (the code), or 'after' (the paper).
    rate: of the step of the coefficients; None: by powers of 5 from 1, until its mean size in a row is about 0.01.
    reduction: of the distillation, the 'mean' over examples and classes (the code), or 'batchmean' over examples.
    keep_optimizer: whether the two optimizer states persist across rounds; else they are fresh in each.

  Raises:
    ValueError: for an unknown choice, or without public rows.
  """

  def distance(logits, target):
    kl = losses.kl_divergence(target, logits / temperature)
    return kl / logits.shape[-1] if reduction == 'mean' else kl

  digest = local.Work(digest_batch, epochs=digest_epochs)

  def step(key, t, model, state, down, data):
    private, index = examples.unshared(data), down.shared['index']
    targets = servers.distillation_targets({**down.own, 'last': down.shared['last']})
    away, loss_fn = distillation.towards(model, data.pool, distance), local.supervised(model, data.pool)
    passes, before = _passes(t, epochs) if local.given(epochs) else (None, None)
    work = local.Work(batch, steps, passes)
    distill = lambda learner: local.fit(
      jax.random.fold_in(key, keys.DISTILLATION), learner, tx, away, targets, digest, t
    )
    revisit = lambda learner: local.fit(key, learner, tx, loss_fn, private, work, t, before=before)
    state, info = distillation.distill_and_revisit(state, tx, keep_optimizer, distill, revisit)
    logits = inference.infer(model, local.variables(state.learner), data.pool.example, index)
    return state, {'knowledge': jax.nn.softmax(logits / temperature)}, info

  learning: dict[str, Any] = {'rho': rho, 'sharpen': sharpen, 'loss': coefficient_loss, 'rate': rate}
  server = servers.mixtures(subset, order=order, **learning)
  return Method(Client(distillation.starting(tx), step), server, distillation.own_models)


def _passes(t, epochs):
  """Passes over the own data in round `t`, 1 and then as many as the number of the round up to `epochs`; and in all
  rounds before it."""
  ramp = jnp.minimum(t, epochs + 1)
  return jnp.clip(t, 1, epochs), jnp.minimum(t, 1) + ramp * (ramp - 1) // 2 + (t - ramp) * epochs
