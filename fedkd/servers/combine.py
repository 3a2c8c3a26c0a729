"""Servers composed of servers: one per key of a message, or one that sends nothing in its first rounds."""

import jax
import jax.numpy as jnp

from fedkd.types import Download, Masked, PyTree, Server, is_masked


def join(**servers: Server) -> Server:
  """Gives each top-level key of a message its own server: join(logits=class_means(), weights=weights(per_group=True)).

  Its state is a dict with the same keys, and so are downloads.
  """

  def init(key, groups, variables, data):
    keys = jax.random.split(key, len(servers))
    return {n: s.init(k, groups, variables, data) for k, (n, s) in zip(keys, servers.items(), strict=True)}

  def receive(key, t, groups, state, uploads, ids, data):
    keys = jax.random.split(key, len(servers))
    out = {
      name: server.receive(k, t, groups, state[name], tuple(up[name] for up in uploads), ids, data)
      for k, (name, server) in zip(keys, servers.items(), strict=True)
    }
    return {name: new for name, (new, _) in out.items()}, {k: v for _, info in out.values() for k, v in info.items()}

  def send(key, t, groups, state, ids, data):
    keys = jax.random.split(key, len(servers))
    downs = {n: s.send(k, t, groups, state[n], ids, data) for k, (n, s) in zip(keys, servers.items(), strict=True)}
    return tuple(
      Download(
        {name: down[g].shared for name, down in downs.items()}, {name: down[g].own for name, down in downs.items()}
      )
      for g in range(len(ids))
    )

  those = servers.values()
  any_of = lambda field: any(getattr(server, field) for server in those)
  return Server(init, receive, send, any_of('asks'), all(server.fresh for server in those), any_of('alone'))


def after(start: int, server: Server) -> Server:
  """`server`, sending nothing in the rounds before `start`: every leaf becomes a `Masked`, invalid until then."""

  def send(key, t, groups, state, ids, data):
    return valid_if(jnp.asarray(t >= start), server.send(key, t, groups, state, ids, data))

  return server._replace(send=send)


def valid_if(condition: jax.Array, message: PyTree) -> PyTree:
  """A message that is sent only on a condition: every leaf is a `Masked`."""
  hide = lambda leaf: Masked(leaf.value, leaf.valid & condition) if is_masked(leaf) else Masked(leaf, condition)
  return jax.tree.map(hide, message, is_leaf=is_masked)
