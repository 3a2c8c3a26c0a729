"""FedGH: a head that the server trains on class-mean features, with which all begin."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import evaluation, ledger, methods, models, plan
from fedkd.servers import layer_subset
from helpers import assert_same_bits, problem
from lone_servers import KEY, uploads_of
from small_nets import NET, PARTS, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': 1, 'batch': 4}


def head_of(made, state, g=0):
  """{'kernel', 'bias'} of the server's head."""
  down = made.server.send(made.key, 0, state.server, ((),) * len(made.groups))[g].shared['params']
  return {path.rpartition('/')[2]: np.asarray(leaf) for path, leaf in down.items()}


@pytest.mark.slow
def test_without_passes_the_head_never_changes_and_one_client_is_private_that_restarts_with_it():
  made = made_with(methods.fedgh(SGD, server_epochs=0, **TURN), clients=1)
  alone = made_with(methods.private(SGD, steps=None, keep_optimizer=False, **TURN), clients=1)
  state, lone = made.state, alone.state
  first = jax.tree.map(lambda a: a, lone.client[0].params['net']['output'])
  for t in range(2):
    params = lone.client[0].params
    lone = lone._replace(client=(lone.client[0]._replace(params={'net': {**params['net'], 'output': first}}),))
    state, lone = (one.run(1, s, t, length=1)[0] for one, s in ((made, state), (alone, lone)))
    assert_same_bits(state.client[0].params, lone.client[0].params)
  assert_same_bits(head_of(made, state), head_of(made, made.state))


@pytest.mark.parametrize('size', [1.0, 0.0])
def test_one_upload_is_one_step_from_the_head(size):
  made = made_with(methods.fedgh(SGD, server_epochs=1, server_batch=1, server_rate=0.2, **TURN), clients=1)
  state = made.state.server
  blank = jax.tree.map(jnp.zeros_like, state.server['params'])
  state = state._replace(server={**state.server, 'params': blank})
  p = size * np.random.default_rng(0).normal(size=5).astype(np.float32)
  value = np.zeros((1, 3, 5), np.float32)
  value[0, 1] = p
  after, _ = made.server.receive(KEY, 0, state, (uploads_of(value, [[False, True, False]]),), (jnp.array([0]),))
  head = head_of(made, made.state._replace(server=after))
  share = np.array([-1 / 3, 2 / 3, -1 / 3])
  np.testing.assert_allclose(head['kernel'], 0.2 * np.outer(p, share), rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(head['bias'], 0.2 * share, rtol=1e-5)  # of an upload of zeros they alone


def test_clients_begin_with_the_servers_head_and_upload_means_after_training():
  made = made_with(methods.fedgh(optax.sgd(0.0), **TURN), participants=[[0, 1, 2], [0, 1, -1]])
  state, report = made.run()
  before, _ = made.run(1, length=1)
  held = head_of(made, before)
  for name, leaf in state.client[0].params['net']['output'].items():
    assert_same_bits(np.asarray(leaf[:2]), np.stack([held[name]] * 2))  # a learning rate of 0 leaves it
    assert_same_bits(np.asarray(leaf[2]), np.asarray(before.client[0].params['net']['output'][name][2]))
  # C_k (d + 1) numbers up and the head down.
  many, head = 3 + 2 + 1 + 3 + 2, 5 * 3 + 3
  assert ledger.total(report.up) == {'knowledge': (many * 5, 4 * many * 5), 'labels': (many, 4 * many)}
  assert ledger.total(report.down) == {'weights': (5 * head, 20 * head)}


def test_the_global_heads_prediction_does_not_see_the_clients_own_head():
  made = made_with(methods.fedgh(SGD, head='global', **TURN), rounds=1)
  state, _ = made.run()
  find = lambda state: evaluation.correct_predictions(
    made.method, made.groups, state, *made.data[0].pool, [range(3)], predict=evaluation.predictions(made.method)
  )[0]
  client = state.client[0]
  zeros = jax.tree.map(jnp.zeros_like, client.params['net']['output'])
  other = state._replace(client=(client._replace(params={'net': {**client.params['net'], 'output': zeros}}),))
  found, changed = find(state), find(other)
  np.testing.assert_array_equal(found[''], changed[''])
  assert (np.asarray(found['own_head']) != np.asarray(changed['own_head'])).any()
  model, image = made.groups[0].model, made.data[0].pool
  own = jax.tree.map(lambda a: a[1], client.params)
  logits = model.apply(
    {'params': layer_subset.put(own, layer_subset.global_part(state.server, 0)['params'])}, image.example, False
  )[0]
  np.testing.assert_array_equal(found[''][1], logits.argmax(-1) == image.label)


def test_a_round_with_nobody_teaches_nothing():
  made = made_with(methods.fedgh(SGD, **TURN), participants=[[0, 1, 2], [-1, -1, -1]])
  before, _ = made.run(1, length=1)
  assert_same_bits(made.run(1, before, 1, length=1)[0], before)


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r"head='mean' is unknown; choose one of own, global"):
    methods.fedgh(SGD, head='mean')
  nets, plans = [NET, models.MLP((4,), classes=3)], plan.synchronous()([1, 1], 1)
  with pytest.raises(ValueError, match=r'what g1 shares is .*\[4, 3\].*give the models features of one width'):
    problem(methods.fedgh(SGD), nets, [1, 1], plans, PARTS[:2])
  net = models.GKTClient(channels=4, classes=3)
  with pytest.raises(ValueError, match=r'the head of GKTClient has .*; this method needs one linear layer'):
    problem(methods.fedgh(SGD), [net], [1], plan.synchronous()([1], 1), PARTS[:1])
