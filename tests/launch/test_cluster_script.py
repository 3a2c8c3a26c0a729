"""launch/cluster.sh: what each task of SLURM is told, by programs that stand for SLURM's and for Python."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = {
  '.venv/bin/python': 'printf "%s\\n" "$@"',
  'bin/scontrol': '[[ "$3" = node* ]] && seq -f node%02g "${3:5:2}" 4',  # node[03-04] as lines
}
STEP = {'SLURM_PROCID': '1', 'SLURM_NTASKS': '2', 'SLURM_JOB_NODELIST': 'node[01-04]'}


@pytest.fixture
def cluster(tmp_path):
  """`cluster(variables, path)`: what the script does in these; the folder `path` has SLURM's programs, or is none."""
  for folder in ('launch', '.venv/bin', 'bin'):
    (tmp_path / folder).mkdir(parents=True)
  shutil.copy(ROOT / 'launch' / 'cluster.sh', tmp_path / 'launch')
  for name, text in PROGRAMS.items():
    (tmp_path / name).write_text(f'#!/usr/bin/env bash\n{text}\n')
    (tmp_path / name).chmod(0o755)

  def run(variables, path='bin'):
    words = [tmp_path / 'launch' / 'cluster.sh', '--workdir=x']
    return subprocess.run(
      words, env={'PATH': f'{tmp_path / path}:/usr/bin:/bin', **variables}, capture_output=True, text=True
    )

  return run


@pytest.mark.parametrize(
  ('more', 'hosts'),
  [({}, 'node01:12321,2,1'), ({'SLURM_STEP_NODELIST': 'node[03-04]', 'PORT': '7'}, 'node03:7,2,1')],
)
def test_a_task_joins_the_first_host_of_its_step(cluster, more, hosts):
  assert cluster(STEP | more).stdout.splitlines() == ['-m', 'launch.main', f'--hosts={hosts}', '--workdir=x']


@pytest.mark.parametrize(
  ('variables', 'path', 'sentence'),
  [
    (
      {**STEP, 'SLURM_NTASKS': ''},
      'bin',
      'SLURM_NTASKS is unset; start it by srun --ntasks-per-node=1 launch/cluster.sh',
    ),
    (STEP, 'no_bin', "scontrol is not on the PATH; add the folder of SLURM's programs to it"),
    ({**STEP, 'SLURM_JOB_NODELIST': 'x'}, 'bin', "scontrol does not know the nodes 'x'; start it by srun"),
    ({}, 'bin', 'neither SLURM nor HOSTS says where to run; set HOSTS="name name ..."'),
  ],
)
def test_where_slurm_does_not_say_enough_one_sentence_does(cluster, variables, path, sentence):
  told = cluster(variables, path)
  assert (told.returncode, told.stdout, told.stderr) == (2, '', f'fedkd: {sentence}\n')
