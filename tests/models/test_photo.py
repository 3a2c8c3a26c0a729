"""AlexNet, VGG11 and MobileNetV2, and the layers that only they use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from configs import fedh2l
from fedkd import models
from fedkd.experiment.build import assembly
from fedkd.models import mobilenet
from fedkd.models.layers import adaptive_average_pool
from fedkd.models.mobilenet import DepthwiseConv

KEY = jax.random.key(0)
normal = lambda seed, *shape: jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def slow_adaptive(x, size):
  """PyTorch's formula, window by window."""
  out = np.zeros((x.shape[0], *size, x.shape[3]))
  for i in range(size[0]):
    for j in range(size[1]):
      rows, columns = (
        slice(int(np.floor(k * n / o)), int(np.ceil((k + 1) * n / o)))
        for k, n, o in ((i, x.shape[1], size[0]), (j, x.shape[2], size[1]))
      )
      out[:, i, j] = x[:, rows, columns].mean((1, 2))
  return out


@pytest.mark.parametrize('size', [(13, 9), (1, 1), (2, 3), (6, 7), (5, 20)])
def test_adaptive_pool_is_pytorchs(size):
  x, targets = normal(0, 2, *size, 3), [(6, 6), (7, 7), (1, 1)]
  pooled = jax.jit(lambda x: [adaptive_average_pool(x, target) for target in targets])(x)
  for y, target in zip(pooled, targets, strict=True):
    np.testing.assert_allclose(y, slow_adaptive(np.asarray(x), target), atol=1e-6)


def test_adaptive_pool_of_an_equal_map_is_nothing():
  x = normal(0, 2, 6, 6, 3)
  assert adaptive_average_pool(x, (6, 6)) is x
  with pytest.raises(ValueError, match='too deep'):
    adaptive_average_pool(jnp.zeros((1, 0, 3, 2)), (6, 6))


@pytest.mark.parametrize('stride', [1, 2])
@pytest.mark.parametrize('size', [(6, 5), (1, 2)])
def test_depthwise_is_the_grouped_convolution(stride, size):
  x, layer = normal(0, 2, *size, 4), DepthwiseConv(stride)
  kernel = layer.init(KEY, x)['params']['kernel']
  assert kernel.shape == (3, 3, 1, 4)

  def grouped(x, kernel):
    sides, numbers = ((1, 1), (1, 1)), ('NHWC', 'HWIO', 'NHWC')
    return jax.lax.conv_general_dilated(
      x, kernel, (stride, stride), sides, dimension_numbers=numbers, feature_group_count=4
    )

  @jax.jit
  def both(x, kernel):
    def one(conv):
      y, pull = jax.vjp(conv, x, kernel)
      return y, pull(jnp.cos(y))

    return one(lambda x, kernel: layer.apply({'params': {'kernel': kernel}}, x)), one(grouped)

  ours, expected = both(x, kernel)
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def shapes(net, side, train=False):
  """(variables, logits, features) in shapes."""

  def run(x):
    (logits, out), variables = net.init_with_output({'params': KEY, 'dropout': KEY}, x, train)
    return variables, logits, out['features']

  return jax.eval_shape(run, jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32))


WIDTHS = {models.AlexNet: 4096, models.VGG11: 4096, models.MobileNetV2: 1280}
by_name = lambda value: getattr(value, '__name__', None)


@pytest.mark.slow
@pytest.mark.parametrize(('net', 'width'), WIDTHS.items(), ids=by_name)
def test_one_set_of_weights_for_all_image_sizes(net, width):
  variables = []
  for side in (64, 96, 224):
    made, logits, features = shapes(net(classes=7), side, train=True)
    assert (logits.shape, features.shape) == ((2, 7), (2, width))
    variables.append(made)
  assert variables[0] == variables[1] == variables[2]


@pytest.mark.parametrize(('net', 'width'), WIDTHS.items(), ids=by_name)
def test_width_scales_channels_and_dense_layers(net, width):
  variables, logits, features = shapes(net(width=0.0625, classes=3), 64)
  assert (logits.shape, features.shape) == ((2, 3), (2, width // 16))
  assert max(max(leaf.shape) for leaf in jax.tree.leaves(variables['params'])) <= 32 * 49  # VGG's flattened map
  assert shapes(net(width=1e-9), 64)[2].shape == (2, 1)


@pytest.mark.parametrize(('net', 'least'), [(models.AlexNet, 63), (models.VGG11, 32)], ids=by_name)
def test_too_small_images_are_refused(net, least):
  shapes(net(width=0.0625), least)
  for side in (least - 1, least // 3, 2):
    with pytest.raises(ValueError, match=r'too deep for images of this size .*; use larger images'):
      shapes(net(width=0.0625), side)


def plausible(net, x):
  """Variables as after initialisation, but drawn by NumPy: no compilation."""
  rng = np.random.default_rng(0)

  def number(at, leaf):
    if at[-1].key == 'kernel':
      return rng.normal(0, np.sqrt(2 / np.prod(leaf.shape[:-1])), leaf.shape).astype(np.float32)
    return np.full(leaf.shape, at[-1].key in ('scale', 'var'), np.float32)

  return jax.tree_util.tree_map_with_path(number, jax.eval_shape(lambda: net.init(KEY, x, False)))


@pytest.fixture
def shallow(monkeypatch):
  """MobileNetV2 of four blocks, which compile in a quarter of the time."""
  monkeypatch.setattr(mobilenet, 'STAGES', ((1, 16, 1, 1), (6, 24, 2, 2), (6, 320, 1, 2)))


SIDES = {models.AlexNet: 63, models.VGG11: 32, models.MobileNetV2: 32}


@pytest.mark.parametrize('net', SIDES, ids=by_name)
def test_the_contract(net, shallow):
  net, x = net(width=0.0625, classes=3, lowering='native'), normal(0, 2, SIDES[net], SIDES[net], 3)
  variables = plausible(net, x)
  logits, out = jax.jit(lambda v: net.apply(v, x, False))(variables)  # no dropout key: none is asked for
  np.testing.assert_allclose(net.apply(variables, out['features'], method='head'), logits, rtol=1e-5, atol=1e-6)
  bound = net.bind(variables)
  steps = lambda f: [step.primitive for step in jax.make_jaxpr(f)(x).eqns]
  body = steps(lambda x: bound.features(x, False))
  assert steps(lambda x: bound(x, False))[: len(body)] == body


@pytest.mark.slow
@pytest.mark.parametrize('net', SIDES, ids=by_name)
def test_a_step_is_finite_drops_and_moves_statistics(net, shallow):
  net, x = net(width=0.0625, classes=3, lowering='native'), normal(0, 4, SIDES[net], SIDES[net], 3)
  variables = plausible(net, x)

  @jax.jit
  def step(variables, seed):
    rngs = {'dropout': jax.random.key(seed)}

    def loss(params):
      (logits, out), new = net.apply({**variables, 'params': params}, x, True, rngs=rngs, mutable=['batch_stats'])
      return -jnp.mean(jax.nn.log_softmax(logits)[:, 0]), (out['features'], new)

    return jax.grad(loss, has_aux=True)(variables['params'])

  gradient, (dropped, new) = step(variables, 0)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
  assert (np.asarray(dropped) != np.asarray(step(variables, 1)[1][0])).any()
  old = jax.tree.leaves(variables.get('batch_stats', {}))
  assert all((a != np.asarray(b)).any() for a, b in zip(old, jax.tree.leaves(new), strict=True))


@pytest.mark.slow
def test_initial_numbers(shallow):
  def initial(net, *layers):
    """These layers' parameters; the rest of the network is never computed."""

    def pick():
      params = net.init(KEY, jnp.zeros((1, 64, 64, 3)), False)['params']
      return [params[layer] for layer in layers]

    return jax.jit(pick)()

  conv, dense = initial(models.AlexNet(width=0.25), 'features_3', 'classifier_1')
  for layer, fan_in in [(conv, 16 * 25), (dense, 64 * 36)]:
    for leaf in jax.tree.leaves(layer):
      assert 0.9 < np.abs(leaf).max() * np.sqrt(fan_in) <= 1 + 1e-6
  conv, dense = initial(models.VGG11(width=0.25), 'features_18', 'classifier_3')
  assert np.var(conv['kernel']) == pytest.approx(2 / (9 * 128), rel=0.02)
  assert np.std(dense['kernel']) == pytest.approx(0.01, rel=0.01)
  assert not np.any(conv['bias'])
  block, dense = initial(models.MobileNetV2(width=0.25), 'features_4', 'classifier_1')
  assert np.var(block['conv_1_0']['kernel']) == pytest.approx(2 / (9 * 36), rel=0.2)
  assert np.std(dense['kernel']) == pytest.approx(0.01, rel=0.05)


@pytest.mark.slow
def test_the_published_nets_take_a_local_and_a_global_step_at_224_pixels(tmp_path):
  """ResNet34, AlexNet, ResNet18 and VGG11 at full width, in batches of 8 to be quick: minutes, and 8 GB."""
  random = np.random.default_rng(0)
  for domain in range(4):
    for label in range(7):
      folder = tmp_path / f'domain{domain}' / f'class{label}'
      folder.mkdir(parents=True)
      for i in range(12):
        Image.fromarray(random.integers(0, 256, (96, 96, 3), np.uint8)).save(folder / f'{i}.png')
  config = fedh2l.get_config('paper,setting=pacs')
  config.method.batch = 8
  config.data.name, config.rounds, config.seeds, config.eval_every = f'domains:{tmp_path}', 2, (0,), 2
  parts = assembly.build(config)
  phase = parts.phases[0]
  state = phase.init(parts.variables)
  weights = lambda: [np.asarray(jax.tree.leaves(c['learner'].params)[-1]) for c in state.client]
  for count in (1, 2):  # the first round is local, the second has both phases
    before = weights()
    state, report = phase.run(state, count - 1, 1)
    for g, info in enumerate(report.info):
      assert np.isfinite(info['loss'][0, 0]).all()
      assert (np.asarray(info['global_phases'])[0, 0] == count - 1).all()
      assert (before[g] != weights()[g]).any()
