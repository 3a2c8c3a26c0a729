"""Runs as array jobs of SLURM, through submitit; 'debug' runs them in this process, without a cluster."""

import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedkd import files
from fedkd.errors import ConfigError
from fedkd.experiment.storage import lock
from fedkd.sweep import worker
from fedkd.sweep.runs import Run

USUAL = {'timeout_min': 24 * 60}
POLL = 2  # seconds between two looks at the jobs
JOBS = 'jobs.json'  # which job was last given which run, for a sweep that is killed while its jobs go on


class Cluster:
  """One array of jobs for each rung of a search; a job that was killed is one that failed, and is run again when the
  sweep is. Jobs outlive a sweep that is killed, and one that is started again waits for them; Ctrl-C cancels them."""

  def __init__(self, cluster: str, jobs: int, folder: pathlib.Path, parameters: Mapping[str, Any]):
    self.cluster, self.jobs, self.folder, self.parameters = cluster, jobs, folder, parameters
    _submitit()

  def __enter__(self):
    return self

  def __exit__(self, *error):
    pass

  def check(self, workdir: pathlib.Path) -> str:
    """Nothing: the jobs say what is wrong, on their own machines."""
    return ''

  def run(self, runs: Sequence[Run], code: str, done: Callable[[Run, dict], None]) -> None:
    """All runs; `done` is told of each with {'reason'}, {'warning'} or {}.

    Raises:
      ConfigError: if SLURM does not take the jobs.
    """
    jobs = self._living(runs)
    if waiting := [run for run in runs if run not in jobs]:
      jobs |= self._submit(waiting, code)
    try:
      while jobs:
        for run in [run for run, job in jobs.items() if job.done()]:
          done(run, _said(jobs.pop(run)))
        if jobs:
          time.sleep(POLL)
    except KeyboardInterrupt:
      self._note({})
      for job in jobs.values():
        job.cancel(check=False)
      raise

  def _submit(self, runs, code) -> dict[Run, Any]:
    submitit = _submitit()
    orders = [run.order(code) for run in runs]
    try:
      executor = submitit.AutoExecutor(self.folder, cluster=self.cluster)
      at_once = {'slurm_array_parallelism': self.jobs} if self.jobs else {}
      executor.update_parameters(name='fedkd', **{**USUAL, **at_once, **self.parameters})
      jobs = dict(zip(runs, executor.map_array(worker.answer, orders), strict=True))
    except (RuntimeError, TypeError, NameError, submitit.core.utils.UncompletedJobError) as error:
      raise ConfigError(
        f'launcher={self.cluster}: {str(error).splitlines()[0]}; start where sbatch is, and check the parameters'
      ) from error
    self._note(self._noted() | {str(run.workdir.absolute()): job.job_id for run, job in jobs.items()})
    return jobs

  def _living(self, runs) -> dict[Run, Any]:
    """The jobs of an earlier process that wait or train yet."""
    noted = self._noted()
    ids = {run: id for run in runs if (id := noted.get(str(run.workdir.absolute())))}
    jobs = {run: _submitit().SlurmJob(self.folder, id) for run, id in ids.items()}  # all, of which sacct is asked once
    return {run: job for run, job in jobs.items() if _is_alive(job, run)}

  def _noted(self) -> dict[str, str]:
    path = self.folder / JOBS
    return files.read_sealed(path, 'out')['jobs'] if path.exists() else {}

  def _note(self, jobs):
    if self.cluster == 'slurm':  # whose jobs alone outlive this process
      files.write_sealed(self.folder / JOBS, {'jobs': jobs})


def _is_alive(job, run) -> bool:
  """Whether a job waits or trains; where `sacct` does not say, as without accounting, whether somebody trains the run
  or the job is in the queue."""
  if job.done():
    return False
  return job.state != 'UNKNOWN' or lock.look(run.workdir).is_held or _is_queued(job.job_id)


def _is_queued(job_id) -> bool:
  try:
    said = subprocess.run(['squeue', '--noheader', f'--jobs={job_id}'], capture_output=True, text=True)
  except OSError:
    return False
  return said.returncode == 0 and bool(said.stdout.strip())


def _said(job) -> dict:
  try:
    return job.result()
  except RuntimeError as error:  # submitit's, of SLURM or of a job that was killed
    return {'reason': f'job {job.job_id} ended without a result ({str(error).splitlines()[0]}); see {job.paths.stderr}'}


def _submitit() -> Any:
  try:
    import submitit
  except ImportError as error:
    raise ConfigError("launcher=slurm needs submitit; pip install 'fedkd[sweep]'") from error
  return submitit
