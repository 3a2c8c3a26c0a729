"""The figures that a run leaves in its directory."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from fedkd import files
from fedkd.analysis import of_runs
from fedkd.analysis.figures.maps import labels
from fedkd.analysis.figures.over_rounds import curves
from fedkd.analysis.figures.panels import blank, save
from fedkd.analysis.figures.per_client import clients
from fedkd.analysis.tidy import tidy
from fedkd.errors import ConfigError


def save_figures(
  workdir: str | os.PathLike, counts: ArrayLike, summary: dict[str, Any], class_names: Sequence[str] | None = None
) -> None:
  """Draws a finished run's `figures/`; one that has nothing to show is left out with a warning.

  Args:
    workdir: of the run.
    counts: the first seed's labels per client, int[clients, classes].
    summary: of the run, which is written after the figures.
    class_names: of the columns of `counts`; None: their numbers.
  """
  workdir = pathlib.Path(workdir)
  frame, folder = _frame(workdir, summary), workdir / 'figures'
  figures = {
    'accuracy_rounds': lambda: curves(frame, axes=blank()),
    'accuracy_megabytes': lambda: curves(frame, 'megabytes', axes=blank()),
    'accuracy_clients': lambda: clients(frame, axes=blank()),
  }
  for name, draw in figures.items():
    try:
      save(draw(), folder / f'{name}.png')
    except ConfigError as error:  # such as of clients whose predictions are NaN: the run has finished nevertheless
      files.warn(f'{folder / name}.png is not drawn: {error}')
  drawn = labels(counts, blank(), class_names)
  drawn.set_title(f'seed {summary["seeds"][0]}')
  save(drawn, folder / 'labels.png')


def _frame(workdir, summary):
  """The run as a tidy frame, with the architectures of its summary."""
  config = files.read_sealed(workdir / 'config.json')
  architecture = {'architecture': of_runs.architectures(summary['groups'], config)}
  return tidy(of_runs.evaluations(workdir, config), architecture, run=summary['method'], method=summary['method'])
