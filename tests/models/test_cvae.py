"""Velo's CVAE against a NumPy twin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd.models.cvae import CVAE

KEY = jax.random.key(0)
LABEL = jnp.array([0, 2, 1, 1, 0, 2])
S = jnp.asarray(np.random.default_rng(0).normal(size=(6, 8)), jnp.float32)


def initial(net, s=S, label=LABEL):
  return jax.jit(lambda: net.init(KEY, s, label, KEY, False))()


def dense(x, layer):
  return x @ np.asarray(layer['Dense_0']['kernel'], np.float64) + np.asarray(layer['Dense_0']['bias'])


def twin_encode(params, s, label):
  """Mean and log-variance in training."""
  hidden = dense(np.concatenate([s, np.asarray(params['code']['embedding'])[label]], 1), params['encoder'])
  hidden = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)
  return np.split(dense(np.maximum(hidden, 0), params['moments']), 2, 1)


def twin_decode(params, z, label, relu):
  hidden = dense(np.concatenate([z, np.asarray(params['code']['embedding'])[label]], 1), params['decoder'])
  return dense(np.maximum(hidden, 0) if relu else hidden, params['output'])


@pytest.mark.parametrize(('latent', 'relu'), [(None, False), (3, True)])
def test_a_pass_is_the_twins(latent, relu):
  net = CVAE(8, 3, latent, relu)
  variables, key = initial(net), jax.random.key(5)
  run = jax.jit(lambda: net.apply(variables, S, LABEL, key, True, mutable=['batch_stats'])[0])
  reconstruction, mean, log_variance = run()
  expected = twin_encode(variables['params'], S, LABEL)
  np.testing.assert_allclose(mean, expected[0], rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(log_variance, expected[1], rtol=1e-4, atol=1e-5)
  assert mean.shape == (6, latent or 8)
  z = expected[0] + np.exp(expected[1] / 2) * np.asarray(jax.random.normal(key, mean.shape))
  np.testing.assert_allclose(reconstruction, twin_decode(variables['params'], z, LABEL, relu), rtol=1e-3, atol=1e-4)


def test_the_parts_are_methods_and_inference_keeps_statistics():
  net = CVAE(8, 3)
  variables = initial(net)
  reconstruction, mean, log_variance = net.apply(variables, S, LABEL, KEY, False)
  parts = net.apply(variables, S, LABEL, False, method='encode')
  np.testing.assert_array_equal(parts, (mean, log_variance))
  z = mean + jnp.exp(log_variance / 2) * jax.random.normal(KEY, mean.shape)
  decoded = net.apply(variables, z, LABEL, method='decode')
  np.testing.assert_allclose(decoded, reconstruction, rtol=1e-4, atol=1e-5)
  one = net.apply(variables, S[:1], LABEL[:1], False, method='encode')  # no statistics of the batch
  np.testing.assert_allclose(one[0], mean[:1], rtol=1e-4, atol=1e-5)


def test_the_decoder_is_linear_unless_asked():
  decode = lambda net, z: net.apply(initial(CVAE(8, 3)), z, LABEL, method='decode')
  for relu in (False, True):
    net = CVAE(8, 3, relu=relu)
    bent = np.abs(decode(net, S) + decode(net, -S) - 2 * decode(net, 0 * S)).max()
    assert bent > 0.01 if relu else bent < 1e-5


def test_one_table_serves_both_ends():
  net = CVAE(8, 3)
  variables = initial(net)
  table = variables['params']['code']['embedding']
  assert table.shape == (3, 4)
  other = {**variables, 'params': {**variables['params'], 'code': {'embedding': table.at[1].add(1)}}}
  for method, rest in (('encode', (False,)), ('decode', ())):
    change = np.subtract(*(net.apply(v, S, LABEL, *rest, method=method) for v in (variables, other)))
    moved = np.abs(change).max(-1).reshape(-1, 6).max(0) > 0
    np.testing.assert_array_equal(moved, LABEL == 1)


def test_initial_numbers():
  params = initial(CVAE(256, 100), jnp.zeros((1, 256)), jnp.zeros(1, jnp.int32))['params']
  assert np.var(params['code']['embedding']) == pytest.approx(1, rel=0.05)
  for name, fan_in in (('encoder', 384), ('moments', 256), ('decoder', 384), ('output', 256)):
    assert np.abs(params[name]['Dense_0']['kernel']).max() == pytest.approx(1 / np.sqrt(fan_in), rel=0.01)
    assert np.abs(params[name]['Dense_0']['bias']).max() <= 1 / np.sqrt(fan_in)
