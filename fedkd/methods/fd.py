"""FD, federated distillation: Jeong, Oh, Kim, Park, Bennis, Kim, "Communication-Efficient On-Device Machine Learning:
Federated Distillation and Augmentation under Non-IID Private Data", 2018.

Clients exchange the mean output of each class; each learns from the mean of the others for the class of its example.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, losses, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.methods.lg_fedavg import part_of, selected, with_part, with_part_in_each
from fedkd.servers import layer_subset
from fedkd.types import Client, Method


@checked
def fd(
  tx: optax.GradientTransformation,
  steps: Count | None = 250,
  epochs: Count | None = None,
  batch: Positive = 64,
  gamma: Weight = 1.0,
  knowledge: Literal['probabilities', 'logits'] = 'probabilities',
  distance: Literal['ce', 'kl', 'mse'] = 'ce',
  others_only: bool = True,
  average: Literal['round', 'all'] = 'round',
  share_weights: bool = False,
  share: str = 'all',
  keep_optimizer: bool = True,
  rule: aggregate.AnyRule | None = None,
) -> Method:
  """Class-mean outputs as the only message.

  Learned: every client's own model. Sent: the mean output per class seen, and the class numbers, both ways. Averaged:
  class means; each client receives the mean over the other clients of the last round.

  FedDistill in FedGen's code is knowledge='logits', distance='kl', others_only=False, average='all', and FedDistill+
  the same with share_weights=True; in HtFLlib until April 2024 it was knowledge='logits', distance='mse',
  others_only=False.

  Args:
    tx: optax optimizer.
    steps: mini-batches per client update (250 in the paper); or
    epochs: passes over the client's data per client update.
    batch: examples per mini-batch.
    gamma: weight of the distance to the received outputs, which the paper does not state; 0 is Private. May be traced.
    knowledge: what is averaged and sent, 'probabilities' (the paper's normalised outputs) or 'logits'.
    distance: cross-entropy towards the received distribution ('ce', the paper), the divergence from it ('kl', with the
      same gradient), or the mean squared error of outputs ('mse').
    others_only: whether a client's own upload is left out of what it receives.
    average: what a client sends: its means over this 'round', for the classes seen, or over 'all' its rounds so far.
      The latter are those of FedGen's code: counts begin at 1, and a class never seen is a row of zeros, which is sent
      and enters the mean over clients like any other.
    share_weights: whether weights are averaged too, so that clients begin with the global ones and are evaluated with
      them.
    share: with `share_weights`, which of them: 'all', BatchNorm statistics included, as in FedAvg; or layers as in
      `lg_fedavg` ('head'; 'net' is all weights without the statistics, as in FedGen's code); everything else stays with
      the client.
    keep_optimizer: whether the optimizer's state persists across updates; else it is fresh in each.
    rule: None for the means above; an aggregation rule reduces the clients' uploads of the last round, class by class,
      instead, and with `share_weights` the weights too, by n_k.

  Raises:
    ValueError: for an unknown choice, or `share` without `share_weights`; at init, for weights of different
      architectures, or layers that a model lacks.
  """
  if share != 'all' and not share_weights:
    raise ValueError(f'share={share!r} names weights that travel; set share_weights=True')
  work = local.Work(batch, steps, epochs)

  def init(key, model, data, variables):
    del key, data
    zeros = {'output': jnp.zeros((model.classes, model.classes)), 'count': jnp.ones(model.classes)}
    return {'learner': local.start(variables, tx), 'outputs': zeros if average == 'all' else ()}

  def step(key, t, model, state, down, data):
    learner, shared, message = state['learner'], down.shared, down.own if others_only else down.shared
    if share_weights:
      message, weights = message['knowledge'], shared['weights']
      whole = learner._replace(params=weights['params'], batch_stats=weights['batch_stats'])
      learner = whole if share == 'all' else with_part(learner, weights)
    received = message['knowledge']  # Masked: value [C, C], valid [C]

    def loss_fn(params, batch_stats, key, index):
      image, label = data.pool.example[index], data.pool.label[index]
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, image)
      ce = local.cross_entropy(logits, label) + local.penalty(out)
      away = jax.vmap(_distance, (0, 0, 0, None, None))
      distill = jnp.mean(away(logits, received.value[label], received.valid[label], knowledge, distance))
      loss = ce + gamma * distill
      seen, output = jax.nn.one_hot(label, logits.shape[-1]), jax.lax.stop_gradient(_output(logits, knowledge))
      sums = {'output': losses.class_sums(seen, output), 'count': jnp.sum(seen, 0)}
      return loss, (batch_stats, {**sums, **local.tally(label, loss=loss, distill_loss=distill)})

    private, learner = data.private, local.resume(learner, tx, keep_optimizer)
    learner, sums = local.fit(key, learner, tx, loss_fn, private, work, t)
    outputs = {name: sums[name] for name in ('output', 'count')}  # of the passes that trained
    outputs = jax.tree.map(jnp.add, state['outputs'], outputs) if average == 'all' else outputs
    means = outputs['output'] / jnp.maximum(outputs['count'], 1)[:, None]
    up = servers.class_message(means, outputs['count'] > 0)
    if share_weights:
      shared = local.variables(learner) if share == 'all' else part_of(learner, weights)
      up = {'knowledge': up, 'weights': {**shared, 'count': private.size}}
    return {'learner': learner, 'outputs': outputs if average == 'all' else ()}, up, local.report(sums)

  own = lambda state, g: local.variables(state.client[g]['learner'])
  server = _knowledge_server(rule, others_only)
  if not share_weights:
    return Method(Client(init, step), server, own)
  averaged = servers.weights(aggregate.mean if rule is None else rule)
  averaged = (
    averaged if share == 'all' else servers.part(lambda *model: selected(share, *model), averaged, share == 'body')
  )

  def variables(state, g):
    if share == 'all':
      return servers.global_model(state.server['weights'], g)
    return with_part_in_each(own(state, g), layer_subset.global_part(state.server['weights'], g))

  return Method(Client(init, step), servers.join(knowledge=server, weights=averaged), variables)


def _knowledge_server(rule, others_only):
  """The server of class means, or of what `rule` makes of the uploads."""
  if others_only:
    return servers.means_of_others(rule=rule)
  if rule is None:
    return servers.class_means(per_round=True)
  return servers.latest_class_knowledge(rule, per_round=True)


def _output(logits, knowledge):
  """What is averaged, [B, C]."""
  return jax.nn.softmax(logits) if knowledge == 'probabilities' else logits


def _distance(logits, target, valid, knowledge, distance):
  """The distance of one example's logits [C] to what was received for its class; 0 where nothing was."""
  if distance == 'mse':
    return losses.masked_squared_error(_output(logits, knowledge), target, valid)
  target = jnp.where(valid, jax.lax.stop_gradient(target), 0)  # both sides, for 0 * NaN would be NaN
  p = target if knowledge == 'probabilities' else jax.nn.softmax(target)
  logits = jnp.where(valid, logits, 0)
  away = losses.kl_divergence(p, logits) if distance == 'kl' else losses.cross_entropy(logits, p)
  return jnp.where(valid, away, 0)
