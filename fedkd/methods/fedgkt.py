"""FedGKT: He, Annavaram, Avestimehr, "Group Knowledge Transfer: Federated Learning of Large CNNs at the Edge", 2020,
Algorithm 1.

Clients train a small network; a large one on the server continues from its feature maps.
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import examples, inference, local
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.losses import kl
from fedkd.models.base import is_augmented
from fedkd.models.gkt import GKTModel, GKTServer
from fedkd.rows import store_rows, where_valid
from fedkd.types import Client, Download, Masked, Method, Server, clients


@checked
def fedgkt(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 256,
  alpha: Weight = 1.0,
  temperature: Scale = 3.0,
  server: Literal['resnet55', 'resnet50'] = 'resnet55',
  server_blocks: tuple[Positive, ...] = (),
  server_width: Scale = 1.0,
  server_epochs: Positive = 20,
  server_alpha: Weight = 0.0,
) -> Method:
  """A network cut in two: feature maps of every example up, the server's logits for them down.

  Learned: every client's small network, and one large network on the server, each with a persistent optimizer state.
  Sent: for every own example, in a fixed order, its feature map, logits and label up, and the server's logits down.
  Averaged: nothing. A client's model, as evaluated, is its part up to the map followed by the server's.

  Args:
    tx: optax optimizer, of clients and server.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch, of clients and server.
    alpha: weight of a client's knowledge loss, once there are logits from the server. May be traced.
    temperature: of the knowledge losses.
    server: 'resnet55' (the authors' code) or 'resnet50' (for clients with 64 channels).
    server_blocks: blocks per stage of the server; () is the published number.
    server_width: factor on the server's channels.
    server_epochs: the server's passes over all uploads, each round.
    server_alpha: weight of the server's knowledge loss towards the clients' logits; 0 in the authors' published
      command.

  Raises:
    ValueError: for augmented images, whose maps and logits would no longer match, models without a map, or a number out
      of range.
  """

  def init(key, model, data, variables):
    del key, data
    if is_augmented(model):
      raise ValueError(
        'random crops and flips would make maps and logits differ; in a config set data.crop=0 and data.flip=False'
      )
    return local.start(variables, tx)

  def step(key, t, model, learner, down, data):
    private, received = data.private, down.own  # Masked: value [n_max, C]

    def loss_fn(params, batch_stats, key, rows):
      index, target, known = rows
      logits, out, batch_stats = local.forward(model, params, batch_stats, key, data.pool.example[index])
      ce = local.cross_entropy(logits, data.pool.label[index]) + local.penalty(out)
      distance = jax.vmap(functools.partial(kl, temperature=temperature))(logits, target)
      distill = jnp.mean(jnp.where(known, distance, 0))
      loss = ce + alpha * distill
      return loss, (batch_stats, local.tally(index, loss=loss, distill_loss=distill))

    known = where_valid(*received)  # NaN would reach the gradient, whatever its weight
    rows = (private.index, known, received.valid)
    learner, sums = local.fit(key, learner, tx, loss_fn, (rows, private.size), local.Work(batch, steps, epochs), t)
    owned = examples.owned(private)
    logits, maps = inference.infer(model, local.variables(learner), data.pool.example, private.index, features=True)
    up = {
      'map': Masked(maps, owned),
      'logits': Masked(logits, owned),
      'label': Masked(data.pool.label[private.index], owned),
    }
    return learner, up, local.report(sums)

  net = lambda classes: GKTServer(server, tuple(server_blocks), server_width, classes)

  def deployed(model, variables, server_state, g):
    halves = {'client': variables, 'server': local.variables(server_state['learner'])}
    kinds = ('params', 'batch_stats')
    return GKTModel(model, net(model.classes)), {k: {part: v[k] for part, v in halves.items()} for k in kinds}

  learns = _continuation(tx, net, batch, temperature, server_epochs, server_alpha)
  return Method(Client(init, step), learns, local.own_models, deployed=deployed)


def _continuation(tx, net, batch, temperature, epochs, alpha) -> Server:
  """A large network that trains on everybody's maps, and the logits it gave them in its last pass."""

  def init(key, groups, variables, data):
    maps = [inference.feature_shape(g.model, d.pool) for g, d in zip(groups, data, strict=True)]
    for group, shape in zip(groups, maps, strict=True):
      if len(shape) != 3:
        raise ValueError(f'groups: {group.name} has no feature map that fedgkt could send; use GKTClient')
    if len(set(maps)) > 1:
      raise ValueError(f'groups: the maps of fedgkt differ in shape ({", ".join(map(str, maps))})')
    classes, client_count = groups[0].model.classes, clients(groups)
    places = [d.private.index.shape[-1] for d in data]
    return {
      'learner': local.start({'batch_stats': {}, **net(classes).init(key, jnp.zeros((1, *maps[0])), False)}, tx),
      'logits': tuple(jnp.zeros((client_count, n, classes)) for n in places),  # by group, since their padding differs
      'known': tuple(jnp.zeros((client_count, n), bool) for n in places),
    }

  def receive(key, t, groups, state, uploads, ids, data):
    flat = lambda pick: jnp.concatenate([a.reshape(-1, *a.shape[2:]) for a in map(pick, uploads)])
    maps, label = flat(lambda up: up['map'].value), flat(lambda up: up['label'].value)
    theirs, valid = flat(lambda up: up['logits'].value), flat(lambda up: up['map'].valid)
    rows, classes = jnp.argsort(~valid, stable=True), theirs.shape[-1]

    def loss_fn(params, batch_stats, key, row):
      at = {'params': params, 'batch_stats': batch_stats}
      (logits, _), new = net(classes).apply(at, maps[row], True, mutable=['batch_stats'])
      distill = jnp.mean(jax.vmap(functools.partial(kl, temperature=temperature))(logits, theirs[row]))
      loss = local.cross_entropy(logits, label[row]) + alpha * distill
      outputs = {
        'logits': jnp.zeros_like(theirs).at[row].add(jax.lax.stop_gradient(logits)),
        'count': jnp.zeros(len(theirs)).at[row].add(1),
      }
      return loss, (new['batch_stats'], {**outputs, **local.tally(row, server_loss=loss)})

    # The logits of the last pass, from the forward passes that trained, as in the authors' code.
    examples, work, last = (rows, jnp.sum(valid)), local.Work(batch, epochs=epochs), ('logits', 'count', 'metrics')
    learner, sums = local.fit(key, state['learner'], tx, loss_fn, examples, work, t, last_pass=last)
    logits = sums['logits'] / jnp.maximum(sums['count'], 1)[:, None]
    of_groups = jnp.split(logits, np.cumsum([up['map'].valid.size for up in uploads])[:-1])
    new = {'learner': learner, 'logits': [], 'known': []}
    for up, slot, of_group, old, known in zip(uploads, ids, of_groups, state['logits'], state['known'], strict=True):
      own = up['map'].valid
      new['logits'].append(store_rows(old, slot, of_group.reshape(*own.shape, classes)))
      new['known'].append(store_rows(known, slot, own))
    return {k: v if k == 'learner' else tuple(v) for k, v in new.items()}, {
      'server_loss': local.report(sums)['server_loss']
    }

  def send(key, t, groups, state, ids, data):
    own = lambda g, slot: Masked(state['logits'][g][slot], state['known'][g][slot])
    return tuple(Download(own=own(g, jnp.maximum(slot, 0))) for g, slot in enumerate(ids))

  return Server(init, receive, send)
