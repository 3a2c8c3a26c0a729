"""Weights & Biases: a run in the project $WANDB_PROJECT, by default fedkd; its files in the run directory.

Steps are rounds. Offline (`WANDB_MODE=offline`) every process writes a folder of its own, with the id of the run, which
`wandb sync` puts together.
"""

import os

from fedkd.errors import ConfigError
from fedkd.experiment.trackers.metrics import headline, means, per_client, table
from fedkd.experiment.trackers.protocol import Run, Tracker, package
from fedkd.experiment.trackers.wandb_files import last_step


def check() -> None:
  """Checks that it is installed, and logged in or offline.

  Raises:
    ConfigError: if not.
  """
  wandb = package('wandb')
  if wandb.setup().settings.mode not in ('offline', 'disabled', 'dryrun') and not _is_logged_in(wandb):
    raise ConfigError(
      "tracker='wandb' is not logged in; run `wandb login` or set WANDB_API_KEY, or set WANDB_MODE=offline to log into "
      'the run directory alone'
    )


def _is_logged_in(wandb) -> bool:
  try:
    return bool(wandb.login(prompt=False, verify=False))
  except (ValueError, wandb.Error):  # a key of another form
    return False


def start(run: Run) -> Tracker:
  """Starts the run of this id, or goes on with it."""
  wandb = package('wandb')
  settings = wandb.Settings(console='off', x_disable_stats=True, reinit='create_new')
  project = os.environ.get('WANDB_PROJECT', 'fedkd')
  last = last_step(run.folder / 'wandb', run.id)  # before there is a new folder
  made = wandb.init(
    project=project, id=run.id, name=run.name, config=run.config, dir=run.folder, resume='allow', settings=settings
  )
  latest: dict = {}

  def log(row, step):
    of_clients = {f'clients/{name}': wandb.Histogram(values) for name, values in per_client(row).items()}
    made.log({**means(row), **of_clients}, step=step)
    latest.update(row=row)

  def finish(summary, figures):
    if summary:
      made.summary.update({f'summary/{name}': value for name, value in headline(summary).items()})
      made.summary.update({f'figures/{path.stem}': wandb.Image(str(path)) for path in figures})
      if latest:
        columns, lines = table(latest['row'], run.clients)
        made.summary['clients'] = wandb.Table(columns=columns, data=lines)
    made.finish(exit_code=0 if summary else 1)

  return Tracker(log, finish, max(last, made.step - 1))
