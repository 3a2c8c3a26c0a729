"""A server that mixes everybody's predictions of public rows for each client, by how well the others fit their labels.

A message up is {'knowledge': [M, C], 'loss': []}. Down go {'last': {'index': `Masked` rows of the targets}, 'index':
the rows to predict next}, and to each client its own {'consensus': `Masked` [M, C]}.
"""

import jax
import jax.numpy as jnp

from fedkd.rows import store_rows
from fedkd.servers.class_knowledge import unless_empty
from fedkd.servers.consensus import drawn, have_heard, public_rows, uniform
from fedkd.types import Download, Masked, Server, clients


def confidences(now: jax.Array, before: jax.Array, here: jax.Array, known: jax.Array, beta: float) -> jax.Array:
  """Weights [K] of clients (RHFL, as in its code): the softmax of 1 / (N - 1) plus `beta` times a client's share of all
  gains, where its gain is (before - now) / now.

  Until some client takes part a second time all N clients have 1 / (N - 1), so that those of the others add up to 1.

  Args:
    now, before: [K], mean losses on their own examples, this time and last time.
    here: bool[K], who takes part; others have weight 0.
    known: bool[K], whose loss of last time is known; others have gained nothing.
    beta: may be traced.
  """
  equal = 1 / jnp.maximum(jnp.sum(here) - 1, 1)
  gain = jnp.where(here & known, (before - now) / jnp.maximum(now, jnp.finfo(now.dtype).tiny), 0)
  total = jnp.sum(gain)
  share = jnp.where(total == 0, 0, gain / jnp.where(total == 0, 1, total))
  learned = jax.nn.softmax(jnp.where(here, equal + beta * share, -jnp.inf))
  return jnp.where(jnp.any(here & known), jnp.where(here, learned, 0), jnp.where(here, equal, 0))


def confident(subset: int, beta: float) -> Server:
  """Target of client i: sum_j w_j p_j over the other clients of the last round, with their `confidences` w, which need
  not add up to 1.

  Raises:
    ValueError: at init, as in `servers.consensus`.
  """

  def init(key, groups, variables, data):
    del variables
    public, many = public_rows(data, subset)
    count, index = clients(groups), drawn(key, public, many, uniform)
    return {
      'prediction': jnp.zeros((count, many, groups[0].model.classes)),
      'loss': jnp.zeros(count),
      'known': jnp.zeros(count, bool),  # whose loss there is
      'weight': jnp.zeros(count),
      'on': jnp.zeros((), bool),
      'heard': jnp.zeros(count, bool),  # who predicted the last rows
      'last': index,
      'index': index,
    }

  def receive(key, t, groups, state, uploads, ids, data):
    every = jnp.concatenate(ids)
    if not every.shape[0]:
      return state, {}
    put = lambda old, name: store_rows(old, every, jnp.concatenate([up[name] for up in uploads]))
    heard, loss = have_heard(state['heard'], every), put(state['loss'], 'loss')
    new = {
      'prediction': put(jnp.zeros_like(state['prediction']), 'knowledge'),
      'loss': loss,
      'known': state['known'] | heard,
      'weight': confidences(loss, state['loss'], heard, state['known'], beta),
      'on': jnp.ones((), bool),
      'heard': heard,
      'last': state['index'],
      'index': drawn(key, *public_rows(data, subset), uniform),
    }
    new = {**state, **unless_empty(ids, new, {name: state[name] for name in new})}
    return new, {'confidence_spread': jnp.std(new['weight'])}

  def send(key, t, groups, state, ids, data):
    every = jnp.concatenate(ids)
    missed = jnp.any((every >= 0) & ~state['heard'][every])
    shared = {'last': {'index': Masked(state['last'], state['on'] & missed)}, 'index': state['index']}

    def own(i):
      weight = state['weight'].at[i].set(0)
      target = jnp.einsum('j,jmc->mc', weight, state['prediction'])
      return {'consensus': Masked(target, state['on'] & jnp.any(weight > 0))}

    return tuple(Download(shared, jax.lax.map(own, jnp.maximum(slot, 0))) for slot in ids)

  return Server(init, receive, send, asks=True)
