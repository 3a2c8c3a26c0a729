"""Writes amsgrad.json: what PyTorch's Adam(amsgrad=True) does to parameters along given gradients, in float64."""

import json
import pathlib

import torch

START = [1.0, -2.0, 0.5]
DIRECTION = [1.0, -0.3, 0.02]
SCALES = {
  'shrinking': [0.5**step for step in range(8)],
  'growing': [2.0**step for step in range(8)],
  'turning': [1.0, -1.0, 0.1, 3.0, -0.2, 0.0, 0.5, -2.0],
}
OPTIONS = {
  'plain': {'lr': 0.1},
  'weight decay': {'lr': 0.1, 'weight_decay': 0.2},
  'other moments': {'lr': 0.05, 'betas': (0.5, 0.9), 'eps': 1e-2},
}


def trajectory(scales, options):
  """The gradients, and the parameters after each step."""
  parameter = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
  optimizer = torch.optim.Adam([parameter], amsgrad=True, **options)
  gradients, values = [[scale * d for d in DIRECTION] for scale in scales], []
  for gradient in gradients:
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    optimizer.step()
    values.append(parameter.tolist())
  return {'start': START, 'options': options, 'gradients': gradients, 'values': values}


cases = {f'{s}, {o}': trajectory(SCALES[s], OPTIONS[o]) for s in SCALES for o in OPTIONS}
golden = {'torch': torch.__version__.partition('+')[0], 'cases': cases}
pathlib.Path(__file__).with_suffix('.json').write_text(json.dumps(golden, indent=1) + '\n')
