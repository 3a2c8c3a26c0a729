"""FedKD: Wu, Wu, Lyu, Huang, Xie, "Communication-efficient federated learning via knowledge distillation", 2022.

As FML, but features are matched too, distillation is weighted by how good both models are, and the common model's
change is sent as a truncated singular value decomposition.
"""

import functools
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, losses
from fedkd.checks.ranges import Count, Fraction, Positive, checked
from fedkd.inference import feature_width
from fedkd.methods import pair
from fedkd.models.base import features_in
from fedkd.models.torch_layers import torch_kernel
from fedkd.servers import low_rank
from fedkd.types import Client, Method

FLOOR = 1e-3  # of the sum of cross-entropies by which distillation is divided: late in training it approaches 0


@checked
def fedkd(
  tx: optax.GradientTransformation,
  common: nn.Module,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  compress: bool = True,
  start: Fraction = 0.95,
  end: Fraction = 0.98,
  rounds: Positive = 100,
  hidden: bool = True,
  distill: bool = True,
  form: Literal['code', 'paper'] = 'code',
  keep_optimizer: bool = False,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Truncated changes of a small common model as the only message.

  Learned: every client's own model (the mentor), a personal matrix between features, and the common model (the mentee)
  on the server. Sent: per matrix of the common model's change the leading singular vectors and values, or the matrix
  where it is fewer numbers; vectors and statistics as they are; n_k and a version number. Averaged: changes, weighted
  by n_k; the mean is truncated again. A client that was absent in the round before receives the whole common model.
  Clients are evaluated with their own models; `accuracy_common` is that of the common one.

  Matrices of one shape start equal, as in HtFLlib.

  Args:
    tx: optax optimizer, separate for each model and the matrix.
    common: the common model, as in `fml`.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    compress: whether changes are truncated; else they are sent whole.
    start, end: the least share of the squared singular values that is kept, in round 0 and in round `rounds`; it rises
      in equal steps.
    rounds: of the run, after which the share stays constant.
    hidden: whether features are matched, through the matrix; they must then be vectors.
    distill: whether the models learn from each other at all; without, the own model is Private.
    form: 'paper': each model learns from its own loss, in which what the other computes and the cross-entropies that
      divide are fixed, and divergences are sums over classes; 'code', as the authors' and HtFLlib's: both learn from
      the sum of both losses, with gradients into all of it, and divergences are means over classes; on digits the own
      models are worse so (`configs/personal_digits.py`).
    keep_optimizer: whether the optimizer states, also the common model's, persist across rounds, as in the authors'
      code; else they are fresh in each, as in HtFLlib.
    rule: aggregation rule of the changes, weighted by n_k; a stateful one begins with zeros.

  Raises:
    ValueError: for an unknown form; at init, for features that are to be matched but are not vectors.
  """
  fixed = jax.lax.stop_gradient if form == 'paper' else lambda a: a
  threshold = lambda t: start + (end - start) * jnp.minimum(t / rounds, 1)
  squeeze = lambda tree, t: low_rank.compress(tree, threshold(t)) if compress else tree
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    net, blank = pair.common_model(model, common, data.pool.example), data.pool.example[:1]
    shapes = {'batch_stats': {}, **jax.eval_shape(lambda: net.init(key, blank, False))}
    unknown = local.start(jax.tree.map(jnp.zeros_like, shapes), tx)
    state = {'own': local.start(variables, tx), 'common': unknown, 'trained': jnp.bool_(False)}
    if not hidden:
      return state
    narrow, wide = (feature_width(m, data.pool) for m in (net, model))
    link = {'params': {'kernel': torch_kernel(key, (narrow, wide))}, 'batch_stats': {}}
    return {**state, 'link': local.start(link, tx)}

  def common_learner(state, received):
    fresh = local.start(received, tx)
    if not keep_optimizer:
      return fresh
    pick = functools.partial(jnp.where, state['trained'])  # its optimizer has not seen the first weights before
    return fresh._replace(opt=jax.tree.map(pick, state['common'].opt, fresh.opt))

  def step(key, t, model, state, down, data):
    net = pair.common_model(model, common, data.pool.example)
    received = low_rank.apply_update(local.variables(state['common']), down.own)

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      own_logits, own, own_stats = local.forward(model, params['own'], batch_stats['own'], key, image)
      common_logits, other, other_stats = local.forward(net, params['common'], batch_stats['common'], key, image)
      ce, common_ce = local.cross_entropy(own_logits, label), local.cross_entropy(common_logits, label)
      per = 1 if form == 'paper' else own_logits.shape[-1]
      kl = lambda to, of: jnp.mean(jax.vmap(losses.divergence)(fixed(jax.nn.softmax(to)), of)) / per
      apart = jnp.float32(0)
      if hidden:
        feature, linked = features_in(own, model), features_in(other, net) @ params['link']['kernel']
        apart = jnp.mean(jnp.square(feature - fixed(linked))) + jnp.mean(jnp.square(fixed(feature) - linked))
      divergence = kl(common_logits, own_logits) + kl(own_logits, common_logits)
      mutual = confidence_weighted(divergence + apart, fixed(ce + common_ce))
      loss = ce + common_ce + local.penalty(own) + local.penalty(other) + (mutual if distill else 0)
      after = {name: batch_stats[name] for name in batch_stats} | {'own': own_stats, 'common': other_stats}
      return loss, (after, local.tally(label, loss=ce, common_loss=common_ce, distill_loss=mutual))

    learners = {name: local.resume(state[name], tx, keep_optimizer) for name in ('own', 'link') if name in state}
    begin = pair.stack_learners(**learners, common=common_learner(state, received))
    trained, sums = local.fit(key, begin, pair.per_learner(tx), loss_fn, data.private, work, t)
    after = pair.unstack_learners(trained)
    change = jax.tree.map(jnp.subtract, local.variables(after['common']), received)
    up = {'update': squeeze(change, t), 'count': data.private.size, 'index': down.own['index']}
    after['common'] = after['common']._replace(**received)
    return {**after, 'trained': jnp.bool_(True)}, up, local.report(sums)

  own = lambda state, g: local.variables(state.client[g]['own'])
  by_common = pair.by_common(common, lambda state: state.variables)
  server = pair.common(common, low_rank.updates(squeeze, rule))
  return Method(Client(init, step, alike=True), server, own, predictions=(('common', by_common),))


def confidence_weighted(distance: jax.Array, ce: jax.Array) -> jax.Array:
  """A distance that counts more the better both models are: divided by the sum of their cross-entropies, at least
  `FLOOR`."""
  return distance / jnp.maximum(ce, FLOOR)
