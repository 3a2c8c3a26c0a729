"""The models that clients have uploaded, as the teachers of others: their logits together, and BatchNorm statistics."""

from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd.aggregate import total
from fedkd.models import base, layers
from fedkd.rows import store_rows
from fedkd.types import Group, of_model, values_of

BATCH_NORMS = (layers.BatchNorm, nn.BatchNorm)


class Teachers(NamedTuple):
  """The models that clients uploaded, per group: variables with leaves [n, ...], bool[n] who did, float[n] weights."""

  variables: tuple
  present: tuple
  weight: tuple  # in the ensemble, 0 of a client that has uploaded nothing


def ensemble(nets: Sequence[nn.Module], teachers: Teachers, x: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(The weighted sum of the logits [B, C] of all models, how far the statistics of `x` are from theirs, in all)."""

  def of(net, *rows):
    def one(variables, present, weight):
      logits, apart = _observed(net, variables, x)
      return weight * logits, jnp.where(present, apart, 0)

    return total(one, *rows)

  sums = [of(net, *rows) for net, *rows in zip(nets, *teachers, strict=True)]
  logits, apart = zip(*sums, strict=True)
  return sum(logits[1:], logits[0]), sum(apart[1:], apart[0])


def after_uploads(t, groups, teachers: Teachers, uploads, ids) -> Teachers:
  """The teachers with the models that were uploaded in this round, of equal weights if it is the first."""
  variables, present = [], []
  for group, kept, here, up, slots in zip(groups, teachers.variables, teachers.present, uploads, ids, strict=True):
    rows = jnp.where((slots >= 0) & (t == 0), jnp.searchsorted(jnp.asarray(group.ids), slots), -1)
    variables.append(store_rows(kept, rows, values_of(up)))
    present.append(store_rows(here, rows, jnp.ones(len(rows), bool)))
  count = jnp.maximum(jnp.sum(jnp.concatenate(present)), 1)
  weight = tuple(jnp.where(t == 0, here / count, old) for here, old in zip(present, teachers.weight, strict=True))
  return Teachers(tuple(variables), tuple(present), weight)


def _observed(net, variables, x):
  """(Logits [B, C] in inference mode, the sum over BatchNorm layers of the distances between the means and between the
  variances of their inputs and those of training)."""
  seen = []

  def watch(call, args, kwargs, context):
    if isinstance(context.module, BATCH_NORMS) and context.method_name == '__call__':
      now, kept = args[0].astype(jnp.float32), context.module.variables['batch_stats']
      axes = tuple(range(now.ndim - 1))
      pairs = (now.mean(axes), kept['mean']), (now.var(axes), kept['var'])
      seen.extend(optax.safe_norm(one - other, 0.0) for one, other in pairs)  # whose gradient at 0 is 0
    return call(*args, **kwargs)

  with nn.intercept_methods(watch):
    logits, _ = net.apply(variables, x, False)
  return logits, jnp.float32(0) + sum(seen)


def check_statistics(group: Group, variables, example):
  """Checks that every BatchNorm of a model is seen.

  Raises:
    ValueError: for one that is neither Flax's nor fedkd's.
  """
  layers_seen, kept = [], [path[-1].key for path, _ in jax.tree.leaves_with_path(variables['batch_stats'])]

  def watch(call, args, kwargs, context):
    layers_seen.append(isinstance(context.module, BATCH_NORMS) and context.method_name == '__call__')
    return call(*args, **kwargs)

  with nn.intercept_methods(watch):
    jax.eval_shape(lambda v, x: group.model.apply(v, x, False), of_model(variables), example[:1])
  if kept.count('mean') > sum(layers_seen):
    raise ValueError(
      f'models: {base.class_of(group.model).__name__} has a BatchNorm that is neither fedkd.models.layers.BatchNorm '
      "nor Flax linen's, so that its statistics cannot be compared; use one of these, or set bn=0"
    )
