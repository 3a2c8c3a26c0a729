"""The PyTorch side of `launch.bench`: the same nets and batches in a plain eager loop over clients.

A model and an Adam per client, the data already tensors, on a CPU all cores for every operation.
"""

import copy
import os
import tempfile

import torch
import torch.nn.functional as F

from launch.tools.speed.torch_nets import CLASSES, build


def place(config):
  """The device of a row, with the row's precision in force.

  Raises:
    RuntimeError: if the row needs a GPU and PyTorch finds none.
  """
  torch.set_num_threads(os.cpu_count())
  if config.backend == 'gpu' and not torch.cuda.is_available():
    raise RuntimeError('PyTorch finds no CUDA here')
  rounded = config.precision != 'highest'
  torch.backends.cudnn.benchmark = True
  torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounded
  return torch.device('cuda' if config.backend == 'gpu' else 'cpu')


def casting(config, device):
  """Within it maps are bfloat16 where the row's precision is."""
  return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == 'bfloat16')


def wait(device):
  """Returns once the device has done everything."""
  if device.type == 'cuda':
    torch.cuda.synchronize()


def layout_of(config):
  """The memory format of a row, which is its lowering."""
  return torch.channels_last if config.lowering == 'channels_last' else torch.contiguous_format


def tensors(images, labels, rows, device, layout=torch.contiguous_format):
  """Images uint8 [N, H, W, channels] as float32 [N, channels, H, W], int [N] and int [clients, n], on the device."""
  images = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float().div_(255).contiguous(memory_format=layout)
  return images, torch.from_numpy(labels).long().to(device), torch.from_numpy(rows).long().to(device)


def client_update(model, adam, images, labels, rows, knowledge, case, cast):
  """One client update; with `knowledge` [C, C] also FedHe's distillation loss and class sums."""
  sums = torch.zeros(CLASSES, CLASSES, device=rows.device)
  for _ in range(case.steps):
    chosen = rows[torch.randperm(len(rows), device=rows.device)[: case.batch]]
    image, label = images[chosen], labels[chosen]
    with cast:
      logits = model(image).float()
    loss = F.cross_entropy(logits, label)
    if knowledge is not None:
      loss = loss + F.mse_loss(logits, knowledge[label])
      sums.index_add_(0, label, logits.detach())
    adam.zero_grad()
    loss.backward()
    adam.step()


def seconds_per_round(case, net, config, images, labels, rows, timed):
  """One round of `case` with `net`, timed by `timed` (a function to call -> seconds).

  Args:
    config: of the row; its lowering is the memory format, and engine 'torch, files' loads every client's model before
      its update and saves it after, as in HtFLlib.
    images, labels, rows: as `tensors`.
  """
  device, files = place(config), config.engine == 'torch, files'
  layout = layout_of(config)
  images, labels, rows = tensors(images, labels, rows, device, layout)
  first = build(net, case.shape).to(device, memory_format=layout)
  models = [copy.deepcopy(first) for _ in range(case.clients)]
  adams = [torch.optim.Adam(model.parameters()) for model in models]
  knowledge = torch.zeros(CLASSES, CLASSES, device=device) if case.method == 'fedhe' else None

  with tempfile.TemporaryDirectory() as folder:
    paths = [f'{folder}/{k}.pt' for k in range(case.clients)]
    for path, model in zip(paths, models, strict=True):
      if files:
        torch.save(model, path)

    def one_round():
      for path, model, adam, own_rows in zip(paths, models, adams, rows, strict=True):
        if files:
          model.load_state_dict(torch.load(path, weights_only=False).state_dict())
        client_update(model, adam, images, labels, own_rows, knowledge, case, casting(config, device))
        if files:
          torch.save(model, path)
      wait(device)

    return timed(one_round)


def multiplier(config):
  """As `bench_flops.multiplier`, of PyTorch's own matmul."""
  device = place(config)

  def of_size(size):
    a = torch.randn(
      size, size, device=device, dtype=torch.bfloat16 if config.precision == 'bfloat16' else torch.float32
    )
    return lambda: (torch.matmul(a, a), wait(device))

  return of_size


def device_bytes():
  """The most bytes that tensors took on the GPU; None without one."""
  return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
