"""FedMRL: Yi, Yu, Ren, Wang, Liu, Li, "Federated Model Heterogeneous Matryoshka Representation Learning", 2024.

The features of a client's own model and of a small common one are fused by a personal projection; the head of the
common model sees the first entries of the result, the own head all of it.
"""

from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.inference import feature_width
from fedkd.methods import pair
from fedkd.models.base import features_in
from fedkd.models.torch_layers import TorchDense
from fedkd.types import Client, Method, Server, of_model

Way = Literal['mix_large', 'mix_small', 'large', 'small']


@checked
def fedmrl(
  tx: optax.GradientTransformation,
  common: nn.Module,
  epochs: Count | None = 10,
  steps: Count | None = None,
  batch: Positive = 512,
  small: Literal['own', 'global'] = 'own',
  inference: Way = 'mix_large',
  keep_optimizer: bool = False,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Weights of a small common model as the only message; its features and the client's own are fused.

  Learned: every client's own model and projection, and the common model on the server. Sent: the common model's weights
  and statistics both ways, and n_k up. Averaged: those, weighted by n_k; the authors' code keeps the last client's
  model instead of a mean. Projections of one shape start equal. Clients predict from the fused features by their own
  head ('mix_large', the paper) or the common model's ('mix_small'), or by either model alone ('large', 'small'); every
  evaluation reports all four.

  Args:
    tx: optax optimizer, separate for each model and the projection.
    common: the common model, as in `fml`; its features must not be wider than those of the clients' models.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    small: which common model a client predicts with: its 'own' after its last update (the code), or the 'global' one.
    inference: what `accuracy` is: 'mix_large', 'mix_small', 'large' or 'small'.
    keep_optimizer: whether the optimizer's states of the own model and the projection persist across rounds.
    rule: aggregation rule of the common model, weighted by n_k.

  Raises:
    ValueError: for an unknown choice; at init, for a common model whose features are wider than a client's.
  """
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    net = pair.common_model(model, common, data.pool.example)
    blank = data.pool.example[:1]
    initial = {'batch_stats': {}, **jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda: net.init(key, blank, False)))}
    wide, narrow = (feature_width(m, data.pool) for m in (model, net))
    projection = TorchDense(wide).init(key, jnp.zeros((1, narrow + wide)))
    link = local.start({'batch_stats': {}, **projection}, tx)
    return {'own': local.start(variables, tx), 'link': link, 'common': of_model(initial), 'trained': jnp.bool_(False)}

  def step(key, t, model, state, down, data):
    net = pair.common_model(model, common, data.pool.example)

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      _, own, own_stats = local.forward(model, params['own'], batch_stats['own'], key, image)
      _, other, other_stats = local.forward(net, params['common'], batch_stats['common'], key, image)
      features = features_in(other, net), features_in(own, model)
      after = {'own': own_stats, 'common': other_stats, 'link': {}}
      logits = fused(model, net, {n: {'params': params[n], 'batch_stats': after[n]} for n in params}, *features)
      large, narrow = (local.cross_entropy(z, label) for z in logits)
      loss = large + narrow + local.penalty(own) + local.penalty(other)
      return loss, (after, local.tally(label, loss=large, common_loss=narrow))

    resumed = {name: local.resume(state[name], tx, keep_optimizer) for name in ('own', 'link')}
    begin = pair.stack_learners(**resumed, common=local.start(down.shared, tx))
    both, sums = local.fit(key, begin, pair.per_learner(tx), loss_fn, data.private, work, t)
    after = pair.unstack_learners(both)
    trained = local.variables(after['common'])
    state = {**after, 'common': trained, 'trained': jnp.bool_(True)}
    return state, {**trained, 'count': data.private.size}, local.report(sums)

  def variables(state, g):
    own = state.client[g]
    beside = {name: own[name] for name in ('common', 'trained')}
    return {**local.variables(own['own']), **beside, 'link': local.variables(own['link'])}

  ways = {way: _by(way, common, small) for way in get_args(Way)}
  others = tuple((way, predict) for way, predict in ways.items() if way != inference)
  server = _checked_widths(common, pair.common(common, servers.weights(rule)))
  return Method(Client(init, step, alike=True), server, variables, ways[inference], predictions=others)


def fused(model: nn.Module, net: nn.Module, variables: dict, narrow: jax.Array, wide: jax.Array) -> tuple:
  """Logits [B, C] of the own head and of the common model's.

  Args:
    model, net: the own model and the common one.
    variables: {'own', 'common', 'link'}, each {'params', 'batch_stats'}.
    narrow, wide: features [B, d1] of the common model and [B, d2] of the own.
  """
  both = jnp.concatenate([narrow, wide], -1)
  mixed: Any = TorchDense(wide.shape[-1]).apply({'params': variables['link']['params']}, both)
  large = model.apply(variables['own'], mixed, method='head')
  return large, net.apply(variables['common'], mixed[:, : narrow.shape[-1]], method='head')


def _by(way, common, small):
  """The prediction called `way`."""

  def predict(model, variables, server_state, x):
    net = pair.common_model(model, common, x)
    use_own = variables['trained'] & (small == 'own')  # before its first update a client only has the global one
    pick = lambda own, held: jnp.where(use_own, own, held)
    other = jax.tree.map(pick, variables['common'], servers.variables_of(server_state, 0))
    all_of_them = {'own': of_model(variables), 'common': other, 'link': variables['link']}
    own_logits, own = model.apply(all_of_them['own'], x, False)
    logits, out = net.apply(other, x, False)
    large, narrow = fused(model, net, all_of_them, features_in(out, net), features_in(own, model))
    return {'mix_large': large, 'mix_small': narrow, 'large': own_logits, 'small': logits}[way]

  return predict


def _checked_widths(common, server: Server) -> Server:
  """`server`, which refuses a common model whose features are wider than those of a group."""

  def init(key, groups, variables, data):
    for group, given in zip(groups, data, strict=True):
      net = pair.common_model(group.model, common, given.pool.example)
      narrow, wide = (feature_width(m, given.pool) for m in (net, group.model))
      if narrow > wide:
        raise ValueError(
          f'groups: the features of {group.name} have {wide} numbers, fewer than the {narrow} of the common model; '
          'choose a common model whose features are no wider'
        )
    return server.init(key, groups, variables, data)

  return server._replace(init=init)
