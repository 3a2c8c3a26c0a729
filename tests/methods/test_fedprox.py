import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import local, methods, models, plan
from helpers import assert_close, problem, row

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


def test_a_large_weight_keeps_the_clients_near_the_global_model():
  # At mu = 1 / rate the step along the proximal term leads straight back: only the last gradient of an update is left.
  free, bound = moved(made_with(fedprox(0.0, 12), 1)), moved(made_with(fedprox(1 / RATE, 12), 1))
  assert bound < free / 3


@pytest.mark.parametrize('mu', [0.0, 0.5, 2.0])
def test_the_gradient_is_the_supervised_one_and_mu_times_the_way_back(mu):
  made = made_with(fedprox(mu), 1)
  group, data, start = made.groups[0], made.data[0], made.state.server
  state, report = made.run()
  loss_fn = jax.jit(jax.value_and_grad(local.supervised(group.model, data.pool), has_aux=True))
  learners, losses = [], []
  for r, client in enumerate(group.ids):
    mine = row(data.private, r)
    key_turn = jax.random.fold_in(jax.random.split(jax.random.fold_in(made.key, 0), 3)[1], client)
    params, loss = start['params'], 0.0
    for i in range(STEPS):
      key_batch, key_model = jax.random.split(jax.random.fold_in(key_turn, i))
      index = mine.index[local.draw(key_batch, mine.index.shape[0], mine.size, BATCH)]
      (value, _), grads = loss_fn(params, {}, key_model, index)
      away = optax.tree.sub(params, start['params'])
      params = jax.tree.map(lambda w, g, a: w - RATE * (g + mu * a), params, grads, away)
      loss += value / STEPS
    learners.append(params)
    losses.append(loss)
  sizes = np.asarray(data.private.size, float)
  expected = jax.tree.map(lambda *a: jnp.asarray(np.average(np.stack(a), 0, sizes), jnp.float32), *learners)
  assert_close(state.server['params'], expected)
  np.testing.assert_allclose(report.info[0]['loss'][0], losses, rtol=1e-5)  # what is reported leaves the term out
