"""Leave-one-out class means: for each client the mean of what all others uploaded in the last round."""

import jax
import jax.numpy as jnp

from fedkd.aggregate import AnyRule, mapped
from fedkd.rows import store_rows
from fedkd.servers.class_knowledge import Kind, class_message, unless_empty, vector_width
from fedkd.types import Download, Server, clients


def means_of_others(*, of: Kind = 'logits', width: int | None = None, rule: AnyRule | None = None) -> Server:
  """For each client the mean per class of what the others uploaded in the last round (FD, Jeong et al., 2018, Alg. 1).

  Messages are `class_message`s. A class that no other client sent is not valid; the paper divides by the number of the
  others, and so needs every client in every round with all classes. Downloads are a client's own, so that what a round
  sends grows with its slots.

  Args:
    of, width: as in `class_means`.
    rule: None for the mean; an aggregation rule reduces the others' uploads, class by class, instead. Its rows are
      [K, width], those of the client itself and of who did not send the class with weight 0, else 1. A stateful rule
      has one state per client and class.

  Raises:
    ValueError: as in `class_means`, at init.
  """

  by_class = None if rule is None else mapped(rule)

  def init(key, groups, variables, data):
    del key
    client_count, classes = clients(groups), groups[0].model.classes
    blank = jnp.zeros((client_count, classes, vector_width(of, width, groups, data)))
    state = {'value': blank, 'valid': jnp.zeros((client_count, classes), bool)}
    return state if by_class is None else {**state, 'reduced': blank, 'rule': jax.vmap(by_class.init)(blank)}

  def reduce(value, valid, memory):
    """(what every client receives [K, C, width], the rule's states)."""

    def of(client):
      number, own_memory = client
      weight = jnp.where(valid & (jnp.arange(len(valid)) != number)[:, None], 1.0, 0.0)
      reduced, after = by_class.update(value, weight, own_memory)
      return jnp.where(jnp.any(weight > 0, 0)[:, None], reduced, 0), after  # undefined where nobody sent the class

    return jax.lax.map(of, (jnp.arange(len(valid)), memory))

  def receive(key, t, groups, state, uploads, ids, data):
    value, valid = jnp.zeros_like(state['value']), jnp.zeros_like(state['valid'])
    for up, slot in zip(uploads, ids, strict=True):
      value, valid = store_rows((value, valid), slot, tuple(up['knowledge']))
    new = {'value': value, 'valid': valid}
    if by_class is not None:
      new['reduced'], new['rule'] = reduce(value, valid, state['rule'])
    new = unless_empty(ids, new, state)
    return new, {'known_classes': jnp.sum(jnp.any(new['valid'], 0))}

  def send(key, t, groups, state, ids, data):
    valid = state['valid']
    absent = jnp.isneginf(state['value']) & valid[..., None]  # minus infinity, which no difference takes out again
    value = jnp.where(valid[..., None] & ~absent, state['value'], 0)
    total, count = value.sum(0), valid.sum(0)  # [C, width], [C]

    def own(slot):
      client = jnp.maximum(slot, 0)
      others = count - valid[client]  # [m, C]
      means = (total - value[client]) / jnp.maximum(others, 1)[..., None]
      means = jnp.where(absent.sum(0) > absent[client], -jnp.inf, means)
      return jax.vmap(class_message)(means if by_class is None else state['reduced'][client], others > 0)

    return tuple(Download(own=own(slot)) for slot in ids)

  return Server(init, receive, send)
