"""Nested sub-networks: which entries of a wide network's arrays are those of a narrow one.

Of every axis they are the leading ones, or the leading ones of several equal blocks: behind the flattening of maps
[H, W, c] the input (h W + w) c + i of a dense layer is channel i, so the first channels are the first of each of H W
blocks. The cut is tried out, not guessed: what lies outside a sub-network must not reach it.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedkd.types import PyTree

Blocks = dict[tuple[int, int], int]  # (length in the wide net, in the narrow one) -> blocks, where that is not 1
LEAST = 1e-6  # of the logits: an influence that is more than rounding


class Cut(NamedTuple):
  """Which part of a wide network a narrow one is."""

  blocks: Blocks
  order: Callable[[int], jax.Array] | None = None  # n -> int32[n], channels, of which it has the first; None: in order


def corner(whole: jax.Array, shape: tuple[int, ...], cut: Cut) -> jax.Array:
  """The part of `whole` that belongs to a sub-network's array of this `shape`."""
  unfolded, narrow = _unfolded(whole.shape, shape, cut.blocks)
  whole = _in_order(whole.reshape(unfolded), narrow, cut.order)
  return whole[tuple(map(slice, narrow))].reshape(shape)


def padded(narrow: jax.Array, shape: tuple[int, ...], cut: Cut) -> jax.Array:
  """An array of this `shape` with `narrow` where `corner` takes it from, and zeros elsewhere."""
  unfolded, own = _unfolded(shape, narrow.shape, cut.blocks)
  whole = jnp.pad(narrow.reshape(own), [(0, n - m) for n, m in zip(unfolded, own, strict=True)])
  order = cut.order
  back = None if order is None else lambda n: jnp.argsort(order(n))
  return _in_order(whole, own, back).reshape(shape)


def _in_order(whole, narrow, order):
  """`whole`, with the channels in another order on the axes where `narrow` has fewer."""
  if order is None:
    return whole
  for axis, (n, m) in enumerate(zip(whole.shape, narrow, strict=True)):
    whole = whole if n == m else jnp.take(whole, order(n), axis)
  return whole


def _unfolded(whole, narrow, blocks):
  """Both shapes, an axis of several blocks as two."""
  counts = [blocks.get(pair, 1) for pair in zip(whole, narrow, strict=True)]
  unfold = lambda shape: [m for n, b in zip(shape, counts, strict=True) for m in ((b, n // b) if b > 1 else (n,))]
  return unfold(whole), unfold(narrow)


def blocks_of(
  model: nn.Module, whole: PyTree, narrow_nets: Sequence[PyTree], batch_stats: PyTree, example: jax.Array
) -> list[Blocks | None]:
  """For each of several narrow nets, the fewest axes cut in blocks with which it is a sub-network of a wide one.

  With positive weights inside and zeros outside, rows of kernels outside must have no gradient, since they meet only
  activations of channels outside, which are 0; and every array must have some inside if it has in the whole net. Both
  hold whatever a scaler or a norm over channels does to the channels inside.

  Args:
    model: the wide net.
    whole, narrow_nets: parameters of the wide and the narrow nets, trees of one structure; only shapes are read.
    batch_stats, example: the wide net's statistics and one example [1, ...], of which only shapes are read.

  Returns:
    None where there is no such cut.
  """
  shapes = [[leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (whole, *narrow_nets)]
  if all(shape == shapes[0] for shape in shapes):
    return [{} for _ in narrow_nets]
  influence = _influence(model, whole, batch_stats, example)
  matters = [np.max(leaf) > LEAST for leaf in influence([np.ones(shape, bool) for shape in shapes[0]])]
  return [_first_cut(influence, matters, list(zip(shapes[0], narrow, strict=True))) for narrow in shapes[1:]]


def _first_cut(influence, matters, shapes) -> Blocks | None:
  if all(a == b for a, b in shapes):
    return {}
  for blocks in _candidates(shapes):
    inside = [_inside(whole, narrow, blocks) for whole, narrow in shapes]
    reached = influence(inside)
    leaks = any(np.any(leaf, where=_rows_outside(i)) for leaf, i in zip(reached, inside, strict=True))
    if not leaks and all(np.any(leaf, where=i) for leaf, i, m in zip(reached, inside, matters, strict=True) if m):
      return blocks
  return None


def _inside(whole, narrow, blocks) -> np.ndarray:
  """Which entries of an array are in that of the sub-network: as `padded`, but concrete where the caller is traced."""
  unfolded, cut = _unfolded(whole, narrow, blocks)
  inside = np.zeros(unfolded, bool)
  inside[tuple(map(slice, cut))] = True
  return inside.reshape(whole)


def _influence(model, params, batch_stats, example):
  """A function of what is inside, leaves bool[...]: how much each parameter changes the sum of the logits, relative to
  it; positive weights that keep the size of activations are inside, zeros outside."""
  rng = np.random.default_rng(0)
  positive = lambda shape: rng.uniform(0.5, 1.5, shape).astype(np.float32)
  shape_of = lambda a: jax.ShapeDtypeStruct(a.shape, np.float32)
  params, statistics = jax.tree.map(shape_of, params), jax.tree.map(lambda a: positive(a.shape), batch_stats)
  leaves, structure = jax.tree.flatten(params)
  x = np.full(example.shape, 255 if example.dtype == np.uint8 else 1, example.dtype)
  logits = lambda params, statistics, x: jnp.sum(
    model.apply({'params': params, 'batch_stats': statistics}, x, False)[0]
  )
  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None  # it runs a few times
  gradient = jax.jit(jax.value_and_grad(logits), compiler_options=cheap).lower(params, statistics, x).compile()
  draws = [positive(leaf.shape) for leaf in leaves]

  def influence(inside):
    scale = [np.float32(1 / np.max(np.sum(i, axis=tuple(range(i.ndim - 1))))) for i in inside]  # 1 / fan-in
    weights = [draw * i * s for draw, i, s in zip(draws, inside, scale, strict=True)]
    total, grads = gradient(jax.tree.unflatten(structure, weights), statistics, x)
    return [np.abs(g) * s / np.abs(total) for g, s in zip(jax.tree.leaves(grads), scale, strict=True)]

  return influence


def _rows_outside(inside: np.ndarray) -> np.ndarray:
  """Which entries of a kernel multiply inputs from outside: they have no entry inside in their row."""
  if inside.ndim < 2:
    return np.zeros_like(inside)
  rows = tuple(axis for axis in range(inside.ndim) if axis != inside.ndim - 2)
  return np.broadcast_to(~np.any(inside, axis=rows, keepdims=True), inside.shape)


def _candidates(shapes) -> Iterator[Blocks]:
  """Cuts to try: without blocks, then one length of axes in blocks of another length, then two."""
  pairs = sorted({pair for a, b in shapes for pair in zip(a, b, strict=True) if pair[0] != pair[1]})
  # (N, n) is `count` blocks (C, c).
  choices = [
    ((wide, narrow), wide // unit)
    for (wide, narrow), (unit, part) in itertools.product(pairs, repeat=2)
    if wide > unit and not wide % unit and narrow == wide // unit * part
  ]
  for count in range(3):
    for chosen in itertools.combinations(choices, count):
      if len({pair for pair, _ in chosen}) == count:
        yield dict(chosen)
