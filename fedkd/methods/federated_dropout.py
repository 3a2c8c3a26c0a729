"""Federated Dropout: Caldas, Konecny, McMahan, Talwalkar, "Expanding the Reach of Federated Learning by Reducing Client
Resource Requirements", 2018, and as FedRolex compares with it."""

import jax
import optax

from fedkd import aggregate
from fedkd.checks.ranges import Count, Positive, Seed, checked
from fedkd.methods.fedrolex import Inference, moving
from fedkd.methods.heterofl import heterofl
from fedkd.types import Method


@checked
def federated_dropout(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  masked: bool = True,
  rule: aggregate.AnyRule | None = None,
  seed: Seed = 0,
  inference: Inference = 'network',
  weighted: bool = False,
) -> Method:
  """HeteroFL whose sub-networks are random channels, drawn anew in every round.

  Learned, sent and averaged: as in `fedrolex`; server and clients know the seed, so that no positions are sent. All
  clients of a group have the same channels in a round (in the paper each has its own), and layers of equal width the
  same ones, so that shortcuts add up what belongs together; in FedRolex's code each convolution draws its own.

  Args:
    tx, epochs, steps, batch, masked, rule, inference, weighted: as in `fedrolex`.
    seed: of the draws.

  Raises:
    ValueError: at init, for groups that are not sub-networks of the widest.
  """

  def drawn(t: jax.Array, g: int, n: int) -> jax.Array:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), t), g)
    return jax.random.permutation(jax.random.fold_in(key, n), n)

  return moving(heterofl(tx, epochs, steps, batch, masked, weighted=weighted), rule, drawn, inference)
