"""The PyTorch twins of the nets of `launch/tools/speed/cases.py`."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10


class SamePool(nn.Module):
  """2x2 mean, stride 1, SAME, without counting the padding: the mean over edges repeated once (the faster way)."""

  def forward(self, x):
    return F.avg_pool2d(F.pad(x, (0, 1, 0, 1), mode='replicate'), 2, 1)


def _block(channels, filters, kernel, stride, padding, dropout):
  """Convolution, BatchNorm, ReLU, dropout, as `fedkd.models.cnn`."""
  conv = nn.Conv2d(channels, filters, kernel, stride, padding)
  return [conv, nn.BatchNorm2d(filters, eps=1e-3, momentum=0.01), nn.ReLU(), nn.Dropout(dropout)]


def _cnn(net, channels):
  """`TwoConv` or `ThreeConv`."""
  f = net.filters
  layers = [*_block(channels, f[0], 3, 1, 1, net.dropout), SamePool()]
  if len(f) == 2:
    layers += _block(f[0], f[1], 3, 2, 0, net.dropout)
  else:
    layers += [*_block(f[0], f[1], 2, 2, 0, net.dropout), nn.AvgPool2d(2), *_block(f[1], f[2], 3, 2, 0, net.dropout)]
  return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES, bias=False))


def _strided(net, channels):
  """`cases.StridedConv`."""
  widths = (channels, *net.filters)
  convs = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Conv2d(a, b, 3, 2), nn.ReLU())]
  return nn.Sequential(*convs, nn.Flatten(), nn.LazyLinear(CLASSES))


def _lenet():
  convs = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
  dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)]
  return nn.Sequential(*convs, nn.Flatten(), *dense)


def _mlp(net, inputs):
  widths = (inputs, *net.hidden)
  dense = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
  return nn.Sequential(nn.Flatten(), *dense, nn.Linear(widths[-1], CLASSES))


class Residual(nn.Module):
  """Two 3x3 convolutions with BatchNorm, added to their input, which a 1x1 convolution fits where the shape changes."""

  def __init__(self, channels, filters, stride):
    super().__init__()
    conv = lambda inputs, kernel, stride: (
      nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, bias=False),
      nn.BatchNorm2d(filters),
    )
    self.body = nn.Sequential(*conv(channels, 3, stride), nn.ReLU(), *conv(filters, 3, 1))
    same = stride == 1 and channels == filters
    self.side = nn.Identity() if same else nn.Sequential(*conv(channels, 1, stride))

  def forward(self, x):
    return F.relu(self.body(x) + self.side(x))


def _resnet(net, channels):
  """`fedkd.models.ResNet` of two-convolution blocks with the stem for 32 pixels."""
  layers, width = [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
  for i, count in enumerate(net.blocks):
    for j in range(count):
      layers.append(Residual(width, 64 * 2**i, 2 if i and not j else 1))
      width = 64 * 2**i
  return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def build(net, shape):
  """The PyTorch twin of a Flax `net` on images of `shape` (H, W, channels)."""
  height, width, channels = shape
  kind = type(net).__name__
  if kind == 'LeNet':
    model = _lenet()
  elif kind == 'MLP':
    model = _mlp(net, height * width * channels)
  elif kind == 'StridedConv':
    model = _strided(net, channels)
  elif kind.startswith('ResNet'):
    model = _resnet(net, channels)
  else:
    model = _cnn(net, channels)
  model.eval()(torch.zeros(1, channels, height, width))  # the lazy layer sees its inputs
  return model.train()
