"""The crash harness, short: a run that dies, or whose disk is full, at some of its operations on files."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from launch.papers import robustness

ROOT = pathlib.Path(__file__).parents[2]
FIGURES = {'operations': 9, 'points': 4, 'equal': 3, 'refused': 1, 'other': 0, 'seconds': 30.0, 'slowest': 1.4}


def harness(path, *flags):
  words = [sys.executable, '-m', 'launch.crash', '--cases=fedavg', f'--json={path}', *flags]
  done = subprocess.run(words, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stdout + done.stderr
  return json.loads(path.read_text())['cases']['fedavg'], done.stdout


@pytest.mark.skipif(not shutil.which('cc'), reason='there is no C compiler for tests/shim.c')
@pytest.mark.parametrize('flags', [
  ('--faults=kill,full', '--every=110'),
  pytest.param(('--faults=damage,read-only,broken,kills,timed,paused,clock,starts,limits', '--every=20', '--count=3'),
               marks=pytest.mark.slow),
])  # fmt: skip
def test_whatever_happens_a_run_ends_the_same_or_is_refused(tmp_path, flags):
  found, said = harness(tmp_path / 'crash.json', *flags)
  assert set(found) == set(flags[0].partition('=')[2].split(','))
  for fault, figures in found.items():
    assert figures['operations'] > 200
    assert figures['equal'] + figures['refused'] == figures['points'] >= (1 if fault == 'starts' else 2), said
    assert figures['other'] == 0


def test_the_table_adds_up_the_runs_of_a_fault(tmp_path):
  found = {'machine': '2 cores', 'cases': {'fedhe': {'kill': FIGURES, 'full': FIGURES}, 'velo': {'kill': FIGURES}}}
  (tmp_path / 'crash.json').write_text(json.dumps(found))
  text = robustness.table(tmp_path / 'crash.json')
  assert '| fedhe, velo | 8 of 18 | 6 | 2 | 0 |' in text
  assert '| fedhe | 4 of 9 | 3 | 1 | 0 |' in text
  assert text.endswith('12 points in 2 minutes on 2 cores; the slowest start after a fault took 1 s.\n')
