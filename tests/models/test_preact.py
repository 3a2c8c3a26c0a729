"""HeteroFL's network against a plain functional twin, and the laws of its sub-networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd.models import PreActResNet
from helpers import assert_contract

KEY = jax.random.key(0)
RATES = (1.0, 0.5, 0.25, 0.125, 0.0625)
SMALL = {'blocks': (1, 2), 'width': 1 / 8, 'classes': 3}  # 8 and 16 channels
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), jnp.float32)


def initial(net, x=X):
  return jax.jit(lambda: net.init(KEY, x, False))()


def test_trees_of_all_rates_are_leading_corners():
  def shapes(rate):
    net = PreActResNet(rate=rate, lowering='native')
    return jax.eval_shape(lambda: net.init(KEY, jnp.zeros((1, 32, 32, 3)), False))['params']

  whole = shapes(1.0)
  for rate in RATES[1:]:
    part = shapes(rate)
    assert jax.tree.structure(part) == jax.tree.structure(whole)
    for (at, cut), full in zip(jax.tree_util.tree_leaves_with_path(part), jax.tree.leaves(whole), strict=True):
      sizes = tuple(math.ceil(rate * n) if n >= 64 else n for n in full.shape)  # kernels, colours, classes stay
      assert cut.shape == sizes, at


def test_channels_are_rounded_up():
  kernel = initial(PreActResNet(rate=0.3, **SMALL))['params']['layer2_0']['conv1']['kernel']
  assert kernel.shape == (3, 3, 3, 5)  # of 8 and 16


def twin(params, x, rate):
  """The logits in training."""

  def conv(x, layer, stride=1):
    kernel = layer['kernel']
    pad = (kernel.shape[0] // 2,) * 2
    numbers = ('NHWC', 'HWIO', 'NHWC')
    return jax.lax.conv_general_dilated(x, kernel, (stride,) * 2, (pad, pad), dimension_numbers=numbers)

  def norm(x, layer):
    x, axes = x / rate, (0, 1, 2)
    y = (x - x.mean(axes)) / jnp.sqrt(x.var(axes) + 1e-5)
    return jnp.maximum(y * layer['bn']['scale'] + layer['bn']['bias'], 0)

  x = conv(x, params['conv1'])
  for name, stride in (('layer1_0', 1), ('layer2_0', 2), ('layer2_1', 1)):
    block = params[name]
    out = norm(x, block['n1'])
    shortcut = conv(out, block['shortcut'], stride) if 'shortcut' in block else x
    x = conv(norm(conv(out, block['conv1'], stride), block['n2']), block['conv2']) + shortcut
  dense = params['linear']['Dense_0']
  return norm(x, params['n4']).mean((1, 2)) @ dense['kernel'] + dense['bias']


@pytest.fixture(scope='module', params=[pytest.param(1.0, marks=pytest.mark.slow), 0.25])
def run(request):
  """A training pass at a rate: the net, its variables, its logits, what it wrote, its gradient."""
  net = PreActResNet(rate=request.param, **SMALL)
  variables = initial(net)

  @jax.jit
  def step(params):
    def loss(params):
      (logits, _), new = net.apply({**variables, 'params': params}, X, True, mutable=['batch_stats', 'batch'])
      return jnp.sum(logits**2), (logits, new)

    return jax.grad(loss, has_aux=True)(params)

  gradient, (logits, new) = step(variables['params'])
  return net, variables, logits, new, gradient


def test_a_training_pass_is_the_twins(run):
  net, variables, logits, _, gradient = run
  assert ['shortcut' in variables['params'][name] for name in ('layer1_0', 'layer2_0', 'layer2_1')] == [0, 1, 0]
  expected = jax.jit(lambda params: twin(params, X, net.rate))
  np.testing.assert_allclose(logits, expected(variables['params']), rtol=1e-3, atol=1e-4)
  slow = jax.jit(jax.grad(lambda params: jnp.sum(twin(params, X, net.rate) ** 2)))(variables['params'])
  for leaf, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(slow), strict=True):
    np.testing.assert_allclose(leaf, other, rtol=1e-2, atol=1e-3 * np.abs(other).max())


@pytest.mark.slow
def test_inference_with_the_statistics_of_a_batch_is_training_on_it(run):
  net, variables, logits, new, _ = run
  assert jax.tree.map(jnp.shape, new['batch']) == jax.tree.map(jnp.shape, variables['batch_stats'])
  static = {**variables, 'batch_stats': new['batch']}
  np.testing.assert_allclose(jax.jit(net.apply, static_argnums=2)(static, X, False)[0], logits, rtol=1e-3, atol=1e-4)


def test_the_scaler_divides_before_every_norm():
  part = PreActResNet(**SMALL, rate=0.5)
  params = initial(part)['params']
  half = PreActResNet(**{**SMALL, 'width': 1 / 16})  # as many channels, no scaler
  run = lambda net: net.apply({'params': params}, X, True, mutable=['batch_stats', 'batch'])[1]['batch']
  scaled, plain = jax.jit(lambda: (run(part), run(half)))()
  for name in ('layer1_0', 'layer2_0', 'layer2_1'):
    np.testing.assert_allclose(
      scaled[name]['n1']['bn']['mean'], 2 * plain[name]['n1']['bn']['mean'], rtol=0.01, atol=1e-3
    )
    np.testing.assert_allclose(scaled[name]['n2']['bn']['var'], 4 * plain[name]['n2']['bn']['var'], rtol=0.01)


@pytest.mark.parametrize('rate', [0, -0.5, 1.01])
def test_a_rate_outside_is_refused(rate):
  with pytest.raises(ValueError, match=f'rate={rate} must be a number above 0 and at most 1'):
    initial(PreActResNet(rate=rate, **SMALL))


def test_the_contract():
  net = PreActResNet(rate=0.5, **SMALL)
  variables = initial(net)
  _, features = assert_contract(net, variables, X)
  assert features.shape == (4, 8)
  assert set(variables) == {'params', 'batch_stats'}
