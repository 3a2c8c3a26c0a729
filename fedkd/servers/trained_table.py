"""A server that trains a head, or prototypes, on the class vectors that clients upload in a round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedkd import local
from fedkd.rows import where_valid
from fedkd.types import PyTree, Server, ServerSend

# (params, vectors [N, d], labels int[N], which of them count, bool[N]) -> (params, vectors [B, d], labels [B]) -> loss
TableLoss = Callable[[PyTree, jax.Array, jax.Array, jax.Array], Callable]


def trained_table(
  first: Callable, loss: TableLoss, send: ServerSend, tx: optax.GradientTransformation, work: local.Work
) -> Server:
  """Keeps parameters, which it trains on the uploads of every round with a fresh optimizer.

  Uploads are `class_message`s. In a round without uploads nothing is learned.

  Args:
    first: (key, groups, variables, data) -> the state, a dict whose 'params' are trained.
    loss: on the round's table, see `TableLoss`.
    send: as `Server.send`; the state also has 'trained', whether there ever were uploads.
    tx: optax optimizer.
    work: vectors per step, and passes over the table in every round; with 0 nothing is ever learned.
  """

  def init(key, groups, variables, data):
    return {**first(key, groups, variables, data), 'trained': jnp.bool_(False)}

  def receive(key, t, groups, state, uploads, ids, data):
    # An empty slot has no valid class.
    pick = lambda of: jnp.concatenate([of(up).reshape(-1, *of(up).shape[2:]) for up in uploads])
    valid = pick(lambda up: up['knowledge'].valid)
    kept = lambda name: where_valid(pick(lambda up: up[name].value), valid)  # others could have a gradient of NaN
    value, label = kept('knowledge'), kept('label')
    count = jnp.sum(valid)
    of_batch = loss(state['params'], value, label, valid)

    def loss_fn(params, batch_stats, key, rows):
      del key
      mean = of_batch(params, value[rows], label[rows])
      return mean, (batch_stats, local.tally(rows, server_loss=mean))

    state = {**state, 'trained': state['trained'] | (count > 0)}
    if not work.epochs or not len(valid):
      return state, {}
    rows = jnp.argsort(~valid, stable=True)
    learner = local.start({'params': state['params'], 'batch_stats': {}}, tx)
    learner, sums = local.fit(key, learner, tx, loss_fn, (rows, count), work, t)
    return {**state, 'params': learner.params}, {'server_loss': local.report(sums)['server_loss']}

  return Server(init, receive, send, fresh=True)
