"""What there is to say about a client's model of a finished run."""

import os
import pathlib
from typing import NamedTuple

import flax.linen as nn
import numpy as np

from fedkd import config as configs
from fedkd.analysis import results
from fedkd.experiment.build.assembly import evaluated
from fedkd.experiment.storage.loading import loaded, read_config
from fedkd.types import apply_model, of_model

MORE = 'in the run the client predicted with more than this network'


class Trained(NamedTuple):
  """A client's model of a finished run.

  Attributes:
    module, variables: as from `experiment.load`.
    shape, dtype: of a raw example.
    class_names: in the order of the logits.
    facts: what the card says, name -> text.
    accuracy: on test rows, or None where this model was not evaluated.
    tested_on: on what, in words.
    unmeasured: why it was not.
    data: the name of the data set, without folders.
  """

  module: nn.Module
  variables: dict
  shape: tuple[int, ...]
  dtype: str
  class_names: tuple[str, ...]
  facts: dict[str, str]
  accuracy: float | None
  tested_on: str
  unmeasured: str
  data: str


def trained(workdir: str | os.PathLike, client: int = 0, seed: int | None = None, trust: bool = False) -> Trained:
  """Arguments and errors as of `experiment.load`; also refuses a run that is not finished."""
  workdir = pathlib.Path(workdir)
  config = read_config(workdir, trust)
  summary = results.summary(workdir)
  module, variables, source, method = loaded(workdir, client, seed, trust)
  seed = config.seeds[0] if seed is None else seed
  classes = config.data.classes or source.classes
  names = (*source.class_names, *map(str, range(len(source.class_names), classes)))
  whole = method.predict is apply_model
  accuracy, own = (_accuracy(config, summary, client, seed, of) if whole else None for of in ('final', 'final_local'))
  on_own = {} if own is None else {'accuracy on its own test rows': f'{own:.4f}'}
  unmeasured = 'the run evaluated other clients' if whole else MORE
  data = _short(config.data.name)
  facts = on_own | _facts(config, summary, client, seed) | {'data': data}
  facts['training examples'] = _examples(workdir, client, seed)
  raw, measured = source.train_image, (accuracy, results.tested_on(summary), unmeasured)
  return Trained(module, of_model(variables), raw.shape[1:], str(raw.dtype), names, facts, *measured, data)


def _short(name) -> str:
  """The name of a data set without the folders of this machine, which are nobody's business."""
  kind, colon, path = name.partition(':')
  return f'{kind}:{pathlib.Path(path).name}' if colon else name


def _accuracy(config, summary, client, seed, of) -> float | None:
  place = np.flatnonzero(evaluated(config) == client)
  if not len(place) or f'{of}_per_client' not in summary:
    return None
  return summary[f'{of}_per_client'][config.seeds.index(seed)][place[0]]


def _examples(workdir, client, seed) -> str:
  """Of the client, and of all: which of them taught this model, directly or not, is for the method to say."""
  with np.load(workdir / 'split.npz') as split:
    sizes = sum(split[f'seed{seed}_{part}_sizes'] for part in ('private', 'shared'))
  return f'{sizes[client]} of its own, {sizes.sum()} of all clients'


def _evaluated(config) -> str:
  sampled = 0 < config.eval_clients < config.data.clients
  return f'the {config.eval_clients} evaluated' if sampled else 'all'


def _facts(config, summary, client, seed) -> dict[str, str]:
  group = next(group for group in summary['groups'] if group['first'] <= client < group['first'] + group['clients'])
  return {
    'method': summary['method'],
    'architecture': group['name'],
    'client': f'{client} (of {config.data.clients}, numbered from 0)',
    'partition': configs.label(config.data.partition),
    'rounds': str(summary['rounds']),
    'seed': str(seed),
    f'mean test accuracy of {_evaluated(config)} clients': f'{summary["final"][config.seeds.index(seed)]:.4f}',
    'commit': ' and '.join(results.commits(summary)) or 'unknown',
  }
