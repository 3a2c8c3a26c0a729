"""LG-FedAvg: some layers are FedAvg's, the others Private's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, plan, servers
from fedkd.methods.lg_fedavg import selected
from fedkd.servers import layer_subset
from fedkd.types import Data, Group
from helpers import assert_close, assert_same_bits, bound, pool, preprocessed, problem, softmax
from small_nets import NET, PARTS, Normed, in_vectors, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': 1, 'batch': 4}


@pytest.mark.slow
def test_with_nothing_shared_it_is_private():
  lone = methods.private(SGD, steps=None, keep_optimizer=False, **TURN)
  one, other = (made_with(m).run()[0].client for m in (methods.lg_fedavg(SGD, share='none', **TURN), lone))
  assert_same_bits(one, other)


@pytest.mark.slow
def test_with_everything_shared_it_is_fedavg():
  ours, theirs = methods.lg_fedavg(SGD, share='all', **TURN), methods.fedavg(SGD, steps=None, **TURN)
  one, other = (m.variables(made_with(m, net=Normed()).run()[0], 0) for m in (ours, theirs))
  assert_same_bits(one, other)


def test_a_shared_head_on_frozen_bodies_is_fedavg_of_a_linear_model():
  names = lambda params: jax.tree_util.tree_map_with_path(lambda path, _: str('output' in str(path)), params)
  tx = optax.multi_transform({'True': optax.sgd(0.5), 'False': optax.set_to_zero()}, names)
  made = made_with(methods.lg_fedavg(tx, epochs=1, batch=12), rounds=2)
  net, (x, label) = made.state.client[0].params['net'], in_vectors(made)
  f = np.maximum(x @ np.asarray(net['layers_0']['kernel'][0]) + np.asarray(net['layers_0']['bias'][0]), 0)
  w, b = (np.asarray(net['output'][name][0], float) for name in ('kernel', 'bias'))
  for _ in range(2):
    uploads = []
    for rows in PARTS:
      away = (softmax(f[rows] @ w + b) - np.eye(3)[label[rows]]) / len(rows)
      uploads.append((w - 0.5 * f[rows].T @ away, b - 0.5 * away.sum(0)))
    w, b = (np.average([up[i] for up in uploads], 0, [len(rows) for rows in PARTS]) for i in range(2))
  found = made.method.variables(made.run()[0], 0)['params']['net']
  np.testing.assert_allclose(found['output']['kernel'], np.stack([w] * 3), rtol=1e-4, atol=1e-6)
  assert_same_bits(found['layers_0'], net['layers_0'])


def test_everybody_has_the_newest_shared_layers_also_who_was_absent():
  made = made_with(methods.lg_fedavg(SGD, **TURN), participants=[[0, 1], [0, -1]])
  state, report = made.run()
  net = jax.tree.map(np.asarray, made.method.variables(state, 0)['params']['net'])
  for leaf in jax.tree.leaves(net['output']):
    assert (leaf == leaf[:1]).all()
  for leaf in jax.tree.leaves(net['layers_0']):
    assert len(np.unique(leaf, axis=0)) == 3
  head = 5 * 3 + 3
  assert ledger.total(report.up) == {'labels': (3, 12), 'weights': (3 * head, 12 * head)}
  assert ledger.total(report.down) == {'weights': (3 * head, 12 * head)}


def paths(share, net):
  """What `share` selects of a net."""
  model, image = preprocessed(net), pool(28)
  return selected(share, model, Data(image, None, None))


DEEP = models.MLP((7, 6), classes=3)


@pytest.mark.parametrize(
  ('share', 'expected'),
  [
    ('none', []),
    ('head', ['output']),
    ('last1', ['output']),
    ('last2', ['layers_1', 'output']),
    ('all', ['layers_0', 'layers_1', 'output']),
    ('output+layers_0', ['layers_0', 'output']),
  ],
)
def test_layers_are_chosen_by_number_or_name(share, expected):
  found = paths(share, DEEP)
  assert sorted(found) == sorted(f'net/{layer}/{leaf}' for layer in expected for leaf in ('kernel', 'bias'))
  assert list(dict.fromkeys(path.split('/')[1] for path in found)) == expected  # in the order of the forward pass


@pytest.mark.parametrize(
  ('share', 'message'),
  [
    ('last4', r"share='last4': MLP has 3 layers; give last1 to last3"),
    ('last0', r"share='last0': MLP has 3 layers"),
    ('conv', r"share='conv': MLP has no layer 'conv'; it has layers_0, layers_1, output; or give head, last3, all"),
  ],
)
def test_layers_that_are_not_there_are_refused(share, message):
  with pytest.raises(ValueError, match=message):
    paths(share, DEEP)


def start(model):
  return {'batch_stats': {}, **model.init(jax.random.key(0), jnp.zeros((1, 28, 28, 1), jnp.uint8), False)}


def test_heads_of_other_names_are_averaged_if_their_shapes_agree():
  lenet, dense = models.LeNet(classes=3), models.MLP((84,), classes=3)
  assert paths('head', lenet) != paths('head', dense)
  server = methods.lg_fedavg(SGD).server
  groups = [Group(f'g{g}', preprocessed(net), np.array([g])) for g, net in enumerate((lenet, dense))]
  zeros = lambda net: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(lambda: start(net)))
  state = server.init(
    jax.random.key(0), groups, [zeros(group.model) for group in groups], [Data(pool(28), None, None)] * 2
  )
  held = [layer_subset.global_part(state, g)['params'] for g in range(2)]
  assert [set(part) for part in held] == [set(paths('head', net)) for net in (lenet, dense)]
  uploads = tuple(
    {'params': jax.tree.map(lambda a, g=g: a[None] * 0 + g, part), 'batch_stats': {}, 'count': jnp.array([1 + 2 * g])}
    for g, part in enumerate(held)
  )
  state, _ = bound(server).receive(jax.random.key(0), 0, state, uploads, (jnp.array([0]), jnp.array([1])))
  for g in range(2):
    for leaf in jax.tree.leaves(layer_subset.global_part(state, g)['params']):
      np.testing.assert_allclose(leaf, 0.75)


def test_shared_layers_of_other_shapes_are_refused():
  message = (
    r'what g1 shares is net/output/kernel \[4, 3\].* and g0 shares net/output/kernel \[5, 3\].*features of one wid'
  )
  with pytest.raises(ValueError, match=message):
    problem(
      methods.lg_fedavg(SGD), [NET, models.MLP((4,), classes=3)], [1, 1], plan.synchronous()([1, 1], 1), PARTS[:2]
    )


def test_the_server_of_a_part_takes_any_rule_and_optimizer():
  server = layer_subset.part(layer_subset.head, servers.weights(tx=optax.sgd(1.0)))
  made = made_with(methods.lg_fedavg(SGD)._replace(server=server))
  plain = made_with(methods.lg_fedavg(SGD))
  of = lambda one: [layer_subset.global_part(one.run(1)[0].server, 0)['params']]
  assert_close(of(made), of(plain))
