"""First-in-first-out buffers of the vectors uploaded for each class, and a server of their means."""

import jax
import jax.numpy as jnp

from fedkd.checks.ranges import Positive, check
from fedkd.servers.class_knowledge import Kind, age, class_message, vector_width
from fedkd.types import Download, Server


def class_buffer(classes: int, limit: int, width: int) -> dict:
  """An empty buffer of the last `limit` vectors of every class: {'value': [C, limit, width], 'count': int32[C] pushed
  so far, 'since': [C, limit] the rounds of upload}.

  Raises:
    ValueError: for a limit below 1.
  """
  check('limit', limit, Positive)
  return {
    'value': jnp.zeros((classes, limit, width)),
    'count': jnp.zeros(classes, jnp.int32),
    'since': jnp.zeros((classes, limit)),
  }


def push(class_buffer: dict, t: jax.Array, uploads: tuple) -> dict:
  """The buffer after the messages of round `t`: first in, first out, in the order of `uploads`."""
  classes, limit, width = class_buffer['value'].shape
  flat = lambda pick: jnp.concatenate([pick(up).reshape(-1) for up in uploads])
  value = jnp.concatenate([up['knowledge'].value.reshape(-1, width) for up in uploads])
  label, valid = flat(lambda up: up['label'].value), flat(lambda up: up['knowledge'].valid)
  member = (label[:, None] == jnp.arange(classes)) & valid[:, None]  # [N, C]
  pushed = jnp.sum(member, 0, dtype=jnp.int32)
  rank = jnp.sum(jnp.where(member, jnp.cumsum(member, 0) - 1, 0), 1)  # within its class
  lasts = valid & (rank >= pushed[label] - limit)  # of more than fit at once, only the last
  at = jnp.where(lasts, label, classes), (class_buffer['count'][label] + rank) % limit
  return {
    'value': class_buffer['value'].at[at].set(value, mode='drop'),
    'count': class_buffer['count'] + pushed,
    'since': class_buffer['since'].at[at].set(t, mode='drop'),
  }


def stored(class_buffer: dict) -> jax.Array:
  """bool[C, limit], the places of the buffer that hold a vector."""
  return jnp.arange(class_buffer['value'].shape[1]) < class_buffer['count'][:, None]


def buffer_age(t: jax.Array, class_buffer: dict) -> jax.Array:
  """Rounds since upload, averaged like the `knowledge_age` of `class_means`."""
  held = stored(class_buffer)
  return age(t, jnp.sum(jnp.where(held, class_buffer['since'], 0), 1), jnp.sum(held, 1))


def buffered_class_means(limit: int, *, of: Kind = 'logits', width: int | None = None) -> Server:
  """Mean per class of the last `limit` vectors uploaded for that class, for messages per example (or per class).

  Args:
    limit: vectors kept per class; each counts once.
    of, width: as in `class_means`.

  Raises:
    ValueError: at init, for a limit below 1, and as `class_means`.
  """

  def init(key, groups, variables, data):
    del key
    return class_buffer(groups[0].model.classes, limit, vector_width(of, width, groups, data))

  def receive(key, t, groups, state, uploads, ids, data):
    state = push(state, t, uploads)
    return state, {'known_classes': jnp.sum(state['count'] > 0), 'knowledge_age': buffer_age(t, state)}

  def send(key, t, groups, state, ids, data):
    held = stored(state)
    means = jnp.sum(jnp.where(held[..., None], state['value'], 0), 1) / jnp.maximum(jnp.sum(held, 1), 1)[:, None]
    return tuple(Download(shared=class_message(means, state['count'] > 0)) for _ in ids)

  return Server(init, receive, send)
