"""The crash harness, short: a run that dies, or whose disk is full, at some of its operations on files."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from launch.studies.papers import robustness

ROOT = pathlib.Path(__file__).parents[3]
FIGURES = {'operations': 9, 'points': 4, 'equal': 3, 'refused': 1, 'other': 0, 'seconds': 30.0, 'slowest': 1.4}


def harness(path, *flags, case='fedavg'):
  words = [sys.executable, '-m', 'launch.crash', f'--cases={case}', f'--json={path}', *flags]
  done = subprocess.run(words, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stdout + done.stderr
  return json.loads(path.read_text())['cases'][case], done.stdout


@pytest.mark.skipif(not shutil.which('cc'), reason='there is no C compiler for tests/shim.c')
@pytest.mark.parametrize('flags', [
  ('--faults=kill,full', '--every=300'),
  pytest.param(('--faults=damage,seen,read-only,broken,kills,timed,paused,clock,starts,limits,watched', '--every=20',
                '--count=3'), marks=pytest.mark.slow),
])  # fmt: skip
def test_whatever_happens_a_run_ends_the_same_or_is_refused(tmp_path, flags):
  found, said = harness(tmp_path / 'crash.json', *flags)
  assert set(found) == set(flags[0].partition('=')[2].split(','))
  for figures in found.values():
    assert figures['operations'] > 200
    assert figures['equal'] + figures['refused'] == figures['points'] >= 2, said
    assert figures['other'] == 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which('cc'), reason='there is no C compiler for tests/shim.c')
def test_two_hosts_of_which_one_is_killed_and_trials_that_are_not_repeated(tmp_path):
  flags = ('--faults=pair', '--count=2', f'--trials={tmp_path / "trials.jsonl"}')
  first, said = harness(tmp_path / 'one.json', *flags, case='fedavg-devices')
  assert (first['pair']['points'], first['pair']['equal']) == (2, 2), said
  trials = (tmp_path / 'trials.jsonl').read_text()
  again, _ = harness(tmp_path / 'two.json', *flags, case='fedavg-devices')
  assert again == first
  assert (tmp_path / 'trials.jsonl').read_text() == trials


def test_trials_of_a_file_are_those_of_a_case_and_a_fault(tmp_path):
  from launch.tools.crash import harness

  one = {'case': 'fedhe', 'fault': 'kill', 'what': '3', **harness.tried(lambda: (['equal', 'equal', 'lost'], 0.5))}
  for found in (one, {**one, 'fault': 'full'}, {**one, 'case': 'velo'}):
    harness.note(tmp_path / 'trials.jsonl', found)
  assert harness.recorded(tmp_path / 'trials.jsonl', 'fedhe', 'kill') == {'3': one}
  assert one['verdicts'] == {'equal': 2, 'lost': 1}
  assert one['slowest'] == 0.5
  assert harness.recorded(None, 'fedhe', 'kill') == {}
  assert harness.tried(lambda: None) is None


def test_the_table_adds_up_the_runs_of_a_fault(tmp_path):
  found = {'machine': '2 cores', 'cases': {'fedhe': {'kill': FIGURES, 'full': FIGURES}, 'velo': {'kill': FIGURES}}}
  (tmp_path / 'crash.json').write_text(json.dumps(found))
  text = robustness.table(tmp_path / 'crash.json')
  assert '| fedhe, velo | 8 of 18 | 6 | 2 | 0 |' in text
  assert '| fedhe | 4 of 9 | 3 | 1 | 0 |' in text
  assert text.endswith('12 points in 2 minutes on 2 cores; the slowest start after a fault took 1 s.\n')
