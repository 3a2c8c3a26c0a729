"""Personalised ensembles: a mixture of all clients' predictions of public rows for each, with learned coefficients.

A message up is {'knowledge': [M, C]}. Down go {'last': {'index': `Masked` rows of the targets}, 'index': the rows to
predict next}, and to each client its own {'consensus': `Masked` [M, C]}.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedkd.rows import store_rows
from fedkd.servers.class_knowledge import unless_empty
from fedkd.servers.consensus import first_request, next_request, row_numbers, uniform
from fedkd.types import Download, Masked, Server, clients

STEP, FACTOR, TRIES = 0.01, 5.0, 5  # of a row: the mean absolute step sought; by what, and how often, it is scaled


class MixturesState(NamedTuple):
  """Coefficients [K, K], those of the targets ('mixing'), the clients' last predictions [K, M, C]; the others as in
  `consensus.ConsensusState`."""

  coefficient: jax.Array
  participated: jax.Array
  next_rows: jax.Array
  consensus_rows: jax.Array
  mixing: jax.Array
  has_consensus: jax.Array
  prediction: jax.Array


def mixtures(
  subset: int,
  *,
  rho: float,
  sharpen: float,
  loss: Literal['mse', 'kl'],
  order: Literal['before', 'after'],
  rate: float | None,
) -> Server:
  """Target of client i: sum_j c_ij p_j over the clients j of the last round, each row of c made to sum to 1 over them.

  The coefficients c, [K, K], start at 1 / K. Rows of absent clients stay as they are, as do the shares of absent
  clients in the rows of others.

  Args:
    subset: public rows per round; 0, or more than there are, is all.
    rho, sharpen, loss, order, rate: of the coefficients, as in `methods.ktpfl`.

  Raises:
    ValueError: at init, as in `servers.consensus`.
  """

  step = functools.partial(learn, rho=rho, sharpen=sharpen, loss=loss, rate=rate)

  def init(key, groups, variables, data):
    del variables
    request, count = first_request(key, groups, data, subset, uniform), clients(groups)
    prediction = jnp.zeros((count, len(request['next_rows']), groups[0].model.classes))
    equal = jnp.full((count, count), 1 / count)
    return MixturesState(coefficient=equal, mixing=equal, prediction=prediction, **request)

  def receive(key, t, groups, state, uploads, ids, data):
    every = jnp.concatenate(ids)
    if not every.shape[0]:
      return state, {}
    knowledge = jnp.concatenate([up['knowledge'] for up in uploads])
    request, old = next_request(key, state, every, data, subset, uniform), state.coefficient
    here = request['participated']
    predicted = store_rows(jnp.zeros_like(state.prediction), every, knowledge)
    learned = jax.vmap(lambda row, own: step(row, own, predicted, here))(old, predicted)
    learned = jnp.where(here[:, None], learned, old)
    mixing = learned if order == 'before' else old
    new = MixturesState(coefficient=learned, mixing=mixing, prediction=predicted, **request)
    new = unless_empty(ids, new, state)
    return new, {'coefficient_spread': jnp.std(new.coefficient)}

  def send(key, t, groups, state, ids, data):
    shared = row_numbers(state, ids)
    share = lambda i: shares(state.mixing[i], state.participated)[0]
    target = lambda i: jnp.einsum('j,jmc->mc', share(i), state.prediction)
    own = lambda i: {'consensus': Masked(target(i), state.has_consensus)}
    return tuple(Download(shared, jax.lax.map(own, jnp.maximum(slot, 0))) for slot in ids)

  return Server(init, receive, send, asks=True)


def shares(row: jax.Array, here: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(a row [K] of coefficients over only those who are `here`, summing to 1; their sum before)."""
  masked = jnp.where(here, row, 0)
  mass = jnp.sum(masked)
  return masked / jnp.maximum(mass, jnp.finfo(mass.dtype).tiny), mass


def learn(
  row: jax.Array,
  own: jax.Array,
  others: jax.Array,
  here: jax.Array,
  *,
  rho: float,
  sharpen: float,
  loss: Literal['mse', 'kl'],
  rate: float | None,
) -> jax.Array:
  """A client's row of coefficients after one step down its loss, and the softmax of `sharpen` times it.

  Args:
    row: [K].
    own: [M, C], what the client predicts.
    others: [K, M, C], what everybody predicts.
    here: bool[K], who did.
    rho, loss: as in `mixing_loss`.
    rate: of the step; None: by powers of 5 from 1, until its mean size in the row is about 0.01.
  """
  share, mass = shares(row, here)
  count = jnp.maximum(jnp.sum(here), 1)
  slope = jnp.where(here, jax.grad(mixing_loss)(share, own, others, here, rho, loss), 0)
  size = lambda s: s * jnp.sum(jnp.abs(slope)) / count
  if rate is None:
    s = jnp.float32(1)
    for _ in range(TRIES):
      s = jnp.where(size(s) > STEP, s / FACTOR, s)
    for _ in range(TRIES):
      s = jnp.where(size(s) < STEP, s * FACTOR, s)
  else:
    s = rate
  sharpened = jax.nn.softmax(jnp.where(here, sharpen * (share - s * slope), -jnp.inf))
  return jnp.where(here, sharpened * mass, row)


def mixing_loss(
  share: jax.Array, own: jax.Array, others: jax.Array, here: jax.Array, rho: float, loss: Literal['mse', 'kl']
) -> jax.Array:
  """How far the mixture is from the client's own predictions, and its shares [K] from equal ones."""
  count, mixed = jnp.maximum(jnp.sum(here), 1), jnp.einsum('j,jmc->mc', share, others)
  uneven = jnp.sum(jnp.where(here, jnp.square(share - 1 / count), 0))
  if loss == 'mse':
    return jnp.mean(jnp.square(own - mixed)) + rho * uneven / count
  log = lambda p: jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
  return jnp.mean(jnp.sum(own * (log(own) - log(mixed)), -1)) + rho * uneven
