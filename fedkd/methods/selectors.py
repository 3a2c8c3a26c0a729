"""Selection of the public examples that resemble a client's own, by density ratios."""

from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedkd import inference, local
from fedkd.checks import numeric
from fedkd.types import Data, ExampleIndices

Inputs = Literal['pixels', 'features']
BLOCK = 500  # examples whose ratios are computed at once


def kernel(x: jax.Array, y: jax.Array, width: float) -> jax.Array:
  """exp(-|x - y|^2 / (2 width^2)) of vectors [A, d] and [B, d]: float[A, B]."""
  squares = jnp.sum(jnp.square(x), 1)[:, None] + jnp.sum(jnp.square(y), 1) - 2 * x @ y.T
  return jnp.exp(-jnp.maximum(squares, 0) / (2 * width**2))


def kulsif(
  known: jax.Array, there: jax.Array, auxiliary: jax.Array, width: float = 5.0, regulariser: float = -0.5
) -> Callable[[jax.Array], jax.Array]:
  """The ratio of the density of `known` examples to that of `auxiliary` ones, by kernel unconstrained least squares
  (Kanamori, Suzuki, Sugiyama, 2012).

  With n auxiliary and m known examples and l = n^regulariser: ratio(x) = sum_i a_i k(x, A_i) + sum_j k(x, K_j) / (m l),
  where (k(A, A) / n + l I) a = -k(A, K) 1 / (n m l).

  Args:
    known: [m_max, d], of which `there`, bool[m_max], marks those that are not padding.
    auxiliary: [n, d].
    width: of the Gaussian kernel.
    regulariser: exponent of n.

  Returns:
    x [B, d] -> float[B].
  """
  n, m = auxiliary.shape[0], jnp.maximum(jnp.sum(there), 1)
  penalty = jnp.asarray(float(n) ** regulariser, jnp.float32)
  to_known = lambda x: kernel(x, known, width) @ there.astype(jnp.float32) / (m * penalty)
  square = kernel(auxiliary, auxiliary, width) / n + penalty * jnp.eye(n)
  weight = jnp.linalg.solve(square, -to_known(auxiliary) / n)
  return lambda x: kernel(x, auxiliary, width) @ weight + to_known(x)


def quantile(values: jax.Array, among: jax.Array, share: float) -> jax.Array:
  """The quantile of those values [n] that are `among`, bool[n], interpolated as NumPy does; of none, -inf."""
  count = jnp.sum(among)
  ordered = jnp.sort(jnp.where(among, values, jnp.inf))
  at = share * jnp.maximum(count - 1, 0)
  low = jnp.floor(at).astype(jnp.int32)
  high = jnp.minimum(low + 1, jnp.maximum(count - 1, 0))
  between = ordered[low] + (at - low) * (ordered[high] - ordered[low])
  return jnp.where(count > 0, between, -jnp.inf)


def resembling(
  key: jax.Array,
  model: nn.Module,
  variables: dict,
  data: Data,
  own: ExampleIndices,
  rows: jax.Array,
  *,
  known: float,
  auxiliary: int,
  width: float,
  regulariser: float,
  share: float,
  inputs: Inputs,
) -> jax.Array:
  """bool[N], which of the examples `rows` int32[N] resemble a client's own: whose density ratio is above that of a
  share of its own.

  The ratio compares some of its own examples, drawn at random, with `auxiliary` uniform ones in the box of all inputs;
  the threshold is the quantile `share` of the ratio over the rest of its own.

  Args:
    key: of the own examples that are drawn, and of the uniform ones.
    model, variables: whose preprocessing, or with inputs='features' whose features, are used.
    own: the client's examples.
    known: share of them that is drawn.
    inputs: 'pixels' or 'features'.
    width, regulariser: as in `kulsif`.
  """
  of = lambda index: _inputs(model, variables, data.pool.example, index, inputs)
  key_known, key_noise = jax.random.split(key)
  count = own.index.shape[0]
  # Pools are often sorted by class: the first rows would be of one class.
  own = own._replace(index=own.index[local.shuffle(key_known, count, jnp.asarray(own.size))])
  drawn = jnp.maximum(jnp.floor(numeric.share_of(known, own.size)).astype(jnp.int32), 1)
  first, place = own.index[: max(1, int(numeric.share_of(known, count)))], jnp.arange(count)
  low, high = _box(model, data.pool.example, of, rows, inputs)
  noise = low + (high - low) * jax.random.uniform(key_noise, (auxiliary, low.shape[0]))
  ratio = kulsif(of(first), place[: first.shape[0]] < drawn, noise, width, regulariser)
  # In blocks: all clients do this at once.
  ratios = lambda index: jax.lax.map(lambda i: ratio(of(i[None]))[0], index, batch_size=BLOCK)
  threshold = quantile(ratios(own.index), (place >= drawn) & (place < own.size), share)
  return ratios(rows) > threshold


def _inputs(model, variables, example, index, inputs):
  """Vectors [n, d] of the examples in the rows `index`."""
  if inputs == 'features':
    vectors = inference.infer(model, variables, example, index, features=True)[1]
  else:
    vectors = _normalised(model, example[index])
  return vectors.reshape(index.shape[0], -1)


def _normalised(model, x):
  x = x.astype(jnp.float32)
  return x if model.mean is None else (x - model.mean) * model.scale


def _box(model, example, of, rows, inputs):
  """(least, most) of every input [d]: of all images that there can be, else of the examples in `rows`."""
  if inputs == 'pixels' and example.dtype == jnp.uint8:
    ends = jnp.stack([jnp.zeros(example.shape[1:]), jnp.full(example.shape[1:], 255.0)])
    return _normalised(model, ends).reshape(2, -1)
  vectors = of(rows)
  return jnp.min(vectors, 0), jnp.max(vectors, 0)
