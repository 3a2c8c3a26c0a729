"""Reading torchvision files: against networks written out in PyTorch's layout and names, on their own numbers."""

import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import models
from fedkd.errors import ConfigError
from fedkd.models import pretrained
from fedkd.models.base import Preprocessed

KEY = jax.random.key(0)
CLASSES = 3


class Torch:
  """NCHW layers that draw their numbers on first use, under torchvision's names."""

  def __init__(self):
    self.state, self.rng = {}, np.random.default_rng(0)

  def get(self, name, *shape):
    if name not in self.state:
      positive = name.endswith('running_var')
      draw = self.rng.uniform(0.5, 2, shape) if positive else self.rng.normal(0, 0.5, shape)
      self.state[name] = draw.astype(np.float32)
    return self.state[name]

  def conv(self, name, x, out, kernel, stride, padding, bias=False, groups=1):
    weight = self.get(f'{name}.weight', out, x.shape[1] // groups, kernel, kernel)
    sides, numbers = [(padding, padding)] * 2, ('NCHW', 'OIHW', 'NCHW')
    y = jax.lax.conv_general_dilated(
      x, weight, (stride, stride), sides, dimension_numbers=numbers, feature_group_count=groups
    )
    return y + self.get(f'{name}.bias', out)[:, None, None] if bias else y

  def bn(self, name, x):
    mean, var, weight, bias = (
      self.get(f'{name}.{part}', x.shape[1])[:, None, None]
      for part in ('running_mean', 'running_var', 'weight', 'bias')
    )
    self.state[f'{name}.num_batches_tracked'] = np.array(7, np.int64)
    return (x - mean) / jnp.sqrt(var + 1e-5) * weight + bias

  def linear(self, name, x, out):
    return x @ self.get(f'{name}.weight', out, x.shape[1]).T + self.get(f'{name}.bias', out)


def max_pool(x, kernel, padding=0):
  sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
  return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, kernel, kernel), (1, 1, 2, 2), sides)


def adaptive(x, side):
  window = lambda i, n: slice(i * n // side, -(-(i + 1) * n // side))
  rows = [x[:, :, window(i, x.shape[2])] for i in range(side)]
  cells = [[row[:, :, :, window(j, x.shape[3])].mean((2, 3)) for j in range(side)] for row in rows]
  return jnp.stack([jnp.stack(row, -1) for row in cells], -2)


def resnet10(t, x, channels=2):
  x = jax.nn.relu(t.bn('bn1', t.conv('conv1', x, channels, 7, 2, 3)))
  x = max_pool(x, 3, 1)
  for i in range(4):
    block, stride, out = f'layer{i + 1}.0', 2 if i else 1, channels * 2**i
    y = jax.nn.relu(t.bn(f'{block}.bn1', t.conv(f'{block}.conv1', x, out, 3, stride, 1)))
    y = t.bn(f'{block}.bn2', t.conv(f'{block}.conv2', y, out, 3, 1, 1))
    if i:
      x = t.bn(f'{block}.downsample.1', t.conv(f'{block}.downsample.0', x, out, 1, stride, 0))
    x = jax.nn.relu(x + y)
  return t.linear('fc', x.mean((2, 3)), CLASSES)


def bottleneck(t, x, channels=2):
  """Two stages of ResNet50's blocks."""
  x = jax.nn.relu(t.bn('bn1', t.conv('conv1', x, channels, 7, 2, 3)))
  x = max_pool(x, 3, 1)
  for i in range(2):
    block, stride, inner = f'layer{i + 1}.0', 2 if i else 1, channels * 2**i
    y = jax.nn.relu(t.bn(f'{block}.bn1', t.conv(f'{block}.conv1', x, inner, 1, 1, 0)))
    y = jax.nn.relu(t.bn(f'{block}.bn2', t.conv(f'{block}.conv2', y, inner, 3, stride, 1)))
    y = t.bn(f'{block}.bn3', t.conv(f'{block}.conv3', y, 4 * inner, 1, 1, 0))
    x = t.bn(f'{block}.downsample.1', t.conv(f'{block}.downsample.0', x, 4 * inner, 1, stride, 0))
    x = jax.nn.relu(x + y)
  return t.linear('fc', x.mean((2, 3)), CLASSES)


def alexnet(t, x):
  convs = [(0, 4, 11, 4, 2), (3, 12, 5, 1, 2), (6, 24, 3, 1, 1), (8, 16, 3, 1, 1), (10, 16, 3, 1, 1)]
  for at, *shape in convs:
    x = jax.nn.relu(t.conv(f'features.{at}', x, *shape, bias=True))
    x = max_pool(x, 3) if at in (0, 3, 10) else x
  x = adaptive(x, 6).reshape(len(x), -1)
  for at in (1, 4):
    x = jax.nn.relu(t.linear(f'classifier.{at}', x, 256))
  return t.linear('classifier.6', x, CLASSES)


def vgg11(t, x):
  for at, channels in [(0, 2), (3, 4), (6, 8), (8, 8), (11, 16), (13, 16), (16, 16), (18, 16)]:
    x = jax.nn.relu(t.conv(f'features.{at}', x, channels, 3, 1, 1, bias=True))
    x = max_pool(x, 2) if at in (0, 3, 8, 13, 18) else x
  x = adaptive(x, 7).reshape(len(x), -1)
  for at in (0, 3):
    x = jax.nn.relu(t.linear(f'classifier.{at}', x, 128))
  return t.linear('classifier.6', x, CLASSES)


def mobilenet(t, x):
  def unit(name, x, *shape, **groups):
    return jnp.clip(t.bn(f'{name}.1', t.conv(f'{name}.0', x, *shape, **groups)), 0, 6)

  x = unit('features.0', x, 4, 3, 2, 1)
  # Inputs, outputs, strides of the seventeen blocks, at an eighth of the published width.
  outs = [2, *[3] * 2, *[4] * 3, *[8] * 4, *[12] * 3, *[20] * 3, 40]
  strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
  for i, (out, stride) in enumerate(zip(outs, strides, strict=True), 1):
    name, y, at = f'features.{i}.conv', x, 0
    if i > 1:
      y, at = unit(f'{name}.0', y, 6 * x.shape[1], 1, 1, 0), 1
    y = unit(f'{name}.{at}', y, y.shape[1], 3, stride, 1, groups=y.shape[1])
    y = t.bn(f'{name}.{at + 2}', t.conv(f'{name}.{at + 1}', y, out, 1, 1, 0))
    x = x + y if out == x.shape[1] and stride == 1 else y
  x = unit('features.18', x, 160, 1, 1, 0)
  return t.linear('classifier.1', x.mean((2, 3)), CLASSES)


def initial(net, image):
  """Stand-ins of the initial variables: all minus one."""
  init = jax.eval_shape(lambda: net.init(KEY, image, False))
  return jax.tree.map(lambda leaf: np.full(leaf.shape, -1, np.float32), init)


NETS = {  # reference, model, rows and columns: at 95 by 127 pixels AlexNet's last map is 2 by 3
  'ResNet10': (resnet10, models.ResNet10(width=1 / 32, classes=CLASSES), (32, 40)),
  'ResNet50': (bottleneck, models.ResNet50((1, 1), width=1 / 32, classes=CLASSES), (32, 40)),
  'AlexNet': (alexnet, models.AlexNet(width=1 / 16, classes=CLASSES), (95, 127)),
  'VGG11': (vgg11, models.VGG11(width=1 / 32, classes=CLASSES), (64, 96)),
  'MobileNetV2': (mobilenet, models.MobileNetV2(width=1 / 8, classes=CLASSES), (32, 40)),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', NETS)
def test_a_loaded_network_computes_what_pytorchs_layout_does(name, tmp_path):
  reference, net, size = NETS[name]
  x = np.random.default_rng(1).normal(size=(2, *size, 3)).astype(np.float32)
  t = Torch()
  expected = jax.jit(lambda x: reference(t, x))(x.transpose(0, 3, 1, 2))
  np.savez(tmp_path / 'weights.npz', **t.state)
  variables = pretrained.load(tmp_path / 'weights.npz', initial(net, x), name)
  logits, _ = jax.jit(lambda v: net.apply(v, x, False))(variables)
  np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


# Files.

NET = models.ResNet10(width=1 / 32, classes=CLASSES)
IMAGE = jnp.zeros((1, 32, 32, 3))


@pytest.fixture(scope='module')
def state():
  t = Torch()
  jax.eval_shape(lambda x: resnet10(t, x), jax.ShapeDtypeStruct((1, 3, 32, 32), jnp.float32))
  return t.state


def save_safetensors(path, state, kind='F32', cut=0):
  """The format as its specification says, with a counter as torchvision has it."""
  convert = {
    'F32': lambda a: a.astype('<f4'),
    'F16': lambda a: a.astype('<f2'),
    'BF16': lambda a: np.asarray(jnp.asarray(a, jnp.bfloat16)).view('<u2'),
    'I32': lambda a: a.astype('<i4'),
  }[kind]
  header, parts, at = {'__metadata__': {'format': 'pt'}}, [], 0
  for name, array in state.items():
    counter = name.endswith('num_batches_tracked')
    raw = (array if counter else convert(array)).tobytes()
    header[name] = {'dtype': 'I64' if counter else kind, 'shape': array.shape, 'data_offsets': [at, at + len(raw)]}
    parts.append(raw)
    at += len(raw)
  text = json.dumps(header).encode()
  data = struct.pack('<Q', len(text)) + text + b''.join(parts)
  path.write_bytes(data[: len(data) - cut])
  return path


def save_npz(path, state):
  np.savez(path, **state)
  return path


@pytest.mark.parametrize(('kind', 'tolerance'), [('F32', 0), ('F16', 1e-3), ('BF16', 1e-2)])
def test_safetensors_hold_the_same_numbers(kind, tolerance, state, tmp_path):
  empty = initial(NET, IMAGE)
  npz = pretrained.load(save_npz(tmp_path / 'a.npz', state), empty, 'ResNet10')
  other = pretrained.load(save_safetensors(tmp_path / 'a.safetensors', state, kind), empty, 'ResNet10')
  assert jax.tree.structure(npz) == jax.tree.structure(other) == jax.tree.structure(empty)
  for a, b in zip(jax.tree.leaves(npz), jax.tree.leaves(other), strict=True):
    assert b.dtype == jnp.float32
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_every_number_goes_to_its_place(state, tmp_path):
  loaded = pretrained.load(save_npz(tmp_path / 'a.npz', state), initial(NET, IMAGE), 'ResNet10')
  params, statistics = loaded['params'], loaded['batch_stats']
  np.testing.assert_array_equal(params['conv1']['kernel'][4, 5, 2, 1], state['conv1.weight'][1, 2, 4, 5])
  np.testing.assert_array_equal(params['fc']['Dense_0']['kernel'], state['fc.weight'].T)
  block = params['layer2_0']
  np.testing.assert_array_equal(
    block['downsample_0']['kernel'][0, 0], state['layer2.0.downsample.0.weight'][:, :, 0, 0].T
  )
  np.testing.assert_array_equal(block['bn2']['scale'], state['layer2.0.bn2.weight'])
  np.testing.assert_array_equal(statistics['layer2_0']['bn2']['var'], state['layer2.0.bn2.running_var'])
  np.testing.assert_array_equal(statistics['bn1']['mean'], state['bn1.running_mean'])


def test_preprocessed_networks_too(state, tmp_path):
  path, model = save_npz(tmp_path / 'a.npz', state), Preprocessed(NET, np.float32(0), np.float32(1))
  loaded = pretrained.load(path, initial(model, IMAGE), 'ResNet10')
  plain = pretrained.load(path, initial(NET, IMAGE), 'ResNet10')
  np.testing.assert_array_equal(loaded['params']['net']['conv1']['kernel'], plain['params']['conv1']['kernel'])
  np.testing.assert_array_equal(loaded['batch_stats']['net']['bn1']['var'], plain['batch_stats']['bn1']['var'])


def test_a_last_layer_for_other_classes_keeps_its_initial_numbers(state, tmp_path):
  path, net = save_npz(tmp_path / 'a.npz', state), models.ResNet10(width=1 / 32, classes=5)
  params = pretrained.load(path, initial(net, IMAGE), 'ResNet10')['params']
  for leaf in jax.tree.leaves(params['fc']):
    assert (np.asarray(leaf) == -1).all()
  np.testing.assert_array_equal(params['bn1']['scale'], state['bn1.weight'])


def refused(path, sentence, model='ResNet10', net=NET):
  with pytest.raises(ConfigError, match=sentence) as error:
    pretrained.load(path, initial(net, IMAGE), model)
  assert '\n' not in str(error.value)


def test_what_does_not_fit_is_refused(state, tmp_path):
  path = tmp_path / 'a.npz'
  less = {k: v for k, v in state.items() if k != 'layer3.0.conv2.weight'}
  refused(save_npz(path, less), r"a.npz has no entry 'layer3.0.conv2.weight' of shape \(8, 8, 3, 3\); save the whole")
  refused(
    save_npz(path, {**state, 'layer1.1.bn1.bias': np.ones(2)}), "holds 'layer1.1.bn1.bias', for which ResNet10 has"
  )
  cifar = models.ResNet10(width=1 / 32, stem='cifar')
  save_npz(path, state)
  refused(
    path, r"'conv1.weight' of shape \(2, 3, 7, 7\), but this ResNet10 needs \(2, 3, 3, 3\); use the file", net=cifar
  )
  wide = {**state, 'fc.weight': np.ones((5, 17), np.float32)}
  refused(save_npz(path, wide), r"'fc.weight' of shape \(5, 17\), but this ResNet10 needs \(3, 16\)")
  refused(save_npz(path, {**state, 'fc.bias': np.full(3, np.nan)}), "numbers in 'fc.bias' that are not finite")


def test_an_unknown_architecture_is_refused(state, tmp_path):
  path = save_npz(tmp_path / 'a.npz', state)
  refused(
    path, r"model='LeNet' has no pretrained layout; choose one of ResNet, .*MobileNetV2.*, or start", model='LeNet'
  )
  refused(path, r"model='VGG11' is not the architecture of these variables; name theirs", model='VGG11')


def test_an_unreadable_file_is_refused(state, tmp_path):
  refused(tmp_path / 'a.pth', r'neither .npz nor .safetensors; with PyTorch, numpy.savez')
  for suffix in ('.npz', '.safetensors'):
    path = tmp_path / f'none{suffix}'
    refused(path, r'none.* cannot be read \(.*No such file.*\); give an intact')
    for content in (b'', b'\x09', b'not weights at all', bytes(20)):
      path.write_bytes(content)
      refused(path, 'cannot be read')
  whole = save_npz(tmp_path / 'a.npz', state).read_bytes()
  (tmp_path / 'a.npz').write_bytes(whole[: len(whole) // 2])
  refused(tmp_path / 'a.npz', 'cannot be read')
  refused(save_npz(tmp_path / 'a.npz', {**state, 'fc.bias': np.arange(3)}), 'fc.bias is of type int64, not floating')
  path = tmp_path / 'a.safetensors'
  refused(save_safetensors(path, state, cut=5), 'cannot be read .*incomplete metadata, file not fully covered')
  refused(save_safetensors(path, state, 'I32'), ' is of type int32, not floating')
