"""FedGen: a client update of a twin in NumPy, given the generator."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import keys, local, methods, models, plan
from fedkd import round as rounds
from fedkd.models.generator import NOISE
from fedkd.servers.feature_generator import draw
from helpers import CLASSES, problem, softmax
from lone_servers import KEY
from twins import RATE, numbers_of, parties

ALPHA, BETA, DECAY, GENERATED, BATCH, STEPS, EARLY = 3.0, 2.0, 0.5, 5, 12, 3, 2
# Classes 0 and 2; 0 alone. The batches of the second repeat its rows.
PARTS = [np.array([0, 2, 3, 5, 6, 8]), np.array([21, 24, 27, 30])]


def generated(generator, noise, label):
  """Features [B, width], in evaluation mode."""
  params, statistics = (jax.tree.map(lambda a: np.asarray(a, float), generator[name]) for name in generator)
  (norm,), (seen,) = ([v for k, v in tree.items() if 'Norm' in k] for tree in (params, statistics))
  first, last = (params[f'TorchDense_{i}']['Dense_0'] for i in range(2))
  x = np.concatenate([np.asarray(noise, float), np.eye(CLASSES)[label]], 1) @ first['kernel'] + first['bias']
  x = (x - seen['mean']) / np.sqrt(seen['var'] + 1e-5) * norm['scale'] + norm['bias']
  return np.maximum(x, 0) @ last['kernel'] + last['bias']


@pytest.fixture(scope='module')
def made():
  how = {'steps': STEPS, 'batch': BATCH, 'generated': GENERATED, 'noise': 'normal', 'early_stop': EARLY}
  how |= {'server_steps': 3, 'server_batch': 8, 'hidden': 6, 'server_rate': 0.1}
  method = methods.fedgen(optax.sgd(RATE), alpha=ALPHA, beta=BETA, decay=DECAY, **how)
  return problem(method, [models.MLP((), classes=CLASSES)], [2], plan.synchronous()([2], 1), PARTS)


@pytest.fixture(scope='module')
def update(made):
  """(client, round, download) -> what its step returns, from the first learners."""
  (group,), (data,), (learners,) = made.groups, made.data, made.state.client

  @jax.jit
  def update(k, t, down):
    learner = jax.tree.map(lambda a: a[k], learners)
    return made.method.client.step(KEY, t, group.model, learner, down, rounds.of_client(data, k))

  return update


def batches(rows):
  """What the steps of a client draw: (rows of the batch, keys of the labels, of their noise, and of the noise for its
  own labels)."""
  for i in range(STEPS):
    key_batch, key_model = jax.random.split(jax.random.fold_in(KEY, i))
    batch = rows[np.asarray(local.draw(key_batch, len(PARTS[0]), len(rows), BATCH))]
    yield batch, *jax.random.split(jax.random.fold_in(key_model, keys.DISTILLATION), 3)


@pytest.mark.parametrize('t', [0, 2])
def test_a_client_update_is_that_of_the_twin(made, update, t):
  """Before there is a generator, and in round 2, where the last step is without what it generates."""
  server = (made.run()[0] if t else made.state).server
  down = made.server.send(KEY, t, server, (jnp.arange(2),))[0]
  x, y, _ = parties(made)
  known, head = np.asarray(down.shared['label']), down.shared['weights']['params']
  np.testing.assert_array_equal(known, [t > 0, False, t > 0])
  start = np.vstack([np.reshape(leaf, (-1, CLASSES)) for leaf in sorted(head.values(), key=np.ndim, reverse=True)])

  def features(key, label):
    f = generated(down.shared['generator'], jax.random.normal(key, (len(label), NOISE)), label)
    return np.concatenate([f, np.ones((len(f), 1))], 1)

  for k, rows in enumerate(PARTS):
    w, sums = start.astype(float), np.zeros(3)
    for i, (batch, key_label, key_noise, key_own) in enumerate(batches(rows)):
      alpha, beta = (w * DECAY**t * (t > 0) * (i < EARLY) for w in (GENERATED / BATCH * ALPHA, BETA))
      drawn = np.asarray(draw(key_label, jnp.asarray(known), GENERATED))
      made_up = features(key_noise, drawn)
      p, q, target = (softmax(f @ w) for f in (x[batch], made_up, features(key_own, y[batch].argmax(1))))
      fake, away = -np.log(q[range(GENERATED), drawn]).mean(), (target * np.log(target / p)).sum(1).mean()
      sums += np.array([-np.log(p[y[batch] > 0]).mean() + alpha * fake + beta * away, fake, away]) / STEPS
      slope = x[batch].T @ ((1 + beta) * p - y[batch] - beta * target) / BATCH
      w = w - RATE * (slope + alpha * made_up.T @ (q - np.eye(CLASSES)[drawn]) / GENERATED)
    learner, up, info = update(k, t, down)
    np.testing.assert_allclose(numbers_of(learner.params), w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([info[name] for name in ('loss', 'generated_loss', 'distill_loss')], sums, rtol=1e-4)
    np.testing.assert_array_equal(up['label'], 1 + STEPS * BATCH // len(rows) * y[rows].sum(0))
