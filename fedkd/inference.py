"""Evaluation: every client's model on shared rows, in inference mode."""

import jax
import jax.numpy as jnp


def is_correct(model, predict, variables, server_state, image, label, batch=0):
  """Which answers of one model are right.

  Args:
    model, predict: as in `Method`.
    variables: of one client.
    server_state: for `predict`.
    image: uint8[T, H, W, channels].
    label: int32[T].
    batch: images per forward pass; 0: `inference_batch`.

  Returns:
    bool[T].
  """
  rows, batch = image.shape[0], batch or inference_batch()
  batch = -(-rows // -(-rows // batch))  # as many passes as `batch` asks for, all alike
  pad = -rows % batch
  image = jnp.pad(image, [(0, pad)] + [(0, 0)] * (image.ndim - 1)).reshape(-1, batch, *image.shape[1:])
  answer = jax.lax.map(lambda x: jnp.argmax(predict(model, variables, server_state, x), -1), image)
  return answer.reshape(-1)[:rows] == label


def correct_predictions(method, groups, state, image, label, rows, batch=0):
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
      return is_correct(group.model, method.predict, mine, state.server, image, label, batch)

    shape = (len(rows[g]), len(label))
    return jnp.broadcast_to(jax.lax.map(one, chosen), shape) if len(rows[g]) else jnp.zeros(shape, bool)

  return tuple(of_group(g, group) for g, group in enumerate(groups))


def feature_shape(model, variables, pool) -> tuple:
  """The shape of what a model calls the features of one image; from shapes alone."""
  image = jax.ShapeDtypeStruct((1, *pool.example.shape[1:]), pool.example.dtype)
  return jax.eval_shape(lambda v, x: model.apply(v, x, False)[1]['features'], variables, image).shape[1:]


def inference_batch() -> int:
  """Images per forward pass of `infer` and of evaluations: on a CPU so few that a layer's numbers stay in the cache."""
  return 100 if jax.default_backend() == 'cpu' else 500


def infer(model, variables, image, index, *, features=False):
  """Logits [S, C] in inference mode of the images in the rows `index` int32[S]; with `features`, (logits, features
  [S, ...])."""
  batch = min(inference_batch(), index.shape[0])
  chunks = jnp.pad(index, (0, -index.shape[0] % batch)).reshape(-1, batch)

  def one(rows):
    logits, out = model.apply(variables, image[rows], False)
    return (logits, out['features']) if features else logits

  whole = lambda a: a.reshape(-1, *a.shape[2:])[: index.shape[0]]
  return jax.tree.map(whole, jax.lax.map(one, chunks))


def statistics(model, variables, pool, rows, batch=500):
  """BatchNorm statistics of `rows`: those of single batches, averaged over one pass.

  Args:
    model, variables: whose; the statistics in `variables` do not matter.
    pool: `Pool`.
    rows: `ExampleIndices`.
    batch: examples per pass; the last is filled from the beginning.

  Returns:
    Like variables['batch_stats'].
  """
  if not variables['batch_stats']:
    return {}
  batch = min(batch, rows.index.shape[0])

  def gather(i, total):
    image = pool.example[rows.index[(i * batch + jnp.arange(batch)) % jnp.maximum(rows.size, 1)]]
    rngs = dict.fromkeys(('dropout', 'augment'), jax.random.fold_in(jax.random.key(0), i))
    found = model.apply(variables, image, True, rngs=rngs, mutable=['batch_stats', 'batch'])[1]['batch']
    return jax.tree.map(jnp.add, total, found)

  steps = -(-rows.size // batch)
  total = jax.lax.fori_loop(0, steps, gather, jax.tree.map(jnp.zeros_like, variables['batch_stats']))
  return jax.tree.map(lambda a: a / jnp.maximum(steps, 1), total)
