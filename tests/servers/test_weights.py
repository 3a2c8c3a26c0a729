"""Servers of weights: who is averaged with whom, and the server's optimizer against the equations of its paper."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, optimizers, servers
from fedkd.types import Download
from helpers import assert_close, assert_same_bits, bound
from lone_servers import KEY, groups_of, received, weights

RULES = {
  'mean': aggregate.mean,
  'median': aggregate.median,
  'trimmed_mean': partial(aggregate.trimmed_mean, share=0.25),
}
every_rule = pytest.mark.parametrize('name', RULES)


@every_rule
def test_per_group_keeps_the_old_without_uploads(name):
  server = servers.weights(RULES[name], per_group=True)
  old = (weights([1.0, 2.0]), weights([3.0]), weights([4.0]))
  state = server.init(KEY, groups_of(2, 2, 1), old, ())
  uploads = (
    {**weights([[5.0, 5.0], [9.0, 9.0]]), 'count': jnp.array([3, 0])},
    {**weights([[7.0], [np.nan]]), 'count': jnp.array([2, 5])},
    {**weights(np.zeros((0, 1))), 'count': jnp.zeros(0, jnp.int32)},
  )
  ids = (jnp.array([-1, -1]), jnp.array([2, -1]), jnp.zeros(0, jnp.int32))
  state = received(server, state, uploads, ids)
  assert_same_bits(state, (old[0], weights([7.0]), old[2]))
  assert_same_bits(bound(server).send(KEY, 0, state, ids), tuple(Download(shared=s) for s in state))


@every_rule
def test_server_pools_all_groups_and_keeps_the_old_without_uploads(name):
  server = servers.weights(RULES[name])
  old = weights([1.0])
  state = server.init(KEY, groups_of(2, 1), (old, old), ())
  uploads = ({**weights([[2.0], [np.nan]]), 'count': jnp.array([3, 3])}, {**weights([[4.0]]), 'count': jnp.array([1])})
  assert_same_bits(received(server, state, uploads, (jnp.array([-1, -1]), jnp.array([-1]))), old)
  new = received(server, state, uploads, (jnp.array([0, -1]), jnp.array([2])))
  assert_same_bits(new, weights([2.5 if name == 'mean' else 3.0]))
  nobody = {**weights(np.zeros((0, 1))), 'count': jnp.zeros(0, jnp.int32)}
  alone = received(server, state, (nobody, uploads[1]), (jnp.zeros(0, jnp.int32), jnp.array([2])))
  assert_same_bits(alone, weights([4.0]))


@pytest.mark.parametrize('other', [weights([1.0, 2.0]), {**weights([1.0]), 'params': {'v': jnp.ones(1)}}])
def test_server_refuses_different_architectures(other):
  with pytest.raises(
    ValueError,
    match=r'different architectures \(g0, g1\).*equal modules, or take fedavg or fedprox with per_group=True \(in',
  ):
    servers.weights(aggregate.mean).init(KEY, groups_of(1, 1), (weights([1.0]), other), ())


# The server's optimizer.

ETA, B1, B2, TAU = 0.3, 0.9, 0.95, 1e-2
COUNTS = np.array([3, 1, 2])
SECOND = {  # Reddi et al., 2021, Algorithm 2
  'fedadagrad': lambda v, d: v + d**2,
  'fedadam': lambda v, d: B2 * v + (1 - B2) * d**2,
  'fedyogi': lambda v, d: v - (1 - B2) * d**2 * np.sign(v - d**2),
}
OPTIMIZERS = {
  'fedadagrad': optimizers.fedadagrad(ETA, B1, TAU),
  'fedadam': optimizers.fedadam(ETA, B1, B2, TAU),
  'fedyogi': optimizers.fedyogi(ETA, B1, B2, TAU),
}


def rounds_of_uploads(seed=0):
  """[rounds, clients, 4]: what the clients of each round end with."""
  return np.random.default_rng(seed).normal(size=(5, 3, 4)).astype(np.float32)


def run(server, uploads, x):
  """The server's parameters after every round."""
  state, found = server.init(KEY, groups_of(3), (weights(x),), ()), []
  receive = jax.jit(lambda t, state, up: bound(server).receive(KEY, t, state, (up,), (jnp.arange(3),))[0])
  for t, values in enumerate(uploads):
    state = receive(t, state, {**weights(values), 'count': jnp.asarray(COUNTS)})
    variables = jax.tree.map(lambda a: a[0], servers.global_model(state, 0))
    assert_close(
      variables['batch_stats']['mean'], jnp.asarray(10 * np.average(values, 0, COUNTS)), rtol=1e-5, atol=1e-5
    )
    found.append(variables['params']['w'])
  return found


@pytest.mark.parametrize('name', SECOND)
def test_adaptive_servers_are_algorithm_2(name):
  x, uploads = np.full(4, 0.5), rounds_of_uploads()
  found = run(servers.weights(tx=OPTIMIZERS[name]), uploads, x)
  m, v = np.zeros(4), np.full(4, TAU**2)
  for values, after in zip(uploads, found, strict=True):
    d = np.average(values - x, 0, COUNTS)  # the mean change
    m, v = B1 * m + (1 - B1) * d, SECOND[name](v, d)
    x = x + ETA * m / (np.sqrt(v) + TAU)
    np.testing.assert_allclose(after, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('nesterov', [False, True])
def test_sgd_with_momentum_is_fedavgm(nesterov):
  x, uploads = np.full(4, 0.5), rounds_of_uploads()
  found = run(servers.weights(tx=optax.sgd(ETA, momentum=B1, nesterov=nesterov)), uploads, x)
  v = np.zeros(4)
  for values, after in zip(uploads, found, strict=True):
    d = np.average(values - x, 0, COUNTS)
    v = B1 * v + d
    x = x + ETA * (B1 * v + d if nesterov else v)
    np.testing.assert_allclose(after, x, rtol=1e-4, atol=1e-5)


def test_sgd_of_one_is_the_mean():
  uploads = rounds_of_uploads()
  for plain, stepped in zip(
    run(servers.weights(), uploads, np.zeros(4)),
    run(servers.weights(tx=optax.sgd(1.0)), uploads, np.zeros(4)),
    strict=True,
  ):
    np.testing.assert_allclose(stepped, plain, rtol=1e-5, atol=1e-6)


def test_which_optimizers_of_optax_are_algorithm_2():
  """RMSProp without momentum is; Adam and Yogi correct a bias, Adagrad has its epsilon inside the root."""
  uploads, x = rounds_of_uploads(), np.zeros(4)
  last = lambda tx: np.asarray(run(servers.weights(tx=tx), uploads, x)[-1])
  same = optax.rmsprop(ETA, B2, eps=TAU, initial_scale=TAU**2, eps_in_sqrt=False)
  np.testing.assert_allclose(last(same), last(optimizers.fedadam(ETA, 0.0, B2, TAU)), rtol=1e-5, atol=1e-6)
  for other, ours in (
    (optax.adam(ETA, B1, B2, TAU), 'fedadam'),
    (optax.yogi(ETA, B1, B2, TAU), 'fedyogi'),
    (optax.adagrad(ETA, TAU**2, TAU), 'fedadagrad'),
  ):
    assert np.abs(last(other) - last(OPTIMIZERS[ours])).max() > 1e-2


def test_the_optimizer_steps_along_whatever_the_rule_returns():
  server = servers.weights(aggregate.median, optax.sgd(0.5))
  state = server.init(KEY, groups_of(3), (weights([0.0]),), ())
  uploads = {**weights([[1.0], [2.0], [1e6]]), 'count': jnp.asarray(COUNTS)}
  state = received(server, state, (uploads,), (jnp.arange(3),))
  assert_close(state.variables, {'params': {'w': jnp.array([1.0])}, 'batch_stats': {'mean': jnp.array([20.0])}})


def test_a_round_without_uploads_leaves_the_optimizer_alone():
  server = servers.weights(aggregate.centred_clipping(1.0), optax.adam(ETA), per_group=True)
  before = server.init(KEY, groups_of(1, 1), (weights([1.0]), weights([2.0])), ())
  up = {**weights([[5.0]]), 'count': jnp.array([2])}
  after = received(server, before, (up, up), (jnp.array([-1]), jnp.array([1])))
  assert_same_bits(after[0], before[0])
  assert int(after[1].opt[0].count) == 1
  np.testing.assert_array_equal(after[1].rule['params']['w'] > 2, [True])
  nobody = jax.tree.map(lambda a: a[:0], up)
  assert_same_bits(received(server, after, (nobody, nobody), (jnp.zeros(0, jnp.int32),) * 2), after)


def test_the_optimizer_is_told_the_round():
  update = lambda updates, state, params=None, *, round, **_: (jax.tree.map(lambda u: -round * u, updates), state)
  tx = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
  uploads = np.ones((3, 3, 1), np.float32)
  found = [float(a[0]) for a in run(servers.weights(tx=tx), uploads, np.zeros(1))]
  assert found == [0, 1, 1]  # round * (1 - x) is added: 0, 1, then there is nothing left


def test_without_an_optimizer_the_state_is_the_variables():
  """Checkpoints and checksums of runs from before the server had an optimizer."""
  old = weights([1.0])
  for rule in (*RULES.values(), None):
    server = servers.weights() if rule is None else servers.weights(rule)
    assert_same_bits(server.init(KEY, groups_of(1), (old,), ()), old)
  server = servers.weights(per_group=True)
  assert_same_bits(server.init(KEY, groups_of(1, 1), (old, old), ()), (old, old))


@pytest.mark.parametrize('per_group', [False, True])
@pytest.mark.parametrize('tx', [None, optax.sgd(1.0), optax.adam(1.0)])
@pytest.mark.parametrize('rule', [aggregate.mean, aggregate.centred_clipping(1.0)])
def test_the_global_model_is_what_is_sent(per_group, tx, rule):
  server = servers.weights(rule, tx, per_group=per_group)
  state = server.init(KEY, groups_of(1, 1), (weights([1.0]), weights([1.0])), ())
  uploads = tuple({**weights([[v]]), 'count': jnp.ones(1, jnp.int32)} for v in (2.0, 4.0))
  ids = (jnp.array([0]), jnp.array([1]))
  state = received(server, state, uploads, ids)
  downs = bound(server).send(KEY, 1, state, ids)
  for g, down in enumerate(downs):
    assert_same_bits(servers.global_model(state, g), servers.as_rows(down.shared))
