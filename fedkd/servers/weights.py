"""Servers that hold weights: one model for all, or one per architecture."""

import jax
import jax.numpy as jnp

from fedkd.types import Download, Server


def _reduce(rule, old, uploads, ids):
  """The rule over uploads {..., 'count': [m]}, weighted by count; `old` where nobody uploaded."""
  weight = jnp.where(ids >= 0, uploads['count'], 0).astype(jnp.float32)
  if not weight.shape[0]:  # a group without slots; a rule need not know about no rows at all
    return old
  new = rule({key: value for key, value in uploads.items() if key != 'count'}, weight)
  return jax.tree.map(lambda n, o: jnp.where(jnp.any(weight > 0), n, o).astype(o.dtype), new, old)


def weights_per_group(rule) -> Server:
  """One set of variables per architecture: the rule over a group's uploads {'params', 'batch_stats', 'count'}."""

  def receive(key, t, state, uploads, ids):
    del key, t
    return tuple(_reduce(rule, *group) for group in zip(state, uploads, ids, strict=True)), {}

  def send(key, t, state, ids):
    del key, t, ids
    return tuple(Download(shared=variables) for variables in state)

  return Server(lambda key, groups, variables, data: tuple(variables), receive, send)


def weights(rule) -> Server:
  """Holds one set of variables for all: the rule over all uploads {'params', 'batch_stats', 'count'}.

  Raises:
    ValueError: at init, if the groups' variables differ in structure or shape.
  """

  def init(key, groups, variables, data):
    del key, data
    shapes = [jax.tree.map(jnp.shape, v) for v in variables]
    if any(s != shapes[0] for s in shapes):
      names = ', '.join(g.name for g in groups)
      raise ValueError(
        f'groups have different architectures ({names}), so their weights cannot be averaged; '
        'set method.per_group=True to average inside each architecture, or use zoo=homo'
      )
    return variables[0]

  def receive(key, t, state, uploads, ids):
    del key, t
    return _reduce(rule, state, jax.tree.map(lambda *a: jnp.concatenate(a), *uploads), jnp.concatenate(ids)), {}

  def send(key, t, state, ids):
    del key, t
    return tuple(Download(shared=state) for _ in ids)

  return Server(init, receive, send)


def as_rows(variables):
  """One set of variables as `Method.variables` wants it: leaves [1, ...], one model for the whole group."""
  return jax.tree.map(lambda a: a[None], variables)


def silent() -> Server:
  """A server that neither sends nor keeps anything."""
  return Server(
    lambda key, groups, variables, data: (),
    lambda key, t, state, uploads, ids: ((), {}),
    lambda key, t, state, ids: tuple(Download() for _ in ids),
  )
