"""Selective-FD: Shao, Wu, Zhang, "Selective Knowledge Sharing for Privacy-Preserving Federated Distillation without a
Good Teacher", 2024.

Clients predict only those public images that resemble their own; the server drops ambiguous labels.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, distillation, examples, inference, keys, local, losses, servers
from fedkd.checks.kinds import THREEFRY
from fedkd.checks.ranges import Annotated, Count, Fraction, Positive, Range, Ratio, Scale, checked
from fedkd.methods import selectors
from fedkd.types import Client, Masked, Method

Exponent = Annotated[float, Range(least=-2, most=2)]


class ClientState(NamedTuple):
  """What a client keeps between updates."""

  due: dict  # when and how the last consensus is distilled
  training: distillation.ClientState
  selected: jax.Array  # bool[N], which public rows resemble its own


@checked
def selective_fd(
  tx: optax.GradientTransformation,
  subset: Count = 512,
  steps: Count | None = 1,
  epochs: Count | None = None,
  batch: Positive = 64,
  digest_steps: Positive = 10,
  digest_batch: Positive = 512,
  known: Ratio = 0.05,
  auxiliary: Positive = 250,
  width: Scale = 5.0,
  regulariser: Exponent = -0.5,
  quantile: Fraction = 0.25,
  ambiguity: Annotated[float, Range(above=0, most=2)] = 2.0,
  inputs: selectors.Inputs = 'pixels',
  keep_optimizer: bool = True,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Consensus on public images among only those clients that know similar images.

  Learned: every client's own model, with one optimizer state for distillation and one for its own rows; before the
  first round, which public images resemble its own. Sent: probabilities of selected images and their rows up, their
  mean where any client sent one and it is unambiguous, its rows and those of the next subset down. Averaged:
  probabilities, by `rule`. Labels of public rows are not used: a client does not train on the rows that it shares.

  A client distils at the beginning of its next update, since then it has the consensus; it is evaluated as after that
  distillation, by which a round of the authors' code ends, too, and learns from it at the rate of the round before.

  A client selects an image where the ratio of the density of its own examples to that of uniform noise is above that of
  a given share of its own examples (`selectors.kulsif`). The authors' demonstration multiplies by the matrix of its
  linear system where the paper solves it.

  Args:
    tx: optax optimizer.
    subset: public rows per round, new ones each round; 0, or more than there are, is all.
    steps: mini-batches of its own per round; or
    epochs: passes over them.
    batch: examples per mini-batch of them.
    digest_steps, digest_batch: of the distillation.
    known: share of a client's examples, drawn at random, that its density is estimated from; the others give the
      threshold.
    auxiliary: uniform examples in the box of all inputs.
    width: of the Gaussian kernel, in the units of normalised pixels or of features.
    regulariser: exponent of `auxiliary` in the penalty (the demonstration; SCARLET's code has +0.5).
    quantile: share of its own other examples whose ratio is below the threshold.
    ambiguity: a mean p is sent if the distance of p from its one-hot label, 2 (1 - max p), is below this; 2 sends all.
    inputs: 'pixels', normalised as the model does, or 'features' of the model that the client starts from.
    keep_optimizer: whether the two optimizer states persist across rounds; else they are fresh in each.
    rule: aggregation rule of the probabilities, image by image, weight 1 for who sent one; the mean is the paper's.
      What another returns is sent as it is, also where it does not add up to 1.

  Raises:
    ValueError: for unknown inputs, or without public rows.
  """
  selector = {'known': known, 'auxiliary': auxiliary, 'width': width, 'regulariser': regulariser, 'inputs': inputs}
  work, digest = local.Work(batch, steps, epochs), local.Work(digest_batch, digest_steps)

  def init(key, model, data, variables):
    own, rows = examples.unshared(data), examples.public(data).index
    selected = selectors.resembling(key, model, variables, data, own, rows, share=quantile, **selector)
    return ClientState(due(key, 0), distillation.start(variables, tx), selected)

  def due(key, t):
    """When and how the consensus of round `t` is distilled, the same in an evaluation and in the next update."""
    return {
      'seed': jax.random.bits(jax.random.fold_in(key, keys.DISTILLATION), dtype=jnp.uint32),
      'round': jnp.int32(t),
    }

  def after_distillation(state, model, received, pool, revisit):
    targets, due_now = servers.distillation_targets(received), state.due
    away = distillation.towards(model, pool, losses.cross_entropy)
    key = jax.random.key(due_now['seed'], impl=THREEFRY)
    distill = lambda learner: local.fit(key, learner, tx, away, targets, digest, due_now['round'])
    return distillation.distill_and_revisit(state.training, tx, keep_optimizer, distill, revisit)

  def step(key, t, model, state, down, data):
    private, index = examples.unshared(data), down.shared['index']
    loss_fn = local.supervised(model, data.pool)
    revisit = lambda learner: local.fit(key, learner, tx, loss_fn, private, work, t)
    training, info = after_distillation(state, model, down.shared, data.pool, revisit)
    logits = inference.infer(model, local.variables(training.learner), data.pool.example, index)
    selected = state.selected[servers.places(data)[index]]
    up = {'knowledge': Masked(jax.nn.softmax(logits), selected), 'index': Masked(index, selected)}
    state = state._replace(due=due(key, t), training=training)
    return state, up, {**info, 'selected': jnp.mean(selected)}

  def calibrate(groups, state, data, which):
    """The clients as after the distillation with which their next update begins."""
    ids = tuple(jnp.asarray(group.ids) for group in groups)
    # The same for all, in any round.
    downs = server.send(jax.random.key(0), jnp.int32(0), groups, state.server, ids, data)
    nothing = lambda learner: (learner, {'metrics': {'examples': jnp.float32(0)}})

    def distilled(g, own):
      training, _ = after_distillation(own, groups[g].model, downs[g].shared, data[g].pool, nothing)
      return own._replace(training=training)

    clients = list(state.client)
    for g in which:
      clients[g] = jax.lax.map(functools.partial(distilled, g), clients[g])
    return state._replace(client=tuple(clients))

  clear = lambda p: 2 * (1 - jnp.max(p, -1)) < ambiguity
  server = servers.consensus(subset, rule, draw=servers.uniform, keep=clear)
  variables = lambda state, g: local.variables(state.client[g].training.learner)
  return Method(Client(init, step), server, variables, calibrate=calibrate)
