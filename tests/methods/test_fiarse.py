"""FIARSE: which weights a client holds, how the gradient passes their mask, and the mean over holders."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util

import twins
from fedkd import aggregate, ledger, methods, plan
from fedkd.methods.fiarse import counted_leaves, largest, least, part_of
from helpers import assert_close, problem, softmax
from small_nets import NET, Normed

SGD = optax.sgd(0.1)
TURN = {'steps': 2, 'batch': 4}
EQUAL = [np.arange(12), np.arange(20, 32), np.arange(40, 52)]


def made(capacities, net=NET, clients=3, rounds=1, **more):
  method = methods.fiarse(SGD, capacities, **{**TURN, **more})
  return problem(method, [net], [clients], plan.synchronous()([clients], rounds), EQUAL[:clients])


def row(tree, k):
  return jax.tree.map(lambda a: np.asarray(a)[k], tree)


def weights(params):
  return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def test_clients_with_room_for_all_and_no_gradient_of_the_mask_are_fedavgs():
  one = made((1.0,), net=Normed(), rounds=2, surrogate=False)
  other = problem(methods.fedavg(SGD, **TURN), [Normed()], [3], plan.synchronous()([3], 2), EQUAL)
  assert_close(one.run()[0].server['variables'], other.run()[0].server)


def test_a_client_holds_the_largest_share_and_all_of_batchnorm():
  start = made((1.0,), net=Normed())
  whole = start.state.server['variables']
  counted = counted_leaves(whole['params'], whole['batch_stats'])
  assert [bool(c) for c in jax.tree.leaves(counted)].count(False) == 2  # a scale and a shift
  total = sum(a.size for a, c in zip(jax.tree.leaves(whole['params']), jax.tree.leaves(counted), strict=True) if c)
  norms = weights(whole['params']).size - total
  for i, share in enumerate((1.0, 0.3, 0.01, 1e-6)):
    held = part_of(whole, (1.0, 0.3, 0.01, 1e-6), jnp.int32(4 + i))  # clients are dealt out in turn
    kept = weights(held)
    assert kept.sum() - norms == max(1, int(share * total))
    of = lambda mask, c, held=held: np.abs(
      weights(jax.tree.map(lambda a, h, k: a[(h == mask) & k], whole['params'], held, c))
    )
    if share < 1:
      assert of(True, counted).min() >= of(False, counted).max()


@pytest.mark.parametrize('norm', [nn.LayerNorm, lambda: nn.GroupNorm(2), lambda: nn.BatchNorm(False)])
def test_norms_without_statistics_are_no_weights_either(norm):
  """Their scales are ones, larger than any weight."""
  params = nn.Sequential([nn.Dense(4), norm()]).init(jax.random.key(0), jnp.ones((2, 3)))['params']
  counted = counted_leaves(params, {})
  assert counted == {'layers_0': {'kernel': True, 'bias': True}, 'layers_1': {'scale': False, 'bias': False}}
  held = part_of({'params': params, 'batch_stats': {}}, (0.25,), jnp.int32(0))
  assert int(held['layers_0']['kernel'].sum()) == 4  # of 16


def test_the_kernel_beside_a_scale_is_a_weight():
  assert counted_leaves({'dense': {'kernel': 0.0, 'scale': 0.0}}, {}) == {'dense': {'kernel': True, 'scale': True}}


def test_a_threshold_of_zero_lets_all_gradients_through():
  slope = jax.grad(lambda x: largest({'w': x}, {'w': True}, jnp.float32(0), True)['w'])
  assert (float(slope(jnp.float32(0))), float(slope(jnp.float32(2)))) == (1, 1)


@pytest.mark.parametrize(('x', 'factor'), [(0.2, 1.5), (-0.6, 1.375), (0.19, 0.0), (2e4, 1.0)])
def test_the_gradient_passes_the_mask_by_the_papers_surrogate(x, factor):
  of = lambda x, surrogate: largest({'w': x}, {'w': True}, jnp.float32(0.2), surrogate)['w']
  slope = jax.grad(lambda x: 3 * of(x, True))(jnp.float32(x))
  np.testing.assert_allclose(slope, 3 * factor, rtol=1e-3)
  assert float(jax.grad(lambda x: of(x, False))(jnp.float32(x))) == (factor > 0)
  assert float(of(jnp.float32(x), True)) == (np.float32(x) if factor else 0)


def test_a_weight_that_sinks_below_the_threshold_stays_there():
  def loss(params):
    return jnp.sum(jnp.array([1.0, -1.0]) * largest(params, {'w': True}, jnp.float32(0.5), True)['w'])

  params, path = {'w': jnp.array([0.6, 0.6])}, []
  for _ in range(3):
    params = jax.tree.map(lambda a, g: a - 0.1 * g, params, jax.grad(loss)(params))
    path.append(params['w'])
  assert path[0][0] < 0.5
  assert path[2][0] == path[0][0]
  assert path[2][1] > path[0][1] > 0.6


def test_every_weight_is_the_mean_over_those_who_hold_it():
  """Clients 0 and 2 have room for all, client 1 for half."""
  start = made((1.0, 0.5))
  whole = weights(start.state.server['variables']['params'])
  held = weights(part_of(start.state.server['variables'], (1.0, 0.5), jnp.int32(1)))
  uploads = [row(up, k) for up in [_uploads(start)] for k in range(3)]
  change = [
    weights(jax.tree.map(lambda leaf: leaf.value, up['params'], is_leaf=lambda a: hasattr(a, 'valid')))
    for up in uploads
  ]
  np.testing.assert_array_equal(change[1][~held], 0)
  assert (change[0] != 0).mean() > 0.5
  mean = np.where(held, np.mean(change, 0), (change[0] + change[2]) / 2)
  after = weights(start.run()[0].server['variables']['params'])
  np.testing.assert_allclose(after, whole + mean, atol=1e-6)


@pytest.mark.parametrize('surrogate', [True, False])
def test_two_rounds_are_those_of_a_twin_in_numpy(surrogate):
  """Softmax regression, whole batches, clients with room for all, for half and for all; the second round is that of the
  client with half alone, so that the rest stays."""
  slots = np.array([[0, 1, 2], [-1, 1, -1]], np.int32)
  method = methods.fiarse(optax.sgd(twins.RATE), (1.0, 0.5), steps=3, batch=16, surrogate=surrogate, server_rate=0.75)
  start = twins.made_with(method, participants=slots)
  x, true = twins.examples_of(start)
  w = twins.numbers_of(start.state.server['variables']['params'])
  sank = 0
  for present in slots:
    total, holders = np.zeros_like(w), np.zeros_like(w)
    for k in (k for k in present if k >= 0):
      threshold = np.sort(np.abs(w), None)[-(w.size if k != 1 else w.size // 2)]
      held, rows = np.abs(w) >= threshold, twins.PARTS[k]
      y = np.where(held, w, 0)
      for _ in range(3):
        above, size = np.abs(y) >= threshold, np.abs(y)
        p = softmax(x[rows] @ np.where(above, y, 0))
        slope = x[rows].T @ (p - true[rows]) / len(rows)
        factor = 1 + 2 * size * threshold / np.maximum((size + threshold) ** 2, 1e-30) if surrogate else 1
        y = y - twins.RATE * slope * factor * above
      sank += (held & (np.abs(y) < threshold)).sum()
      total, holders = total + np.where(held, y - w, 0), holders + held
    w = w + 0.75 * total / np.maximum(holders, 1)
  found = twins.numbers_of(start.run()[0].server['variables']['params'])
  np.testing.assert_allclose(found, w, rtol=1e-4, atol=1e-5)
  assert sank > 3


def test_a_rule_with_memory_begins_with_no_change():
  """One that hardly lets a change through leaves the weights where they were."""
  start = made((1.0, 0.5), rule=aggregate.centred_clipping(1e-6))
  before, after = (weights(state.server['variables']['params']) for state in (start.state, start.run()[0]))
  assert 0 < np.abs(after - before).max() < 2e-6


def test_what_nobody_holds_stays_under_a_rule_that_has_no_value_for_it():
  """The median of no numbers is infinite; client 1, with room for half, is alone."""
  method = methods.fiarse(SGD, (1.0, 0.5), rule=aggregate.median, **TURN)
  start = problem(method, [NET], [3], plan.Plan((np.array([[1]], np.int32),)), EQUAL)
  held = weights(part_of(start.state.server['variables'], (1.0, 0.5), jnp.int32(1)))
  before, after = (weights(state.server['variables']['params']) for state in (start.state, start.run()[0]))
  np.testing.assert_array_equal(after[~held], before[~held])
  assert (after[held] != before[held]).mean() > 0.5


def _uploads(start):
  server, client, group, data = start.method.server, start.method.client, start.groups[0], start.data[0]
  (down,) = server.send(start.key, 0, start.groups, start.state.server, (jnp.arange(3),), start.data)
  key_client = jax.random.split(jax.random.fold_in(start.key, 0), 3)[1]
  keys = jax.vmap(lambda i: jax.random.fold_in(key_client, i))(jnp.arange(3))

  def one(key, state, own, private):
    step = client.step(key, 0, group.model, state, down._replace(own=own), data._replace(private=private))
    return step[1]

  return jax.vmap(one)(keys, start.state.client[0], down.own, data.private)


def test_the_ledger_counts_weights_and_positions_of_what_is_held():
  start = made((1.0, 0.25))
  total = weights(start.state.server['variables']['params']).size
  sent = 2 * total + total // 4
  _, report = start.run()
  assert ledger.total(report.down) == {'weights': (sent, 4 * sent), 'indices': (sent, 4 * sent)}
  assert ledger.total(report.up) == ledger.total(report.down)


def test_batchnorm_is_sent_without_positions():
  """It is never masked, so that everybody knows where its numbers belong."""
  start = made((1.0, 0.25), net=Normed())
  whole = start.state.server['variables']
  norms = sum(leaf.size for name, leaf in traverse_util.flatten_dict(whole['params'], sep='/').items() if 'bn' in name)
  statistics = sum(leaf.size for leaf in jax.tree.leaves(whole['batch_stats']))
  total = weights(whole['params']).size - norms
  sent = 2 * total + total // 4
  _, report = start.run()
  assert norms == 2 * 4
  assert ledger.total(report.down) == {
    'weights': (sent + 3 * norms, 4 * (sent + 3 * norms)),
    'indices': (sent, 4 * sent),
    'statistics': (3 * statistics, 12 * statistics),
  }
  assert ledger.total(report.up) == ledger.total(report.down)


def test_clients_are_evaluated_with_their_share():
  start = made((1.0, 0.25))
  variables = start.method.variables(start.state, 0)
  used = [(weights(row(variables['params'], k)) != 0).sum() for k in range(3)]
  whole = weights(start.state.server['variables']['params'])
  assert used == [(whole != 0).sum(), len(whole) // 4, (whole != 0).sum()]
  held = part_of(start.state.server['variables'], (1.0, 0.25), jnp.int32(1))
  counted = counted_leaves(start.state.server['variables']['params'], {})
  kept = np.abs(weights(row(variables['params'], 1)))
  assert float(least(start.state.server['variables']['params'], held, counted)) == kept[kept > 0].min()


def test_different_architectures_are_refused():
  method = methods.fiarse(SGD, **TURN)
  with pytest.raises(ValueError, match=r'groups have different architectures .* or use heterofl'):
    problem(method, [NET, Normed()], [1, 2], plan.synchronous()([1, 2], 1), EQUAL)
