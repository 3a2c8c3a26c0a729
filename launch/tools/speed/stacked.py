"""PyTorch with all clients' models stacked, for `launch.bench`: `torch.func.vmap` of a step's gradients."""

import torch
import torch.nn.functional as F

from launch.tools.speed import torch_loop
from launch.tools.speed.torch_nets import build


def seconds_per_round(case, net, config, images, labels, rows, timed):
  """One round of `case` with `net`, all clients' parameters stacked, timed by `timed` (a function to call -> seconds).

  Adam is elementwise, so one Adam on the stack equals one per client.

  Args:
    config: of the row; mapping 'vmap' takes the gradients of all clients together, 'chunks' of several at a time.
    images, labels, rows: as `torch_loop.tensors`.
  """
  device = torch_loop.place(config)
  images, labels, rows = torch_loop.tensors(images, labels, rows, device)
  model = build(net, case.shape).to(device)
  for layer in model.modules():
    if isinstance(layer, torch.nn.BatchNorm2d):  # under vmap it does not take bfloat16 maps with float32 statistics
      layer.register_forward_pre_hook(lambda _, given: (given[0].float(),))
  params, buffers = torch.func.stack_module_state([model] * case.clients)
  adam = torch.optim.Adam(params.values())

  def loss(params, buffers, image, label):
    logits = torch.func.functional_call(model, (params, buffers), image)
    return F.cross_entropy(logits.float(), label)

  chunk = case.chunk if config.mapping == 'chunks' else None
  gradients = torch.func.vmap(torch.func.grad(loss), randomness='different', chunk_size=chunk)

  def one_round():
    for _ in range(case.steps):
      chosen = rows.gather(1, torch.rand(rows.shape, device=device).argsort(1)[:, : case.batch])
      with torch_loop.casting(config, device):
        found = gradients(params, buffers, images[chosen], labels[chosen])
      for name, stack in params.items():
        stack.grad = found[name]
      adam.step()
    torch_loop.wait(device)

  return timed(one_round)
