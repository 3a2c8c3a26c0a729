"""Warm starts: the models at the end of a phase, saved in a run's `phases/`, from which other runs can branch."""

import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedkd import config as configs
from fedkd import files
from fedkd.errors import ConfigError, in_a_sentence
from fedkd.experiment.storage import checkpoint, key_data, same_data


def write(workdir, phase, variables, sizes, config):
  """Keeps the variables of phase number `phase`, per group leaves [seeds, 1 or n, ...], with the config, as JSON, of
  the run that made them; `sizes`: clients per group."""
  every = _per_client(_models(variables), sizes)  # a collective operation: on all hosts, even those that write nothing
  with checkpoint.manager(pathlib.Path(workdir) / 'phases', keep=None) as opened:
    if phase in opened.all_steps():
      try:
        _, notes = checkpoint.read(opened, phase, every)
        if not _of_another_run(notes, config):
          return
        opened.delete(phase)
      except checkpoint.Damaged:
        opened.delete(phase)
    checkpoint.save(opened, phase, every, {'config': config})


class Found(NamedTuple):
  """The phase that `config.init_from` names."""

  path: pathlib.Path  # of its run
  phase: str
  config: dict  # of its run, as JSON


def find(config, beside, source) -> Found:
  """The phase that `config.init_from` names; its files are not read.

  Args:
    config: of the run that starts from it.
    beside: folder of the other run.
    source: the data of the run that starts from it.

  Raises:
    ConfigError: if there is no such run or phase, or its clients, seeds or data differ.
  """
  name, phase = named(config.init_from)
  where, path = f'init_from={config.init_from!r}', beside / name
  if why := files.why_no_run(path):
    raise ConfigError(f'{where}: {path} holds no run ({why}); run that one first, in the same folder as this one')
  with in_a_sentence(lambda error: f'{where}: {error}'):
    other = files.read_sealed(path / 'config.json')
  configs.check_stored(other, where, trust=True)  # nothing of it is executed: it must equal this run's own
  fields = ('groups', 'seeds', 'data')
  pick = lambda values: {field: values.get(field) for field in fields}
  if changed := configs.differences(pick(other), pick(configs.to_json(config))):
    raise ConfigError(f'{where}: the clients of that run differ ({"; ".join(changed)}); make them equal')
  with in_a_sentence(lambda error: f'{where}: {error}'):
    remedy = 'restore them, or start from a run on these'
    same_data.check(path, source, same_data.checksum(source), remedy)
  if not (path / 'phases' / phase).is_dir():
    raise ConfigError(f'{where}: phase {phase} of that run is not finished; finish it first')
  return Found(path, phase, other)


def named(init_from: str) -> tuple[str, str]:
  """(run, number of its phase) of `config.init_from`.

  Raises:
    ConfigError: for what is not RUN@PHASE.
  """
  name, at, phase = init_from.rpartition('@')
  if not at or not phase.isdecimal():
    told = f'init_from={init_from!r} must be RUN@PHASE'
    raise ConfigError(f'{told}, for example fedmd@0 for the end of the first phase of ../fedmd')
  return name, str(int(phase))


def read(config, beside, variables, source) -> tuple:
  """The variables that `config.init_from` names, per group leaves [seeds, n, ...].

  Args:
    config, beside, source: as in `find`.
    variables: this run's initial ones, leaves [seeds, 1, ...].

  Raises:
    ConfigError: as `find`, and for a damaged phase.
  """
  path, phase, other = find(config, beside, source)
  where = f'init_from={config.init_from!r}'
  sizes = [entry['clients'] for entry in configs.entries(config)]
  like = jax.eval_shape(lambda v: _per_client(v, sizes), _models(variables))
  unreadable = lambda error: (
    f'{where}: {path / "phases"} cannot be read ({getattr(error, "strerror", None) or error}); repair that and start '
    'again'
  )
  phases = checkpoint.manager(path / 'phases', keep=None, tidy=False)
  with in_a_sentence(unreadable, through=(ConfigError,)), phases as opened:
    remedy = f'restore it, or delete {path} and run it again'
    with in_a_sentence(lambda error: f'{where}: {path / "phases" / phase} is damaged ({error}); {remedy}'):
      found, notes = checkpoint.read(opened, int(phase), like)
  if changed := _of_another_run(notes, other):
    raise ConfigError(
      f'{where}: {path / "phases" / phase} is of a run with another config ({"; ".join(changed)}); restore the right '
      f'one, or delete {path} and run it again'
    )
  return key_data.wrapped(jax.tree.map(jnp.asarray, found))


def _of_another_run(notes, config) -> list:
  """How the config that a phase was saved with differs from that of its run; older phases were saved without."""
  return configs.differences(notes['config'], config) if 'config' in notes else []


def _models(variables) -> tuple:
  return tuple({name: v[name] for name in ('params', 'batch_stats')} for v in variables)


def _per_client(variables, sizes) -> tuple:
  """Leaves [seeds, 1 or n, ...] as [seeds, n, ...], their keys as `KeyData`."""
  widen = lambda n: lambda a: jnp.broadcast_to(a, (a.shape[0], n, *a.shape[2:]))
  return tuple(jax.tree.map(widen(n), key_data.unwrapped(v)) for v, n in zip(variables, sizes, strict=True))
