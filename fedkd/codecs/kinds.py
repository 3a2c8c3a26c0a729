"""The codecs: fewer bits for each number, or fewer numbers."""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Range, Ratio, checked
from fedkd.codecs.codec import IDENTITY, Codec

Bits = Annotated[int, Range(least=1, most=16)]


def identity() -> Codec:
  """Numbers as they are."""
  return IDENTITY


def float16() -> Codec:
  """IEEE half precision: a relative error of 2^-11 at most from 6.1e-5 up; beyond 65 504 numbers are cut off there, but
  for infinite ones, as of a class that a model masks."""
  return _rounded(jnp.float16)


def bfloat16() -> Codec:
  """The upper half of a float32: a relative error of 2^-8 at most, over the whole range."""
  return _rounded(jnp.bfloat16)


def _rounded(dtype) -> Codec:
  most = float(jnp.finfo(dtype).max)
  rounded = lambda row: jnp.where(jnp.isinf(row), row, round_to(dtype, jnp.clip(row, -most, most)))
  encode = lambda key, row: {'value': rounded(row).astype(dtype)}
  return Codec(encode, lambda arrays, width: arrays['value'].astype(jnp.float32))


def round_to(dtype: jnp.dtype, x: jax.Array) -> jax.Array:
  """The numbers of `dtype` next to float32s within its range, as float32.

  XLA for GPUs takes a conversion to a narrower type and back out of a program, which leaves the numbers as they are.
  It keeps `reduce_precision`, which turns subnormal numbers into zeros: those are multiples of the smallest.
  """
  info = jnp.finfo(dtype)
  normal = jax.lax.reduce_precision(x, info.nexp, info.nmant)
  least = float(info.smallest_subnormal)
  subnormal = jnp.round(x / least) * least
  return jnp.where(jnp.abs(x) < float(info.smallest_normal), subnormal, normal) if info.nexp < 8 else normal


@checked
def quantised(bits: Bits = 8, changes: bool = False) -> Codec:
  """Uniform levels from a row's minimum to its maximum, rounded up or down at random without bias.

  QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, 2017) rounds in this way, with levels from 0 to the norm. Of a row of d
  numbers ceil(d * bits / 8) + 8 bytes are sent: packed codes, the minimum and the distance of two levels. A row with an
  infinite number, as of a class that a model masks, is NaN.

  Args:
    bits: per number, 1 to 16.
    changes: whether uploads are differences from what the client received, which the server adds to it.
  """
  levels = 2**bits - 1

  def encode(key, row):
    least = jnp.min(row)
    step = (jnp.max(row) - least) / levels
    place = (row - least) / jnp.where(step > 0, step, 1)
    code = jnp.clip(jnp.floor(place + jax.random.uniform(key, row.shape)), 0, levels).astype(jnp.uint32)
    bit = (code[:, None] >> jnp.arange(bits, dtype=jnp.uint32)) & 1
    return {'code': jnp.packbits(bit.astype(jnp.uint8).reshape(-1)), 'least': least, 'step': step}

  def decode(arrays, width):
    bit = jnp.unpackbits(arrays['code'], count=width * bits).reshape(width, bits)
    code = jnp.sum(bit.astype(jnp.uint32) << jnp.arange(bits, dtype=jnp.uint32), -1)
    return arrays['least'] + arrays['step'] * code

  return Codec(encode, decode, changes)


@checked
def top_k(share: Ratio = 0.1, changes: bool = False) -> Codec:
  """The largest numbers of a row by magnitude, and their positions; all others are received as 0.

  Of a row of d numbers share * d are sent, rounded, and at least one: 4 bytes each, and 1, 2 or 4 for its position.

  Args:
    share: of the numbers that are sent.
    changes: whether uploads are differences from what the client received, which the server adds to it; required for
      weights, since a network without nine tenths of its weights is useless.
  """

  def encode(key, row):
    del key
    place = jax.lax.top_k(jnp.abs(row), max(1, round(share * row.size)))[1]
    return {'value': row[place], 'index': place.astype(_places(row.size))}

  def decode(arrays, width):
    return jnp.zeros(width, jnp.float32).at[arrays['index'].astype(jnp.int32)].set(arrays['value'])

  return Codec(encode, decode, changes, drops=True)


def _places(width):
  return next(kind for kind in (jnp.uint8, jnp.uint16, jnp.int32) if width <= jnp.iinfo(kind).max + 1)
