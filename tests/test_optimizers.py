"""AMSGrad against the numbers of PyTorch, as `golden/amsgrad.py` wrote them."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd.optimizers import amsgrad
from helpers import assert_same_bits

CASES = json.loads((pathlib.Path(__file__).parent / 'golden' / 'amsgrad.json').read_text())['cases']
every_case = pytest.mark.parametrize('name', CASES)


def trajectory(tx, case):
  """The parameters after each step, spread over two leaves on the way."""
  apart = lambda vector: {'a': vector[:2], 'b': {'c': vector[2:]}}

  def step(carry, gradient):
    params, state = carry
    updates, state = tx.update(apart(gradient), state, params)
    params = optax.apply_updates(params, updates)
    return (params, state), jnp.concatenate([params['a'], params['b']['c']])

  params = apart(jnp.array(case['start'], jnp.float32))
  return jax.lax.scan(step, (params, tx.init(params)), jnp.array(case['gradients'], jnp.float32))[1]


def arguments(case):
  options = dict(case['options'])
  b1, b2 = options.pop('betas', (0.9, 0.999))
  return options.pop('lr'), {'b1': b1, 'b2': b2, **options}


@every_case
def test_amsgrad_takes_the_steps_of_pytorch(name):
  rate, options = arguments(CASES[name])
  # In float32, 1 - 0.999^t has four correct digits less than PyTorch's, which is computed in float64.
  np.testing.assert_allclose(
    trajectory(amsgrad(rate, **options), CASES[name]), CASES[name]['values'], atol=2e-5, rtol=0
  )


def test_the_amsgrad_of_optax_is_another_optimizer_while_gradients_shrink():
  case = CASES['shrinking, plain']
  mine, other = (np.asarray(trajectory(make(0.1), case))[-1] for make in (amsgrad, optax.amsgrad))
  assert np.abs((other - mine) / (mine - case['start'])).min() > 0.1


def test_the_cases_reach_the_maximum_and_the_weight_decay():
  values = lambda name: np.array(CASES[name]['values'])
  adam = trajectory(optax.adam(0.05, b1=0.5, b2=0.9, eps=1e-2), CASES['shrinking, other moments'])
  assert np.abs(adam - values('shrinking, other moments')).max() > 0.005
  assert np.abs(values('shrinking, weight decay') - values('shrinking, plain')).max() > 0.01


def test_a_schedule_is_a_learning_rate():
  case = CASES['turning, plain']
  constant, half = (trajectory(amsgrad(rate), case) for rate in (0.1, lambda count: jnp.where(count < 4, 0.1, 0.05)))
  assert_same_bits(half[:4], constant[:4])
  np.testing.assert_allclose(jnp.diff(half[3:], axis=0), jnp.diff(constant[3:], axis=0) / 2, rtol=1e-4, atol=1e-6)
