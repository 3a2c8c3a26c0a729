"""Our variables as PyTorch's state_dict: what `pretrained` reads back, and the same logits in PyTorch itself."""

import jax
import numpy as np
import pytest

from fedkd import models
from fedkd.errors import ConfigError
from fedkd.models import pretrained, torch_weights
from fedkd.models.base import Preprocessed

KEY = jax.random.key(0)


def drawn(net, shape):
  """Variables as after training: no statistic or bias is at its initial number."""
  x = np.zeros((1, *shape), np.float32)
  leaves, structure = jax.tree.flatten(dict(jax.eval_shape(lambda: net.init(KEY, x, False))))
  random = np.random.default_rng(0)
  return structure.unflatten([np.float32(random.uniform(0.05, 0.3, leaf.shape)) for leaf in leaves])


TORCHVISION = {
  'ResNet10': (models.ResNet10(width=1 / 32), (16, 16, 3)),
  'ResNet50': (models.ResNet50(blocks=(1, 1), width=1 / 32), (16, 16, 3)),
  'AlexNet': (models.AlexNet(width=1 / 64), (63, 63, 3)),
  'VGG11': (models.VGG11(width=1 / 64), (32, 32, 3)),
  'MobileNetV2': (models.MobileNetV2(width=1 / 16), (32, 32, 3)),
}


@pytest.mark.parametrize('name', TORCHVISION)
def test_what_is_written_is_read_back(name, tmp_path):
  net, shape = TORCHVISION[name]
  variables = drawn(net, shape)
  np.savez(tmp_path / 'weights.npz', **torch_weights.state_dict(net, variables, shape))
  again = pretrained.load(tmp_path / 'weights.npz', variables, name)
  jax.tree.map(np.testing.assert_array_equal, variables, again)


def torch_net(name, nn):
  """The networks of fedkd that are not torchvision's, written in PyTorch with the names of the table in the docs."""

  def mlp(x, net):
    x = x.flatten(1)
    for layer in net.layers:
      x = nn.functional.relu(layer(x))
    return net.output(x)

  def lenet(x, net):
    for conv in net.convs:
      x = nn.functional.max_pool2d(nn.functional.relu(conv(x)), 2)
    x = x.flatten(1)
    for layer in net.hidden:
      x = nn.functional.relu(layer(x))
    return net.output(x)

  def mnist_cnn(x, net):
    for conv in net.convs:
      x = nn.functional.relu(nn.functional.max_pool2d(conv(x), 2))
    return net.output(nn.functional.relu(net.hidden(x.flatten(1))))

  def fedgen_cnn(x, net):
    for conv, norm in zip(net.convs, net.norms, strict=True):
      x = nn.functional.relu(norm(conv(x)))
    return net.output(net.hidden(x.flatten(1)))

  of = {
    'MLP': (mlp, {'layers': [nn.Linear(6 * 5 * 3, 8), nn.Linear(8, 7)], 'output': nn.Linear(7, 4)}),
    'LeNet': (
      lenet,
      {
        'convs': [nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)],
        'hidden': [nn.Linear(400, 120), nn.Linear(120, 84)],
        'output': nn.Linear(84, 4),
      },
    ),
    'MnistCNN': (
      mnist_cnn,
      {
        'convs': [nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)],
        'hidden': nn.Linear(320, 50),
        'output': nn.Linear(50, 4),
      },
    ),
    'FedGenCNN': (
      fedgen_cnn,
      {
        'convs': [nn.Conv2d(1, 6, 3, 2, 1), nn.Conv2d(6, 16, 3, 2, 1)],
        'norms': [nn.BatchNorm2d(6), nn.BatchNorm2d(16)],
        'hidden': nn.Linear(16 * 7 * 7, 32),
        'output': nn.Linear(32, 4),
      },
    ),
  }
  forward, layers = of[name]
  net = nn.Module()
  for key, layer in layers.items():
    setattr(net, key, nn.ModuleList(layer) if isinstance(layer, list) else layer)
  return net, forward


OURS = {
  'MLP': (models.MLP((8, 7), classes=4), (6, 5, 3)),
  'LeNet': (models.LeNet(classes=4), (28, 28, 1)),
  'MnistCNN': (models.MnistCNN(classes=4), (28, 28, 1)),
  'FedGenCNN': (models.FedGenCNN(classes=4), (28, 28, 1)),
}


@pytest.mark.parametrize('name', OURS)
def test_logits_in_pytorch_are_ours(name):
  torch = pytest.importorskip('torch')
  net, shape = OURS[name]
  random = np.random.default_rng(1)
  images = random.integers(0, 256, (5, *shape), dtype=np.uint8)
  model = Preprocessed(net, np.float32(random.uniform(100, 150, shape)), np.full(shape[-1:], 1 / 255, np.float32))
  variables = drawn(model, shape)
  _, mean, scale = torch_weights.taken_apart(model)
  there, forward = torch_net(name, torch.nn)
  weights = torch_weights.state_dict(net, variables, shape)
  there.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
  there.eval()
  first = lambda constant: torch.from_numpy(torch_weights.channels_first(constant, shape))
  x = (torch.from_numpy(images.transpose(0, 3, 1, 2)).float() - first(mean)) * first(scale)
  with torch.no_grad():
    logits = forward(x, there).numpy()
  ours = np.asarray(model.apply(variables, images, False)[0])
  assert np.abs(logits - ours).max() < 1e-4 * max(1, np.abs(ours).max())


def test_layers_that_pytorch_lacks_are_named():
  constants = np.zeros(1, np.float32), np.ones(1, np.float32)
  with pytest.raises(ConfigError, match='model TwoConv has no counterpart in PyTorch'):
    torch_weights.taken_apart(Preprocessed(models.TwoConv((4, 4)), *constants))


def test_an_mlp_without_hidden_layers_flattens_into_its_output():
  net = models.MLP((), classes=2)
  kernel = np.arange(24, dtype=np.float32).reshape(12, 2)  # of an image [2, 3, 2]
  out = torch_weights.state_dict(net, {'params': {'output': {'kernel': kernel, 'bias': np.zeros(2)}}}, (2, 3, 2))
  np.testing.assert_array_equal(out['output.weight'][0], [0, 4, 8, 12, 16, 20, 2, 6, 10, 14, 18, 22])
