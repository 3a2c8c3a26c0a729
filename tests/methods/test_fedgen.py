"""FedGen: a generator of features that clients' heads teach, and on which clients train their heads."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, optimizers, plan
from fedkd.models.base import Classifier
from fedkd.models.generator import NOISE, FeatureGenerator
from fedkd.models.torch_layers import TorchDense
from fedkd.servers import layer_subset
from fedkd.servers.feature_generator import diversity, draw, ensemble_loss
from helpers import assert_close, assert_same_bits, cases, problem, softmax
from small_nets import NET, PARTS, Normed, made_with

SGD = optax.sgd(0.1)
TURN = {'steps': 2, 'batch': 4}
SMALL = {'hidden': 6, 'server_steps': 2, 'server_batch': 8, 'generated': 4}
RANDOM = np.random.default_rng(0)


@pytest.mark.slow
def test_without_its_weights_it_is_fedavg_and_so_is_feddistill_plus():
  ours = methods.fedgen(SGD, alpha=0.0, beta=0.0, **TURN, **SMALL), methods.fedavg(SGD, statistics='own', **TURN)
  ours += (methods.fd(SGD, gamma=0.0, share_weights=True, share='net', keep_optimizer=False, **TURN),)
  one, *others = (m.variables(made_with(m, net=Normed()).run()[0], 0) for m in ours)
  for other in others:
    assert_same_bits(one, other)


@pytest.mark.slow
def test_of_heads_alone_without_its_weights_it_is_lg_fedavg():
  ours = methods.fedgen(SGD, alpha=0.0, beta=0.0, share='head', **TURN, **SMALL)
  theirs = methods.lg_fedavg(SGD, epochs=None, **TURN)
  distilled = methods.fd(SGD, gamma=0.0, share_weights=True, share='head', keep_optimizer=False, **TURN)
  one, *others = (m.variables(made_with(m).run()[0], 0) for m in (ours, theirs, distilled))
  for other in others:
    assert_same_bits(one, other)


def test_the_generators_have_the_published_numbers_of_weights():
  for classes, weights in ((10, 19_744), (26, 23_840)):
    shapes = jax.eval_shape(
      lambda classes=classes: FeatureGenerator(32, classes).init(
        jax.random.key(0), jnp.zeros((1, NOISE)), jnp.zeros(1, int), False
      )
    )
    count = lambda tree: sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))
    assert (count(shapes['params']), count(shapes['batch_stats'])) == (weights, 512)


def test_alike_features_have_the_largest_diversity_term():
  noise = jnp.asarray(RANDOM.normal(size=(4, 3)))
  assert float(diversity(noise, jnp.ones((4, 2)))) == 1
  feature = RANDOM.normal(size=(4, 2))
  pairs = [
    -((np.asarray(noise)[i] - np.asarray(noise)[j]) ** 2).mean() * np.abs(feature[i] - feature[j]).mean()
    for i in range(4)
    for j in range(4)
  ]
  np.testing.assert_allclose(diversity(noise, jnp.asarray(feature)), np.exp(np.mean(pairs)), rtol=1e-5)


def test_heads_teach_by_their_share_of_a_class():
  kernel, bias, feature = RANDOM.normal(size=(3, 5, 4)), RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(6, 5))
  label, counts = np.array([0, 1, 2, 3, 1, 1]), RANDOM.integers(1, 9, (3, 4)).astype(float)
  counts[1] = 0  # an empty slot, whatever its head
  share = counts / counts.sum(0)
  np.testing.assert_allclose(share.sum(0), 1)
  logits = feature @ kernel + bias[:, None]  # [heads, B, C]
  ce = -np.log(softmax(logits)[:, range(6), label])
  given = jax.tree.map(jnp.asarray, ((np.where(counts[:, :1, None] > 0, kernel, np.nan), bias), share, feature, label))
  np.testing.assert_allclose(ensemble_loss(*given, 'losses'), (share[:, label] * ce).sum(0).mean(), rtol=1e-5)
  mean = -np.log(softmax(logits[[0, 2]].mean(0))[range(6), label]).mean()
  np.testing.assert_allclose(ensemble_loss(*given, 'logits'), mean, rtol=1e-5)
  alone = jax.tree.map(lambda a: jnp.asarray(a[:1]), (kernel, bias)), jnp.ones((1, 4)), *given[2:]
  for ensemble in ('losses', 'logits'):
    np.testing.assert_allclose(ensemble_loss(*alone, ensemble), ce[0].mean(), rtol=1e-5)


def uploads_for(made, counts):
  """Uploads of three clients with random heads, and their arrays."""
  kernel, bias = RANDOM.normal(size=(3, 5, 3)), RANDOM.normal(size=(3, 3))
  params = layer_subset.global_part(made.state.server.weights, 0)['params']
  heads = {path: kernel if leaf.ndim == 2 else bias for path, leaf in params.items()}
  weights = {'params': jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), heads), 'batch_stats': {}}
  return {'weights': {**weights, 'count': jnp.array([3, 2, 1])}, 'label': jnp.asarray(counts)}, kernel, bias


@pytest.mark.parametrize('ensemble', ['losses', 'logits'])
def test_one_step_of_the_generator_is_that_of_a_twin_in_numpy(ensemble, monkeypatch):
  """Plain gradient descent in place of Adam, whose first step only sees the signs of a gradient."""
  monkeypatch.setattr(optimizers, 'adam', lambda rate, decay: optax.sgd(rate))
  how = {**SMALL, 'server_steps': 1, 'server_rate': 0.5, 'server_decay': 1.0, 'eta': 0.7, 'ensemble': ensemble}
  made = made_with(methods.fedgen(SGD, share='head', **TURN, **how))
  counts = np.array([[5, 1, 3], [2, 1, 1], [9, 9, 9]])
  uploads, kernel, bias = uploads_for(made, counts)
  key, slots = jax.random.key(5), jnp.array([0, 1, -1])  # the third slot is empty: class 1 has nobody
  state, info = made.server.receive(key, jnp.int32(0), made.state.server, (uploads,), (slots,))
  assert np.asarray(state.known).tolist() == [True, False, True]
  # What `local.fit` and the loss draw.
  key_label, key_noise = jax.random.split(jax.random.split(jax.random.fold_in(key, 0))[1])
  y = np.asarray(draw(key_label, jnp.array([True, False, True]), 8))
  eps = np.asarray(jax.random.uniform(key_noise, (8, NOISE)), float)
  assert set(y.tolist()) <= {0, 2}
  to = lambda tree: jax.tree.map(lambda a: np.asarray(a, float), tree)
  first = to(made.state.server.generator['params'])
  dense = [first[f'TorchDense_{i}']['Dense_0'] for i in range(2)]
  scale, shift = (next(iter(v for k, v in first.items() if 'Norm' in k))[name] for name in ('scale', 'bias'))
  # Forward.
  x = np.concatenate([eps, np.eye(3)[y]], 1)
  a = x @ dense[0]['kernel'] + dense[0]['bias']
  deviation = np.sqrt(a.var(0) + 1e-5)
  normed = (a - a.mean(0)) / deviation
  raw = normed * scale + shift
  z = np.maximum(raw, 0) @ dense[1]['kernel'] + dense[1]['bias']
  present = counts[:2].astype(float)
  share = present / present.sum(0)
  logits = z @ kernel[:2] + bias[:2, None]
  if ensemble == 'losses':
    fit = (share[:, y] * -np.log(softmax(logits)[:, range(8), y])).sum(0).mean()
    dz = np.einsum('kb,kbc,kdc->bd', share[:, y], softmax(logits) - np.eye(3)[y], kernel[:2]) / 8
  else:
    p = softmax(logits.mean(0))
    fit = -np.log(p[range(8), y]).mean()
    dz = (p - np.eye(3)[y]) @ kernel[:2].mean(0).T / 8
  apart = ((eps[:, None] - eps) ** 2).mean(-1)
  spread = np.exp(-(apart * np.abs(z[:, None] - z).mean(-1)).mean())
  dz += 0.7 * spread * -2 * (apart[..., None] * np.sign(z[:, None] - z)).sum(1) / (64 * 5)
  # Backward.
  draw_back = dz @ dense[1]['kernel'].T * (raw > 0)
  dn = draw_back * scale
  da = (dn - dn.mean(0) - normed * (dn * normed).mean(0)) / deviation
  expected = {
    'TorchDense_0': {'Dense_0': {'kernel': x.T @ da, 'bias': da.sum(0)}},
    'TorchDense_1': {'Dense_0': {'kernel': np.maximum(raw, 0).T @ dz, 'bias': dz.sum(0)}},
  }
  for layer, slopes in expected.items():
    for name, slope in slopes['Dense_0'].items():
      found = state.generator['params'][layer]['Dense_0'][name]
      np.testing.assert_allclose(found, first[layer]['Dense_0'][name] - 0.5 * slope, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose([info['generator_loss'], info['generator_diversity']], [fit, spread], rtol=1e-4)


@pytest.mark.parametrize('share', cases(['all', 'head'], fast=['head']))
def test_messages_are_the_weights_the_generator_and_the_labels(share):
  made = made_with(methods.fedgen(SGD, share=share, **TURN, **SMALL))
  state, report = made.run()
  weights = 5 * 3 + 3 + (36 * 5 + 5 if share == 'all' else 0)
  generator = (NOISE + 3) * 6 + 6 + 2 * 6 + 6 * 5 + 5
  assert ledger.total(report.up) == {'labels': (6 * 4, 4 * 24), 'weights': (6 * weights, 24 * weights)}
  down = ledger.total(report.down)
  assert {kind: numbers for kind, (numbers, _) in down.items()} == {
    **{'labels': 6 * 3, 'statistics': 6 * 12, 'weights': 6 * (weights + generator)}
  }
  info = report.info[0]
  assert np.isfinite(np.asarray(info['generated_loss'])).all()
  assert np.asarray(state.server.known).all()


@pytest.mark.slow
def test_before_the_generator_is_taught_clients_ignore_it_and_labels_are_counted():
  made, plain = (
    made_with(methods.fedgen(SGD, **TURN, **SMALL), rounds=1),
    made_with(methods.fedavg(SGD, **TURN), rounds=1),
  )
  one, other = made.run(), plain.run()
  assert_close(one[1].info[0]['loss'], other[1].info[0]['loss'])
  assert_close(jax.tree.map(lambda a: a[:1], made.method.variables(one[0], 0)), plain.method.variables(other[0], 0))


def test_a_round_with_nobody_teaches_nothing():
  made = made_with(methods.fedgen(SGD, **TURN, **SMALL), participants=[[0, 1, 2], [-1, -1, -1]])
  before, _ = made.run(1, length=1)
  after, report = made.run(1, before, 1, length=1)
  assert_same_bits(after, before)
  assert np.isnan(np.asarray(report.server['generator_loss'])).all()


class Mapped(Classifier):
  """A linear layer on the mean of a map of features."""

  classes: int = 3

  def setup(self):
    self.output = TorchDense(self.classes)

  def features(self, x, train):
    return x

  def head(self, f):
    return self.output(jnp.mean(f, (1, 2)))


def test_features_that_are_no_vectors_are_not_generated():
  with pytest.raises(ValueError, match=r'features of Mapped have shape \(6, 6, 1\), not \[width\]'):
    made_with(methods.fedgen(SGD, **TURN, **SMALL), net=Mapped())


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r"ensemble='votes' is unknown; choose one of losses, logits"):
    methods.fedgen(SGD, ensemble='votes')
  nets, plans = [NET, models.MLP((6, 5), classes=3)], plan.synchronous()([1, 1], 1)
  with pytest.raises(ValueError, match=r'what g1 shares is .*layers_1.* share layers of equal shapes'):
    problem(methods.fedgen(SGD), nets, [1, 1], plans, PARTS[:2])
  assert problem(methods.fedgen(SGD, share='head'), nets, [1, 1], plans, PARTS[:2]).state.server.known.shape == (3,)


@pytest.mark.slow
def test_weights_below_the_least_to_which_they_decay_stay_as_they_are():
  method = lambda weight: methods.fedgen(SGD, alpha=weight, beta=weight, decay=1.0, **TURN, **SMALL)
  run = lambda weight: method(weight).variables(made_with(method(weight)).run()[0], 0)['params']
  away = lambda one, other: max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))
  none, small, least = (run(weight) for weight in (0.0, 1e-5, 1e-4))
  assert 0 < away(small, none) < away(least, none) / 5
