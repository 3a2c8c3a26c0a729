"""SCAFFOLD on softmax regression, where the whole of a client's rows is one batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, plan
from fedkd.methods.scaffold import with_correction
from helpers import CLASSES, assert_close, assert_same_bits, pool, problem, row, softmax
from twins import PARTS, RATE, examples_of, made_with, numbers_of

STEPS, BATCH = 3, 16  # of 16, 8 and 4 rows every one as often


def scaffold(steps=STEPS, **how):
  return methods.scaffold(optax.sgd(RATE), **{'steps': steps, 'batch': BATCH, 'equal_weights': True, **how})


def gradient(x, true, rows, w):
  return x[rows].T @ (softmax(x[rows] @ w) - true[rows]) / len(rows)


def in_numpy(made, participants):
  """(weights, mean variate, variates) after rounds of `participants`, with the paper's option II."""
  x, true = examples_of(made)
  w = numbers_of(made.state.server['weights']['params'])
  mean, own = np.zeros_like(w), [np.zeros_like(w) for _ in PARTS]
  for clients in participants:
    moved, changes = [], []
    for k in clients:
      y = w
      for _ in range(STEPS):
        y = y - RATE * (gradient(x, true, PARTS[k], y) + mean - own[k])
      new = own[k] - mean + (w - y) / (STEPS * RATE)
      moved.append(y)
      changes.append(new - own[k])
      own[k] = new
    w, mean = np.mean(moved, 0), mean + np.sum(changes, 0) / len(PARTS)
  return w, mean, own


@pytest.mark.parametrize('absent', [False, True])
def test_rounds_are_those_of_the_papers_formulas(absent):
  turns = np.array([[0, 1, 2], [2, 0, -1], [1, -1, -1], [0, 1, 2]], np.int32) if absent else None
  made = made_with(scaffold(), 3, 3, turns)
  state, _ = made.run()
  clients = [[k for k in slots if k >= 0] for slots in turns] if absent else [[0, 1, 2]] * 3
  w, mean, own = in_numpy(made, clients)
  np.testing.assert_allclose(numbers_of(state.server['weights']['params']), w, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(numbers_of(state.server['control']), mean, rtol=1e-4, atol=1e-5)
  for k, control in enumerate(own):
    np.testing.assert_allclose(numbers_of(row(state.client[0], k)), control, rtol=1e-4, atol=1e-5)
  # The server's variate is the mean of all clients', those that were absent too.
  assert_close(jax.tree.map(lambda a: a.mean(0), state.client[0]), state.server['control'], atol=1e-6)


def test_one_client_alone_is_corrected_by_nothing():
  alone = lambda method: problem(method, [models.MLP((4,), classes=CLASSES)], [1], plan.synchronous()([1], 3))
  ours, theirs = alone(scaffold()), alone(methods.fedavg(optax.sgd(RATE), steps=STEPS, batch=BATCH))
  assert_close(ours.run()[0].server['weights'], theirs.run()[0].server, rtol=1e-5)


def test_a_client_without_examples_keeps_its_variate():
  made = made_with(scaffold(), 3, 2)
  first, _ = made.run(1)
  nobody = made.data[0].private._replace(size=jnp.zeros(3, jnp.int32))
  idle = made._replace(data=(made.data[0]._replace(private=nobody),), programs={})
  after, _ = idle.run(1, first, 1)
  assert_same_bits(after.client, first.client)
  assert_same_bits(after.server['control'], first.server['control'])
  assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(first.client))


def test_after_one_step_a_variate_is_the_gradient_at_what_was_received():
  made = made_with(scaffold(steps=1), 3, 1)
  state, _ = made.run()
  x, true = examples_of(made)
  w = numbers_of(made.state.server['weights']['params'])
  for k, rows in enumerate(PARTS):
    expected = gradient(x, true, rows, w)
    np.testing.assert_allclose(numbers_of(row(state.client[0], k)), expected, rtol=1e-4, atol=1e-6)


def contradicting():
  """A pool of three images over and over, with several labels each, so that there is a finite optimum; and the rows of
  two clients that see other labels and other images more often."""
  images = pool()
  seen = np.array([0, 0, 0, 0, 0, 1, 1, 2, 0, 1, 1, 1, 2, 2, 2, 2])
  label = np.array([0, 0, 0, 1, 2, 0, 1, 2, 1, 1, 1, 0, 2, 2, 0, 1])
  return images._replace(example=images.example[seen], label=jnp.asarray(label)), [np.arange(8), np.arange(8, 16)]


def test_it_ends_where_the_mean_gradient_is_zero_and_fedavg_does_not():
  """The variates take away the drift of clients that have other optima."""
  images, parts = contradicting()
  slopes = {}
  for name, make in (('scaffold', scaffold), ('fedavg', lambda: methods.fedavg(optax.sgd(RATE), STEPS, batch=BATCH))):
    turns = plan.synchronous()([2], 300)
    made = problem(make(), [models.MLP((), classes=CLASSES)], [2], turns, parts, images)
    x, true = examples_of(made)
    w = numbers_of(row(made.method.variables(made.run()[0], 0)['params'], 0))
    slopes[name] = np.linalg.norm(np.mean([gradient(x, true, rows, w) for rows in parts], 0))
  assert slopes['scaffold'] < 0.1 * slopes['fedavg'], slopes


def test_a_message_holds_the_weights_twice():
  made = made_with(scaffold(), 3, 1)
  _, report = made.run()
  numbers = {kind: int(np.sum(count)) for kind, (count, _) in report.up[0].items()}
  p = sum(a.size for a in jax.tree.leaves(made.state.server['control']))
  assert numbers == {'weights': 3 * 2 * p, 'labels': 3}
  assert ledger.KINDS['control'] == 'weights'


def test_every_gradient_counts_in_half_precision():
  """300 sums in bfloat16 would end at 256, to which it cannot add 1."""
  one = {'w': jnp.ones(2, jnp.bfloat16)}
  tx = with_correction(optax.sgd(0.0), jax.tree.map(jnp.zeros_like, one))
  _, (_, total, count) = jax.lax.fori_loop(0, 300, lambda _, carry: tx.update(one, carry[1], one), (one, tx.init(one)))
  np.testing.assert_array_equal(total['w'], 300)
  assert count == 300
