import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, local, methods, models, plan, servers
from fedkd.methods.fedavg import with_statistics
from fedkd.types import Client, Method, State
from helpers import assert_close, assert_same_bits, bound, pool, problem, row, split
from lone_servers import KEY, groups_of, weights
from small_nets import made_with

NET, OTHER = models.MLP((8,), classes=3), models.MLP((5,), classes=3)
SGD, MOMENTUM = optax.sgd(0.1), optax.sgd(0.1, momentum=0.9)
STEPS, BATCH = 2, 6


def trained_alone(made, t, variables, g=0, opts=None, tx=SGD):
  """The learners of group g after local training from `variables` in round t, client by client."""
  data, group = made.data[g], made.groups[g]
  key_client = jax.random.split(jax.random.fold_in(made.key, t), 3)[1]
  loss_fn = local.supervised(group.model, data.pool)

  @jax.jit
  def one(key, mine, learner):
    return local.fit(key, learner, tx, loss_fn, mine, local.Work(BATCH, STEPS))[0]

  learners = []
  for r, client in enumerate(group.ids):
    learner = local.start(variables, tx)
    learner = learner if opts is None else learner._replace(opt=opts[r])
    learners.append(one(jax.random.fold_in(key_client, client), row(data.private, r), learner))
  return learners


def averaged(learners, weight):
  """The mean of the learners' variables, in NumPy."""
  trees = [local.variables(learner) for learner in learners]
  return jax.tree.map(lambda *a: np.average(np.stack(a).astype(np.float64), 0, weight), *trees)


def test_ones_own_statistics_neither_travel_nor_are_averaged():
  """With a client that adds 1 to all that it has."""
  more = lambda key, t, model, state, down, n: ((), {**jax.tree.map(lambda a: a + 1, down.shared), 'count': n}, {})
  global_model = lambda state, g: servers.global_model(state.server, g)
  made = with_statistics(Method(Client(lambda *_: (), more), servers.weights(), global_model), 'own')
  server = made.server.init(KEY, groups_of(2), (weights(1.0),), ())
  down, ids = bound(made.server).send(KEY, 0, server, (jnp.arange(2),))[0], (jnp.arange(2),)
  assert not down.shared['batch_stats']
  first = [made.client.init(KEY, None, None, {**weights(1.0), 'batch_stats': {'mean': jnp.float32(m)}}) for m in (5, 7)]
  turns = [made.client.step(KEY, 0, None, state, down, jnp.int32(n)) for state, n in zip(first, (1, 3), strict=True)]
  states, uploads = (jax.tree.map(lambda *a: jnp.stack(a), *part) for part in list(zip(*turns, strict=True))[:2])
  assert not uploads['batch_stats']
  server, _ = bound(made.server).receive(KEY, 0, server, (uploads,), ids)
  expected = {'params': {'w': np.full(2, 2.0)}, 'batch_stats': {'mean': np.array([6.0, 8.0])}}
  assert_close(made.variables(State((states,), server), 0), expected)


@pytest.mark.parametrize('keep', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_server_holds_the_weighted_mean_of_locally_trained_models(keep):
  method = methods.fedavg(MOMENTUM, steps=STEPS, batch=BATCH, keep_optimizer=keep)
  made = problem(method, [NET], [3], plan.synchronous()([3], 3))
  sizes = [len(part) for part in split(3)]
  assert len(set(sizes)) == 3  # n_k-weighted is not the plain mean
  opts = [row(made.state.client[0], r) for r in range(3)] if keep else None
  variables = made.state.server
  for t in range(3):
    learners = trained_alone(made, t, variables, opts=opts, tx=MOMENTUM)
    variables = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), averaged(learners, sizes))
    opts = [learner.opt for learner in learners] if keep else None
  state, _ = made.run()
  assert_close(state.server, variables)
  if keep:
    assert_close(state.client[0], jax.tree.map(lambda *a: jnp.stack(a), *opts))
  else:
    assert state.client == ((),)


@pytest.mark.slow
def test_batch_norm_statistics_are_averaged_too():
  method = methods.fedavg(SGD, steps=STEPS, batch=BATCH)
  net = models.ThreeConv((4, 4, 4), classes=3)
  made = problem(method, [net], [2], plan.synchronous()([2], 1), images=pool(12))
  state, _ = made.run()
  expected = averaged(trained_alone(made, 0, made.state.server), [len(part) for part in split(2)])
  assert_close(state.server['batch_stats'], expected['batch_stats'], rtol=1e-4)
  assert len(jax.tree.leaves(state.server['batch_stats'])) == 6


def test_only_those_who_spoke_are_averaged():
  method = methods.fedavg(SGD, steps=STEPS, batch=BATCH)
  made = problem(method, [NET], [4], plan.Plan((np.array([[1, 3, -1]], np.int32),)))
  learners = trained_alone(made, 0, made.state.server)
  sizes = [len(part) for part in split(4)]
  state, _ = made.run()
  assert_close(state.server, averaged([learners[1], learners[3]], [sizes[1], sizes[3]]))


def test_the_median_rule():
  method = methods.fedavg(SGD, steps=STEPS, batch=BATCH, rule=aggregate.median)
  made = problem(method, [NET], [3], plan.synchronous()([3], 1))
  trees = [local.variables(learner) for learner in trained_alone(made, 0, made.state.server)]
  state, _ = made.run()
  assert_close(state.server, jax.tree.map(lambda *a: np.median(np.stack(a), 0), *trees))


@pytest.mark.slow
def test_a_server_with_momentum_is_fedavgm():
  method = methods.fedavg(SGD, steps=STEPS, batch=BATCH, server_tx=optax.sgd(0.5, momentum=0.9))
  made = problem(method, [models.TwoConv((2, 2), classes=3)], [2], plan.synchronous()([2], 2), images=pool(12))
  sizes = [len(part) for part in split(2)]
  variables = made.state.server.variables
  velocity = jax.tree.map(jnp.zeros_like, variables['params'])
  for t in range(2):
    mean = averaged(trained_alone(made, t, variables), sizes)
    velocity = jax.tree.map(lambda v, new, old: 0.9 * v + (new - old), velocity, mean['params'], variables['params'])
    params = jax.tree.map(lambda old, v: jnp.asarray(old + 0.5 * v, jnp.float32), variables['params'], velocity)
    statistics = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), mean['batch_stats'])  # replaced, not stepped
    variables = {'params': params, 'batch_stats': statistics}
  state, _ = made.run()
  assert_close(state.server.variables, variables, rtol=1e-3, atol=1e-5)
  assert_same_bits(method.variables(state, 0), jax.tree.map(lambda a: a[None], state.server.variables))


@pytest.mark.slow
def test_per_group_is_separate_runs():
  method = methods.fedavg(SGD, steps=STEPS, batch=BATCH, per_group=True)
  both = plan.sampled(ratio=0.6)([2, 3], 4)
  made = problem(method, [NET, OTHER], [2, 3], both)
  state, _ = made.run()
  for g in range(2):
    one = made._replace(
      groups=made.groups[g : g + 1],
      data=made.data[g : g + 1],
      plan=plan.Plan(both.participants[g : g + 1]),
      state=State(made.state.client[g : g + 1], made.state.server[g : g + 1]),
      programs={},
    )
    alone, _ = one.run()
    assert_same_bits(alone.server[0], state.server[g])


@pytest.mark.slow
def test_one_group_per_group_is_fedavg():
  states = []
  for per_group in (False, True):
    method = methods.fedavg(SGD, steps=STEPS, batch=BATCH, per_group=per_group)
    states.append(problem(method, [NET], [3], plan.sampled(ratio=0.7)([3], 3)).run()[0].server)
  assert_same_bits(states[1], (states[0],))


def test_one_client_is_local_training():
  fedavg = problem(methods.fedavg(SGD, steps=STEPS, batch=BATCH), [NET], [1], plan.synchronous()([1], 4))
  alone = problem(methods.private(SGD, steps=STEPS, batch=BATCH), [NET], [1], plan.synchronous()([1], 4))
  (state, report), (expected, expected_report) = fedavg.run(), alone.run()
  assert_same_bits(state.server, local.variables(row(expected.client[0], 0)))
  assert_close(report.info, expected_report.info)


def test_different_architectures_are_refused_with_the_way_out():
  with pytest.raises(ValueError, match=r'different architectures \(g0, g1\).*method.per_group=True'):
    problem(methods.fedavg(SGD), [NET, OTHER], [1, 1], plan.synchronous()([1, 1], 1))


def test_messages_are_the_model_and_the_number_of_examples():
  made = problem(methods.fedavg(SGD, steps=STEPS, batch=BATCH), [NET], [3], plan.Plan((np.array([[0, 2]], np.int32),)))
  _, report = made.run()
  weights = 36 * 8 + 8 + 8 * 3 + 3
  up = {k: [int(v) for v in n[0]] for k, (n, _) in report.up[0].items()}
  assert up == {'weights': [weights] * 2, 'labels': [1] * 2}
  assert {k: [int(v) for v in b[0]] for k, (_, b) in report.down[0].items()} == {'weights': [4 * weights] * 2}


def test_an_ensemble_adds_up_the_logits_of_what_was_uploaded():
  """Client 2 is absent, and counts with what the others began with."""
  made, plain = (
    made_with(methods.fedavg(optax.sgd(0.5), steps=1, batch=4, ensemble=ensemble), participants=[[0, 1]])
    for ensemble in (True, False)
  )
  state, other = made.run()[0], plain.run()[0]
  assert_same_bits(state.server.server, other.server)
  begin = jax.tree.map(np.asarray, made.state.server.server)
  assert_same_bits(jax.tree.map(lambda a: np.asarray(a[2]), state.server.uploads), begin)
  average = jax.tree.map(lambda a: np.average(a[:2], 0, [12, 6]), state.server.uploads)
  assert_close(average, state.server.server, atol=1e-5)
  model, image = made.groups[0].model, made.data[0].pool.example
  logits = sum(model.apply(jax.tree.map(lambda a, k=k: a[k], state.server.uploads), image, False)[0] for k in range(3))
  predict = dict(made.method.predictions)['ensemble']
  np.testing.assert_allclose(predict(model, begin, state.server, image), logits, rtol=1e-5, atol=1e-5)


def test_an_ensemble_of_several_architectures_is_refused():
  with pytest.raises(ValueError, match=r'ensemble=True adds up the logits of all clients; set per_group=False'):
    methods.fedavg(optax.sgd(0.5), ensemble=True, per_group=True)
