"""The PyTorch side of `launch/bench.py`: the same nets and batches in a plain eager loop over clients.

A model and an Adam per client, the data already tensors, all cores for every operation.
"""

import itertools
import tempfile

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
  """`bench_cases.StridedConv`."""
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
  else:
    model = _cnn(net, channels)
  model.eval()(torch.zeros(1, channels, height, width))  # the lazy layer sees its inputs
  return model.train()


def _turn(model, adam, images, labels, rows, knowledge, case):
  """One client's turn; with `knowledge` [C, C] also FedHe's distillation loss and class sums."""
  sums = torch.zeros(CLASSES, CLASSES)
  for _ in range(case.steps):
    chosen = rows[torch.randperm(len(rows))[: case.batch]]
    image, label = images[chosen], labels[chosen]
    logits = model(image)
    loss = F.cross_entropy(logits, label)
    if knowledge is not None:
      loss = loss + F.mse_loss(logits, knowledge[label])
      sums.index_add_(0, label, logits.detach())
    adam.zero_grad()
    loss.backward()
    adam.step()


def seconds_per_round(case, net, channels_last, files, images, labels, rows, timed, threads):
  """One round of `case` with `net`, timed by `timed` (a function to call -> seconds).

  Args:
    channels_last: memory format.
    files: whether every client's model is loaded before its turn and saved after it, as in HtFLlib.
    images: float32 [N, H, W, channels], NumPy, as are `labels` [N] and `rows` [clients, n].
  """
  torch.set_num_threads(threads)
  layout = torch.channels_last if channels_last else torch.contiguous_format
  images = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=layout)
  labels, rows = torch.from_numpy(labels).long(), torch.from_numpy(rows).long()
  models = [build(net, case.shape).to(memory_format=layout) for _ in range(case.clients)]
  adams = [torch.optim.Adam(model.parameters()) for model in models]
  knowledge = torch.zeros(CLASSES, CLASSES) if case.method == 'fedhe' else None

  with tempfile.TemporaryDirectory() as folder:
    paths = [f'{folder}/{k}.pt' for k in range(case.clients)]
    for path, model in zip(paths, models, strict=True):
      torch.save(model, path)

    def one_round():
      for path, model, adam, mine in zip(paths, models, adams, rows, strict=True):
        if files:
          model.load_state_dict(torch.load(path, weights_only=False).state_dict())
        _turn(model, adam, images, labels, mine, knowledge, case)
        if files:
          torch.save(model, path)

    return timed(one_round)


def version():
  """PyTorch's version."""
  return torch.__version__
