"""Our variables as a PyTorch state_dict: torchvision's names and layouts, the inverse of `pretrained`.

Networks that torchvision has bear its names. Those of the others follow ours, '_' before a number being '.', so that a
module with `self.layers = nn.ModuleList(...)` takes 'layers.0.weight'.
"""

import flax.linen as nn
import jax
import numpy as np

from fedkd.errors import ConfigError
from fedkd.models.base import Preprocessed, class_of
from fedkd.models.pretrained import FLATTENED, KNOWN, UNUSED, torch_name

# The first dense layer after a flattened map. Its channels are the last axis for us, and the first of PyTorch.
OWN = {'MLP': 'layers.0', 'LeNet': 'hidden.0', 'MnistCNN': 'hidden', 'FedGenCNN': 'hidden'}


def taken_apart(model: nn.Module) -> tuple[nn.Module, np.ndarray, np.ndarray]:
  """(network, mean, scale) of a model on raw examples.

  Raises:
    ConfigError: for a network whose layers PyTorch does not have.
  """
  network, name = getattr(model, 'net', model), class_of(model).__name__
  known = ('ResNet', *sorted({*KNOWN, *OWN} - {'ResNet'}))
  own = name in known and type(network).__module__.startswith('fedkd.models.')
  if not own or not isinstance(model, Preprocessed) or model.mean is None:
    raise ConfigError(
      f'model {name} has no counterpart in PyTorch, or takes no images; to=torch is for {", ".join(known)}; use to=flax'
    )
  return network, model.mean, np.asarray(model.scale)


def state_dict(network: nn.Module, variables: dict, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
  """Variables as PyTorch's arrays by name: HWIO -> OIHW, [in, out] -> [out, in], maps [h, w, c] flattened as [c, h, w].

  Args:
    network: one of `fedkd.models`, without its preprocessing.
    shape: of an example, [H, W, channels] or [n].
  """
  leaves = jax.tree_util.tree_leaves_with_path(variables)
  out = {torch_name([key.key for key in path]): _layout(np.asarray(leaf)) for path, leaf in leaves}
  layer, channels = _flattened(network, out, shape)
  if channels > 1:
    weight = out[f'{layer}.weight']
    places = weight.reshape(len(weight), -1, channels).transpose(0, 2, 1)
    out[f'{layer}.weight'] = np.ascontiguousarray(places.reshape(weight.shape))
  norms = [name.removesuffix('running_mean') for name in out if name.endswith('running_mean')]
  return out | {f'{norm}{UNUSED}': np.array(0, np.int64) for norm in norms}


def _layout(leaf) -> np.ndarray:
  axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(leaf.ndim)
  return np.ascontiguousarray(leaf.transpose(axes) if axes else leaf)


def _flattened(network, weights, shape) -> tuple[str, int]:
  """(first dense layer after a flattened map, channels of the map); ('', 1) where the map is averaged."""
  name = type(network).__name__
  if name in FLATTENED:
    layer, side = FLATTENED[name]
    return layer, weights[f'{layer}.weight'].shape[1] // side**2
  if name == 'MLP':
    return 'layers.0' if network.hidden else 'output', shape[-1] if len(shape) == 3 else 1
  return (OWN[name], len(weights['convs.1.weight'])) if name in OWN else ('', 1)


def channels_first(constant: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """A constant that broadcasts against an image [H, W, channels] as one that does against [channels, H, W]."""
  constant = np.asarray(constant, np.float32)
  if len(shape) != 3:
    return constant
  whole = constant.reshape((1,) * (3 - constant.ndim) + constant.shape)
  return np.ascontiguousarray(whole.transpose(2, 0, 1))
