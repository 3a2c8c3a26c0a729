"""AMSGrad against the numbers of PyTorch, as `golden/amsgrad.py` wrote them; the others against loops in NumPy."""

import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import local, optimizers
from fedkd.optimizers import adam, amsgrad, restarted, scheduled, sgd
from fedkd.schedules import milestones, step
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


# The other two, against loops.

START = np.array([1.0, -2.0, 0.5])
GRADIENTS = np.random.default_rng(0).normal(size=(6, 3)) * np.array([0.1, 0.3, 3, 1, 0.1, 5])[:, None]
CASE = {'start': START, 'gradients': GRADIENTS}


def test_sgd_clips_then_decays_then_remembers():
  rate, momentum, decay, clip = 0.1, 0.9, 0.05, 1.0
  w, velocity, path = START.copy(), np.zeros(3), []
  for gradient in GRADIENTS:
    norm = np.sqrt((gradient**2).sum())  # over all parameters together
    velocity = momentum * velocity + gradient * min(1, clip / norm) + decay * w
    w = w - rate * velocity
    path.append(w)
  norms = np.linalg.norm(GRADIENTS, axis=1)
  assert norms.min() < clip < norms.max()
  np.testing.assert_allclose(trajectory(sgd(rate, momentum, decay, clip), CASE), path, rtol=1e-5, atol=1e-6)


def test_adam_adds_the_decay_to_the_gradient():
  rate, decay = 0.1, 0.5
  w, m, v, path = START.copy(), np.zeros(3), np.zeros(3), []
  for t, gradient in enumerate(GRADIENTS, 1):
    gradient = gradient + decay * w
    m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
    w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    path.append(w)
  # In float32, 1 - 0.999^t has four correct digits less.
  np.testing.assert_allclose(trajectory(adam(rate, decay), CASE), path, atol=5e-5)


# Learning rates that follow the round.


def updates_in(tx, rounds):
  """The updates of one optimizer state that sees gradients of ones in these rounds."""
  params, found = jnp.zeros(2), []
  state = tx.init(params)
  for t in rounds:
    update, state = tx.update(jnp.ones(2), state, params, round=jnp.int32(t))
    found.append(float(update[0]))
  return found


def test_a_scheduled_rate_falls_at_each_milestone_whenever_a_client_is_drawn():
  tx = scheduled(optax.sgd(1.0), milestones((5, 2), 0.1))
  rounds = [0, 1, 1, 1, 2, 3, 4, 5, 9]
  np.testing.assert_allclose(updates_in(tx, rounds), [-1] * 4 + [-0.1] * 3 + [-0.01] * 2, rtol=1e-5)
  np.testing.assert_allclose(updates_in(tx, [7, 0, 3]), [-0.01, -1, -0.1], rtol=1e-5)  # the round, not the steps


def test_without_a_round_or_a_schedule_nothing_is_scheduled():
  plain = optax.sgd(1.0)
  assert scheduled(plain) is plain
  tx = scheduled(plain, milestones((2,)))
  assert_same_bits(tx.update(jnp.ones(2), tx.init(jnp.ones(2)))[0], -jnp.ones(2))


def test_momentum_goes_on_at_the_rate_of_the_round():
  """The factor is on the update, as in PyTorch: what was accumulated before counts with the new rate."""
  tx = scheduled(optax.sgd(1.0, momentum=0.5), milestones((1,), 0.1))
  np.testing.assert_allclose(updates_in(tx, [0, 1, 1]), [-1, -0.15, -0.175], rtol=1e-5)


def test_several_schedules_are_multiplied():
  tx = scheduled(optax.sgd(1.0), step(2, 0.5), milestones((3,), 0.1))
  np.testing.assert_allclose(updates_in(tx, range(5)), [-1, -1, -0.5, -0.05, -0.025], rtol=1e-6)


def stepped(tx, t, how, **more):
  """What a weight of slope 1 moves in a call of `fit` in round `t`, whose optimizer is fresh."""
  loss_fn = lambda params, stats, key, rows: (params['w'] + 0.0 * rows.sum(), (stats, {}))
  learner = local.start({'params': {'w': jnp.float32(0)}, 'batch_stats': {}}, tx)
  examples, work = (jnp.arange(4.0), 4), local.Work(2, **how)
  fit = lambda t: local.fit(jax.random.key(0), learner, tx, loss_fn, examples, work, t, **more)[0]
  return float(-jax.jit(fit)(t).params['w'])


@pytest.mark.parametrize(
  ('how', 'more', 'expected'),
  [
    ({'steps': 2}, {}, 6 + 7),  # three rounds of two steps came before
    ({'epochs': 1}, {}, 6 + 7),  # of one pass over four rows, two at a time
    ({'steps': 3}, {}, 9 + 10 + 11),
    ({'steps': 2}, {'before': 10}, 10 + 11),
    ({'epochs': 1}, {'before': 4}, 8 + 9),
  ],
)
@pytest.mark.parametrize('inject', [False, True])
def test_a_schedule_inside_an_optimizer_counts_the_steps_of_the_run(how, more, expected, inject):
  rate = lambda count: jnp.float32(count)
  tx = optax.inject_hyperparams(optax.sgd)(learning_rate=rate) if inject else optax.sgd(rate)
  assert stepped(tx, 3, how, **more) == expected


def test_nothing_but_a_schedule_is_advanced():
  """Adam's count corrects the bias of its moments, which are as fresh as it is; a schedule never goes back."""
  state = optax.adam(lambda count: 0.1).init(jnp.ones(2))
  later = optimizers.advanced(state, 7)
  assert (int(later[0].count), int(later[1].count)) == (0, 7)
  assert int(optimizers.advanced(later, 3)[1].count) == 7
  every_second = optax.MultiSteps(optax.sgd(lambda count: 0.1), 2).init(jnp.ones(2))
  assert_same_bits(optimizers.advanced(every_second, 7), every_second)


def test_schedules_begin_anew_and_moments_go_on():
  """Those inside `optax.MultiSteps`, too."""
  for tx in (optax.adam(lambda count: 0.1), optax.MultiSteps(optax.adam(lambda count: 0.1), 1)):
    params, state = jnp.ones(2), tx.init(jnp.ones(2))
    for _ in range(3):
      state = tx.update(params, state, params)[1]
    counts = [int(a) for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.integer)]
    again = [int(a) for a in jax.tree.leaves(optimizers.begun_anew(state)) if jnp.issubdtype(a.dtype, jnp.integer)]
    assert (counts.count(3) - again.count(3), sum(counts) - sum(again)) == (1, 3)
    assert_same_bits(optax.tree.get(optimizers.begun_anew(state), 'mu'), optax.tree.get(state, 'mu'))


no_state = lambda params: optax.EmptyState()
PARAMS = {'a': jnp.ones(3), 'b': jnp.ones((2, 3))}
WRONG = {
  'no updates': (
    no_state,
    lambda g, s, p: (None, s),
    r"returned updates with nothing at \['a'\], not float32\[3\]; let",
  ),
  'a scalar': (no_state, lambda g, s, p: (0.0, s), r"returned updates with nothing at \['a'\], not float32\[3\]; let"),
  'another shape': (
    no_state,
    lambda g, s, p: ({**g, 'b': g['b'].T}, s),
    r"returned updates with \[3, 2\] at \['b'\], not \[2, 3\]; let them be like the parameters$",
  ),
  'words': (
    no_state,
    lambda g, s, p: ({**g, 'a': 'x'}, s),
    r"returned 'x', a str at \['a'\] in its updates; let it be",
  ),
  'nothing': (no_state, lambda g, s, p: None, r'returned None; let it return \(updates, state\)$'),
  'no state': (no_state, lambda g, s, p: g, r'returned a dict; let it return \(updates, state\)$'),
  'more': (no_state, lambda g, s, p: (g, s, 1), r'returned a tuple of 3; let it return \(updates, state\)$'),
  'another state': (
    lambda params: jnp.int32(0),
    lambda g, s, p: (g, s + 0.5),
    r'returned a state with float32\[\] at its root, not int32\[\]; let its init and update agree$',
  ),
  'a state of words': (
    lambda params: 'x',
    lambda g, s, p: (g, s),
    r"returned 'x', a str in its state; let it be a pyt",
  ),
  'an error': (no_state, lambda g, s, p: 1 / 0, r'test_optimizers.py, line \d+: .* raised ZeroDivisionError: division'),
  'an error in init': (lambda params: 1 / 0, lambda g, s, p: (g, s), r'raised ZeroDivisionError: division by zero$'),
}
EXTRA = r'; local training gives it gradients, state, parameters and round=; give one that needs no more'


@pytest.mark.parametrize(('init', 'update', 'sentence'), WRONG.values(), ids=WRONG)
def test_an_optimizer_that_returns_something_else_is_refused_in_one_sentence(init, update, sentence):
  assert_refused(optax.GradientTransformation(init, update), sentence)


def assert_refused(tx, sentence):
  with pytest.raises(ValueError, match=r'^tx ') as refused:
    jax.eval_shape(lambda params: optimizers.update(tx, params, optimizers.init(tx, params), params), PARAMS)
  assert re.search(sentence, str(refused.value))  # without the notes that JAX adds
  assert '\n' not in str(refused.value)


@pytest.mark.parametrize(
  ('tx', 'sentence'),
  [
    (optax.lbfgs(), r"missing 3 required keyword-only arguments: 'value', 'grad', and 'value_fn'" + EXTRA),
    (optax.polyak_sgd(), r"missing 1 required keyword-only argument: 'value'" + EXTRA),
    (
      optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau()),
      r"missing 1 required keyword-only argument: 'value'" + EXTRA,
    ),
    (optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.1)), r"unexpected keyword argument 'round'" + EXTRA),
    (optax.lookahead(optax.sgd(0.1), 5, 0.5), r"has no attribute 'fast'" + EXTRA),
  ],
)
def test_optimizers_that_need_more_than_local_training_has_are_refused(tx, sentence):
  assert_refused(tx, sentence)


def drawn(key):
  """Updates that are uniform numbers, from a random key in the state."""
  update = lambda g, state, params=None: (
    jax.random.uniform(state['key'], (2,)),
    {'key': jax.random.split(state['key'])[0]},
  )
  return optax.GradientTransformation(lambda params: {'key': key}, update)


HALVED = optax.piecewise_constant_schedule(0.1, {1: 0.5})
G, LATER = np.array([4.0, -0.01], np.float32), np.array([-0.02, -3.0], np.float32)


@pytest.mark.parametrize(
  ('tx', 'expected'),
  {
    'no moments': (optax.adam(0.1), (-0.1 * np.sign(G), -0.1 * np.sign(LATER))),
    'no momentum': (optax.sgd(0.1, 0.9), (-0.1 * G, -0.1 * LATER)),
    'a schedule goes on': (optax.adam(HALVED), (-0.1 * np.sign(G), -0.05 * np.sign(LATER))),
    'an injected one too': (
      optax.inject_hyperparams(optax.adam)(learning_rate=HALVED),
      (-0.1 * np.sign(G), -0.05 * np.sign(LATER)),
    ),
    'batches are collected': (optax.MultiSteps(optax.sgd(0.1), 2), (0 * G, -0.05 * (G + LATER))),
    'as the round says': (scheduled(optax.adam(0.1), lambda t: t), (-0.3 * np.sign(G), -0.3 * np.sign(LATER))),
  }.values(),
)
def test_a_restarted_optimizer_remembers_no_gradient(tx, expected):
  params = jnp.zeros(2)
  state = restarted(tx).init(params)
  for grads, updates in zip((G, LATER), expected, strict=True):
    found, state = optimizers.update(restarted(tx), jnp.asarray(grads), state, params, t=3)
    np.testing.assert_allclose(found, updates, rtol=1e-5)


@pytest.mark.parametrize('tx', [optax.add_noise(0.1, 0.0, key=0), drawn(jax.random.key(0))])
def test_a_restarted_optimizer_draws_on(tx):
  state, seen = restarted(tx).init(jnp.zeros(2)), []
  for _ in range(2):
    found, state = optimizers.update(restarted(tx), jnp.zeros(2), state, jnp.zeros(2))
    seen.append(found)
  assert np.abs(seen[0] - seen[1]).min() > 1e-3
