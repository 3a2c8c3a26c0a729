import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import models
from fedkd.models import layers
from fedkd.models.resnet import ResNet
from fedkd.models.torch_layers import max_pool_3x3, scaled
from helpers import cases

KEY = jax.random.key(0)
NARROW = {'width': 1 / 32, 'classes': 3}  # 2, 4, 8, 16 channels
normal = lambda seed, *shape: jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def shapes(net, side):
  """(variables, logits, features) in shapes."""

  def run(x):
    (logits, out), variables = net.init_with_output(KEY, x, True)
    return variables, logits, out['features']

  return jax.eval_shape(run, jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32))


@pytest.mark.parametrize('side', [32, 64, 96, 224])
def test_any_image_gives_one_vector(side):
  variables, logits, features = shapes(models.ResNet10(classes=7), side)
  assert (logits.shape, features.shape) == ((2, 7), (2, 512))
  assert set(variables) == {'params', 'batch_stats'}


def map_sizes(net, side):
  """Rows of the map after the stem and after each stage."""
  image = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
  run = lambda x: net.init_with_output(KEY, x, False, capture_intermediates=lambda m, _: type(m).__name__ == 'Block')
  kept = jax.eval_shape(run, image)[1]['intermediates']
  return [kept[name]['__call__'][0].shape[1] for name in sorted(kept)]


def test_stems_and_strides():
  assert map_sizes(models.ResNet10(**NARROW), 224) == [56, 28, 14, 7]
  assert map_sizes(models.ResNet10(**NARROW), 32) == [8, 4, 2, 1]
  assert map_sizes(models.ResNet10(stem='cifar', **NARROW), 32) == [32, 16, 8, 4]


def test_an_unknown_stem_or_width_is_refused():
  with pytest.raises(ValueError, match="stem='small' is unknown; choose one of imagenet, cifar"):
    shapes(models.ResNet10(stem='small'), 32)
  with pytest.raises(ValueError, match='width=0 must be a number above 0'):
    shapes(models.ResNet10(width=0), 32)


def test_an_unknown_norm_or_dtype_is_refused():
  with pytest.raises(ValueError, match="norm='layer' is unknown; choose one of batch, group"):
    shapes(models.ResNet10(norm='layer'), 32)
  with pytest.raises(ValueError, match="dtype='float16' is unknown; choose one of float32, bfloat16"):
    shapes(models.ResNet10(dtype='float16'), 32)


def test_width_scales_every_channel():
  variables = shapes(models.ResNet18(width=0.25, classes=7), 32)[0]
  assert variables['params']['conv1']['kernel'].shape == (7, 7, 3, 16)
  assert variables['params']['layer4_1']['conv2']['kernel'].shape == (3, 3, 128, 128)
  assert variables['params']['fc']['Dense_0']['kernel'].shape == (128, 7)
  assert shapes(ResNet((1, 1, 1, 1), bottleneck=True, width=0.0625), 32)[2].shape == (2, 128)
  assert [scaled(64, width) for width in (1, 0.5, 0.0001)] == [64, 32, 1]


def test_fields_are_for_the_config_to_read():
  assert set(models.ResNet18.__dataclass_fields__) >= {'blocks', 'bottleneck', 'width', 'stem', 'classes', 'lowering'}
  assert models.ResNet50().blocks == (3, 4, 6, 3)
  assert models.ResNet50().bottleneck
  assert not models.ResNet34().bottleneck


def test_initial_numbers():
  def layers():
    params = models.ResNet10(width=0.5).init(KEY, jnp.zeros((1, 32, 32, 3)), False)['params']
    return params['layer4_0'], params['fc']['Dense_0']

  block, dense = jax.jit(layers)()
  for name in ('conv1', 'conv2'):  # 128 to 256 and 256 to 256 channels: the fan-out counts
    assert np.var(block[name]['kernel']) == pytest.approx(2 / (9 * 256), rel=0.01)
  assert np.abs(dense['kernel']).max() <= 1 / 16
  np.testing.assert_array_equal(block['bn2']['scale'], np.ones(256))


@pytest.mark.parametrize(('padding', 'size'), [(1, (7, 6)), (0, (7, 6)), (1, (1, 2)), (1, (8, 8)), (0, (3, 4))])
def test_max_pool_3x3_is_the_window_maximum(padding, size):
  x = normal(0, 2, *size, 3) - 9  # all negative: a padding of zero would win

  def reference(x):
    sides = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), sides)

  @jax.jit
  def both(x):
    pull = lambda pool: jax.grad(lambda x: jnp.sum(jnp.sin(pool(x))))(x)
    ours = lambda x: max_pool_3x3(x, padding)
    return ours(x), reference(x), pull(ours), pull(reference)

  y, expected, gradient, expected_gradient = both(x)
  np.testing.assert_array_equal(y, expected)
  np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5)


def test_max_pool_3x3_refuses_a_map_below_its_window():
  with pytest.raises(ValueError, match='too deep'):
    max_pool_3x3(jnp.zeros((1, 2, 5, 1)), 0)


@pytest.fixture(scope='module')
def trained():
  """Both lowerings of a narrow net: one training step, and the parts in inference."""
  x, label = normal(0, 4, 16, 16, 3), jnp.array([0, 1, 2, 0])
  variables = jax.jit(lambda: ResNet((1, 1), **NARROW).init(KEY, x, False))()

  @jax.jit
  def run(variables):
    def of(lowering):
      net = ResNet((1, 1), lowering=lowering, **NARROW)

      def loss(params):
        inputs = {**variables, 'params': params}
        (logits, _), new = net.apply(inputs, x, True, mutable=['batch_stats'])
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean(), (logits, new['batch_stats'])

      return jax.grad(loss, has_aux=True)(variables['params'])

    net = ResNet((1, 1), **NARROW)
    logits, out = net.apply(variables, x, False)
    features = net.apply(variables, x, False, method='features')
    parts = logits, out['features'], features, net.apply(variables, features, method='head')
    return of('native'), of('matmul'), parts

  return variables, *run(variables)


def test_lowerings_agree_on_output_gradient_and_statistics(trained):
  _, native, matmul, _ = trained
  for a, b in zip(jax.tree.leaves(native), jax.tree.leaves(matmul), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_step_moves_weights_and_statistics(trained):
  variables, (gradient, (_, statistics)), _, _ = trained
  for leaf in jax.tree.leaves(gradient):
    assert np.isfinite(leaf).all()
  assert np.abs(gradient['conv1']['kernel']).max() > 0
  for old, new in zip(jax.tree.leaves(variables['batch_stats']), jax.tree.leaves(statistics), strict=True):
    assert (np.asarray(old) != np.asarray(new)).all()
  assert (np.asarray(statistics['bn1']['var']) > 0.9 - 1e-6).all()  # momentum 0.9 on an initial one


def test_the_contract(trained):
  logits, out, features, head = trained[3]
  np.testing.assert_array_equal(out, features)
  np.testing.assert_array_equal(head, logits)
  assert features.shape == (4, 4)


@pytest.mark.parametrize('norm', cases(['batch', 'group'], fast=['group']))
def test_only_group_norm_keeps_images_apart(norm):
  net = ResNet((1, 1), norm=norm, stem='cifar', **NARROW)
  x = normal(0, 4, 8, 8, 3)
  variables = jax.jit(lambda: net.init(KEY, x, False))()
  assert set(variables) == ({'params', 'batch_stats'} if norm == 'batch' else {'params'})
  logits = jax.jit(lambda x: net.apply(variables, x, True, mutable=['batch_stats'])[0][0])
  apart = np.abs(logits(x)[:1] - logits(x[:1])).max()
  assert apart < 1e-5 if norm == 'group' else apart > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(('norm', 'lowering'), list(itertools.product(('batch', 'group'), ('native', 'matmul'))))
def test_bfloat16_agrees_with_float32(norm, lowering):
  x, label = normal(0, 8, 16, 16, 3), jnp.arange(8) % 3
  fields = {'width': 1 / 8, 'classes': 3, 'stem': 'cifar', 'norm': norm, 'lowering': lowering}
  variables = jax.jit(lambda: ResNet((1, 1), **fields).init(KEY, x, False))()

  @functools.partial(jax.jit, static_argnums=0)
  def step(dtype):
    def loss(params):
      net = ResNet((1, 1), dtype=dtype, **fields)
      (logits, out), new = net.apply({**variables, 'params': params}, x, True, mutable=['batch_stats'])
      return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean(), (logits, out['features'], new)

    return jax.grad(loss, has_aux=True)(variables['params'])

  half, full = step('bfloat16'), step('float32')
  assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype('float32')}
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(half))
  (gradient, (logits, features, new)), (exact_gradient, (exact, exact_features, exact_new)) = half, full
  np.testing.assert_allclose(features, exact_features, atol=0.01)
  np.testing.assert_allclose(logits, exact, atol=0.01)
  for leaf, other in zip(jax.tree.leaves(new), jax.tree.leaves(exact_new), strict=True):
    np.testing.assert_allclose(leaf, other, atol=0.002)
  # Rounding only images and parameters to bfloat16 moves the float32 gradient by 7 to 11 %: a few ReLUs switch.
  size = lambda tree: np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))
  assert size(jax.tree.map(jnp.subtract, gradient, exact_gradient)) < 0.2 * size(exact_gradient)


def test_bfloat16_runs_in_bfloat16():
  kept = lambda module, _: isinstance(module, (layers.Conv, layers.BatchNorm, layers.GroupNorm))
  for norm in ('batch', 'group'):
    net = models.ResNet10(dtype='bfloat16', norm=norm, **NARROW)
    run = lambda x, net=net: net.init_with_output(KEY, x, True, capture_intermediates=kept)[1]
    variables = jax.eval_shape(run, jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32))
    maps = jax.tree.leaves(variables.pop('intermediates'))
    assert len(maps) == 2 * (1 + 2 * 4 + 3)  # convolutions and norms: stem, four blocks, three shortcuts
    assert {leaf.dtype for leaf in maps} == {jnp.dtype('bfloat16')}
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype('float32')}
