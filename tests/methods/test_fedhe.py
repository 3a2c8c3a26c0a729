"""FedHe against a slow twin in NumPy: softmax regression, plain SGD, one client per round, skewed labels."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import local, methods, models, plan, servers
from helpers import EXAMPLES, cases, problem, skewed, softmax

TURNS, STEPS, BATCH, RATE, ALPHA = 20, 3, 6, 0.05, 0.7
CLASSES = 4  # nobody has the last one
SIZES = [2, 1]
COLD, REFRESH = 1, 3  # updates per client: published from update 3 on, collapsed every nine updates
PLAN = plan.asynchronous(seed=2, spread=0.3, delay=0.5)(SIZES, TURNS)


def batches(made, t, client):
  """The rows of the pool that the round draws for this update."""
  g, row = (0, client) if client < SIZES[0] else (1, client - SIZES[0])
  mine = made.data[g].private
  key_turn = jax.random.fold_in(jax.random.split(jax.random.fold_in(made.key, t), 3)[1], client)
  for i in range(STEPS):
    key_batch, _ = jax.random.split(jax.random.fold_in(key_turn, i))
    yield np.asarray(mine.index[row])[local.draw(key_batch, mine.index.shape[1], mine.size[row], BATCH)]


class Twin:
  """Everything in float64, one example and one class at a time."""

  def __init__(self, made, count_offset):
    self.count_offset = count_offset
    self.x = (np.asarray(made.data[0].pool.example, float).reshape(EXAMPLES, -1) - 128) / 64
    self.label = np.asarray(made.data[0].pool.label)
    self.weights, self.bias = [], []
    for client in made.state.client:
      dense = client.params['net']['output']
      self.weights += list(np.asarray(dense['kernel'], float))
      self.bias += list(np.asarray(dense['bias'], float))
    self.sum, self.count = np.zeros((CLASSES, CLASSES)), np.zeros(CLASSES, int)
    self.losses, self.sent = [], []

  def update(self, t, client, drawn):
    published = {c: self.sum[c] / self.count[c] for c in range(CLASSES) if self.count[c] and t >= COLD * sum(SIZES)}
    sums, seen = np.zeros((CLASSES, CLASSES)), np.zeros(CLASSES, int)
    losses = []
    for rows in drawn:
      slope_w, slope_b = np.zeros_like(self.weights[client]), np.zeros(CLASSES)
      for row in rows:
        x, y = self.x[row], self.label[row]
        logits = x @ self.weights[client] + self.bias[client]
        loss, slope = -np.log(softmax(logits)[y]), softmax(logits) - np.eye(CLASSES)[y]
        if y in published:
          loss += ALPHA * np.mean((logits - published[y]) ** 2)
          slope = slope + ALPHA * 2 / CLASSES * (logits - published[y])
        sums[y] += logits
        seen[y] += 1
        losses.append(loss)
        slope_w += np.outer(x, slope) / len(rows)
        slope_b += slope / len(rows)
      self.weights[client] = self.weights[client] - RATE * slope_w
      self.bias[client] = self.bias[client] - RATE * slope_b
    for c in range(CLASSES):
      if seen[c]:
        self.sum[c] += sums[c] / (seen[c] + self.count_offset)
        self.count[c] += 1
    if (t + 1) % (REFRESH * sum(SIZES)) == 0:
      for c in range(CLASSES):
        if self.count[c]:
          self.sum[c], self.count[c] = self.sum[c] / self.count[c], 1
    self.losses.append(np.mean(losses))
    self.sent.append((seen > 0).sum() * (CLASSES + 1))


@pytest.mark.parametrize('count_offset', cases([0.0, 1.0], fast=[1.0]))
def test_fedhe_is_its_twin(count_offset):
  images, parts = skewed()
  method = methods.fedhe(
    optax.sgd(RATE),
    steps=STEPS,
    batch=BATCH,
    alpha=ALPHA,
    count_offset=count_offset,
    cold_start=COLD,
    refresh_every=REFRESH,
  )
  net = models.MLP((), classes=CLASSES)
  made = problem(method, [net, net], SIZES, PLAN, parts, images, padding=3)
  state, report = made.run()

  twin = Twin(made, count_offset)
  order = np.concatenate(report.ids, axis=1).max(1)
  assert set(order) == {0, 1, 2}
  for t, client in enumerate(order):
    twin.update(t, client, batches(made, t, client))

  kernel, bias = (
    np.concatenate([c.params['net']['output'][name] for c in state.client]) for name in ('kernel', 'bias')
  )
  np.testing.assert_allclose(kernel, twin.weights, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(bias, twin.bias, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(state.server['sum'], twin.sum, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(state.server['count'], twin.count)
  assert twin.count[3] == 0
  of = lambda counts: sum(np.asarray(c).sum(1) for c in counts)
  np.testing.assert_allclose(of([i['loss'] for i in report.info]), twin.losses, rtol=1e-5)
  np.testing.assert_array_equal(of([n for group in report.up for n, _ in group.values()]), twin.sent)
  # The knowledge mattered: a twin whose distillation is off ends elsewhere.
  assert np.abs(of([i['distill_loss'] for i in report.info]))[COLD * sum(SIZES) :].max() > 0.1
  np.testing.assert_array_equal(of([i['distill_loss'] for i in report.info])[: COLD * sum(SIZES)], 0)


def test_the_class_sums_are_of_the_passes_that_trained():
  """One batch: the upload is the mean of the logits before the update."""
  images, parts = skewed()
  method = methods.fedhe(optax.sgd(RATE), steps=1, batch=BATCH, count_offset=0.0)
  made = problem(method, [models.MLP((), classes=CLASSES)], [1], plan.synchronous()([1], 1), parts[:1], images)
  state, _ = made.run()
  key_turn = jax.random.fold_in(jax.random.split(jax.random.fold_in(made.key, 0), 3)[1], 0)
  mine = made.data[0].private
  key_batch, _ = jax.random.split(jax.random.fold_in(key_turn, 0))
  rows = parts[0][np.asarray(local.draw(key_batch, mine.index.shape[1], mine.size[0], BATCH))]
  before = jax.tree.map(lambda a: a[0], made.state.client[0].params)
  logits = made.groups[0].model.apply({'params': before}, jnp.asarray(images.example)[rows], False)[0]
  label = np.asarray(images.label)[rows]
  for c in set(label):
    np.testing.assert_allclose(state.server['sum'][c], np.asarray(logits)[label == c].mean(0), rtol=1e-5, atol=1e-6)


def test_sums_collapse_after_every_round_at_the_earliest():
  """Not never, where that would be before any client's update."""
  server = servers.class_means(refresh_every=0.1)
  made = problem(methods.fedhe(optax.sgd(RATE)), [models.MLP((), classes=CLASSES)], [2], PLAN)
  state = server.init(jax.random.key(0), made.groups, (), made.data)
  assert (int(state['refresh_every']), state['refresh_every'].dtype) == (1, np.int32)
