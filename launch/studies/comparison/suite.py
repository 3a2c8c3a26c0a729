"""Runs the cells of a suite one after the other, in one process, and lists them."""

import gc
import itertools
import pathlib
import tempfile
from collections.abc import Sequence

from fedkd import methods
from fedkd.errors import in_a_sentence, reason_of
from fedkd.experiment.provenance import environment, use_compilation_cache
from launch.studies.comparison import cells, programs, runs
from launch.studies.comparison.settings import SIZES, reason, settings


def run(chosen: Sequence[cells.Cell], out: str, seeds: Sequence[int] | None = None) -> list:
  """Makes the runs that are missing and writes each as it ends; returns the cells of which every choice diverged.

  Args:
    chosen: the cells, those of one method behind one another, so that they share programs.
    out: the folder of results.
    seeds: of the tests; None: all of the profile.

  Raises:
    ConfigError: for a result of another configuration, or a folder that cannot be written, before anything is run.
  """
  for cell in chosen:
    cells.read(cell, out)
  with in_a_sentence(lambda error: f'out={out} cannot be written ({reason_of(error)}); choose another folder'):
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=out).close()
  use_compilation_cache()
  made_by, hopeless = environment(), []  # of this process: its code does not change while it runs
  for _, of_method in itertools.groupby(chosen, lambda cell: (cell.place.tier, cell.method)):
    for cell in of_method:
      if not _finish(cell, out, seeds or SIZES[cell.place.profile].seeds, made_by):
        hopeless.append(cell)
    programs.clear()
    gc.collect()
  return hopeless


def _finish(cell, out, seeds, made_by) -> bool:
  """All runs of a cell that are missing; whether one of its choices has not diverged."""
  private = cells.read(cell._replace(method='private'), out)
  while todo := cells.left(cells.read(cell, out), private, seeds):
    kind, choice, seed, share = todo[0]
    one = runs.run(cell.place, cell.method, choice, seed, kind == 'tuning', share)
    told = one['validation'] if kind == 'tuning' else one['curve'][-1]
    cells.add(cell, out, kind, {**one, **{k: made_by[k] for k in ('commit', 'dirty', 'device')}})
    print(f'{cell} {kind} seed {seed} {choice} {one["seconds"]} + {one["compiling"]} s: {_short(told)}', flush=True)
  return cells.chosen(cells.read(cell, out)) is not None


def _short(told) -> str:
  if not isinstance(told, dict):
    return f'validation {told}'
  mean = lambda name: sum(told[name]) / len(told[name])
  return f'own rows {mean("own"):.4f}, all rows {mean("all"):.4f}'


def listing(chosen: Sequence[cells.Cell], out: str, only: Sequence[str] | None = None) -> None:
  """Prints how much of every setting and tier is there, and what does not apply.

  Args:
    chosen: the cells.
    out: the folder of results.
    only: the methods of which it is said; None for all.
  """
  for place in dict.fromkeys(cell.place for cell in chosen):
    suite, profile, tier, name = place.astuple()
    there = [cells.read(cell, out) for cell in chosen if cell.place == place]
    private = cells.read(cells.Cell(place, 'private'), out)
    left = [cells.left(found, private, SIZES[profile].seeds) for found in there]
    done = sum(bool(found['runs']) and not of for found, of in zip(there, left, strict=True))
    print(f'{tier:10s}{name:10s} {done} of {len(there)} methods done  {settings(suite, profile)[name].title}')
    for method in only or methods.__all__:
      if why := reason(method, tier, name, suite):
        print(f'  not {method}: {why}')
