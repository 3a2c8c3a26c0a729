"""Sweeps through submitit, whose executors for this machine stand for SLURM."""

import pytest
from test_study import sweep, tiny

from fedkd.errors import ConfigError
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


def test_parameters_that_submitit_does_not_know_are_refused(tmp_path):
  with cluster.Cluster('local', 0, tmp_path / 'jobs', {'fast': 1}) as jobs, pytest.raises(ConfigError, match='fast'):
    jobs.run([runs.Run('a', tmp_path, 0)], 'code', lambda run, said: None)


def _die(order):
  import os

  del order
  os._exit(1)
