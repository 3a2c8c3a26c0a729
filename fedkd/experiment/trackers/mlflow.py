"""MLflow: a run in the experiment $MLFLOW_EXPERIMENT_NAME, by default fedkd, where $MLFLOW_TRACKING_URI says.

Steps are rounds. A run is found again by its tag `fedkd.id`; numbers per client are a JSON table per evaluation among
the artifacts.
"""

import os
import time
from typing import Any

from fedkd.config import RUN_FIELDS, flatten
from fedkd.errors import in_a_sentence, reason_of
from fedkd.experiment.trackers.metrics import headline, means, table
from fedkd.experiment.trackers.protocol import Run, Tracker, package

TAG = 'fedkd.id'
MARK = 'round'  # a metric of every evaluation, in one transaction with the others
PARAMETERS = 100  # at once
LONGEST = 500  # characters of a parameter
MAY_CHANGE = ('rounds', 'every', *RUN_FIELDS)  # when a run goes on; MLflow's parameters may not, so these are tags


def check() -> None:
  """Checks that it is installed and its store can be opened.

  Raises:
    ConfigError: if not.
  """
  mlflow = package('mlflow')
  unreachable = lambda error: (
    f"tracker='mlflow' cannot open {mlflow.get_tracking_uri()} ({reason_of(error)}); set MLFLOW_TRACKING_URI, for "
    'example to sqlite:///mlflow.db'
  )
  with in_a_sentence(unreachable):
    mlflow.MlflowClient().search_experiments(max_results=1)


def start(run: Run) -> Tracker:
  """Starts the run of this id, or goes on with it."""
  mlflow = package('mlflow')
  client = mlflow.MlflowClient()
  made = _found(client, run)
  id = made.info.run_id
  client.update_run(id, status='RUNNING')
  client.log_dict(id, run.config, 'config.json')
  values = {name: str(value)[:LONGEST] for name, value in flatten(run.config).items()}
  tags = [mlflow.entities.RunTag(f'config.{name}', values[name]) for name in MAY_CHANGE if name in values]
  client.log_batch(id, tags=tags)
  new = values.keys() - {*MAY_CHANGE, *made.data.params}
  parameters = [mlflow.entities.Param(name, values[name]) for name in sorted(new)]
  for first in range(0, len(parameters), PARAMETERS):
    client.log_batch(id, params=parameters[first : first + PARAMETERS])
  last = max((metric.step for metric in client.get_metric_history(id, MARK)), default=-1)

  def log(row, step):
    columns, lines = table(row, run.clients)
    client.log_dict(id, {'columns': columns, 'data': lines}, f'clients/{step:08d}.json')
    now = int(time.time() * 1000)
    values = {**means(row), MARK: step}
    client.log_batch(id, [mlflow.entities.Metric(name, value, now, step) for name, value in values.items()])

  def finish(summary, figures):
    if summary:
      for path in figures:
        client.log_artifact(id, str(path), 'figures')
      client.log_dict(id, summary, 'summary.json')
      for name, value in headline(summary).items():
        client.set_tag(id, f'summary.{name}', value)
    client.set_terminated(id, 'FINISHED' if summary else 'KILLED')

  return Tracker(log, finish, last)


def _found(client, run) -> Any:
  """The run of this id; a new one where there is none."""
  name = os.environ.get('MLFLOW_EXPERIMENT_NAME', 'fedkd')
  known = client.get_experiment_by_name(name)
  experiment = known.experiment_id if known else client.create_experiment(name)
  same = client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
  return same[0] if same else client.create_run(experiment, run_name=run.name, tags={TAG: run.id})
