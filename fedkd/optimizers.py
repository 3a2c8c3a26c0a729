"""Optimizers that papers train with and optax lacks, in a config `fedkd.optimizers:NAME`, and learning rates that
follow the round."""

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd.checks import blame, returned
from fedkd.checks.ranges import Scale, Share, Weight, checked
from fedkd.errors import ConfigError, in_a_sentence
from fedkd.schedules import Schedule
from fedkd.types import PyTree

__all__ = ['adam', 'amsgrad', 'fedadagrad', 'fedadam', 'fedyogi', 'scheduled', 'sgd']


class AmsgradState(NamedTuple):
  """Steps so far, and first, second and largest second moments with the shapes of the parameters."""

  count: jax.Array  # type: ignore[assignment]  # hides tuple.count
  mu: PyTree
  nu: PyTree
  nu_max: PyTree


def scale_by_amsgrad(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
  """AMSGrad (Reddi, Kale, Kumar, 2018) with the arithmetic of PyTorch's Adam(amsgrad=True).

  PyTorch takes the maximum over the uncorrected second moments and corrects it afterwards; `optax.scale_by_amsgrad`
  takes it over corrected ones, which is another optimizer while gradients shrink.
  """

  def init(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return AmsgradState(jnp.int32(0), zeros, zeros, zeros)

  def update(grads, state, params=None):
    del params
    count = state.count + 1
    mu = optax.tree.update_moment(grads, state.mu, b1, 1)
    nu = optax.tree.update_moment(grads, state.nu, b2, 2)
    nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu)
    mu_hat = optax.tree.bias_correction(mu, b1, count)
    root = jnp.sqrt(1 - b2 ** count.astype(jnp.float32))
    steps = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) / root + eps), mu_hat, nu_max)
    return steps, AmsgradState(count, mu, nu, nu_max)

  return optax.GradientTransformation(init, update)


@checked
def amsgrad(
  learning_rate: Weight | Schedule, b1: Share = 0.9, b2: Share = 0.999, eps: Weight = 1e-8, weight_decay: Weight = 0.0
) -> optax.GradientTransformation:
  """PyTorch's Adam(amsgrad=True): weight decay is added to the gradient, before the moments.

  Args:
    learning_rate: step size, or an optax schedule.
    b1, b2: decay of the first and second moment.
    eps: added to the root of the second moment.
    weight_decay: L2 coefficient.
  """
  return optax.chain(
    optax.add_decayed_weights(weight_decay), scale_by_amsgrad(b1, b2, eps), optax.scale_by_learning_rate(learning_rate)
  )


@checked
def sgd(
  learning_rate: Weight | Schedule, momentum: Share = 0.9, weight_decay: Weight = 5e-4, clip: Scale = 1.0
) -> optax.GradientTransformation:
  """SGD as HeteroFL trains (Diao, Ding, Tarokh, 2021): the norm of all gradients is clipped, then weights decay.

  Args:
    learning_rate: step size, or an optax schedule.
    momentum: of the accumulated gradient.
    weight_decay: L2 coefficient.
    clip: largest norm of the gradients of all parameters together.
  """
  return optax.chain(
    optax.clip_by_global_norm(clip), optax.add_decayed_weights(weight_decay), optax.sgd(learning_rate, momentum)
  )


@checked
def adam(learning_rate: Weight | Schedule, weight_decay: Weight = 5e-4) -> optax.GradientTransformation:
  """PyTorch's Adam: weight decay, here 5e-4 by default, is added to the gradient, before the moments."""
  return optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(learning_rate))


def scheduled(tx: optax.GradientTransformation, *factors: Schedule) -> optax.GradientTransformation:
  """`tx` with its updates times a factor that depends on the round.

  Time is the round, which `local.fit` hands to the optimizer, not the optimizer's own steps: clients that are seldom
  sampled, or whose optimizer state is fresh in every round, decay with the others.

  Args:
    tx: optax optimizer.
    *factors: schedules, round -> factor (`fedkd.schedules`, or one of optax); several are multiplied, none is `tx`.
  """
  if not factors:
    return tx

  def update(updates, state, params=None, *, round=0, **_):
    del params
    return optax.tree.scale(functools.reduce(operator.mul, (factor(round) for factor in factors)), updates), state

  return optax.chain(tx, optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update))


def init(tx: optax.GradientTransformation, params: PyTree) -> PyTree:
  """The state of `tx` before its first step.

  Raises:
    ConfigError: for an error in it, or a state that is no tree of arrays, in one sentence.
  """
  state = blame.call('tx', tx.init, params)
  returned.check_arrays(f'tx {blame.named(tx.init)} returned', 'state', state)
  return state


def update(
  tx: optax.GradientTransformation, grads: PyTree, state: PyTree, params: PyTree, t: jax.Array | int = 0
) -> tuple[PyTree, PyTree]:
  """(updates, state) of one step of `tx` along `grads` in round `t`.

  Raises:
    ConfigError: for an error in it, such as an argument that local training does not have (a loss, a function), for
      updates that are not like the parameters, or for another state than before.
  """
  remedy = lambda error: f'; {EXTRA}' if isinstance(error, TypeError | AttributeError) else ''
  with in_a_sentence(lambda error: blame.raised('tx', tx.update, error) + remedy(error), through=(ConfigError,)):
    pair = optax.with_extra_args_support(tx).update(grads, state, params, round=t)
  who = f'tx {blame.named(tx.update)} returned'
  returned.check_tuple(who, pair, 2, '(updates, state)')
  updates, after = pair
  for what, tree in zip(('updates', 'state'), pair, strict=True):
    returned.check_arrays(who, what, tree)
  returned.check_like(f'{who} updates', params, updates, 'let them be like the parameters', dtypes=False)
  returned.check_like(f'{who} a state', state, after, 'let its init and update agree')
  return updates, after


EXTRA = (
  'local training gives it gradients, state, parameters and round=; give one that needs no more, and takes **extra'
)


def advanced(state: PyTree, steps: jax.Array | int) -> PyTree:
  """An optimizer's state whose schedules have made at least `steps` steps; everything else in it is as it was.

  A schedule's state is nothing but a `count`: of those that optax's optimizers take in place of a learning rate, and of
  `inject_hyperparams`. One inside `optax.MultiSteps` is left alone: it counts every k-th step, and no state says k.
  """
  stops = lambda node: _is_schedule(node) or isinstance(node, optax.MultiStepsState)
  later = lambda node: node._replace(count=jnp.maximum(node.count, steps)) if _is_schedule(node) else node
  return jax.tree.map(later, state, is_leaf=stops)


def begun_anew(state: PyTree) -> PyTree:
  """An optimizer's state whose schedules have made no step; everything else in it, such as moments, is as it was."""
  first = lambda node: jax.tree.map(jnp.zeros_like, node) if _is_schedule(node) else node
  return jax.tree.map(first, state, is_leaf=_is_schedule)


def _is_schedule(node) -> bool:
  return getattr(node, '_fields', ()) == ('count',)


def restarted(tx: optax.GradientTransformation) -> optax.GradientTransformation:
  """`tx` as if every step had an optimizer of its own: without moments, so that a step of Adam is about the learning
  rate times the sign of the gradient.

  What is no memory of gradients goes on: schedules, random keys, and the batches that `optax.MultiSteps` collects.
  """

  def goes_on(node):
    is_key = isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key)
    return is_key or _is_schedule(node) or isinstance(node, optax.MultiStepsState | optax.AddNoiseState)

  def step(grads, state, params=None, *, round=0, **_):
    fresh = jax.tree.map(lambda new, old: old if goes_on(new) else new, init(tx, params), state, is_leaf=goes_on)
    return update(tx, grads, fresh, params, round)

  return optax.GradientTransformationExtraArgs(tx.init, step)


class ServerMoments(NamedTuple):
  """First and second moments of the mean change, with the shapes of the parameters."""

  mu: PyTree
  nu: PyTree


@checked
def fedadagrad(learning_rate: Weight | Schedule, b1: Share = 0.0, tau: Scale = 1e-3) -> optax.GradientTransformation:
  """The server's optimizer of FedAdagrad (Reddi et al., "Adaptive Federated Optimization", 2021, Algorithm 2).

  With D the mean change, m <- b1 m + (1 - b1) D and v <- v + D^2 from m = 0 and v = tau^2, the parameters move by
  learning_rate * m / (sqrt(v) + tau). `optax.adagrad` differs: it adds its epsilon inside the root and has no momentum.

  Args:
    learning_rate: eta, or an optax schedule over rounds with uploads.
    b1: decay of the first moment.
    tau: degree of adaptivity.
  """
  return _adaptive(learning_rate, b1, tau, lambda v, square: v + square)


@checked
def fedadam(
  learning_rate: Weight | Schedule, b1: Share = 0.9, b2: Share = 0.99, tau: Scale = 1e-3
) -> optax.GradientTransformation:
  """As `fedadagrad`, for FedAdam: v <- b2 v + (1 - b2) D^2.

  `optax.adam` differs: it corrects the bias of both moments, and v begins at 0. Without momentum (b1=0),
  `optax.rmsprop(learning_rate, b2, eps=tau, initial_scale=tau**2, eps_in_sqrt=False)` is the same.
  """
  return _adaptive(learning_rate, b1, tau, lambda v, square: b2 * v + (1 - b2) * square)


@checked
def fedyogi(
  learning_rate: Weight | Schedule, b1: Share = 0.9, b2: Share = 0.99, tau: Scale = 1e-3
) -> optax.GradientTransformation:
  """As `fedadagrad`, for FedYogi: v <- v - (1 - b2) D^2 sign(v - D^2).

  `optax.yogi` differs: it corrects the bias of both moments, and m and v both begin at 1e-6.
  """
  return _adaptive(learning_rate, b1, tau, lambda v, square: v - (1 - b2) * square * jnp.sign(v - square))


def _adaptive(learning_rate, b1, tau, second) -> optax.GradientTransformation:
  """Algorithm 2; `second`: (v, D^2) -> v."""

  def init(params):
    return ServerMoments(optax.tree.zeros_like(params), optax.tree.full_like(params, tau**2))

  def update(grads, state, params=None):
    del params
    mu = optax.tree.update_moment(grads, state.mu, b1, 1)
    nu = jax.tree.map(lambda v, g: second(v, jnp.square(g)), state.nu, grads)
    return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), mu, nu), ServerMoments(mu, nu)

  return optax.chain(optax.GradientTransformation(init, update), optax.scale_by_learning_rate(learning_rate))
