"""Confidence-weighted ensembles: for each client the others' predictions, weighted by how their losses fall (RHFL).

A message up is {'knowledge': [M, C], 'loss': []}. Down go {'last': {'index': `Masked` rows of the targets}, 'index':
the rows to predict next}, and to each client its own {'consensus': `Masked` [M, C]}.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedkd.rows import store_rows
from fedkd.servers.class_knowledge import unless_empty
from fedkd.servers.consensus import first_request, next_request, row_numbers, uniform
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


class ConfidentState(NamedTuple):
  """The clients' mean losses [K], of whom there is one, bool[K], their weights [K] and last predictions [K, M, C]; the
  others as in `consensus.ConsensusState`."""

  participated: jax.Array
  next_rows: jax.Array
  known: jax.Array
  consensus_rows: jax.Array
  loss: jax.Array
  has_consensus: jax.Array
  prediction: jax.Array
  weight: jax.Array


def confident(subset: int, beta: float) -> Server:
  """Target of client i: sum_j w_j p_j over the other clients of the last round, with their `confidences` w, which need
  not add up to 1.

  Raises:
    ValueError: at init, as in `servers.consensus`.
  """

  def init(key, groups, variables, data):
    del variables
    request, zeros = first_request(key, groups, data, subset, uniform), jnp.zeros(clients(groups))
    prediction = jnp.zeros((len(zeros), len(request['next_rows']), groups[0].model.classes))
    return ConfidentState(known=zeros > 0, loss=zeros, weight=zeros, prediction=prediction, **request)

  def receive(key, t, groups, state, uploads, ids, data):
    every = jnp.concatenate(ids)
    if not every.shape[0]:
      return state, {}
    put = lambda old, name: store_rows(old, every, jnp.concatenate([up[name] for up in uploads]))
    request, loss = next_request(key, state, every, data, subset, uniform), put(state.loss, 'loss')
    here = request['participated']
    new = ConfidentState(
      known=state.known | here,
      loss=loss,
      prediction=put(jnp.zeros_like(state.prediction), 'knowledge'),
      weight=confidences(loss, state.loss, here, state.known, beta),
      **request,
    )
    new = unless_empty(ids, new, state)
    return new, {'confidence_spread': jnp.std(new.weight, where=here)}

  def send(key, t, groups, state, ids, data):
    shared = row_numbers(state, ids)

    def own(i):
      weight = state.weight.at[i].set(0)
      target = jnp.einsum('j,jmc->mc', weight, state.prediction)
      return {'consensus': Masked(target, state.has_consensus & jnp.any(weight > 0))}

    return tuple(Download(shared, jax.lax.map(own, jnp.maximum(slot, 0))) for slot in ids)

  return Server(init, receive, send, asks=True)
