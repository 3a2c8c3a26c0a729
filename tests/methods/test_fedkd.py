"""FedKD: changes as truncated singular value decompositions; distillation weighted by how good both models are."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given

from fedkd import ledger, local, methods, models
from fedkd.methods.fedkd import confidence_weighted
from fedkd.servers.low_rank import _decomposed, compress, expand, rank, updates
from helpers import assert_close, assert_same_bits, bound
from lone_servers import KEY, groups_of
from small_nets import NARROW, Normed, in_vectors, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': 1, 'batch': 12}
ranks = jax.jit(rank)


def numbers(message):
  return sum(int(n) for n, _ in ledger.count(message).values())


def test_all_of_the_energy_is_the_matrix_itself():
  tree = {'kernel': jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 5)), jnp.float32), 'bias': jnp.arange(5.0)}
  message = compress(tree, 1.0)
  assert_close(expand(message), tree, atol=1e-5)
  assert numbers(message) == 30 + 5  # the factors would be 5 (6 + 5 + 1)


def test_the_rank_is_the_least_with_more_than_the_share():
  values = jnp.array([4.0, 3.0])
  assert [int(rank(values, t)) for t in (0.0, 0.6, 0.63, 0.64, 0.7, 1.0)] == [1, 1, 1, 2, 2, 2]
  assert int(rank(jnp.zeros(2), 0.5)) == 0


@given(st.lists(st.floats(0.01, 10), min_size=6, max_size=6), st.floats(0.0, 1.0))
def test_the_rank_is_that_of_a_twin_in_numpy(values, threshold):
  values = np.sort(np.array(values, np.float32))[::-1].copy()
  energy = np.cumsum(values.astype(float) ** 2)
  share = energy / energy[-1]
  found = int(ranks(values, threshold))
  if np.abs(share - threshold).min() > 1e-5:
    kept = 0
    while not (kept and share[kept - 1] > threshold):
      kept += 1
    assert found == kept


@pytest.mark.parametrize('shape', [(7, 4), (4, 7), (5, 5)])
def test_singular_values_and_vectors_are_numpys(shape):
  matrix = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  left, values, right = jax.jit(_decomposed)(matrix)
  np.testing.assert_allclose(values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-5)
  np.testing.assert_allclose((left.T * values) @ right, matrix, atol=1e-5)
  for vectors in (left, right):
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(min(shape)), atol=1e-5)


@pytest.mark.parametrize('threshold', [0.3, 0.95])
def test_a_change_of_rank_1_is_two_vectors_and_a_number(threshold):
  random = np.random.default_rng(0)
  matrix = np.outer(random.normal(size=8), random.normal(size=6)).astype(np.float32)
  message = compress({'params': matrix}, threshold)
  assert numbers(message) == 8 + 6 + 1
  assert_close(expand(message), {'params': matrix}, atol=1e-5)
  nothing = compress({'params': jnp.zeros((8, 6))}, threshold)
  assert numbers(nothing) == 0
  assert not np.asarray(expand(nothing)['params']).any()


@pytest.mark.parametrize('threshold', [0.3, 0.9, 0.95, 0.999999])
def test_a_kernel_is_sent_in_the_fewer_numbers_and_keeps_its_share_of_energy(threshold):
  """A convolution's kernel is a matrix [kh * kw * in, out]."""
  random = np.random.default_rng(1)
  kernel = random.normal(size=(3, 3, 2, 10)) * 0.6 ** np.arange(10)
  message = compress({'params': jnp.asarray(kernel, jnp.float32), 'bias': jnp.zeros(10)}, threshold)
  squares = np.linalg.svd(kernel.reshape(18, 10), compute_uv=False) ** 2
  r = int((np.cumsum(squares) / squares.sum() <= threshold).sum()) + 1
  assert numbers(message) == min(180, r * (18 + 10 + 1)) + 10
  left = np.linalg.norm(np.asarray(expand(message)['params']) - kernel) ** 2
  np.testing.assert_allclose(left, 0 if r * 29 >= 180 else squares[r:].sum(), rtol=1e-3, atol=1e-8)


@pytest.mark.slow
def test_without_distillation_and_compression_it_is_private_and_fedavg():
  how = {'compress': False, 'distill': False, **TURN}
  made, alone = (
    made_with(methods.fedkd(SGD, Normed(), **how)),
    made_with(methods.private(SGD, steps=None, keep_optimizer=False, **TURN)),
  )
  state, _ = made.run()
  assert_same_bits(state.client[0]['own'], alone.run()[0].client[0])
  averaged = made_with(methods.fedavg(SGD, steps=None, **TURN), net=Normed())
  expected, _ = averaged.run(state=averaged.state._replace(server=made.state.server.variables))
  assert_close(state.server.variables, expected.server)


def test_better_models_count_their_distance_more():
  distance, ce = jnp.float32(0.7), jnp.float32(0.9)
  assert float(confidence_weighted(distance, 2 * ce)) * 2 == float(confidence_weighted(distance, ce))
  assert float(confidence_weighted(distance, 0 * ce)) == pytest.approx(700)  # and not without a limit


@pytest.mark.parametrize('form', ['code', 'paper'])
def test_one_round_is_that_of_a_twin_in_numpy(form):
  """One client, one step on all its rows; nothing truncated."""
  made = made_with(methods.fedkd(optax.sgd(0.1), NARROW, compress=False, form=form, **TURN), clients=1, rounds=1)
  rows = np.arange(12)
  x, y = (a[rows] for a in in_vectors(made))
  to = lambda tree: jax.tree.map(lambda a: np.asarray(a, float), tree)
  own = to(jax.tree.map(lambda a: a[0], made.state.client[0]['own'].params))['net']
  link = np.asarray(made.state.client[0]['link'].params['kernel'][0], float)
  common = to(made.state.server.variables['params'])['net']
  soft = lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)
  layer = lambda net, name, v: v @ net[name]['kernel'] + net[name]['bias']
  f, g = (np.maximum(layer(net, 'layers_0', x), 0) for net in (own, common))
  p, q = soft(layer(own, 'output', f)), soft(layer(common, 'output', g))
  ce = [-np.log(r[range(12), y]).mean() for r in (p, q)]
  away, total = f - g @ link, sum(ce)
  kl = lambda r, s: (r * np.log(r / s)).sum(-1, keepdims=True)
  flows, per = (0, 1) if form == 'paper' else (1, 3)  # whether gradients flow into what is fixed; of three classes
  mutual = (kl(q, p) + kl(p, q)).mean() / per + 2 * (away**2).mean()
  to_logits = lambda r, s: (r - s + flows * r * (np.log(r / s) - kl(r, s))) / per  # from both divergences
  to_ce = 1 - flows * mutual / total**2
  slope = [((r - np.eye(3)[y]) * to_ce + to_logits(r, s) / total) / 12 for r, s in ((p, q), (q, p))]
  pull = (2 + 2 * flows) * away / away.size / total  # of the mean square, on either side
  into_f = slope[0] @ own['output']['kernel'].T + pull
  into_g = slope[1] @ common['output']['kernel'].T - pull @ link.T
  state, report = made.run()
  after = jax.tree.map(lambda a: a[0], state.client[0])
  close = lambda found, old, gradient: np.testing.assert_allclose(found, old - 0.1 * gradient, rtol=1e-4, atol=1e-6)
  close(after['own'].params['net']['output']['kernel'], own['output']['kernel'], f.T @ slope[0])
  close(after['own'].params['net']['layers_0']['kernel'], own['layers_0']['kernel'], x.T @ (into_f * (f > 0)))
  close(after['link'].params['kernel'], link, -g.T @ pull)
  found = state.server.variables['params']['net']['layers_0']['kernel']
  close(found, common['layers_0']['kernel'], x.T @ (into_g * (g > 0)))
  info = {name: float(np.ravel(value)[0]) for name, value in report.info[0].items()}
  np.testing.assert_allclose(
    [info['loss'], info['common_loss'], info['distill_loss']], [*ce, mutual / sum(ce)], rtol=1e-4
  )


def test_with_its_optimizers_kept_two_rounds_are_one_of_two_passes():
  """One client, all of its rows in a batch: of both models and the matrix, with a memory that begins at the weights."""
  ends, tx = {}, optax.contrib.schedule_free_sgd(0.1)
  for rounds, epochs, keep in ((2, 1, True), (1, 2, False)):
    method = methods.fedkd(tx, NARROW, epochs, batch=12, compress=False, keep_optimizer=keep)
    state, _ = made_with(method, clients=1, rounds=rounds).run()
    own = state.client[0]
    ends[rounds] = local.variables(own['own']), own['link'].params, own['common'].opt, state.server.variables
  assert_close(ends[2], ends[1], rtol=1e-4)


def test_matrices_start_from_one():
  kernel = made_with(methods.fedkd(SGD, NARROW)).state.client[0]['link'].params['kernel']
  assert kernel.shape == (3, 4, 5)
  assert_same_bits(kernel, jnp.broadcast_to(kernel[:1], kernel.shape))


@pytest.mark.slow
def test_who_was_there_needs_the_change_alone_and_all_end_with_the_same_common_model():
  method = methods.fedkd(SGD, NARROW, rounds=4, **TURN)
  made = made_with(method, participants=[[0, 1], [0, 1], [0, 2], [-1, -1], [0, 1]])
  state, downs = made.state, []
  for t in range(5):
    before = state.server.variables
    state, report = made.run(1, state, t, length=1)
    downs.append([int(n) for n in report.down[0]['weights'][0][0]])
    for client in made.plan.participants[0][t]:
      if client >= 0:
        assert_close(
          jax.tree.map(lambda a, c=client: a[c], local.variables(state.client[0]['common'])),
          before,
          rtol=1e-6,
          atol=1e-6,
        )
    if t == 3:
      assert_same_bits(state.server.variables, before)
  whole, vectors = 36 * 4 + 4 + 4 * 3 + 3, 4 + 3
  assert downs[0] == [whole, whole]  # everybody at first
  assert [down < whole for down in downs[1]] == [True, True]
  sent = {vectors + min(36 * 4, r * 41) + min(12, s * 8) for r in range(5) for s in range(4)}  # ranks r and s
  assert set(downs[1]) <= sent
  assert (downs[2][0] < whole, downs[2][1]) == (True, whole)  # client 2 was not there
  assert (downs[4][0] < whole, downs[4][1]) == (True, whole)  # a round with nobody changes nothing


def test_the_share_of_the_energy_that_is_kept_rises_in_equal_steps_and_stays():
  """Of a change whose squared singular values are 0.4, 0.3, 0.2 and 0.1; at 0.35, 0.6, 0.85 and, ever after, 0.85."""
  server = methods.fedkd(SGD, NARROW, start=0.35, end=0.85, rounds=10, compress=True).server
  random = np.random.default_rng(0)
  left, right = (np.linalg.qr(random.normal(size=(n, 4)))[0] for n in (36, 4))
  kernel = jnp.asarray(left * np.sqrt([0.4, 0.3, 0.2, 0.1]) @ right.T, jnp.float32)
  state = updates(lambda tree, t: compress(tree, 1.0)).init(KEY, groups_of(1), ({'w': 0 * kernel},), ())
  upload = {'update': {'w': kernel[None]}, 'count': jnp.array([1]), 'index': jnp.array([0])}
  receive = jax.jit(lambda t: bound(server).receive(KEY, t, state, (upload,), (jnp.arange(1),))[0])
  assert [int(receive(t).update['w'].scale.valid.sum()) for t in (0, 5, 10, 30)] == [1, 2, 3, 3]


def test_features_that_are_no_vectors_are_not_matched():
  maps = models.GKTClient(channels=4, classes=3)
  with pytest.raises(ValueError, match=r'features of GKTClient have shape \(.*\), not \[width\]'):
    made_with(methods.fedkd(SGD, NARROW), net=maps)


def test_an_unknown_form_is_refused():
  with pytest.raises(ValueError, match=r"form='book' is unknown; choose one of code, paper"):
    methods.fedkd(SGD, NARROW, form='book')
