"""Class-wise averaging: the server keeps the vectors that clients upload for each class, and sends their mean.

A message is {'knowledge': `Masked`, 'label': `Masked`}, either one vector per class (`class_message`) or one per
example. The vectors are logits, or features with `of='features'`.
"""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp

from fedkd import inference
from fedkd.aggregate import AnyRule, mapped, total
from fedkd.checks import numeric
from fedkd.checks.ranges import check
from fedkd.types import Data, Download, Group, Masked, PyTree, Server, clients

Kind = Literal['logits', 'features']


def class_message(value: jax.Array, valid: jax.Array, count: jax.Array | None = None) -> dict:
  """Class knowledge, as it is sent in either direction: {'knowledge': Masked [C, width], 'label': Masked int32[C]}.

  Args:
    value: [C, width], one vector per class.
    valid: bool[C], the classes that are sent.
    count: [C] examples behind each vector, sent as 'count' to servers that weight by them.
  """
  message = {'knowledge': Masked(value, valid), 'label': Masked(jnp.arange(valid.shape[0], dtype=jnp.int32), valid)}
  return message if count is None else {**message, 'count': Masked(count.astype(jnp.int32), valid)}


def vector_width(of: Kind, width: int | None, groups: Sequence[Group], data: Sequence[Data]) -> int:
  """Numbers per vector that a server of logits or features keeps; arguments as in `class_means` and `Server.init`."""
  check('of', of, Kind)
  if width is not None:
    return width
  if of == 'logits':
    return groups[0].model.classes
  widths = [inference.feature_width(g.model, d.pool) for g, d in zip(groups, data, strict=True)]
  if len(set(widths)) > 1:
    listed = ', '.join(f'{g.name}: {w}' for g, w in zip(groups, widths, strict=True))
    raise ValueError(f"of='features' but the groups' features differ in width ({listed}); give them a projection")
  return widths[0]


def _amounts(upload, weighted) -> jax.Array:
  """int32[m, C], how many entries of a mean each vector of a message stands for; 0 where it is not valid."""
  valid = upload['knowledge'].valid
  if not weighted:
    return valid.astype(jnp.int32)
  if 'count' not in upload:
    raise ValueError('weighted=True needs a count in every message; send class_message(value, valid, count)')
  return jnp.where(valid, upload['count'].value, 0)


def age(t: jax.Array, since: jax.Array, count: jax.Array) -> jax.Array:
  """Rounds since upload, averaged over the entries kept of a class and then over the non-empty classes; NaN without."""
  known = count > 0
  age = jnp.where(known, t - since / jnp.maximum(count, 1), 0)
  return jnp.sum(age) / jnp.sum(known)


def unless_empty(ids: tuple, new: PyTree, old: PyTree) -> PyTree:
  """A server's `new` state, or the `old` one after a round without uploads."""
  some = jnp.any(jnp.concatenate(ids) >= 0)
  return jax.tree.map(lambda after, before: jnp.where(some, after, before), new, old)


def class_means(
  *,
  of: Kind = 'logits',
  width: int | None = None,
  cold_start: float = 0.0,
  refresh_every: float = 0.0,
  per_round: bool = False,
  weighted: bool = False,
) -> Server:
  """Running mean per class of everything ever uploaded (FedHe, Chan and Ngai, 2021, Eqs. 9 and 10).

  Messages are `class_message`s; only valid classes are used. Time is counted in client updates, so that synchronous
  and asynchronous plans agree.

  Args:
    of: 'logits', vectors with one number per class, or 'features', as wide as the models' features.
    width: numbers per vector, if neither.
    cold_start: updates per client before which nothing is published.
    refresh_every: updates per client after which the sum collapses to the mean (sum <- sum / count, count <- 1), as in
      the authors' code, at the earliest after every one of any client; 0 never.
    per_round: start from empty sums in each round in which any client uploads.
    weighted: whether an upload counts once per example behind it (`count` of the message), not once in all.

  Raises:
    ValueError: at init, for an unknown `of`, or features that are not vectors or differ in width between groups; by
      `receive`, if `weighted` and a message has no count.
  """

  def init(key, groups, variables, data):
    del key
    classes, client_count = groups[0].model.classes, clients(groups)
    period = numeric.share_of(refresh_every, client_count)
    return {
      'sum': jnp.zeros((classes, vector_width(of, width, groups, data))),
      'count': jnp.zeros(classes, jnp.int32),
      'since': jnp.zeros(classes),  # sum of the rounds of upload
      'turns': jnp.int32(0),
      'cold_start': jnp.int32(numeric.share_of(cold_start, client_count)),
      'refresh_every': jnp.int32(jnp.where(refresh_every > 0, jnp.maximum(period, 1), 0)),
    }

  def receive(key, t, groups, state, uploads, ids, data):
    # All groups in one sum: sums per group would round differently for another grouping of the same clients.
    value = jnp.concatenate([up['knowledge'].value for up in uploads])
    amount = jnp.concatenate([_amounts(up, weighted) for up in uploads])  # [m, C]
    kept = jax.tree.map(jnp.zeros_like, state) if per_round else state
    fresh = jnp.sum(amount, 0, dtype=jnp.int32)
    sums = kept['sum'] + total(lambda v, n: jnp.where(n[:, None] > 0, v, 0) * n[:, None], value, amount)
    count, since = kept['count'] + fresh, kept['since'] + t * fresh
    before, period = state['turns'], state['refresh_every']
    after = before + sum(jnp.sum(i >= 0, dtype=jnp.int32) for i in ids)
    due = (period > 0) & (after // jnp.maximum(period, 1) > before // jnp.maximum(period, 1))
    sums, since = (jnp.where(due, (a.T / jnp.maximum(count, 1)).T, a) for a in (sums, since))
    count = jnp.where(due, jnp.minimum(count, 1), count)
    new = {**state, 'sum': sums, 'count': count, 'since': since, 'turns': after}
    new = unless_empty(ids, new, state) if per_round else new
    return new, {'known_classes': jnp.sum(new['count'] > 0), 'knowledge_age': age(t, new['since'], new['count'])}

  def send(key, t, groups, state, ids, data):
    known = (state['count'] > 0) & (state['turns'] >= state['cold_start'])
    means = state['sum'] / jnp.maximum(state['count'], 1)[:, None]
    return tuple(Download(shared=class_message(means, known)) for _ in ids)

  return Server(init, receive, send)


def _stored(kept: dict, ids: jax.Array, sent: jax.Array, new: dict) -> dict:
  """Arrays [K, C, ...] with `new`, leaves [m, C, ...] or numbers, in the rows `ids` int32[m] where `sent` bool[m, C].

  Classes that were not sent, and empty slots, write out of bounds, which is dropped.
  """
  client_count, classes = kept['valid'].shape
  at = jnp.where(sent & (ids >= 0)[:, None], ids[:, None], client_count), jnp.arange(classes)
  return jax.tree.map(lambda old, values: old.at[at].set(values, mode='drop'), kept, new)


def latest_class_knowledge(
  rule: AnyRule,
  *,
  of: Kind = 'logits',
  width: int | None = None,
  cold_start: float = 0.0,
  per_round: bool = False,
  weighted: bool = False,
) -> Server:
  """The latest upload of every client, reduced by `rule` class by class; it may replace `class_means`.

  For each class the rule sees rows [K, width], with weight 0 where that client has never uploaded the class (with
  `per_round`: not in the last round in which any client uploaded), else 1 or, if `weighted`, the number of examples
  behind the upload. A stateful rule has one state per class, and takes one step per round.
  Other arguments and errors as in `class_means`.
  """
  by_class = mapped(rule)

  def init(key, groups, variables, data):
    del key
    classes, client_count = groups[0].model.classes, clients(groups)
    blank = jnp.zeros((classes, vector_width(of, width, groups, data)))
    return {
      'latest': jnp.zeros((client_count, *blank.shape)),
      'valid': jnp.zeros((client_count, classes), bool),
      'count': jnp.zeros((client_count, classes), jnp.int32) if weighted else (),
      'since': jnp.zeros((client_count, classes), jnp.int32),  # the round of upload
      'turns': jnp.int32(0),
      'cold_start': jnp.int32(numeric.share_of(cold_start, client_count)),
      'rule': by_class.init(blank),  # before the rule's last step, which `send` repeats
    }

  def reduce(state):
    weight = jnp.where(state['valid'], state['count'], 0) if weighted else state['valid']
    return by_class.update(state['latest'], weight.astype(jnp.float32), state['rule'])

  def receive(key, t, groups, state, uploads, ids, data):
    rule_state = reduce(state)[1]
    kept, turns = {name: state[name] for name in ('latest', 'valid', 'count', 'since')}, state['turns']
    if per_round:
      kept['valid'] = unless_empty(ids, jnp.zeros_like(kept['valid']), kept['valid'])
    for up, slot in zip(uploads, ids, strict=True):
      amount = _amounts(up, weighted)  # [m, C]
      new = {'latest': up['knowledge'].value, 'valid': True, 'count': amount if weighted else (), 'since': t}
      kept = _stored(kept, slot, amount > 0, new)
      turns = turns + jnp.sum(slot >= 0, dtype=jnp.int32)
    valid, since = kept['valid'], kept['since']
    info = {
      'known_classes': jnp.sum(jnp.any(valid, 0)),
      'knowledge_age': age(t, jnp.sum(jnp.where(valid, since, 0), 0), jnp.sum(valid, 0)),
    }
    return {**state, **kept, 'turns': turns, 'rule': unless_empty(ids, rule_state, state['rule'])}, info

  def send(key, t, groups, state, ids, data):
    known = jnp.any(state['valid'], 0) & (state['turns'] >= state['cold_start'])
    # A rule's result is undefined for a class that no client has uploaded; +inf there must not reach a client.
    message = class_message(jnp.where(known[:, None], reduce(state)[0], 0), known)
    return tuple(Download(shared=message) for _ in ids)

  return Server(init, receive, send)
