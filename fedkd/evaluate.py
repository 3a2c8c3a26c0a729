"""Evaluation: every client's model on shared rows, in inference mode."""

import jax
import jax.numpy as jnp


def correct(model, predict, variables, server_state, image, label, batch=500):
  """Right answers of one model.

  Args:
    model, predict: as in `Method`.
    variables: of one client.
    server_state: for `predict`.
    image: uint8[T, H, W, channels].
    label: int32[T].
    batch: images per forward pass.

  Returns:
    int32[].
  """
  rows = image.shape[0]
  batch = -(-rows // -(-rows // batch))  # as many passes as `batch` asks for, all alike
  pad = -rows % batch
  image = jnp.pad(image, [(0, pad)] + [(0, 0)] * (image.ndim - 1)).reshape(-1, batch, *image.shape[1:])
  label = jnp.pad(label, (0, pad), constant_values=-1).reshape(-1, batch)  # no answer equals -1

  def body(total, rows):
    answer = jnp.argmax(predict(model, variables, server_state, rows[0]), -1)
    return total + jnp.sum(answer == rows[1], dtype=jnp.int32), None

  return jax.lax.scan(body, jnp.int32(0), (image, label))[0]


def hits(method, groups, state, image, label, rows, batch=500):
  """Right answers of clients on shared rows.

  Args:
    method: `Method`.
    groups: tuple of `Group`.
    state: `State`.
    image, label: the rows, uint8[T, H, W, channels] and int32[T]; a label of -1 is padding.
    rows: per group int[k], which clients of the group (rows of it) to look at.
    batch: images per forward pass.

  Returns:
    per group int32[k].
  """

  def of_group(g, group):
    variables = method.variables(state, g)
    one_for_all = jax.tree.leaves(variables)[0].shape[0] == 1
    chosen = jnp.zeros(1, jnp.int32) if one_for_all else jnp.asarray(rows[g], jnp.int32)

    def one(row):
      mine = jax.tree.map(lambda a: a[row], variables)
      return correct(group.model, method.predict, mine, state.server, image, label, batch)

    return jnp.broadcast_to(jax.lax.map(one, chosen), (len(rows[g]),)) if len(rows[g]) else jnp.zeros(0, jnp.int32)

  return tuple(of_group(g, group) for g, group in enumerate(groups))
