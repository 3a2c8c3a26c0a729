"""Knowledge per class on the server: what clients upload of a class, kept and averaged.

A message is {'knowledge': `Masked`, 'label': `Masked`}, either one row per class (`class_message`) or one per example.
"""

import jax
import jax.numpy as jnp

from fedkd.aggregate import total
from fedkd.types import Download, Masked, Server, clients


def class_message(value, valid):
  """Knowledge per class, as it is sent either way: {'knowledge': Masked [C, width], 'label': Masked int32[C]}."""
  return {'knowledge': Masked(value, valid), 'label': Masked(jnp.arange(valid.shape[0], dtype=jnp.int32), valid)}


def _age(t, since, count):
  """Rounds since upload, averaged over what is stored of a class and over the classes of which there is something."""
  known = count > 0
  age = jnp.where(known, t - since / jnp.maximum(count, 1), 0)
  return jnp.sum(age) / jnp.maximum(jnp.sum(known), 1)


def class_means(width=None, cold_start=0.0, refresh_every=0.0, per_round=False) -> Server:
  """Running mean per class of everything ever uploaded (FedHe, Chan and Ngai, 2021, Eqs. 9 and 10).

  Messages are `class_message`s; only valid classes are absorbed. Time is client turns, so that synchronous and
  asynchronous plans agree.

  Args:
    width: numbers per class; None for the number of classes (logits).
    cold_start: turns per client during which nothing is published.
    refresh_every: turns per client after which the store collapses to its mean (sum <- sum / count,
      count <- 1), as in the authors' code; 0 never.
    per_round: forget everything before each round.
  """

  def init(key, groups, variables, data):
    del key, variables, data
    classes, many = groups[0].model.classes, clients(groups)
    return {
      'sum': jnp.zeros((classes, width or classes)),
      'count': jnp.zeros(classes, jnp.int32),
      'since': jnp.zeros(classes),  # sum of the rounds of upload
      'turns': jnp.int32(0),
      'cold_start': jnp.int32(cold_start * many),
      'refresh_every': jnp.int32(refresh_every * many),
    }

  def receive(key, t, state, uploads, ids):
    del key
    # All groups in one sum: sums per group would round differently for another grouping of the same clients.
    value, valid = jax.tree.map(lambda *a: jnp.concatenate(a), *(up['knowledge'] for up in uploads))  # valid [m, C]
    kept = jax.tree.map(jnp.zeros_like, state) if per_round else state
    fresh = jnp.sum(valid, 0, dtype=jnp.int32)
    sums = kept['sum'] + total(lambda v, ok: jnp.where(ok[:, None], v, 0), value, valid)
    count, since = kept['count'] + fresh, kept['since'] + t * fresh
    before, every = state['turns'], state['refresh_every']
    after = before + sum(jnp.sum(i >= 0, dtype=jnp.int32) for i in ids)
    due = (every > 0) & (after // jnp.maximum(every, 1) > before // jnp.maximum(every, 1))
    sums, since = (jnp.where(due, (a.T / jnp.maximum(count, 1)).T, a) for a in (sums, since))
    count = jnp.where(due, jnp.minimum(count, 1), count)
    info = {'known_classes': jnp.sum(count > 0), 'knowledge_age': _age(t, since, count)}
    return {**state, 'sum': sums, 'count': count, 'since': since, 'turns': after}, info

  def send(key, t, state, ids):
    del key, t
    known = (state['count'] > 0) & (state['turns'] >= state['cold_start'])
    means = state['sum'] / jnp.maximum(state['count'], 1)[:, None]
    return tuple(Download(shared=class_message(means, known)) for _ in ids)

  return Server(init, receive, send)


def latest_class_knowledge(rule, width=None, cold_start=0.0) -> Server:
  """The latest upload of every client, reduced by `rule` class by class: a drop-in for `class_mean_store`.

  For each class the rule sees rows [K, width] and weight 1 where that client has ever uploaded the class.
  Arguments as in `class_mean_store`.
  """

  def init(key, groups, variables, data):
    del key, variables, data
    classes, many = groups[0].model.classes, clients(groups)
    return {
      'latest': jnp.zeros((many, classes, width or classes)),
      'valid': jnp.zeros((many, classes), bool),
      'since': jnp.zeros((many, classes), jnp.int32),  # the round of upload
      'turns': jnp.int32(0),
      'cold_start': jnp.int32(cold_start * many),
    }

  def receive(key, t, state, uploads, ids):
    del key
    latest, valid, since, turns = state['latest'], state['valid'], state['since'], state['turns']
    many, classes = valid.shape
    for up, slot in zip(uploads, ids, strict=True):
      # Classes that were not sent, and empty slots, write out of bounds, which is dropped.
      row = jnp.where(up['knowledge'].valid & (slot >= 0)[:, None], slot[:, None], many)  # [m, C]
      at = row, jnp.arange(classes)
      latest = latest.at[at].set(up['knowledge'].value, mode='drop')
      valid = valid.at[at].set(True, mode='drop')
      since = since.at[at].set(t, mode='drop')
      turns = turns + jnp.sum(slot >= 0, dtype=jnp.int32)
    info = {
      'known_classes': jnp.sum(jnp.any(valid, 0)),
      'knowledge_age': _age(t, jnp.sum(jnp.where(valid, since, 0), 0), jnp.sum(valid, 0)),
    }
    return {**state, 'latest': latest, 'valid': valid, 'since': since, 'turns': turns}, info

  def send(key, t, state, ids):
    del key, t
    known = jnp.any(state['valid'], 0) & (state['turns'] >= state['cold_start'])
    reduced = jax.vmap(rule, in_axes=(1, 1))(state['latest'], state['valid'].astype(jnp.float32))  # [C, width]
    # A rule owes nothing for a class nobody has; +inf there must not reach a client.
    message = class_message(jnp.where(known[:, None], reduced, 0), known)
    return tuple(Download(shared=message) for _ in ids)

  return Server(init, receive, send)


def class_buffer(classes, limit, width) -> dict:
  """Room for the last `limit` vectors of every class: {'value': [C, limit, width], 'count': int32[C] ever put there,
  'since': [C, limit] the rounds of upload}.

  Raises:
    ValueError: for a limit below 1.
  """
  if limit < 1:
    raise ValueError(f'limits: {limit} vectors per class must be at least 1')
  return {
    'value': jnp.zeros((classes, limit, width)),
    'count': jnp.zeros(classes, jnp.int32),
    'since': jnp.zeros((classes, limit)),
  }


def push(class_buffer, t, uploads) -> dict:
  """The buffer after the messages of round `t`: first in, first out, in the order of `uploads`."""
  classes, limit, width = class_buffer['value'].shape
  flat = lambda pick: jnp.concatenate([pick(up).reshape(-1) for up in uploads])
  value = jnp.concatenate([up['knowledge'].value.reshape(-1, width) for up in uploads])
  label, valid = flat(lambda up: up['label'].value), flat(lambda up: up['knowledge'].valid)
  mine = (label[:, None] == jnp.arange(classes)) & valid[:, None]  # [N, C]
  many = jnp.sum(mine, 0, dtype=jnp.int32)
  rank = jnp.sum(jnp.where(mine, jnp.cumsum(mine, 0) - 1, 0), 1)  # among those of its class
  lasts = valid & (rank >= many[label] - limit)  # of more than fit at once, the last
  at = jnp.where(lasts, label, classes), (class_buffer['count'][label] + rank) % limit
  return {
    'value': class_buffer['value'].at[at].set(value, mode='drop'),
    'count': class_buffer['count'] + many,
    'since': class_buffer['since'].at[at].set(t, mode='drop'),
  }


def stored(class_buffer):
  """bool[C, limit], which places hold something."""
  return jnp.arange(class_buffer['value'].shape[1]) < class_buffer['count'][:, None]


def buffer_age(t, class_buffer):
  """Rounds since upload, as `knowledge_age` of the other stores."""
  held = stored(class_buffer)
  return _age(t, jnp.sum(jnp.where(held, class_buffer['since'], 0), 1), jnp.sum(held, 1))


def buffered_class_means(limit, width=None) -> Server:
  """Mean per class of the last `limit` uploads of that class, for messages per example (or per class).

  Args:
    limit: vectors kept per class.
    width: numbers per vector; None for the number of classes (logits).
  """

  def init(key, groups, variables, data):
    del key, variables, data
    classes = groups[0].model.classes
    return class_buffer(classes, limit, width or classes)

  def receive(key, t, state, uploads, ids):
    del key, ids
    state = push(state, t, uploads)
    return state, {'known_classes': jnp.sum(state['count'] > 0), 'knowledge_age': buffer_age(t, state)}

  def send(key, t, state, ids):
    del key, t
    held = stored(state)
    means = jnp.sum(jnp.where(held[..., None], state['value'], 0), 1) / jnp.maximum(jnp.sum(held, 1), 1)[:, None]
    return tuple(Download(shared=class_message(means, state['count'] > 0)) for _ in ids)

  return Server(init, receive, send)
