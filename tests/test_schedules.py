"""Factors of the learning rate over rounds, against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import schedules


def over(schedule, rounds=12):
  return np.asarray(jax.vmap(schedule)(jnp.arange(rounds)))


def test_a_step_falls_every_so_many_rounds():
  np.testing.assert_allclose(over(schedules.step(4, 0.5)), [1] * 4 + [0.5] * 4 + [0.25] * 4)


def test_a_cosine_falls_from_one_to_its_end_and_stays():
  t = np.minimum(np.arange(12), 8)
  expected = 0.2 + 0.8 * (1 + np.cos(np.pi * t / 8)) / 2
  np.testing.assert_allclose(over(schedules.cosine(8, end=0.2)), expected, atol=1e-6)
  np.testing.assert_allclose(over(schedules.cosine(8)), over(optax.cosine_decay_schedule(1.0, 8)), atol=1e-7)


def test_a_warmup_rises_to_one_and_then_falls():
  factor = over(schedules.warmup_cosine(10, warmup=4))
  np.testing.assert_allclose(factor[:5], [0.25, 0.5, 0.75, 1, 1])
  np.testing.assert_allclose(factor[4:], over(schedules.cosine(6), 8), atol=1e-6)


@pytest.mark.parametrize(
  ('make', 'match'),
  [
    (lambda: schedules.step(0), '^every=0 must be a whole number of at least 1$'),
    (lambda: schedules.cosine(0), '^rounds=0 must be at least 1, the rounds of the phase$'),
    (lambda: schedules.warmup_cosine(5, 5), 'warmup=5 and rounds=5: set rounds to at least 6'),
    (lambda: schedules.cosine(5, 1.5), '^end=1.5 must be a number of at least 0 and at most 1$'),
  ],
)
def test_schedules_that_cannot_be_are_refused(make, match):
  with pytest.raises(ValueError, match=match):
    make()
