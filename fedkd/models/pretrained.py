"""ImageNet weights from a file: torchvision's `state_dict` as `.npz` or `.safetensors`, put into our variables.

Nothing is downloaded. With PyTorch at hand, `numpy.savez(path, **{k: v.numpy() for k, v in state.items()})` makes
the file.
"""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import models
from fedkd.checks import npz
from fedkd.errors import ConfigError, in_a_sentence, is_it, reason_of

# The last layer, where it is not `fc`; and the first dense layer after a flattened map, with the side of that map.
HEADS = {'AlexNet': 'classifier.6', 'VGG11': 'classifier.6', 'MobileNetV2': 'classifier.1'}
FLATTENED = {'AlexNet': ('classifier.1', 6), 'VGG11': ('classifier.0', 7)}
KNOWN = ('ResNet', *(name for name in models.__all__ if name in HEADS or name.startswith('ResNet')))

LEAVES = {'kernel': 'weight', 'scale': 'weight', 'bias': 'bias', 'mean': 'running_mean', 'var': 'running_var'}
MOST_BYTES, MOST_ENTRIES = 2e9, 10_000  # of a file of weights
UNUSED = 'num_batches_tracked'


def load(path, variables, model):
  """The variables with their numbers from a file, except for a last layer of another number of classes.

  Args:
    path: `.npz` or `.safetensors`, entries named and laid out as torchvision's.
    variables: {'params', 'batch_stats'} of one network, or of one inside `Preprocessed`; no seed or client axis.
    model: the architecture's name, for example 'ResNet18' (`type(net).__name__`).

  Returns:
    Variables of the same structure, float32.

  Raises:
    ConfigError: for an unknown architecture, a file that cannot be read, an entry that is missing, left over, of
      another shape, or not finite.
  """
  if model not in KNOWN:
    known = ', '.join(KNOWN)
    near = is_it(model, KNOWN)
    raise ConfigError(f'model={model!r} has no pretrained layout; choose one of {known}, or start afresh{near}')
  entries = read(path)
  leaves, structure = jax.tree_util.tree_flatten_with_path(variables)
  names = [torch_name([key.key for key in at]) for at, _ in leaves]
  if extra := sorted(set(entries) - set(names)):
    raise ConfigError(
      f'{path} holds {extra[0]!r}, for which {model} has no place; use the file of that very architecture'
    )
  head = HEADS.get(model, 'fc')
  if not {f'{layer}.weight' for layer in (head, *FLATTENED.get(model, ())[:1])} <= set(names):
    raise ConfigError(f'model={model!r} is not the architecture of these variables; name theirs')
  fresh = _other_classes(entries, dict(zip(names, leaves, strict=True)), head)
  new = [
    leaf if fresh and name.startswith(f'{head}.') else _convert(path, entries, name, leaf, model)
    for name, (_, leaf) in zip(names, leaves, strict=True)
  ]
  return jax.tree_util.tree_unflatten(structure, new)


def torch_name(keys):
  """torchvision's name: ('params', 'layer1_0', 'conv1', 'kernel') -> 'layer1.0.conv1.weight'."""
  inner = [key for key in keys[1:-1] if key not in ('net', 'Dense_0')]  # Preprocessed's and TorchDense's own levels
  return '.'.join([*(re.sub(r'_(\d+)', r'.\1', key) for key in inner), LEAVES.get(keys[-1], keys[-1])])


def _other_classes(entries, leaves, head):
  """Whether the file has the last layer for another number of classes (and the same features)."""
  found, (_, ours) = entries.get(f'{head}.weight'), leaves[f'{head}.weight']
  return found is not None and found.ndim == 2 and found.shape[1] == ours.shape[0] and len(found) != ours.shape[1]


def _convert(path, entries, name, leaf, model):
  """One entry in our layout: OIHW -> HWIO, [out, in] -> [in, out], flattened maps from [c, h, w] to [h, w, c]."""
  shape = tuple(leaf.shape[i] for i in {4: (3, 2, 0, 1), 2: (1, 0)}.get(leaf.ndim, range(leaf.ndim)))
  if name not in entries:
    raise ConfigError(
      f'{path} has no entry {name!r} of shape {shape}; save the whole state_dict of a torchvision {model}'
    )
  entry = entries[name]
  if entry.shape != shape:
    raise ConfigError(
      f'{path} has {name!r} of shape {entry.shape}, but this {model} needs {shape}; use the file of the same '
      'architecture, stem and width, and images with as many channels'
    )
  if not np.isfinite(entry).all():
    raise ConfigError(f'{path} has numbers in {name!r} that are not finite; save the file again')
  flattened, side = FLATTENED.get(model, (None, 0))
  if name == f'{flattened}.weight':
    entry = entry.reshape(shape[0], -1, side, side).transpose(0, 2, 3, 1).reshape(shape)
  axes = {4: (2, 3, 1, 0), 2: (1, 0)}.get(entry.ndim)
  return jnp.asarray(entry.transpose(axes) if axes else entry, jnp.float32)


def read(path) -> dict:
  """{name: floating array} of an `.npz` or `.safetensors` file, without BatchNorm's counters.

  Raises:
    ConfigError: for a file of another kind, or one that cannot be read.
  """
  readers = {'.npz': _read_npz, '.safetensors': _read_safetensors}
  if (suffix := pathlib.Path(path).suffix) not in readers:
    raise ConfigError(
      f'{path} is neither .npz nor .safetensors; with PyTorch, numpy.savez("weights.npz", **{{k: v.numpy() for k, v in '
      'state_dict.items()}) makes one'
    )
  with in_a_sentence(
    lambda error: f'{path} cannot be read ({reason_of(error)}); give an intact {suffix} file of weights'
  ):
    npz.check_file(path, MOST_BYTES)
    entries = {name: entry for name, entry in readers[suffix](path).items() if not name.endswith(UNUSED)}
    for name, entry in entries.items():
      if not jnp.issubdtype(entry.dtype, jnp.floating):
        raise ValueError(f'{name} is of type {entry.dtype}, not floating')
    return entries


def _read_npz(path) -> dict:
  return npz.read(path, MOST_BYTES, members=MOST_ENTRIES)[0]


def _read_safetensors(path) -> dict:
  from safetensors.flax import load_file  # NumPy's has no bfloat16

  return load_file(path)
