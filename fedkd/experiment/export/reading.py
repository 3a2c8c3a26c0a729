"""`load_exported`: an exported model, without the run, its data or its config."""

import json
import os
import pathlib

import flax.linen as nn

from fedkd.errors import ConfigError, in_a_sentence, reason_of
from fedkd.models.as_data import from_data, nested

FIELDS = 'fields.'  # before the names of arrays that are of the module, and no variables


def load_exported(path: str | os.PathLike, trust: bool = False) -> tuple[nn.Module, dict]:
  """The model that `fedkd.export` has written.

  Args:
    path: its directory, with model.safetensors and config.json.
    trust: whether config.json may name classes outside fedkd, a model of one's own, which are then imported.

  Returns:
    (module, variables): `module.apply(variables, images, False)` gives (logits, {'features': ...}) for raw uint8
    images [B, H, W, channels], as `experiment.load` of the run does.

  Raises:
    ConfigError: for a directory that holds no such model, one for PyTorch, or damaged files.
  """
  from safetensors.flax import load_file

  path = pathlib.Path(path)
  described = read_config(path)
  with in_a_sentence(lambda error: f'{path}/model.safetensors cannot be read ({reason_of(error)}); export it again'):
    arrays = load_file(path / 'model.safetensors')
  fields = {name.removeprefix(FIELDS): array for name, array in arrays.items() if name.startswith(FIELDS)}
  damaged = lambda error: f'{path}/config.json describes no model ({reason_of(error)}); export it again'
  with in_a_sentence(damaged, through=(ConfigError,)):
    module = from_data(described['module'], fields, trust)
  return module, nested({name: array for name, array in arrays.items() if not name.startswith(FIELDS)})


def read_config(path: pathlib.Path) -> dict:
  """config.json of an export.

  Raises:
    ConfigError: if there is none, or it is of an export for PyTorch.
  """
  with in_a_sentence(
    lambda error: f'{path} holds no exported model ({reason_of(error)}); give what fedkd export wrote'
  ):
    described = json.loads((path / 'config.json').read_text())
  if not isinstance(described, dict) or 'module' not in described:
    raise ConfigError(f'{path} is not an export for fedkd (config.json has no module); export it with to=flax')
  return described
