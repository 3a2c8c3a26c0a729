import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import models
from fedkd.models.gkt import GKTClient, GKTServer
from helpers import assert_contract

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), jnp.float32)
initial = lambda net, x: jax.jit(lambda: net.init(KEY, x, False))()


def test_a_client_sends_the_map_after_its_stem():
  net = GKTClient(classes=3, width=0.25)
  variables = initial(net, X)
  logits, features = assert_contract(net, variables, X)
  assert features.shape == (4, 8, 8, 4)
  assert (np.asarray(features) >= 0).all()
  assert logits.shape == (4, 3)


def test_a_training_pass_updates_the_statistics_of_the_head_too():
  net = GKTClient(classes=3, width=0.25)
  variables = initial(net, X)
  new = jax.jit(lambda: net.apply(variables, X, True, mutable=['batch_stats'])[1])()
  assert set(new['batch_stats']) == {'bn1', 'layer1_0', 'layer1_1'}
  for old, leaf in zip(jax.tree.leaves(variables['batch_stats']), jax.tree.leaves(new['batch_stats']), strict=True):
    assert (np.asarray(old) != np.asarray(leaf)).all()


@pytest.mark.parametrize(
  ('kind', 'channels', 'maps', 'width'),
  [
    ('resnet55', 16, [(8, 64)] * 6 + [(4, 128)] * 6 + [(2, 256)] * 6, 256),
    ('resnet50', 64, [(8, 256)] * 3 + [(4, 512)] * 4 + [(2, 1024)] * 6 + [(1, 2048)] * 3, 2048),
  ],
)
def test_maps_of_a_server(kind, channels, maps, width):
  net = GKTServer(kind, lowering='native')
  kept = lambda module, _: type(module).__name__ == 'Block'
  run = lambda h: net.init_with_output(KEY, h, True, capture_intermediates=kept)
  (logits, out), variables = jax.eval_shape(run, jax.ShapeDtypeStruct((2, 8, 8, channels), jnp.float32))
  blocks = variables['intermediates']
  order = sorted(blocks, key=lambda name: [int(n) for n in name.removeprefix('layer').split('_')])
  found = [blocks[name]['__call__'][0].shape for name in order]
  assert found == [(2, side, side, wide) for side, wide in maps]
  assert (logits.shape, out['features'].shape) == ((2, 10), (2, width))


def test_a_stem_and_the_large_server_are_a_resnet50():
  fields = {'width': 1 / 32, 'classes': 3, 'lowering': 'native'}
  client, server = GKTClient(channels=64, **fields), GKTServer('resnet50', **fields)
  whole = models.ResNet50(stem='cifar', **fields)
  shapes = lambda net, x: jax.eval_shape(lambda: net.init(KEY, x, False))
  draw = np.random.default_rng(1).uniform
  # Around zero, but variances positive.
  variables = jax.tree.map(lambda leaf: draw(-0.3, 0.3, leaf.shape).astype(np.float32), shapes(whole, X))
  variables['batch_stats'] = jax.tree.map(lambda leaf: leaf + 1, variables['batch_stats'])
  ours = {kind: {n: v for n, v in tree.items() if n not in ('conv1', 'bn1')} for kind, tree in variables.items()}
  assert jax.tree.map(np.shape, ours) == jax.tree.map(np.shape, shapes(server, jnp.zeros((1, 8, 8, 2))))

  @jax.jit
  def both():
    h = client.apply(variables, X, False, method='features')
    return whole.apply(variables, X, False), server.apply(ours, h, False)

  (logits, out), (logits_server, out_server) = both()
  np.testing.assert_allclose(logits_server, logits, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(out_server['features'], out['features'], rtol=1e-4, atol=1e-5)


def test_an_unknown_server_is_refused():
  with pytest.raises(ValueError, match="kind='resnet56' is unknown; choose one of resnet55, resnet50"):
    initial(GKTServer('resnet56'), jnp.zeros((1, 8, 8, 16)))
