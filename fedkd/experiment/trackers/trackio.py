"""trackio: a run in the project $TRACKIO_PROJECT, by default fedkd, on this machine or where trackio's own variables
say.

Steps are rounds. trackio knows runs by their names, so that the id is part of it.
"""

import json
import os
import pathlib
import tempfile
from typing import Any

from fedkd.errors import in_a_sentence, reason_of
from fedkd.experiment.trackers.metrics import headline, means, per_client
from fedkd.experiment.trackers.protocol import Run, Tracker, package


def check() -> None:
  """Checks that it is installed.

  Raises:
    ConfigError: if not.
  """
  package('trackio')


def start(run: Run) -> Tracker:
  """Starts the run of this name and id, or goes on with it."""
  trackio = package('trackio')
  refused = lambda error: (
    f"tracker='trackio' cannot start ({reason_of(error)}); log in, or unset TRACKIO_SPACE_ID to log on this machine"
  )
  with in_a_sentence(refused):
    made = trackio.init(
      project=os.environ.get('TRACKIO_PROJECT', 'fedkd'),
      name=f'{run.name}-{run.id}',
      config=run.config,
      resume='allow',
      embed=False,
      auto_log_gpu=False,
      auto_log_cpu=False,
    )

  def log(row, step):
    of_clients = {f'clients/{name}': trackio.Histogram(values) for name, values in per_client(row).items()}
    made.log({**means(row), **of_clients}, step=step)

  def finish(summary, figures):
    if summary:
      with tempfile.TemporaryDirectory() as folder:
        made.log_artifact(_artifact(trackio, made.name, summary, figures, pathlib.Path(folder) / 'summary.json'))
    made.finish()

  return Tracker(log, finish, made._next_step - 1)  # which nothing public says


def _artifact(trackio, name, summary, figures, path) -> Any:
  """Summary and figures as one artifact, since every log would be one more step; `path`: a file to be written."""
  whole = trackio.Artifact(f'{name}-summary', type='summary', metadata=headline(summary))
  for figure in figures:
    whole.add_file(figure, f'figures/{figure.name}')
  path.write_text(json.dumps(summary))
  whole.add_file(path, path.name)
  return whole
