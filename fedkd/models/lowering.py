"""A convolution as one matmul, which stays fast inside loops and under vmap.

XLA runs `lax.conv` inside a loop body on a slow path on the CPU, and vmap over kernels turns it into a grouped
convolution (jax issues 12868, 13800).
"""

import jax
import jax.numpy as jnp
import numpy as np

THIN = (32, 16)  # most numbers in a row of the kernel, and most filters, for windows of several positions
TILE = 4  # positions per window


@jax.custom_vjp
def _materialized(x):
  return x / jnp.where(x == x, 1.0, jnp.nan)


_materialized.defvjp(lambda x: (_materialized(x), None), lambda _, grad: (_materialized(grad),))


def materialize(x):
  """`x` itself, computed once and stored, and its gradient likewise; XLA:CPU has no other way to ask for it.

  XLA:CPU merges a producer into every consumer: the nine shifts of a convolution each recompute the pool, the dropout
  and the BatchNorm before them, up to 4 times the run time of a CNN (`launch.bench`). It ignores
  `optimization_barrier`, but never duplicates a division. Dividing by one is exact, and costs a pass.
  """
  return _materialized(x) if jax.default_backend() == 'cpu' else x


def pad_amounts(padding, size, kernel, strides):
  """The padding of a map ((top, bottom), (left, right)): 'SAME' and 'VALID' as numbers, others as they are."""
  if isinstance(padding, str):
    return jax.lax.padtype_to_pads(size, kernel, strides, padding)
  return tuple(padding)


def in_blocks(x, kh=2, kw=2):
  """[B, H, W, c] -> [B, H//kh, kh, W//kw, kw, c], odd last rows and columns dropped (VALID)."""
  b, h, w, c = x.shape
  return x[:, : h // kh * kh, : w // kw * kw].reshape(b, h // kh, kh, w // kw, kw, c)


def _patches(x, kernel, strides, size):
  """All kernel-sized windows of `x` [B, H, W, c] as rows [B * H' * W', kh * kw * c]."""
  if tuple(kernel) == tuple(strides):  # they do not overlap
    return in_blocks(x, *kernel).transpose(0, 1, 3, 2, 4, 5).reshape(-1, kernel[0] * kernel[1] * x.shape[-1])

  def cut(i, j):
    stop = (i + (size[0] - 1) * strides[0] + 1, j + (size[1] - 1) * strides[1] + 1)
    return x[:, i : stop[0] : strides[0], j : stop[1] : strides[1], :]

  x = materialize(x)
  taps = jnp.stack([jnp.stack([cut(i, j) for j in range(kernel[1])], 3) for i in range(kernel[0])], 3)
  return taps.reshape(-1, kernel[0] * kernel[1] * x.shape[-1])


def _tiled(x, kernel, strides, size):
  """A convolution of windows that serve TILE neighbouring places each, by a kernel that is repeated and shifted.

  Cutting out windows of a few numbers costs far more than multiplying them: side by side they overlap, so a wider one
  for several places is fewer numbers to copy, in longer pieces, at the price of multiplying by some zeros.
  """
  (kh, kw, c, d), stride = kernel.shape, strides[1]
  step, wide, tiles = TILE * stride, (TILE - 1) * stride + kw, -(-size[1] // TILE)
  # A tile's window is a block of `step` columns and the beginnings of the next ones.
  blocks = tiles - 1 + -(-wide // step)
  x = jnp.pad(x[:, :, : blocks * step], ((0, 0), (0, 0), (0, max(0, blocks * step - x.shape[2])), (0, 0)))
  x = materialize(x).reshape(*x.shape[:2], blocks, step * c)
  rows = [x[:, i : i + (size[0] - 1) * strides[0] + 1 : strides[0]] for i in range(kh)]
  pieces = [row[:, :, j : j + tiles, : (wide - j * step) * c] for row in rows for j in range(-(-wide // step))]
  windows = jnp.concatenate(pieces, -1).reshape(-1, kh * wide * c)
  at = np.arange(wide)[:, None, None] == np.arange(TILE)[:, None] * stride + np.arange(kw)
  shifted = jnp.einsum('wpk,hkcd->hwcpd', at.astype(kernel.dtype), kernel).reshape(-1, TILE * d)
  return (windows @ shifted).reshape(x.shape[0], size[0], tiles * TILE, d)[:, :, : size[1]]


def _windowed(x, kernel, strides, size):
  """A convolution of windows: cut them out, multiply."""
  patches = _patches(x, kernel.shape[:2], strides, size)
  return (patches @ kernel.reshape(-1, kernel.shape[-1])).reshape(x.shape[0], *size, -1)


def conv_matmul(x, kernel, strides, padding):
  """A convolution as shifts and one matmul: pad, stack the k*k strided shifts, multiply.

  Args:
    x: [B, H, W, c].
    kernel: [kh, kw, c, d].
    strides: (sh, sw).
    padding: 'SAME', 'VALID', or ((top, bottom), (left, right)).

  Returns:
    [B, H', W', d], as `lax.conv_general_dilated` to rounding.
  """
  pads = pad_amounts(padding, x.shape[1:3], kernel.shape[:2], strides)
  if any(amount for side in pads for amount in side):
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
  size = tuple((n - k) // s + 1 for n, k, s in zip(x.shape[1:3], kernel.shape[:2], strides, strict=True))
  thin = kernel.shape[1] * kernel.shape[2] <= THIN[0] and kernel.shape[3] <= THIN[1]
  overlap = kernel.shape[1] > strides[1]
  return (_tiled if thin and overlap else _windowed)(x, kernel, strides, size)
