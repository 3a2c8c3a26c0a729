"""FedRolex and Federated Dropout with an error of HeFlwr's server, to measure how much of its table is due to it.

A client's channels form runs of neighbours. The server (`aggregate_weight`, `aggregate_bias` of src/heflwr/fed) adds to
each run not its own rows of the upload but the first ones, as many as the run is long. Where all channels are one run,
as in HeteroFL, that is right.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from fedkd.checks.ranges import Count, Positive, Ratio, Share, checked
from fedkd.methods.fedrolex import moving
from fedkd.methods.heterofl import heterofl
from fedkd.servers import corners, nested
from fedkd.types import Method


@checked
def fedrolex(
  tx: optax.GradientTransformation,
  rates: tuple[Ratio, ...],
  epochs: Count | None = 1,
  batch: Positive = 64,
  stride: Share = 0.25,
) -> Method:
  """`fedkd.methods.fedrolex` with the error; `rates`: of the groups."""
  chosen = lambda t, g, n: (jnp.arange(n) + t * max(1, round(n * stride))) % n
  return _made(tx, chosen, rates, epochs, batch)


@checked
def federated_dropout(
  tx: optax.GradientTransformation,
  rates: tuple[Ratio, ...],
  epochs: Count | None = 1,
  batch: Positive = 64,
) -> Method:
  """`fedkd.methods.federated_dropout` with the error; `rates`: of the groups."""

  def chosen(t, g, n):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), t), g)
    return jax.random.permutation(jax.random.fold_in(key, n), n)

  return _made(tx, chosen, rates, epochs, batch)


def _made(tx, chosen: nested.Order, rates: Sequence[float], epochs, batch) -> Method:
  """A method whose clients hold the `chosen` channels in ascending order."""

  def order(t, g, n):
    first = chosen(t, g, n)
    many = math.ceil(rates[g] * n)
    return jnp.concatenate([jnp.sort(first[:many]), jnp.sort(first[many:])])

  method = moving(heterofl(tx, epochs, None, batch, False, weighted=True), None, order, 'trained')
  right = method.server.receive

  def receive(key, t, groups, state, uploads, ids, data):
    whole = state['params'][nested.widest(state['params'])]
    moved = []
    for up, cut in zip(uploads, nested.cuts_of(state, t, order), strict=True):
      wrong = lambda narrow, wide, cut=cut: first_rows(narrow, (len(narrow), *wide.shape), cut)
      moved.append({**up, 'params': jax.tree.map(wrong, up['params'], whole)})
    return right(key, t, groups, state, tuple(moved), ids, data)

  return method._replace(server=method.server._replace(receive=receive))


def first_rows(narrow: jax.Array, shape: tuple[int, ...], cut: corners.Cut) -> jax.Array:
  """What the server adds for an upload: of every axis on which it has fewer channels than `shape`, the first of them in
  the place of each run's own."""
  order = cut.order
  for axis, (n, m) in enumerate(zip(shape, narrow.shape, strict=True)):
    if order is not None and n != m:
      count = cut.blocks.get((n, m), 1)
      places = jnp.arange(count)[:, None] * (m // count) + in_run(order(n // count)[: m // count])
      narrow = jnp.take(narrow, places.reshape(-1), axis)
  return narrow


def in_run(kept: jax.Array) -> jax.Array:
  """The place of each of several ascending channels in its run of neighbours, int[m]: 2, 3, 7 are 0, 1, 0."""
  place = jnp.arange(len(kept))
  begins = jnp.concatenate([jnp.ones(1, bool), kept[1:] != kept[:-1] + 1])
  return place - jax.lax.cummax(jnp.where(begins, place, 0))
