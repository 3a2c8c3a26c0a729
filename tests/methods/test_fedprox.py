import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from helpers import assert_close, problem, softmax
from twins import PARTS, examples_of, numbers_of

NET = models.MLP((4,), classes=3)
RATE = 0.1
SIZES, STEPS, BATCH = [2], 3, 6


def made_with(method, rounds=3):
  return problem(method, [NET], SIZES, plan.synchronous()(SIZES, rounds))


def fedprox(mu, steps=STEPS):
  return methods.fedprox(optax.sgd(RATE), steps=steps, batch=BATCH, mu=mu)


def test_without_the_proximal_term_it_is_fedavg():
  plain = made_with(methods.fedavg(optax.sgd(RATE), steps=STEPS, batch=BATCH))
  assert_close(made_with(fedprox(0.0)).run(), plain.run(), rtol=1e-6)


def moved(made):
  """Distance of the global model from where it began, after all rounds."""
  before, after = (made.method.variables(state, 0)['params'] for state in (made.state, made.run()[0]))
  return float(optax.tree.norm(optax.tree.sub(after, before)))


@pytest.mark.slow
def test_a_large_weight_keeps_the_clients_near_the_global_model():
  # At mu = 1 / rate the step along the proximal term leads straight back: only the last gradient of an update is left.
  free, bound = moved(made_with(fedprox(0.0, 12), 1)), moved(made_with(fedprox(1 / RATE, 12), 1))
  assert bound < free / 3


TWINS = {  # batches of 16 hold every row as often
  'fedavg': (methods.fedavg(optax.sgd(RATE), steps=STEPS, batch=16), 0.0),
  'fedprox 0.5': (methods.fedprox(optax.sgd(RATE), steps=STEPS, batch=16, mu=0.5), 0.5),
  'fedprox 2': (methods.fedprox(optax.sgd(RATE), steps=STEPS, batch=16, mu=2.0), 2.0),
}


@pytest.mark.parametrize('name', TWINS)
def test_three_rounds_are_those_of_a_twin_in_numpy(name):
  """Softmax regression in float64: SGD on the whole of a client's rows, the way back to the global weights, the mean
  weighted by rows; nothing of it is ours. The reported loss leaves the proximal term out."""
  method, mu = TWINS[name]
  made = problem(method, [models.MLP((), classes=3)], [3], plan.synchronous()([3], 3), parts=PARTS, padding=2)
  x, true = examples_of(made)
  w, losses = numbers_of(made.state.server['params']), []
  for _ in range(3):
    clients = []
    for rows in PARTS:
      mine, loss = w, 0.0
      for _ in range(STEPS):
        p = softmax(x[rows] @ mine)
        loss -= np.log(p[true[rows] > 0]).mean() / STEPS
        mine = mine - RATE * (x[rows].T @ (p - true[rows]) / len(rows) + mu * (mine - w))
      clients.append(mine)
      losses.append(loss)
    w = np.average(clients, 0, [len(rows) for rows in PARTS])
  state, report = made.run()
  np.testing.assert_allclose(numbers_of(state.server['params']), w, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(np.ravel(report.info[0]['loss']), losses, rtol=1e-4)
