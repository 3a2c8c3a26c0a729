"""Learning rates over rounds: each factory returns round -> factor, by which `optimizers.scheduled` multiplies updates.

A factor is 1 where the learning rate is that of the optimizer. A config chooses one as `config.schedule`; a schedule of
optax works as well, if it begins at 1.
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from fedkd.checks.ranges import Count, Fraction, Positive, Weight, checked

__all__ = ['constant', 'cosine', 'step', 'warmup_cosine']

Schedule = Callable  # (round: int32[]) -> factor: float32[]


def constant() -> Schedule:
  """Always the optimizer's own learning rate."""
  return optax.constant_schedule(1.0)


@checked
def step(every: Positive, decay: Weight = 0.1) -> Schedule:
  """Multiplies the rate by `decay` every `every` rounds.

  Raises:
    ValueError: unless `every` is at least 1.
  """
  return lambda round: jnp.float32(decay) ** (round // every)


@checked
def cosine(rounds: Count = 0, end: Fraction = 0.0) -> Schedule:
  """Half a cosine period from 1 in round 0 down to `end` in round `rounds`, and `end` from then on (Loshchilov, Hutter,
  2017).

  Args:
    rounds: length of the descent; in a config 0 stands for all rounds of the phase.
    end: last factor, in [0, 1].

  Raises:
    ValueError: for a length below 1, or an end outside [0, 1].
  """
  if rounds < 1:
    raise ValueError(f'rounds={rounds} must be at least 1, the rounds of the phase')
  return warmup_cosine(rounds, 0, end)


@checked
def warmup_cosine(rounds: Count = 0, warmup: Count = 5, end: Fraction = 0.0) -> Schedule:
  """1 / warmup, 2 / warmup, ... up to 1 in round warmup - 1, then `cosine` over the remaining rounds.

  Args:
    rounds: length of both together; in a config 0 stands for all rounds of the phase.
    warmup: rounds of the ascent.
    end: last factor, in [0, 1].

  Raises:
    ValueError: for a warmup below 0 or not shorter than `rounds`, or an end outside [0, 1].
  """
  if warmup >= rounds:
    raise ValueError(f'warmup={warmup} and rounds={rounds}: set rounds to at least {warmup + 1}')
  descent = optax.cosine_decay_schedule(1.0, rounds - warmup, end)
  return lambda round: jnp.where(round < warmup, (round + 1) / max(warmup, 1), descent(round - warmup))


@checked
def milestones(rounds: tuple[Count, ...], decay: Weight = 0.1) -> Schedule:
  """Multiplies the rate by `decay` from each of these rounds on, in any order."""
  return optax.piecewise_constant_schedule(1.0, {int(round): decay for round in rounds})
