"""`load_exported`: an exported model, without the run, its data or its config."""

import json
import os
import pathlib
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

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
    ConfigError: for a directory that holds no such model, one for PyTorch, or damaged files, or such as do not fit.
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
  variables = nested({name: array for name, array in arrays.items() if not name.startswith(FIELDS)})
  _check_fit(path, module, variables, examples(path, described))
  return module, variables


class Examples(NamedTuple):
  """What a model is asked, and answers: the shape and dtype of an example, and the names of the classes."""

  shape: tuple[int, ...]
  dtype: str
  class_names: tuple[str, ...]


def examples(path: pathlib.Path, described: dict) -> Examples:
  """What config.json says of them.

  Raises:
    ConfigError: if it does not.
  """
  if missing := [name for name in ('input_shape', 'num_labels', 'id2label') if name not in described]:
    raise ConfigError(f'{path}/config.json is damaged (it has no {missing[0]}); export it again')
  with in_a_sentence(lambda error: f'{path}/config.json is damaged ({reason_of(error)}); export it again'):
    names = tuple(described['id2label'][str(i)] for i in range(described['num_labels']))
    dtype = described.get('input_dtype', 'uint8')  # older exports do not say
    return Examples(tuple(map(int, described['input_shape'])), str(jnp.dtype(dtype)), names)


def _check_fit(path, module, variables, of):
  """Checks that a model takes its weights and examples, and tells apart as many classes as have names."""
  one = jax.ShapeDtypeStruct((1, *of.shape), of.dtype)
  reason = lambda error: reason_of(str(error).split(' (https')[0])  # Flax's address of more
  unfit = lambda error: f'{path}: model.safetensors and config.json do not fit ({reason(error)}); export it again'
  with in_a_sentence(unfit):
    logits, _ = jax.eval_shape(lambda variables, x: module.apply(variables, x, False), variables, one)
    if logits.shape != (1, len(of.class_names)):
      raise ValueError(f'{logits.shape[-1]} logits, and names of {len(of.class_names)} classes')


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
