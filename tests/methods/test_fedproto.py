"""FedProto: prototypes are means of the last pass, pull the features of their class, and predict."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import analysis, evaluation, ledger, methods, models, plan
from fedkd.methods.fedproto import nearest
from fedkd.types import State
from helpers import assert_same_bits, bound, problem, softmax
from lone_servers import KEY, uploads_of
from small_nets import NET, PARTS, in_vectors, made_with

WIDTH, RATE, WEIGHT = NET.hidden[0], 0.1, 3.0
SGD = optax.sgd(RATE)


@pytest.mark.slow
def test_without_its_weight_it_is_private():
  turn = {'steps': None, 'epochs': 1, 'batch': 4}
  proto, alone = methods.fedproto(SGD, weight=0.0, **turn), methods.private(SGD, keep_optimizer=False, **turn)
  assert_same_bits(made_with(proto).run()[0].client[0].learner, made_with(alone).run()[0].client[0])


def in_numpy(made, rounds, passes, counts):
  """Three clients in float64: weights of a client, what it uploads, losses, and features of the pool."""
  x, label = in_vectors(made)
  net = made.state.client[0].learner.params['net']
  pick = lambda layer, k: [np.array(net[layer][name][k], float) for name in ('kernel', 'bias')]
  clients, known, losses = [[*pick('layers_0', k), *pick('output', k)] for k in range(len(PARTS))], {}, []
  for _ in range(rounds):
    uploads = []
    for k, rows in enumerate(PARTS):
      loss = 0.0
      for _ in range(passes):
        w, b, v, c = clients[k]
        raw = x[rows] @ w + b
        f = np.maximum(raw, 0)
        z, y = f @ v + c, label[rows]
        collected = {cl: f[y == cl] for cl in set(y.tolist())}  # before the step
        away = np.array([f[i] - known[cl] if cl in known else 0 * f[i] for i, cl in enumerate(y)])
        loss += (-np.log(softmax(z)[range(len(y)), y]).mean() + WEIGHT * (away**2).mean()) / passes
        dz = (softmax(z) - np.eye(3)[y]) / len(y)
        df = (dz @ v.T + WEIGHT * 2 * away / away.size) * (raw > 0)
        steps = x[rows].T @ df, df.sum(0), f.T @ dz, dz.sum(0)
        clients[k] = [a - RATE * d for a, d in zip(clients[k], steps, strict=True)]
      uploads.append({cl: (found.mean(0), len(found)) for cl, found in collected.items()})
      losses.append(loss)
    known = {}
    for cl in range(3):
      sent = [up[cl] for up in uploads if cl in up]
      known[cl] = np.average([mean for mean, _ in sent], 0, [n if counts else 1 for _, n in sent])
  features = [np.maximum(x @ w + b, 0) for w, b, _, _ in clients]
  return clients, known, losses, features


@pytest.mark.parametrize('average', ['uniform', 'counts'])
def test_three_rounds_are_those_of_a_twin_in_numpy(average):
  how = {'epochs': 2, 'batch': 12, 'weight': WEIGHT, 'average': average}
  made = made_with(methods.fedproto(SGD, **how), rounds=3)
  clients, known, losses, features = in_numpy(made, 3, 2, average == 'counts')
  state, report = made.run()
  net = state.client[0].learner.params['net']
  for k, (w, _, _, c) in enumerate(clients):
    np.testing.assert_allclose(net['layers_0']['kernel'][k], w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net['output']['bias'][k], c, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(np.ravel(report.info[0]['loss']), losses, rtol=1e-4)
  assert np.asarray(report.info[0]['distance'])[1:].min() > 1e-3  # it mattered
  sent = made.server.send(KEY, 3, state.server, ((),))[0].shared['knowledge']
  np.testing.assert_allclose(sent.value, [known[c] for c in range(3)], rtol=1e-4)
  # C_k (d + 1) numbers up, C_known (d + 1) down from the second round on; counts are one more up.
  numbers = lambda counts: sum(n for n, _ in ledger.total(counts).values())
  assert numbers(report.up) == 3 * (3 + 2 + 1) * (WIDTH + 1 + (average == 'counts'))
  assert numbers(report.down) == 2 * 3 * 3 * (WIDTH + 1)
  # The nearest prototype among the client's own classes, and among all.
  image, label = made.data[0].pool
  find = lambda ways: evaluation.correct_predictions(
    made.method, made.groups, state, image, label, [range(3)], predict=ways
  )
  found = jax.jit(lambda: find(evaluation.predictions(made.method))[0])()
  for k, own in enumerate([[0, 1, 2], [0, 2], [1]]):
    for name, classes in (('prototypes_own', own), ('prototypes_known', [0, 1, 2])):
      away = np.array([((features[k] - known[c]) ** 2).sum(-1) for c in classes])
      np.testing.assert_array_equal(found[name][k], np.array(classes)[away.argmin(0)] == label)


def test_the_nearest_prototype_is_a_linear_head():
  random = np.random.default_rng(0)
  f, p, own = random.normal(size=(20, 4)), random.normal(size=(3, 4)), np.array([True, False, True])
  linear = f @ p.T - 0.5 * (p**2).sum(-1)
  scores = nearest(jnp.asarray(f), jnp.asarray(p), jnp.ones(3, bool), jnp.zeros((20, 3)))
  same = np.asarray(scores) * 4 / 2 - linear  # the same number for every class
  np.testing.assert_allclose(same, np.broadcast_to(same[:, :1], same.shape), atol=1e-5)
  masked = nearest(jnp.asarray(f), jnp.full((3, 4), jnp.nan).at[::2].set(p[::2]), jnp.asarray(own), jnp.zeros((20, 3)))
  np.testing.assert_array_equal(masked.argmax(-1), np.where(own, linear, -np.inf).argmax(-1))
  head = random.normal(size=(20, 3))
  np.testing.assert_array_equal(nearest(f, p, jnp.zeros(3, bool), head).argmax(-1), head.argmax(-1))


@pytest.mark.parametrize('memory', ['round', 'latest'])
def test_one_client_receives_its_own_prototypes(memory):
  server = methods.fedproto(SGD, memory=memory).server
  made = made_with(methods.fedproto(SGD, memory=memory), 1, 1)
  state = made.state.server
  value = np.random.default_rng(0).normal(size=(1, 3, WIDTH)).astype(np.float32)
  receive, send = jax.jit(bound(server).receive), jax.jit(bound(server).send)
  state, _ = receive(KEY, 0, state, (uploads_of(value, [[True, False, True]]),), (jnp.array([0]),))
  sent = send(KEY, 1, state, ((),))[0].shared['knowledge']
  assert sent.valid.tolist() == [True, False, True]
  assert_same_bits(np.asarray(sent.value)[::2], value[0, ::2])
  state, _ = receive(KEY, 1, state, (uploads_of(value, np.zeros((1, 3), bool)),), (jnp.array([0]),))
  gone = send(KEY, 2, state, ((),))[0].shared['knowledge'].valid
  assert gone.any() == (memory == 'latest')


def test_before_any_prototype_is_known_the_head_decides():
  made = made_with(methods.fedproto(SGD))
  rows = [np.arange(3)]
  ways = {'prototypes': dict(made.method.predictions)['prototypes_own'], 'head': made.method.predict}
  found = evaluation.correct_predictions(
    made.method, made.groups, State(made.state.client, made.state.server), *made.data[0].pool, rows, predict=ways
  )[0]
  np.testing.assert_array_equal(found['prototypes'], found['head'])


def test_which_prediction_comes_first_is_chosen():
  names = lambda **how: [name for name, _ in methods.fedproto(SGD, **how).predictions]
  assert names() == ['prototypes_own', 'prototypes_known']
  assert names(inference='prototypes') == ['prototypes_known', 'head']
  assert names(inference='prototypes', candidates='known') == ['prototypes_own', 'head']


def test_what_the_published_evaluation_prints():
  (head, head_spread), (proto, proto_spread) = analysis.published([7], [9], [10])
  assert (head, head_spread, proto, proto_spread) == (0.7, 0.0, 0.8, 0.0)
  users, a, b, t = 5, 30, 36, 40
  (head, spread), (proto, none) = analysis.published([a] * users, [b] * users, [t] * users)
  of_user = [(i * (a + b) + a) / ((2 * i + 1) * t) for i in range(users)]
  np.testing.assert_allclose((head, spread, proto), (np.mean(of_user), np.std(of_user), (a + b) / (2 * t)))
  assert none == pytest.approx(0, abs=1e-12)
  # As the code counts, user by user.
  h, q, t = [3, 9, 6], [4, 8, 9], [10, 12, 11]
  hits = total = 0
  shown = []
  for i in range(3):
    hits, total = hits + h[i], total + t[i]
    shown.append([hits / total])
    hits, total = hits + q[i], total + t[i]
    shown[-1].append(hits / total)
  for found, values in zip(analysis.published(h, q, t), np.transpose(shown), strict=True):
    np.testing.assert_allclose(found, (values.mean(), values.std()))


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'average': 'median'}, r"average='median' is unknown; choose one of uniform, counts"),
    ({'memory': 'all'}, r"memory='all' is unknown; choose one of round, latest"),
    ({'inference': 'logits'}, r"inference='logits' is unknown; choose one of head, prototypes"),
    ({'candidates': 'all'}, r"candidates='all' is unknown; choose one of own, known"),
    ({'weight': -1.0}, r'weight=-1.0 must be .*at least 0'),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.fedproto(SGD, **wrong)


def test_features_of_different_widths_are_refused():
  nets = [NET, models.MLP((4,), classes=3)]
  with pytest.raises(ValueError, match=r'features differ in width \(g0: 5, g1: 4\); give them a projection'):
    problem(methods.fedproto(SGD), nets, [1, 1], plan.synchronous()([1, 1], 1), PARTS[:2])
