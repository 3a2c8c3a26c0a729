"""Losses for one example, as pure functions; map them over a batch with `jax.vmap`.

A model that masks classes has logits of minus infinity there. Such a class counts nowhere: it adds 0 to a distance of
logits that either side lacks, and to a divergence whose student lacks it.
"""

from typing import Literal

import chex
import jax
import jax.numpy as jnp


def masked_squared_error(output: jax.Array, target: jax.Array, valid: jax.Array) -> jax.Array:
  """Mean squared distance of an output to received knowledge; 0, with zero gradient, where there is none.

  FedHe (Chan and Ngai, 2021), the knowledge term of Eq. 13, with MSE over the logits as in the authors' code.

  Args:
    output: [C], what the client computed.
    target: [C], what it received; no gradient flows into it. Ignored (may be NaN) unless `valid`.
    valid: bool[], whether the target exists.

  Returns:
    float[].
  """
  chex.assert_rank([output, target, valid], [1, 1, 0])
  # Masking both sides, not the product: 0 * NaN would be NaN, in the value and in the gradient.
  target = jnp.where(valid, jax.lax.stop_gradient(target), 0)
  return jnp.mean(jnp.square(away(jnp.where(valid, output, 0), target)))


def kl_divergence(target: jax.Array, logits: jax.Array) -> jax.Array:
  """KL(target || softmax(logits)) of one example; no gradient flows into the target (FedH2L, Eq. 3).

  Args:
    target: [C], a distribution.
    logits: [C].

  Returns:
    float[], 0 where both agree.
  """
  chex.assert_rank([target, logits], [1, 1])
  return divergence(jax.lax.stop_gradient(target), logits)


def divergence(target: jax.Array, logits: jax.Array) -> jax.Array:
  """KL(target || softmax(logits)) of one example [C], with a gradient into both; classes of probability 0, or less by
  what a codec has rounded, and of logits of minus infinity add nothing."""
  chex.assert_rank([target, logits], [1, 1])
  counts = ~(target <= 0) & ~jnp.isneginf(logits)
  target, log = jnp.where(counts, target, 1), jnp.where(counts, jax.nn.log_softmax(logits), 0)
  return jnp.sum(jnp.where(counts, target * (jnp.log(target) - log), 0))


def cross_entropy(logits: jax.Array, target: jax.Array) -> jax.Array:
  """Cross-entropy of logits [C] with a distribution [C]; as `divergence`, but for the entropy of the target."""
  chex.assert_rank([logits, target], [1, 1])
  counts = (target != 0) & ~jnp.isneginf(logits)
  return -jnp.sum(jnp.where(counts, target, 0) * jnp.where(counts, jax.nn.log_softmax(logits), 0))


def away(output: jax.Array, target: jax.Array) -> jax.Array:
  """output - target; 0 where either is minus infinity."""
  absent = jnp.isneginf(output) | jnp.isneginf(target)
  return jnp.where(absent, 0, output) - jnp.where(absent, 0, target)


def mae(output: jax.Array, target: jax.Array, temperature: float = 1.0) -> jax.Array:
  """Mean absolute difference of two vectors of logits [C] (FedMD's distillation loss in the authors' code)."""
  del temperature
  apart = away(output, jax.lax.stop_gradient(target))
  return jnp.mean(apart * jnp.sign(apart))  # the gradient of jnp.abs is 1, not 0, where both agree


def mse(output: jax.Array, target: jax.Array, temperature: float = 1.0) -> jax.Array:
  """Mean squared difference of two vectors of logits [C]."""
  del temperature
  return jnp.mean(jnp.square(away(output, jax.lax.stop_gradient(target))))


def kl(output: jax.Array, target: jax.Array, temperature: float = 1.0) -> jax.Array:
  """T^2 KL of two vectors of logits [C], softened by the temperature T (Hinton, Vinyals, Dean, 2015)."""
  return temperature**2 * kl_divergence(jax.nn.softmax(target / temperature), output / temperature)


Direction = Literal['server', 'client']


def masked_kl(output: jax.Array, target: jax.Array, valid: jax.Array, direction: Direction = 'server') -> jax.Array:
  """KL divergence between received logits and an output's; 0, with zero gradient, where there are none.

  Felo and Velo (Eq. 1): KL(softmax(target) || softmax(output)) as in their code, 'server'; the reverse, as in
  Eq. 1, 'client'.

  Args:
    output: [C], logits that the client computed.
    target: [C], logits that it received; no gradient flows into them. Ignored (may be NaN) unless `valid`.
    valid: bool[], whether the target exists.
    direction: 'server' or 'client', whose distribution the expectation is over.

  Returns:
    float[].
  """
  chex.assert_rank([output, target, valid], [1, 1, 0])
  output, target = jnp.where(valid, output, 0), jnp.where(valid, jax.lax.stop_gradient(target), 0)
  student, teacher = (output, target) if direction == 'server' else (target, output)
  return divergence(jax.nn.softmax(teacher), student)


def class_sums(member: jax.Array, output: jax.Array) -> jax.Array:
  """Sums [N, C] of outputs [B, C] over the examples of each class (or other set), `member` [B, N] of 0 and 1; minus
  infinity in the classes that the model masks: a product with 0 would be NaN."""
  absent = jnp.isneginf(output)
  return jnp.where(jnp.any(absent, 0), -jnp.inf, member.T @ jnp.where(absent, 0, output))
