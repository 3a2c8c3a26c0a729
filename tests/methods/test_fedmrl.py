"""FedMRL: features of two nets are fused by a personal projection, and either head predicts from what comes out."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import codecs, evaluation, ledger, methods, models, plan
from fedkd.experiment.build.from_config import _with_optimizers
from fedkd.methods.fedmrl import Way
from helpers import assert_close, assert_same_bits, preprocessed, problem, softmax
from small_nets import NARROW, NET, PARTS, Normed, in_vectors, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': 1, 'batch': 12}


def with_link(made, kernel, common=None):
  """The state in which every client has this projection without a bias, and the common model `common`."""
  own = made.state.client[0]
  rows = jnp.broadcast_to(kernel, (3, *kernel.shape))
  params = {'Dense_0': {'kernel': rows, 'bias': jnp.zeros((3, kernel.shape[1]))}}
  changed = {**own, 'link': own['link']._replace(params=params), 'common': common or own['common']}
  changed['trained'] = jnp.full(3, common is not None)
  return made.state._replace(client=(changed,))


def logits_of(made, state, client=0):
  """{way: logits [N, C]} of a client."""
  ways = evaluation.predictions(made.method)
  own = jax.tree.map(lambda a: a[client], made.method.variables(state, 0))
  model, image = made.groups[0].model, made.data[0].pool.example
  return {name or 'mix_large': way(model, own, state.server, image) for name, way in ways.items()}


def test_a_projection_that_passes_the_own_features_leaves_the_own_model():
  made = made_with(methods.fedmrl(SGD, NARROW, **TURN))
  logits = logits_of(made, with_link(made, jnp.eye(9, 5, -4)))  # [0 | I], behind the 4 common features
  np.testing.assert_allclose(logits['mix_large'], logits['large'], atol=1e-6)
  assert np.abs(logits['mix_small'] - logits['small']).max() > 1e-3


def test_a_projection_that_passes_the_common_features_gives_equal_heads_equal_logits():
  made = made_with(methods.fedmrl(SGD, NET, **TURN))
  own = made.state.client[0]['own']
  state = with_link(made, jnp.eye(10, 5), {'params': own.params, 'batch_stats': {}})  # [I | 0]
  logits = logits_of(made, state)
  np.testing.assert_allclose(logits['mix_large'], logits['mix_small'], atol=1e-6)  # the slice is all of it
  np.testing.assert_allclose(logits['mix_small'], logits['small'], atol=1e-6)


def test_one_round_is_that_of_a_twin_in_numpy():
  """One client, one step on all its rows: gradients of both heads' losses through the projection."""
  made = made_with(methods.fedmrl(optax.sgd(0.1), NARROW, **TURN), clients=1, rounds=1)
  x, y = (a[PARTS[0]] for a in in_vectors(made))
  to = lambda tree: jax.tree.map(lambda a: np.asarray(a, float), tree)
  own = to(jax.tree.map(lambda a: a[0], made.state.client[0]['own'].params))['net']
  link = to(jax.tree.map(lambda a: a[0], made.state.client[0]['link'].params))['Dense_0']
  common = to(made.state.server['params'])['net']
  layer = lambda net, name, v: v @ net[name]['kernel'] + net[name]['bias']
  narrow, wide = (np.maximum(layer(net, 'layers_0', x), 0) for net in (common, own))
  both = np.concatenate([narrow, wide], 1)
  mixed = both @ link['kernel'] + link['bias']
  large, small = layer(own, 'output', mixed), layer(common, 'output', mixed[:, :4])
  push = [(softmax(z) - np.eye(3)[y]) / len(y) for z in (large, small)]
  loss = [-np.log(softmax(z)[range(len(y)), y]).mean() for z in (large, small)]
  back = push[0] @ own['output']['kernel'].T
  back[:, :4] += push[1] @ common['output']['kernel'].T
  into = back @ link['kernel'].T
  state, report = made.run()
  after = jax.tree.map(lambda a: a[0], state.client[0])
  step = lambda old, slope: old - 0.1 * slope
  close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
  close(after['link'].params['Dense_0']['kernel'], step(link['kernel'], both.T @ back))
  close(after['own'].params['net']['output']['kernel'], step(own['output']['kernel'], mixed.T @ push[0]))
  close(
    after['own'].params['net']['layers_0']['kernel'], step(own['layers_0']['kernel'], x.T @ (into[:, 4:] * (wide > 0)))
  )
  first = step(common['layers_0']['kernel'], x.T @ (into[:, :4] * (narrow > 0)))
  close(after['common']['params']['net']['layers_0']['kernel'], first)
  close(state.server['params']['net']['layers_0']['kernel'], first)  # of one client: the server's is its own
  close([np.ravel(report.info[0][name])[0] for name in ('loss', 'common_loss')], loss)


def test_messages_are_the_common_models_weights_and_statistics():
  _, report = made_with(methods.fedmrl(SGD, Normed(), **TURN)).run()
  weights, statistics = 36 * 4 + 4 + 8 + 4 * 3 + 3, 8
  both = {'statistics': (6 * statistics, 24 * statistics), 'weights': (6 * weights, 24 * weights)}
  assert ledger.total(report.up) == {**both, 'labels': (6, 24)}
  assert ledger.total(report.down) == both


def test_the_common_model_of_a_prediction_is_the_clients_own_or_the_servers():
  made = made_with(methods.fedmrl(SGD, NARROW, **TURN), rounds=1)
  state, _ = made.run()
  image = made.data[0].pool.example
  ours = logits_of(made, state)
  theirs = logits_of(made._replace(method=methods.fedmrl(SGD, NARROW, small='global', **TURN)), state)
  assert_close(theirs['large'], ours['large'])
  assert_close(theirs['small'], preprocessed(NARROW).apply(state.server, image, False)[0])
  own = jax.tree.map(lambda a: a[0], state.client[0]['common'])
  assert_close(ours['small'], preprocessed(NARROW).apply(own, image, False)[0])
  assert np.abs(ours['small'] - theirs['small']).max() > 1e-3


def test_projections_start_from_one():
  """Whatever a client's number and own model, where shapes are equal; drawn by the run's key."""
  nets, plans = (NET, models.MLP((7, 5), classes=3)), plan.synchronous()([2, 1], 1)
  made = [problem(methods.fedmrl(SGD, NARROW), nets, [2, 1], plans, PARTS, seed=seed) for seed in (0, 1)]
  (one, other), (seeded, _) = ([own['link'].params['Dense_0']['kernel'] for own in m.state.client] for m in made)
  assert_same_bits((one[0], one[0]), (one[1], other[0]))
  assert np.abs(one[0] - seeded[0]).max() > 0.01
  assert codecs.coded(made[0].method, up=codecs.quantised(8)).client.alike
  assert _with_optimizers(made[0].method, made[0].groups, [m.method for m in made]).client.alike


@pytest.mark.parametrize('first', get_args(Way))
def test_any_prediction_may_come_first(first):
  method = methods.fedmrl(SGD, NARROW, inference=first)
  assert {name for name, _ in method.predictions} == set(get_args(Way)) - {first}


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r"small='mean' is unknown; choose one of own, global"):
    methods.fedmrl(SGD, NARROW, small='mean')
  wide = models.MLP((6,), classes=3)
  with pytest.raises(ValueError, match=r'features of g0 have 5 numbers, fewer than the 6 of the common model; choose'):
    problem(methods.fedmrl(SGD, wide), [NET], [1], plan.synchronous()([1], 1), PARTS[:1])
