"""Inference mode of one model: logits and features, some examples at a time, and statistics for BatchNorm."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks.kinds import THREEFRY
from fedkd.errors import ConfigError
from fedkd.examples import owned
from fedkd.models.base import check_features, class_of, features_in
from fedkd.types import Data, ExampleIndices, Pool, PyTree


def inference_batch() -> int:
  """Images per forward pass of `infer` and of evaluations: on a CPU few enough for the activations of a layer to stay
  in the cache."""
  return 100 if jax.default_backend() == 'cpu' else 500


def in_batches(function: Callable[[jax.Array], PyTree], x: jax.Array, batch: int = 0) -> PyTree:
  """`function` of examples [T, ...], some at a time: leaves [T, ...].

  Args:
    function: of [B, ...], with leaves [B, ...].
    batch: B at most; 0: `inference_batch`.
  """
  rows, batch = x.shape[0], batch or inference_batch()
  batch = -(-rows // -(-rows // batch))  # as many passes as `batch` implies, of equal size
  pad = -rows % batch
  x = jnp.pad(x, [(0, pad)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, batch, *x.shape[1:])
  return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:rows], jax.lax.map(function, x))


def infer(
  model: nn.Module, variables: dict, image: jax.Array, index: jax.Array | np.ndarray, *, features: bool = False
) -> PyTree:
  """Logits [S, C] in inference mode of the images in the rows `index` int32[S]; with `features`, (logits, features
  [S, ...])."""
  batch = min(inference_batch(), index.shape[0])
  batches = jnp.pad(index, (0, -index.shape[0] % batch)).reshape(-1, batch)

  def one(rows):
    logits, out = model.apply(variables, image[rows], False)
    return (logits, features_in(out, model)) if features else logits

  whole = lambda a: a.reshape(-1, *a.shape[2:])[: index.shape[0]]
  return jax.tree.map(whole, jax.lax.map(one, batches))


def feature_shape(model: nn.Module, pool: Pool) -> tuple[int, ...]:
  """The shape of the features of one example; from shapes alone.

  Raises:
    ValueError: for a model that returns logits alone.
  """
  check_features(model)
  example = jax.ShapeDtypeStruct((1, *pool.example.shape[1:]), pool.example.dtype)
  features = lambda x: features_in(model.init_with_output(jax.random.key(0), x, False)[0][1], model)
  return jax.eval_shape(features, example).shape[1:]


def feature_width(model: nn.Module, pool: Pool) -> int:
  """The dimension of the features of a model; from shapes alone.

  Raises:
    ValueError: for a model that returns logits alone, or whose features are not vectors.
  """
  shape = feature_shape(model, pool)
  if len(shape) != 1:
    name = class_of(model).__name__
    raise ValueError(f'models: the features of {name} have shape {shape}, not [width]; choose another model')
  return shape[0]


def class_features(model: nn.Module, variables: dict, data: Data) -> tuple[jax.Array, jax.Array]:
  """Mean features [C, d], in inference mode, of a client's examples of each class, and how many there are, [C]."""
  rows = data.private
  _, feature = infer(model, variables, data.pool.example, rows.index, features=True)
  here = owned(rows)[:, None]
  feature = jnp.where(here, feature, 0)  # padding is somebody else's example, on which this model may overflow
  member = jax.nn.one_hot(data.pool.label[rows.index], model.classes) * here  # [n, C]
  count = jnp.sum(member, 0)
  return member.T @ feature / jnp.maximum(count, 1)[:, None], count


def statistics(model: nn.Module, variables: dict, pool: Pool, rows: ExampleIndices, batch: int = 500) -> PyTree:
  """BatchNorm statistics of `rows`: those of single batches, averaged over one pass.

  Args:
    model, variables: of whom; the statistics in `variables` are ignored.
    pool: `Pool`.
    rows: `ExampleIndices`.
    batch: examples per pass; the last is filled from the beginning.

  Returns:
    Like variables['batch_stats'].

  Raises:
    ConfigError: for a BatchNorm that is neither one of `fedkd.models.layers` nor of NNX.
  """
  if not variables['batch_stats']:
    return {}
  batch = min(batch, rows.index.shape[0])

  def gather(i, total):
    image = pool.example[rows.index[(i * batch + jnp.arange(batch)) % jnp.maximum(rows.size, 1)]]
    rngs = dict.fromkeys(('dropout', 'augment'), jax.random.fold_in(jax.random.key(0, impl=THREEFRY), i))
    updated = model.apply(variables, image, True, rngs=rngs, mutable=['batch_stats', 'batch'])[1]
    if 'batch' not in updated:
      raise ConfigError(
        f'models: the BatchNorm of {class_of(model).__name__} does not give the statistics of single batches that this '
        'method averages; use fedkd.models.layers.BatchNorm, or a norm without statistics'
      )
    return jax.tree.map(jnp.add, total, updated['batch'])

  steps = -(-rows.size // batch)
  total = jax.lax.fori_loop(0, steps, gather, jax.tree.map(jnp.zeros_like, variables['batch_stats']))
  return jax.tree.map(lambda a: a / jnp.maximum(steps, 1), total)
