"""Methods between walls: nobody sees more than its own examples, public ones, and what was sent; the rest is NaN."""

import jax
import jax.numpy as jnp

from fedkd.types import Method, is_partial


def walled(method: Method) -> Method:
  """`method`, whose functions see NaN and wrong labels in place of others' examples, NaN where a message is not valid
  and in empty slots, and no rows of `Data.everyone` and, on the server, of any client."""
  client, server = method.client, method.server

  def init(key, model, data, variables):
    return client.init(key, model, of_client(data), variables)

  def step(key, t, model, state, down, data):
    state, up, info = client.step(key, t, model, state, sent(down), of_client(data))
    return state, sent(up), info

  def receive(key, t, groups, state, uploads, ids, data):
    return server.receive(key, t, groups, state, tuple(map(present, uploads, ids)), ids, of_server(data))

  return method._replace(
    client=client._replace(init=init, step=step),
    server=server._replace(
      init=lambda key, groups, variables, data: server.init(key, groups, variables, of_server(data)),
      receive=receive,
      send=lambda key, t, groups, state, ids, data: server.send(key, t, groups, state, ids, of_server(data)),
    ),
  )


def of_client(data):
  return data._replace(pool=known(data.pool, data.private, data.public), everyone=nobodys(data.everyone))


def of_server(data):
  return tuple(
    view._replace(
      pool=known(view.pool, view.public),
      **{name: nobodys(getattr(view, name)) for name in ('private', 'shared', 'everyone')},
    )
    for view in data
  )


def nobodys(rows):
  """As many rows, none of which is one; whose they are is no secret."""
  return None if rows is None else rows._replace(index=jnp.zeros_like(rows.index), size=jnp.zeros_like(rows.size))


def known(pool, *tables):
  """The pool with NaN, and other labels, but for the rows of these tables."""
  seen = jnp.zeros(len(pool.label), bool)
  for rows in tables:
    if rows is not None:
      at = jnp.where(jnp.arange(len(rows.index)) < rows.size, rows.index, len(seen))
      seen = seen.at[at].set(True, mode='drop')
  return type(pool)(where(seen, pool.example), jnp.where(seen, pool.label, (pool.label + 1) % (1 + pool.label.max())))


def sent(message):
  """A message with NaN where it is not valid. Numbers of rows stay: FedMD's clients know those that they have had."""
  one = lambda node: node._replace(value=where(node.valid, node.value)) if is_partial(node) else node
  return jax.tree.map(one, message, is_leaf=is_partial)


def present(upload, ids):
  """A group's uploads with NaN in empty slots."""
  return jax.tree.map(lambda leaf: where(ids >= 0, leaf), upload)


def where(kept, leaf):
  """NaN in place of the entries of an array of floats that are not `kept`, a prefix of its shape."""
  if not jnp.issubdtype(leaf.dtype, jnp.floating):
    return leaf
  return jnp.where(kept.reshape(*kept.shape, *[1] * (leaf.ndim - kept.ndim)), leaf, jnp.nan)
