"""Evaluation: every client's model on shared rows, in inference mode."""

import jax
import jax.numpy as jnp

from fedkd import local


def correct(model, predict, variables, server_state, image, label, batch=0):
  """Which answers of one model are right.

  Args:
    model, predict: as in `Method`.
    variables: of one client.
    server_state: for `predict`.
    image: uint8[T, H, W, channels].
    label: int32[T].
    batch: images per forward pass; 0: `local.inference_batch`.

  Returns:
    bool[T].
  """
  rows, batch = image.shape[0], batch or local.inference_batch()
  batch = -(-rows // -(-rows // batch))  # as many passes as `batch` asks for, all alike
  pad = -rows % batch
  image = jnp.pad(image, [(0, pad)] + [(0, 0)] * (image.ndim - 1)).reshape(-1, batch, *image.shape[1:])
  answer = jax.lax.map(lambda x: jnp.argmax(predict(model, variables, server_state, x), -1), image)
  return answer.reshape(-1)[:rows] == label


def hits(method, groups, state, image, label, rows, batch=0):
  """Which answers of clients on shared rows are right.

  Args:
    method: `Method`.
    groups: tuple of `Group`.
    state: `State`.
    image, label: the rows, uint8[T, H, W, channels] and int32[T]; a label of -1 is padding.
    rows: per group int[k], which clients of the group (rows of it) to look at.
    batch: as in `correct`.

  Returns:
    per group bool[k, T].
  """

  def of_group(g, group):
    variables = method.variables(state, g)
    one_for_all = jax.tree.leaves(variables)[0].shape[0] == 1
    chosen = jnp.zeros(1, jnp.int32) if one_for_all else jnp.asarray(rows[g], jnp.int32)

    def one(row):
      mine = jax.tree.map(lambda a: a[row], variables)
      return correct(group.model, method.predict, mine, state.server, image, label, batch)

    shape = (len(rows[g]), len(label))
    return jnp.broadcast_to(jax.lax.map(one, chosen), shape) if len(rows[g]) else jnp.zeros(shape, bool)

  return tuple(of_group(g, group) for g, group in enumerate(groups))
