"""`export`: a client's model of a finished run, in the layout of the Hugging Face hub."""

import json
import os
import pathlib
from typing import Any, Literal

import jax.numpy as jnp

from fedkd import files
from fedkd.checks.ranges import check
from fedkd.errors import ConfigError, in_a_sentence, reason_of
from fedkd.experiment.export.card import card
from fedkd.experiment.export.reading import FIELDS
from fedkd.experiment.export.trained import Trained, trained
from fedkd.models import torch_weights
from fedkd.models.as_data import as_data, flat
from fedkd.models.base import class_of


def export(
  workdir: str | os.PathLike,
  client: int = 0,
  out: str | os.PathLike = 'exported',
  *,
  seed: int | None = None,
  to: Literal['flax', 'torch'] = 'flax',
  licence: str = 'unknown',
  trust: bool = False,
) -> pathlib.Path:
  """Writes a client's model of a finished run: model.safetensors, config.json and README.md, the card.

  Args:
    workdir: of the run; its data set must be reachable, because the model carries its normalisation.
    client: global number.
    out: a directory that is new or empty.
    seed: one of the run's seeds; None is the first.
    to: 'flax', for `fedkd.load_exported`; or 'torch', a state_dict for PyTorch with the constants of preprocessing
      beside it, for the networks of `models.torch_weights`.
    licence: of the weights, as the hub abbreviates it: 'apache-2.0', 'cc-by-4.0'.
    trust: as in `experiment.load`.

  Returns:
    `out`.

  Raises:
    ConfigError: for a run that is not finished, an unknown client or seed, a directory that is not empty, or a model
      that cannot be written so.
  """
  out = pathlib.Path(out)
  check('to', to, Literal['flax', 'torch'])
  if not licence.isprintable() or not licence:
    raise ConfigError(f'licence={licence!r} must be one line of text, such as apache-2.0')
  _check_empty(out)
  one = trained(workdir, client, seed, trust)
  contents = _flax(one) if to == 'flax' else _torch(one)
  files.make(out, 'out')
  with in_a_sentence(lambda error: f'out={out} cannot be written ({reason_of(error)}); choose another'):
    for name, content in contents.items():
      files.write(out / name, content)
    files.write(out / 'README.md', card(one, licence, to).encode())
  return out


def _check_empty(out):
  if out.exists() and (not out.is_dir() or any(out.iterdir())):
    raise ConfigError(f'out={out} is not an empty directory; give a new one, so that nothing is overwritten')


def _flax(one: Trained) -> dict[str, bytes]:
  """The files for `fedkd.load_exported`: arrays of the module, such as the mean image, lie under FIELDS."""
  from safetensors.flax import save

  module, arrays = as_data(one.module)
  fields = {f'{FIELDS}{path}': jnp.asarray(array) for path, array in arrays.items()}
  config = {'model_type': 'fedkd', **_described(one), 'module': module}
  return {'model.safetensors': save(flat(one.variables) | fields), 'config.json': _json(config)}


def _torch(one: Trained) -> dict[str, bytes]:
  """The files for PyTorch: the state_dict of the network, and the constants for images [channels, H, W]."""
  from safetensors.numpy import save

  network, mean, scale = torch_weights.taken_apart(one.module)
  weights = torch_weights.state_dict(network, one.variables, one.shape)
  config = _described(one) | {'state_dict': {name: list(array.shape) for name, array in weights.items()}}
  first = lambda constant: torch_weights.channels_first(constant, one.shape)
  return {
    'model.safetensors': save(weights),
    'preprocessing.safetensors': save({'mean': first(mean), 'scale': first(scale)}),
    'config.json': _json(config),
  }


def _json(config) -> bytes:
  return (json.dumps(config, indent=1) + '\n').encode()


def _described(one) -> dict[str, Any]:
  """What config.json says of any export, in the words of the hub where it has any."""
  from fedkd import __version__

  names = {str(i): name for i, name in enumerate(one.class_names)}
  return {
    'architectures': [class_of(one.module).__name__],
    'fedkd_version': __version__,
    'input_shape': list(one.shape),
    'input_dtype': str(one.dtype),
    'num_labels': len(names),
    'id2label': names,
    'label2id': {name: int(i) for i, name in names.items()},
  }
