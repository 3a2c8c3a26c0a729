"""The door of the package: names are imported when they are first used."""

import subprocess
import sys

import pytest

import fedkd


def fresh(program) -> str:
  return subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize('words', [['--help'], ['typo'], ['run', 'nosuch', '--workdir=x']])
def test_help_and_refusals_load_no_jax(words):
  program = f"""
import sys
from fedkd import cli
try:
  cli.main({words})
except SystemExit:
  pass
print('jax' in sys.modules)
"""
  assert fresh(program).splitlines()[-1] == 'False'


def test_a_function_keeps_its_name_where_its_file_was_imported_first():
  program = """
import warnings
warnings.simplefilter('error', ImportWarning)
import fedkd.types, fedkd.simulation, fedkd.federation
print(callable(fedkd.simulation), callable(fedkd.federation))
"""
  assert fresh(program) == 'True True\n'


def test_every_name_is_there_and_no_other():
  assert all(getattr(fedkd, name) is not None for name in fedkd.__all__)
  assert set(fedkd.__all__) <= set(dir(fedkd))
  with pytest.raises(AttributeError, match='nosuch'):
    fedkd.nosuch  # noqa: B018
