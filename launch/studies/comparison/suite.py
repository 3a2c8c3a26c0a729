"""Runs the cells of a suite one after the other, and lists them."""

import gc

import jax

from fedkd import methods
from fedkd.errors import DivergedError
from launch.studies.comparison import cells
from launch.studies.comparison.settings import reason, settings


def run(chosen, out, workdir) -> list:
  """Runs the cells whose result is not there; returns those that diverged.

  Raises:
    ConfigError: for a result of another config, before anything is run.
  """
  left, diverged = [cell for cell in chosen if not cells.is_done(cell, out)], []
  print(f'{len(chosen) - len(left)} of {len(chosen)} are there', flush=True)
  for i, cell in enumerate(left, 1):
    print(f'{i}/{len(left)} {cell.setting} {cell.method}', flush=True)
    try:
      cells.run(cell, out, workdir)
    except DivergedError as error:
      print(f'{cell.setting} {cell.method}: {error}', flush=True)
      diverged.append(cell)
    jax.clear_caches()  # hundreds of programs would fill the memory
    gc.collect()
  return diverged


def listing(suite, profile, out):
  """Prints how much of every setting is there, and what does not apply."""
  for name, setting in settings(suite, profile).items():
    every = cells.cells(suite, profile, [name])
    done = sum(cells.path_of(cell, out).exists() for cell in every)
    print(f'{name:14s} {done} of {len(every)} methods done  {setting.title}')
    for method in methods.__all__:
      if why := reason(method, name):
        print(f'  not {method}: {why}')
