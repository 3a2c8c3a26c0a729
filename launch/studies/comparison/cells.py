"""A method in a setting: its runs, its result, and what is there already."""

import pathlib
import shutil
from typing import NamedTuple

from fedkd import config as base
from fedkd import files
from fedkd.analysis import results
from fedkd.errors import ConfigError, DivergedError, check_known
from launch.studies.comparison import budget
from launch.studies.comparison.settings import applying, reason, settings


class Cell(NamedTuple):
  """A method in a setting."""

  suite: str
  profile: str
  setting: str
  method: str


def cells(suite, profile, names=None, methods=None) -> list:
  """The cells that apply, setting by setting.

  Raises:
    ConfigError: for an unknown setting or method, or one that applies in none of the settings.
  """
  known = settings(suite, profile)
  check_known(names or (), known, 'settings')
  chosen = {name: applying(name) for name in names or known}
  for method in methods or ():
    if not any(method in each for each in chosen.values()):
      first = next(iter(chosen))
      why = reason(method, first) or 'it is unknown'
      raise ConfigError(f'methods={method!r} has no place in {first} ({why}); it has {", ".join(chosen[first])}')
  return [Cell(suite, profile, s, m) for s, each in chosen.items() for m in each if not methods or m in methods]


def path_of(cell, out) -> pathlib.Path:
  """The file of a cell's result."""
  return pathlib.Path(out) / f'{cell.suite}-{cell.profile}' / cell.setting / f'{cell.method}.json'


def is_done(cell, out) -> bool:
  """Whether the result of a cell is there.

  Raises:
    ConfigError: if it was made with another config or other choices.
  """
  path = path_of(cell, out)
  if not path.exists():
    return False
  found = results.read(path)
  if [one['choice'] for one in found.get('tuning', ())] != budget.grid(cell.method):
    raise ConfigError(f'{path} was made with other choices of hyperparameters; move it away to run it again')
  results.check_config(path, found, base.to_json(budget.config_of(*cell, found['chosen'])), 'it')
  return True


def run(cell, out, workdir) -> None:
  """Chooses hyperparameters on validation rows, runs the choice, writes its result and deletes the runs.

  What was begun in `workdir` goes on from its last checkpoint.

  Raises:
    DivergedError: if no choice has a finite loss, or the best one has none with other seeds.
  """
  from fedkd import experiment

  folder = pathlib.Path(workdir) / f'{cell.suite}-{cell.profile}' / cell.setting / cell.method
  tuning = [tried(cell, choice, folder / f'choice-{i}') for i, choice in enumerate(budget.grid(cell.method))]
  best = chosen(tuning)
  experiment.run(budget.config_of(*cell, best), folder / 'test', show=False)
  id = f'benchmark/{cell.suite}/{cell.setting}'
  result = results.of_run(folder / 'test', id, cell.profile, cell.method)
  path = path_of(cell, out)
  files.make(path.parent)
  files.write_json(path, {**result, 'chosen': best, 'tuning': tuning})
  shutil.rmtree(folder)


def tried(cell, choice, folder) -> dict:
  """{'choice', 'validation', 'turns', 'seconds'} of a run on one seed; no validation accuracy where it diverged."""
  from fedkd import experiment

  config = budget.config_of(*cell, choice, budget.TUNED_ON)
  config.eval_every = config.rounds  # it is judged at its end
  try:
    experiment.run(config, folder, show=False)
  except DivergedError:
    return {'choice': choice, 'validation': None, 'turns': 0, 'seconds': 0.0}
  made = results.of_run(folder, '', cell.profile)
  validation = made['curve'][-1]['validation_accuracy'][0]
  return {'choice': choice, 'validation': validation, 'turns': made['turns'], 'seconds': made['seconds']}


def chosen(tuning) -> dict:
  """The choice with the best validation accuracy, the first of equals.

  Raises:
    DivergedError: if all have diverged.
  """
  finite = [one for one in tuning if one['validation'] is not None]
  if not finite:
    raise DivergedError('every choice of hyperparameters diverged; lower the learning rates of the benchmark')
  return max(finite, key=lambda one: one['validation'])['choice']


def found(out, suite, profile) -> dict:
  """{setting: {method: result}} of all results of cells that apply."""
  everything = {}
  for cell in cells(suite, profile):
    path = path_of(cell, out)
    if path.exists():
      everything.setdefault(cell.setting, {})[cell.method] = results.read(path)
  return everything
