"""Which points a sweep tries: all of a grid, or those that Optuna proposes.

A search is a generator of rungs: it yields (points by number, rounds or 0 for those of the config) and is sent their
scores {number: validation accuracy, None where it failed}. Optuna's study is a journal beside the runs; what it lacks,
because the sweep was killed, is proposed again.
"""

import math
import pathlib
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from fedkd.errors import ConfigError, is_it
from fedkd.sweep.grid import Axis, points

Points = dict[int, dict[str, Any]]
Search = Generator[tuple[Points, int], dict[int, float | None], None]
SEARCHES = ('grid', 'random', 'tpe', 'halving')
REDUCTION = 3  # one point in so many goes on, with so many times the rounds


def check(search: str, count: int | None) -> None:
  """Checks the name of a search and its number of points.

  Raises:
    ConfigError: for an unknown search, one without a number of points, or Optuna missing.
  """
  if search not in SEARCHES:
    raise ConfigError(f'search={search!r} is unknown; choose one of {", ".join(SEARCHES)}{is_it(search, SEARCHES)}')
  if search == 'grid' and count is not None:
    raise ConfigError(f'points={count} is for search=random, tpe or halving; a grid has all its points')
  if search != 'grid':
    if count is None or count < 1:
      raise ConfigError(f'search={search} needs points={count} to be at least 1; give --points=20')
    _optuna()


def make(search: str, axes: Sequence[Axis], count: int | None, rounds: int, batch: int, out: pathlib.Path) -> Search:
  """A search by name.

  Args:
    search: one of `SEARCHES`.
    axes: of the grid.
    count: points in all; None is all of a grid.
    rounds: of the config.
    batch: points that TPE proposes at once, before it knows their scores.
    out: the directory of the sweep, for the journal.

  Raises:
    ConfigError: for another number of points than that with which successive halving has begun.
  """
  if search == 'grid':
    return _grid(axes)
  count = count or 1
  study = _study(out)
  if search == 'halving':
    _check_begun(study, count, out)
    return _halving(study, axes, count, rounds)
  return _proposed(study, axes, count, count if search == 'random' else batch, search)


def _grid(axes) -> Search:
  yield dict(enumerate(points(axes))), 0


def _proposed(study, axes, count, batch, sampler) -> Search:
  for first in range(0, count, batch):
    asked = {n: _trial(study, axes, n, sampler) for n in range(first, min(first + batch, count))}
    scores = yield {n: point for n, (_, point) in asked.items()}, 0
    for n, (trial, _) in asked.items():
      _tell(study, trial, scores[n])


def _check_begun(study, count, out):
  """Another number has other rungs, after whose rounds the runs that were continued were not evaluated on all rows."""
  begun = len(study.get_trials(deepcopy=False))  # all of them, before the first run
  if begun != count and any(out.glob('points/*')):
    raise ConfigError(
      f'points={count}, and out={out} holds a search=halving of {begun}, whose number decides after which rounds '
      f'they are compared; give points={begun}, or choose another directory'
    )


def _halving(study, axes, count, rounds) -> Search:
  """Synchronous successive halving (Jamieson and Talwalkar, 2016): runs of the better third are continued."""
  asked = {n: _trial(study, axes, n, 'random') for n in range(count)}
  rungs = max(1, round(math.log(count, REDUCTION)))
  alive: list[int] = list(asked)
  scores: dict[int, float | None] = {}
  for rung in range(rungs, -1, -1):
    scores |= yield {n: asked[n][1] for n in alive}, max(1, rounds // REDUCTION**rung)
    ranked = sorted((n for n in alive if scores[n] is not None), key=lambda n: (-(scores[n] or 0), n))
    alive = ranked[: max(1, len(ranked) // REDUCTION)]
  for n, (trial, _) in asked.items():
    _tell(study, trial, scores[n])


def _optuna() -> Any:
  try:
    import optuna
  except ImportError as error:
    raise ConfigError("search=random, tpe and halving need Optuna; pip install 'fedkd[sweep]'") from error
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  return optuna


def _study(out) -> Any:
  optuna = _optuna()
  backend = optuna.storages.journal.JournalFileBackend(str(out / 'optuna.log'))
  storage = optuna.storages.JournalStorage(backend)
  return optuna.create_study(storage=storage, study_name='sweep', direction='maximize', load_if_exists=True)


def _trial(study, axes, number, sampler) -> tuple:
  """(trial, its point), of the journal where it is there; else the number makes its seed, so that a sweep which
  was killed goes on as it would have, and spread: NumPy's old generator draws nearly the same from 0 and 3."""
  optuna = _optuna()
  known = study.get_trials(deepcopy=False)
  if number < len(known):
    trial = known[number]
    if len(trial.params) == len(axes):
      return number, {axis.field: _given(axis, trial.params[axis.field]) for axis in axes}
    trial = optuna.trial.Trial(study, study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number))
  else:
    random, tpe = optuna.samplers.RandomSampler, optuna.samplers.TPESampler
    seed = int(np.random.SeedSequence(number).generate_state(1)[0])
    study.sampler = tpe(seed=seed, constant_liar=True) if sampler == 'tpe' else random(seed=seed)
    trial = study.ask()
  return number, {axis.field: _given(axis, _suggest(trial, axis)) for axis in axes}


def _suggest(trial, axis) -> Any:
  if axis.low is None:
    return trial.suggest_categorical(axis.field, range(len(axis.values)))
  suggest = trial.suggest_int if isinstance(axis.values[0], int) else trial.suggest_float
  return suggest(axis.field, axis.low, axis.high, log=axis.logarithmic)


def _given(axis, value) -> Any:
  """Choices are kept by number: Optuna takes no tuples. Six digits name a directory that can be read."""
  if axis.low is None:
    return axis.values[value]
  return float(f'{value:.6g}') if isinstance(value, float) else value


def _tell(study, trial, score):
  optuna = _optuna()
  if study.get_trials(deepcopy=False)[trial].state.is_finished():
    return
  if score is None:
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
  else:
    study.tell(trial, score)
