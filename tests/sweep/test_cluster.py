"""Sweeps through submitit, whose executors for this machine stand for SLURM."""

import contextlib
import os

import pytest
from test_study import sweep, tiny

from fedkd.errors import ConfigError
from fedkd.experiment.storage import lock
from fedkd.sweep import cluster, runs, worker

submitit = pytest.importorskip('submitit')


def test_a_sweep_through_submitit_finds_what_one_here_finds(tmp_path):
  config = tiny(tmp_path)
  here = sweep(config, tmp_path / 'here', 'method.alpha=0.2,0.9', traced=False)
  there = sweep(config, tmp_path / 'there', 'method.alpha=0.2,0.9', launcher='debug')
  assert there.table.equals(here.table)
  assert there.best == here.best


def test_jobs_that_fail_say_why(tmp_path, monkeypatch):
  monkeypatch.setattr(cluster, 'POLL', 0.1)
  run = runs.Run('a, seed 0', tmp_path / 'none', 0)
  told = {}
  with cluster.Cluster('local', 1, tmp_path / 'jobs', {'timeout_min': 1}) as jobs:
    jobs.run([run], 'code', told.__setitem__)
  assert 'holds no run' in told[run]['reason']


def test_a_job_that_was_killed_is_named(tmp_path, monkeypatch):
  monkeypatch.setattr(cluster, 'POLL', 0.1)
  monkeypatch.setattr(worker, 'answer', _die)
  run, told = runs.Run('a, seed 0', tmp_path / 'none', 0), {}
  with cluster.Cluster('local', 1, tmp_path / 'jobs', {'timeout_min': 1}) as jobs:
    jobs.run([run], 'code', told.__setitem__)
  assert 'ended without a result' in told[run]['reason']


def test_slurm_without_sbatch_is_one_sentence(tmp_path):
  with cluster.Cluster('slurm', 0, tmp_path / 'jobs', {}) as jobs, pytest.raises(ConfigError, match='launcher=slurm: '):
    jobs.run([runs.Run('a', tmp_path, 0)], 'code', lambda run, said: None)


SLURM = {  # which numbers the arrays of two jobs from 1, and says of all of them what the file `state` says
  'sbatch': 'echo x >> submitted; echo "Submitted batch job $(wc -l < submitted)"',
  'sacct': 'echo "JobID|State|NodeList"; for job in 1_0 1_1 2_0 2_1; do echo "$job|$(cat state)|node"; done',
  'squeue': 'cat queue',  # of any job
  'srun': '',
  'scancel': 'echo "$1" >> cancelled',
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
  """A folder with SLURM's commands, and `run(event)`: of a sweep's two runs, `event` happens at its first look."""
  for name, text in SLURM.items():
    (tmp_path / name).write_text(f'#!/bin/sh\ncd {tmp_path}\n{text}\n')
    (tmp_path / name).chmod(0o755)
  monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
  (tmp_path / 'state').write_text('RUNNING')
  (tmp_path / 'queue').write_text('')
  wanted = [runs.Run(name, tmp_path / name, 0) for name in ('a', 'b')]

  def run(event):
    told = {}
    submitit.SlurmJob.watcher.clear()  # as in a new process
    events = iter([event, lambda: None])  # and then the test ends
    monkeypatch.setattr(cluster.time, 'sleep', lambda seconds: next(events)())
    with cluster.Cluster('slurm', 0, tmp_path / 'jobs', {}) as jobs:
      jobs.run(wanted, 'code', lambda run, said: told.__setitem__(run.label, said))
    return told

  return tmp_path, run


class Killed(BaseException):
  """Of a sweep."""


def killed():
  raise Killed


def interrupted():
  raise KeyboardInterrupt


def ended(folder, *jobs):
  for job in jobs:
    submitit.core.utils.cloudpickle_dump(('success', {}), folder / 'jobs' / f'{job}_0_result.pkl')


def submitted(folder):
  return len((folder / 'submitted').read_text().splitlines())


def test_a_sweep_that_was_killed_and_is_started_again_waits_for_its_living_jobs(slurm):
  folder, run = slurm
  with pytest.raises(Killed):
    run(killed)
  assert run(lambda: ended(folder, '1_0', '1_1')) == {'a': {}, 'b': {}}
  assert submitted(folder) == 1
  assert run(lambda: ended(folder, '2_0', '2_1')) == {'a': {}, 'b': {}}  # of which the first jobs know nothing
  assert submitted(folder) == 2


def test_jobs_that_ended_meanwhile_are_submitted_again(slurm):
  folder, run = slurm
  with pytest.raises(Killed):
    run(killed)
  (folder / 'state').write_text('NODE_FAIL')
  with pytest.raises(Killed):
    run(killed)
  assert submitted(folder) == 2


def test_where_slurm_has_no_accounts_a_living_job_holds_its_run(slurm):
  folder, run = slurm
  (folder / 'sacct').write_text('#!/bin/sh\nexit 1\n')
  with pytest.raises(Killed):
    run(killed)
  with contextlib.ExitStack() as held:
    for name in ('a', 'b'):
      (folder / name).mkdir()
      held.enter_context(lock.held(folder / name))
    assert run(lambda: ended(folder, '1_0', '1_1')) == {'a': {}, 'b': {}}
  assert submitted(folder) == 1


@pytest.mark.parametrize(('queue', 'times'), [('1_0 main fedkd me PD\n', 1), ('', 2)])
def test_where_slurm_has_no_accounts_a_job_that_waits_is_in_the_queue(slurm, queue, times):
  folder, run = slurm
  (folder / 'sacct').write_text('#!/bin/sh\nexit 1\n')
  with pytest.raises(Killed):
    run(killed)
  (folder / 'queue').write_text(queue)
  with pytest.raises(Killed):
    run(killed)
  assert submitted(folder) == times


def test_an_interrupt_cancels_the_jobs_and_nobody_waits_for_them(slurm):
  folder, run = slurm
  with pytest.raises(KeyboardInterrupt):
    run(interrupted)
  assert (folder / 'cancelled').read_text().split() == ['1_0', '1_1']
  assert run(lambda: ended(folder, '2_0', '2_1')) == {'a': {}, 'b': {}}
  assert submitted(folder) == 2


def test_parameters_that_submitit_does_not_know_are_refused(tmp_path):
  with cluster.Cluster('local', 0, tmp_path / 'jobs', {'fast': 1}) as jobs, pytest.raises(ConfigError, match='fast'):
    jobs.run([runs.Run('a', tmp_path, 0)], 'code', lambda run, said: None)


def _die(order):
  import os

  del order
  os._exit(1)
