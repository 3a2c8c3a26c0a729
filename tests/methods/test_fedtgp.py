"""FedTGP: prototypes that the server trains on uploads, with a margin between classes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import evaluation, ledger, methods
from fedkd.methods.fedtgp import contrast, margin
from helpers import assert_same_bits, softmax
from small_nets import NET, PARTS, in_vectors, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': 1, 'batch': 12}
RANDOM = np.random.default_rng(0)


@pytest.mark.slow
def test_without_its_weight_it_is_private():
  turn = {'epochs': 1, 'batch': 4}
  ours = methods.fedtgp(SGD, weight=0.0, server_epochs=1, **turn)
  lone = methods.private(SGD, steps=None, keep_optimizer=False, **turn)
  assert_same_bits(made_with(ours).run()[0].client[0].learner, made_with(lone).run()[0].client[0])


def margin_in_numpy(value, label, valid, classes, tau):
  centres = {c: value[valid & (label == c)].mean(0) for c in range(classes) if (valid & (label == c)).any()}
  gaps = [min(np.linalg.norm(centres[c] - centres[d]) for d in centres if d != c) for c in centres if len(centres) > 1]
  return min(max(gaps), tau) if gaps else tau


@pytest.mark.parametrize('tau', [0.0, 1.5, 100.0])
@pytest.mark.parametrize('missing', [(), (1,), (0, 1, 2)])
def test_the_margin_is_that_of_a_twin_in_numpy(tau, missing):
  label = np.tile(np.arange(4), 3)
  value, valid = RANDOM.normal(size=(12, 5)), ~np.isin(label, missing)
  valid[4] = False
  given = np.where(valid[:, None], value, np.nan)  # what is not valid does not matter
  found = jax.jit(margin, static_argnums=3)(jnp.asarray(given), jnp.asarray(label), jnp.asarray(valid), 4, tau)
  np.testing.assert_allclose(found, margin_in_numpy(value, label, valid, 4, tau), rtol=1e-5)


def test_of_two_classes_the_margin_is_their_distance():
  value = jnp.array([[0.0, 0.0], [3.0, 4.0]])
  both = lambda tau: float(margin(value, jnp.arange(2), jnp.ones(2, bool), 3, tau))
  assert (both(100.0), both(2.0), both(0.0)) == (5.0, 2.0, 0.0)


def test_the_loss_is_that_of_a_twin_in_numpy():
  value, label, prototypes = RANDOM.normal(size=(6, 3)), np.array([0, 1, 2, 3, 0, 1]), RANDOM.normal(size=(4, 3))
  prototypes[2] = value[2]  # at distance 0
  away = np.sqrt(((value[:, None] - prototypes) ** 2).sum(-1)) + 1.3 * np.eye(4)[label]
  given = map(jnp.asarray, (value, label, prototypes))
  loss, slope = jax.jit(jax.value_and_grad(contrast, 2))(*given, 1.3)
  p = softmax(-away)
  np.testing.assert_allclose(loss, -np.log(p[range(6), label]).mean(), rtol=1e-5)
  push = (np.eye(4)[label] - p) / 6  # of the loss by minus a distance, turned round
  distance = np.sqrt(((value[:, None] - prototypes) ** 2).sum(-1))[..., None]
  direction = np.divide(prototypes - value[:, None], distance, out=np.zeros((6, 4, 3)), where=distance > 0)
  np.testing.assert_allclose(slope, (push[..., None] * direction).sum(0), rtol=1e-4, atol=1e-6)


def test_at_its_own_prototype_the_loss_is_known():
  """Distance 0 to its own, D to all others: log(1 + (C - 1) exp(delta - D))."""
  prototypes = 3.0 * jnp.eye(5)
  loss = contrast(prototypes[:1], jnp.array([0]), prototypes, 0.7)
  np.testing.assert_allclose(loss, np.log(1 + 4 * np.exp(0.7 - 3 * np.sqrt(2))), rtol=1e-5)


def sent(made, state):
  """The message of the server, a leaf a round."""
  return made.server.send(made.key, 0, state.server, ((),))[0].shared['knowledge']


@pytest.mark.slow
def test_without_passes_the_first_prototypes_stay():
  made = made_with(methods.fedtgp(SGD, server_epochs=0, **TURN), rounds=2)
  state, _ = made.run()
  assert_same_bits(sent(made, state).value, sent(made, made.state).value)
  assert (sent(made, made.state).valid.any(), sent(made, state).valid.all()) == (False, True)


def test_the_server_trains_on_class_means_after_training():
  how = {'server_epochs': 1, 'server_batch': 6, 'server_rate': 0.1}  # one step on all uploads
  made = made_with(methods.fedtgp(SGD, **how, **TURN), rounds=1)
  state, report = made.run()
  x, label = in_vectors(made)
  net, ups, classes = jax.tree.map(np.asarray, state.client[0].learner.params['net']['layers_0']), [], []
  for k, rows in enumerate(PARTS):
    f = np.maximum(x[rows] @ net['kernel'][k] + net['bias'][k], 0)
    for c in sorted(set(label[rows].tolist())):
      ups.append(f[label[rows] == c].mean(0))
      classes.append(c)
  ups, classes = np.array(ups), np.array(classes)
  delta = margin_in_numpy(ups, classes, np.ones(6, bool), 3, 100.0)
  losses = [float(contrast(ups, classes, sent(made, s).value, delta)) for s in (made.state, state)]
  np.testing.assert_allclose(report.server['server_loss'][0], losses[0], rtol=1e-4)
  assert losses[1] < losses[0]
  # C_k (d + 1) numbers up. Down none in the first round, then those of all classes.
  assert ledger.total(report.up) == {'knowledge': (6 * 5, 4 * 6 * 5), 'labels': (6, 24)}
  _, report = made.run(2, state, 1)
  assert ledger.total(report.down) == {'knowledge': (2 * 3 * 15, 8 * 3 * 15), 'labels': (2 * 9, 8 * 9)}


def test_a_round_with_nobody_teaches_nothing():
  made = made_with(methods.fedtgp(SGD, server_epochs=3, **TURN), participants=[[0, 1, 2], [-1, -1, -1]])
  before, _ = made.run(1, length=1)
  after, report = made.run(1, before, 1, length=1)
  assert_same_bits(after, before)
  assert np.isnan(np.asarray(report.server['server_loss'])).all()


def test_clients_predict_the_nearest_prototype_of_all_classes():
  made = made_with(methods.fedtgp(SGD, server_epochs=3, **TURN), rounds=1)
  state, _ = made.run()
  (x, label), image = in_vectors(made), made.data[0].pool
  by = dict(made.method.predictions)['prototypes']
  found = evaluation.correct_predictions(made.method, made.groups, state, *image, [range(3)], predict=by)[0]
  net, prototypes = jax.tree.map(
    np.asarray, (state.client[0].learner.params['net']['layers_0'], sent(made, state).value)
  )
  for k in range(3):
    f = np.maximum(x @ net['kernel'][k] + net['bias'][k], 0)
    nearest = ((f[:, None] - prototypes) ** 2).sum(-1).argmin(-1)
    np.testing.assert_array_equal(found[k], nearest == label)
  assert NET.hidden == prototypes.shape[1:]


def test_unknown_choices_are_refused():
  with pytest.raises(ValueError, match=r"inference='logits' is unknown; choose one of head, prototypes"):
    methods.fedtgp(SGD, inference='logits')
