"""A control variate for all clients: the mean of those that clients keep."""

import jax
import jax.numpy as jnp

from fedkd import aggregate
from fedkd.types import Download, Server, clients


def controls() -> Server:
  """Holds c, the mean over all K clients of their control variates, and sends it to everybody.

  Uploads {'change'} are changes of a client's variate, so that c + (sum of them) / K is the new mean whoever took part
  (Karimireddy et al., "SCAFFOLD", 2020, Algorithm 1). All clients' parameters have the same shapes, and the first
  variates are 0.
  """

  def init(key, groups, variables, data):
    return jax.tree.map(jnp.zeros_like, variables[0]['params'])

  def receive(key, t, groups, state, uploads, ids, data):
    took_part = jnp.concatenate(ids) >= 0
    changes = jax.tree.map(lambda *a: jnp.concatenate(a), *(upload['change'] for upload in uploads))
    change = aggregate.total(lambda here, own: jax.tree.map(lambda a: jnp.where(here, a, 0), own), took_part, changes)
    new = lambda control, a: (control + a / clients(groups)).astype(control.dtype)
    return jax.tree.map(new, state, change), {}

  def send(key, t, groups, state, ids, data):
    return tuple(Download(shared=state) for _ in ids)

  return Server(init, receive, send)
