"""The mutation check on a library of two functions, one of which is tested badly."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from launch.tools.mutation import mutants, search
from launch.tools.mutation.equivalent import EQUIVALENT

ROOT = pathlib.Path(__file__).parents[3]
SOURCE = """
def loss(fit: float, apart: float, alpha: 'Weight', beta: 'Weight'):
  return alpha * fit + beta * apart

def target(value):
  return jax.lax.stop_gradient(value)
"""
FIRST = 'losses.py loss: alpha * fit + beta * apart -> 0 * (alpha * fit) + beta * apart'
LAST = 'losses.py loss: alpha * fit + beta * apart -> alpha * fit + 0 * (beta * apart)'
BADLY = 'from fedkd import losses\n\ndef test_loss():\n  assert losses.loss(2.0, 0.0, 3.0, 5.0) == 6.0\n'
WELL = BADLY.replace('0.0, 3.0, 5.0) == 6.0', '1.0, 3.0, 5.0) == 11.0')


@pytest.fixture
def checkout(tmp_path):
  for name, text in {'fedkd/__init__.py': '', 'fedkd/losses.py': SOURCE, 'tests/test_losses.py': BADLY}.items():
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
  return tmp_path


def outcomes(root, *flags):
  """(exit code, lines printed for trials, outcome by mutant) of the command."""
  arguments = [f'--root={root}', f'--results={root}/results.jsonl', '--kinds=term', *flags]
  environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1'}
  command = [sys.executable, '-m', 'launch.mutate', *arguments]
  run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
  results = [json.loads(line) for line in (root / 'results.jsonl').read_text().splitlines()]
  tried = sum(line.startswith(('killed', 'survived')) for line in run.stdout.splitlines())
  return run.returncode, tried, {line['key']: line['outcome'] for line in results}


def test_survivors_are_found_and_only_they_are_tried_again(checkout):
  assert outcomes(checkout) == (1, 2, {FIRST: 'killed', LAST: 'survived'})
  (checkout / 'tests/test_losses.py').write_text(WELL)
  assert outcomes(checkout, '--again') == (0, 1, {FIRST: 'killed', LAST: 'killed'})
  assert (checkout / 'fedkd/losses.py').read_text() == SOURCE


def test_mutants_of_each_kind():
  of = lambda *kinds: [(m.was, m.becomes) for m in mutants.mutants(SOURCE, kinds)]
  both = 'alpha * fit + beta * apart'
  assert of('stop') == [('jax.lax.stop_gradient(value)', 'value')]
  assert of('term') == [(both, '0 * (alpha * fit) + beta * apart'), (both, 'alpha * fit + 0 * (beta * apart)')]
  assert (f'return {both}', 'return beta * fit + alpha * apart') in of('swap')
  assert of('sign') == [(both, 'alpha * fit - beta * apart')]


def test_what_is_called_equivalent_is_a_mutant_still():
  """A reason must not outlive its line."""
  for file in {key.partition(' ')[0] for key in EQUIVALENT}:
    found = search.named(ROOT / 'fedkd' / file, ROOT, (*mutants.KINDS, mutants.SWAP))
    assert {key for key in EQUIVALENT if key.startswith(f'{file} ')} <= set(found)
