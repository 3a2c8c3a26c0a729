import itertools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import models
from fedkd.models import base, layers
from fedkd.models.lowering import THIN, conv_matmul
from helpers import cases

KEY = jax.random.key(0)
normal = lambda seed, *shape: jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def native(x, kernel, strides, padding):
  numbers = ('NHWC', 'HWIO', 'NHWC')
  return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=numbers)


CONVOLUTIONS = list(
  itertools.product(
    [((7, 5), (3, 3)), ((6, 6), (2, 2)), ((5, 8), (1, 1)), ((9, 6), (5, 2)), ((5, 12), (3, 7)), ((3, 3), (3, 3))],
    [(1, 1), (2, 2), (3, 3), (2, 1)],
    ['SAME', 'VALID', ((1, 2), (0, 3))],
  )
)


@pytest.mark.parametrize(('image', 'strides', 'padding'), cases(CONVOLUTIONS, fast=CONVOLUTIONS[::5]))
def test_conv_matmul_is_the_convolution(image, strides, padding):
  size, kernel = image
  x, kernel = normal(0, 2, *size, 3), normal(1, *kernel, 3, 4)

  @jax.jit
  def both(x, kernel):
    def one(conv):
      y, pull = jax.vjp(lambda x, kernel: conv(x, kernel, strides, padding), x, kernel)
      return y, pull(jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape))

    wider = ((0, 0),) * 3 + ((0, THIN[1]),)  # no thin kernel any more
    wide = lambda x, kernel, *how: conv_matmul(x, jnp.pad(kernel, wider), *how)[..., :4]
    return one(native), one(conv_matmul), one(wide)

  (y_native, (dx_native, dk_native)), *lowered = both(x, kernel)
  for y, (dx, dk) in lowered:
    assert y.shape == y_native.shape
    np.testing.assert_allclose(y, y_native, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dx, dx_native, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dk, dk_native, rtol=1e-5, atol=1e-5)


def test_lowerings_share_parameters_and_agree():
  x = normal(0, 2, 7, 7, 3)
  conv = lambda lowering: layers.Conv(4, (3, 3), (2, 2), 'SAME', lowering=lowering)
  variables = conv('native').init(KEY, x)
  assert jax.tree.map(jnp.shape, variables) == {'params': {'kernel': (3, 3, 3, 4), 'bias': (4,)}}
  for lowering in ('matmul', 'auto'):
    np.testing.assert_array_equal(conv(lowering).init(KEY, x)['params']['kernel'], variables['params']['kernel'])
    np.testing.assert_allclose(
      conv(lowering).apply(variables, x), conv('native').apply(variables, x), rtol=1e-5, atol=1e-5
    )
  np.testing.assert_allclose(
    conv('native').apply(variables, x), nn.Conv(4, (3, 3), (2, 2)).apply(variables, x), rtol=1e-5, atol=1e-5
  )


def test_an_unknown_lowering_is_refused():
  with pytest.raises(ValueError, match="lowering='fft' is unknown; choose one of auto, native, matmul"):
    layers.Conv(4, (3, 3), lowering='fft').init(KEY, jnp.zeros((1, 5, 5, 1)))


@pytest.mark.parametrize('lowering', ['native', 'matmul'])
# Windows of several places, and of one.
@pytest.mark.parametrize(('channels', 'filters'), cases([(3, 4), (8, 32)], slow=[(3, 4)]))
def test_conv_runs_in_the_dtype_of_its_input(lowering, channels, filters):
  x, conv = normal(0, 2, 7, 7, channels), layers.Conv(filters, (3, 3), lowering=lowering)
  variables = conv.init(KEY, x.astype(jnp.bfloat16))
  assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype('float32')}
  y = conv.apply(variables, x.astype(jnp.bfloat16))
  assert y.dtype == jnp.bfloat16
  np.testing.assert_allclose(y.astype(jnp.float32), conv.apply(variables, x), atol=0.03)


# Norms.


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_batchnorm_leaves_the_statistics_of_the_batch_where_asked(dtype):
  x, layer = (3 * normal(0, 4, 5, 6, 2) + 1).astype(dtype), layers.BatchNorm(momentum=0.9)
  variables = layer.init(KEY, x, True)
  assert set(variables) == {'params', 'batch_stats'}
  plain, updated = layer.apply(variables, x, True, mutable=['batch_stats'])
  y, new = layer.apply(variables, x, True, mutable=['batch_stats', 'batch'])
  exact = np.asarray(x, np.float32)
  np.testing.assert_allclose(new['batch']['mean'], exact.mean((0, 1, 2)), rtol=1e-5)
  np.testing.assert_allclose(new['batch']['var'], exact.var((0, 1, 2)), rtol=1e-5)
  assert set(updated) == {'batch_stats'}
  np.testing.assert_array_equal(y, plain)
  for name, start in (('mean', 0), ('var', 1)):
    np.testing.assert_array_equal(new['batch_stats'][name], updated['batch_stats'][name])
    np.testing.assert_allclose(updated['batch_stats'][name], 0.9 * start + 0.1 * new['batch'][name], rtol=1e-5)
  assert not layer.apply(variables, x, False, mutable=['batch'])[1]


def test_batchnorm_of_bfloat16_computes_in_float32():
  x, layer = (3 * normal(0, 4, 5, 6, 2) + 1).astype(jnp.bfloat16), layers.BatchNorm()
  variables = layer.init(KEY, x, True)

  def run(x, train):
    loss = lambda params, x: jnp.sum(jnp.sin(layer.apply({**variables, 'params': params}, x, train, mutable=True)[0]))
    y, new = layer.apply(variables, x, train, mutable=['batch_stats'])
    return y, new, jax.grad(loss, (0, 1))(variables['params'], x)

  for train in (True, False):
    (y, new, (inner, outer)), (exact, *_, (exact_inner, exact_outer)) = (
      jax.jit(run, static_argnums=1)(image, train) for image in (x, x.astype(jnp.float32))
    )
    assert (y.dtype, outer.dtype) == (jnp.bfloat16, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves((new, inner))} == {jnp.dtype('float32')}
    np.testing.assert_array_equal(y, exact.astype(jnp.bfloat16))
    np.testing.assert_allclose(outer.astype(jnp.float32), exact_outer, atol=0.02)
    for leaf, other in zip(jax.tree.leaves(inner), jax.tree.leaves(exact_inner), strict=True):
      np.testing.assert_allclose(leaf, other, rtol=0.02, atol=0.2)


@pytest.mark.parametrize(('channels', 'groups'), cases([(6, 6), (48, 24), (64, 32), (37, 1)], fast=[(48, 24)]))
def test_groupnorm_takes_32_groups_or_the_next_divisor(channels, groups):
  x, layer = 3 * normal(0, 2, 3, 4, channels) + 1, layers.GroupNorm()
  variables = layer.init(KEY, x, True)
  assert jax.tree.map(jnp.shape, variables) == {'params': {'scale': (channels,), 'bias': (channels,)}}
  parts = np.asarray(x, np.float64).reshape(2, 12, groups, -1)
  mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
  expected = ((parts - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
  np.testing.assert_allclose(layer.apply(variables, x, True), expected, atol=1e-4)
  assert layer.apply(variables, x.astype(jnp.bfloat16), False).dtype == jnp.bfloat16


SIZES = [(1, 1), (2, 2), (5, 4), (4, 7), (7, 7), (1, 6)]


@pytest.mark.parametrize('size', cases([(size,) for size in SIZES], fast=[((5, 4),)]))
def test_average_pool_same_leaves_out_the_padding(size):
  x = normal(0, 3, *size, 2)
  expected = nn.avg_pool(x, (2, 2), (1, 1), 'SAME', count_include_pad=False)
  np.testing.assert_allclose(layers.average_pool_same(x), expected, rtol=1e-5, atol=1e-6)
  gradient = lambda pool: jax.grad(lambda x: jnp.sum(pool(x) ** 2))(x)
  reference = gradient(lambda x: nn.avg_pool(x, (2, 2), (1, 1), 'SAME', count_include_pad=False))
  np.testing.assert_allclose(gradient(layers.average_pool_same), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('size', cases([(size,) for size in SIZES[1:5]], fast=[((5, 4),), ((4, 7),)]))
def test_pools_of_stride_two(size):
  x = normal(0, 3, *size, 2)
  np.testing.assert_allclose(layers.average_pool(x), nn.avg_pool(x, (2, 2), (2, 2)), rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(layers.max_pool(x), nn.max_pool(x, (2, 2), (2, 2)))


def dropped(rate, x, seed=0):
  return layers.Dropout(rate).apply({}, x, True, rngs={'dropout': jax.random.key(seed)})


@pytest.mark.parametrize('rate', [0.2, 0.3, 0.5, 0.9])
def test_dropout_keeps_the_rate_and_the_mean(rate):
  y = np.asarray(dropped(rate, jnp.ones((1000, 101))))
  numbers = y.size
  assert (y == 0).mean() == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / numbers))
  assert y.mean() == pytest.approx(1, abs=4 * np.sqrt(rate / (1 - rate) / numbers))
  np.testing.assert_allclose(y[y > 0], 1 / (1 - rate), rtol=1e-4)


def test_dropout_is_independent_between_numbers_and_keys():
  y = np.asarray(dropped(0.5, jnp.ones((401, 101)))) > 0
  for other in (y[:, 1:] ^ y[:, :-1], y[1:] ^ y[:-1], y ^ (np.asarray(dropped(0.5, jnp.ones((401, 101)), 1)) > 0)):
    assert other.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize('shape', cases([((3,),), ((2, 3, 3, 1),)], fast=[((3,),)]))
def test_dropout_takes_odd_sizes(shape):
  y = dropped(0.5, normal(0, *shape))
  assert y.shape == shape
  assert y.dtype == jnp.float32


def test_dropout_of_maps_keeps_or_drops_a_whole_map():
  x = jnp.ones((50, 4, 3, 20))
  y = np.asarray(layers.Dropout(0.5, maps=True).apply({}, x, True, rngs={'dropout': jax.random.key(0)}))
  assert set(np.unique(y)) == {0.0, 2.0}
  np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1, :1], y.shape))
  assert 0.4 < y.mean() / 2 < 0.6


def test_dropout_is_nothing_in_inference_or_at_rate_zero():
  x = normal(0, 5, 5)
  assert layers.Dropout(0.5).apply({}, x, False) is x
  assert dropped(0.0, x) is x


def test_dropout_passes_the_gradient_of_what_it_keeps():
  x = normal(0, 9, 9)
  gradient = jax.grad(lambda x: jnp.sum(dropped(0.4, x)))(x)
  np.testing.assert_allclose(gradient * x, dropped(0.4, x), rtol=1e-6)


# Raw images.

IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (6, 6, 6, 1)), jnp.uint8)


def test_preprocessed_normalises_raw_images():
  net = models.MLP((4,), classes=3)
  mean, scale = np.random.default_rng(1).random((6, 6, 1)).astype(np.float32) * 99, np.float32(1 / 255)
  model = base.Preprocessed(net, mean, scale)
  variables = model.init(KEY, IMAGES, False)
  assert model.classes == 3
  x = (np.asarray(IMAGES, np.float32) - mean) / 255
  logits, out = model.apply(variables, IMAGES, False)
  inner = {'params': variables['params']['net']}
  np.testing.assert_allclose(logits, net.apply(inner, jnp.asarray(x), False)[0], rtol=1e-5, atol=1e-6)
  features = model.apply(variables, IMAGES, False, method='features')
  np.testing.assert_allclose(features, out['features'], rtol=1e-6)
  np.testing.assert_allclose(model.apply(variables, features, method='head'), logits, rtol=1e-6)


def test_augmentation_only_in_training():
  model = base.Preprocessed(models.MLP((4,), classes=3), np.float32(0), np.float32(1), crop=2, flip=True)
  variables = model.init(KEY, IMAGES, False)
  prepare = lambda train, seed: model.apply(
    variables, IMAGES, train, method='prepare', rngs={'augment': jax.random.key(seed)}
  )
  np.testing.assert_array_equal(prepare(False, 0), IMAGES.astype(jnp.float32))
  assert (prepare(True, 0) != prepare(True, 1)).any()


def test_flip_turns_about_half_of_the_images_and_nothing_else():
  x = normal(0, 400, 4, 5, 2)
  y = np.asarray(base.augment(KEY, x, 0, True))
  same, turned = ((y == other).all((1, 2, 3)) for other in (np.asarray(x), np.asarray(x)[:, :, ::-1]))
  assert (same ^ turned).all()
  assert turned.mean() == pytest.approx(0.5, abs=0.1)


def test_crop_shifts_and_fills_with_zeros():
  x = normal(0, 300, 4, 5, 2)
  y = np.asarray(base.augment(KEY, x, 1, False))
  padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
  corners = [(i, j) for i in range(3) for j in range(3)]
  correct = np.array([(padded[:, i : i + 4, j : j + 5] == y).all((1, 2, 3)) for i, j in corners])
  assert (correct.sum(0) == 1).all()  # each image is one of the nine shifts
  assert (correct.sum(1) > 15).all()  # and all nine happen


# Architectures.

FOUR = [
  models.MLP((8,), classes=3),
  models.LeNet(classes=3),
  models.TwoConv((4, 4), classes=3),
  models.ThreeConv((4, 4, 4), classes=3),
  models.FourConv((4, 4, 4, 4), classes=3),
]


@pytest.mark.parametrize('net', FOUR, ids=lambda net: type(net).__name__)
def test_the_contract_of_a_model(net):
  x = normal(0, 2, 16, 16, 1)
  variables = jax.jit(lambda: net.init(KEY, x, False))()

  @jax.jit
  def parts(variables):
    logits, out = net.apply(variables, x, False)
    features = net.apply(variables, x, False, method='features')
    return logits, out['features'], features, net.apply(variables, features, method='head')

  logits, out, features, head = parts(variables)
  assert logits.shape == (2, net.classes)
  assert features.shape[0] == 2
  assert features.ndim == 2
  np.testing.assert_array_equal(out, features)
  np.testing.assert_array_equal(head, logits)
  assert set(variables) <= {'params', 'batch_stats'}
  assert net.lowering == 'auto'


def test_lecun_and_glorot_scale_the_kernels():
  x = jnp.zeros((1, 12, 12, 1))
  for name, variance in [('lecun_normal', 1 / (9 * 64)), ('glorot_uniform', 2 / (9 * 128))]:
    net = models.TwoConv((64, 64), classes=3, initialiser=name)
    kernel = jax.jit(lambda net=net: net.init(KEY, x, False))()['params']['blocks_1']['conv']['kernel']
    assert np.var(kernel) == pytest.approx(variance, rel=0.05)


def test_lenet_starts_as_pytorch_does():
  params = jax.jit(lambda: models.LeNet().init(KEY, jnp.zeros((1, 28, 28, 1)), False))()['params']
  for fan_in, leaf in [(25, params['convs_0']), (150, params['convs_1']), (120, params['hidden_1']['Dense_0'])]:
    bound = 1 / np.sqrt(fan_in)
    for numbers in jax.tree.leaves(leaf):
      assert np.abs(numbers).max() <= bound
    assert np.abs(leaf['kernel']).max() > 0.9 * bound


@pytest.mark.parametrize(
  ('net', 'size'),
  [(models.ThreeConv((4, 4, 4)), 8), (models.TwoConv((4, 4)), 2), (models.FourConv((4, 4, 4, 4)), 4)],
  ids=['ThreeConv', 'TwoConv', 'FourConv'],
)
def test_a_too_deep_architecture_is_refused_in_one_sentence(net, size):
  with pytest.raises(ValueError, match='too deep') as error:
    jax.eval_shape(lambda: net.init(KEY, jnp.zeros((1, size, size, 1)), False))
  sentence = (
    r'groups: the architecture is too deep for images of this size \(a .* kernel meets a map of .*\); '
    'use larger images or a model with fewer layers'
  )
  assert re.fullmatch(sentence, str(error.value))
