"""How to run it again: configs as files, and commands."""

import pprint
import shlex
from typing import NamedTuple

from fedkd import files
from fedkd.report import tables
from fedkd.report.chosen import Runs

FILE = '''"""The config of a run, from its report."""

from ml_collections import ConfigDict

from fedkd import config

CONFIG = {fields}


def get_config(arg=''):
  del arg
  return config.migrate(ConfigDict(config.freeze({{**config.default().to_dict(), **CONFIG}})))
'''


class Rerun(NamedTuple):
  """A run's config file, and the commands."""

  run: str
  name: str  # of the file
  config: str
  command: str


def of(runs: Runs) -> list[Rerun]:
  """Of every run. A config file holds all fields, so that the run does not depend on what has changed since; but for
  `init_from`, which names the rerun of the other run where that is among them, and `data.dir`, which the command leaves
  to be filled in."""
  names = {path.absolute(): _name(run, number) for number, (run, path) in enumerate(runs.paths.items(), 1)}
  return [_of_run(run, path, names) for run, path in runs.paths.items()]


def _name(run, number) -> str:
  plain = ''.join(letter if letter.isalnum() and letter.isascii() else '_' for letter in run)
  return f'run_{number}_{plain}'[:60]


def _of_run(run, path, names) -> Rerun:
  name, config = names[path.absolute()], tables.stored_config(path)
  start, at, phase = str(config.get('init_from', '')).rpartition('@')
  if start and (again := names.get(path.absolute().parent / start)):
    config = {**config, 'init_from': f'{again}{at}{phase}'}
  fields = pprint.pformat(config, width=110, sort_dicts=False)
  command = shlex.join(['fedkd', 'run', f'{name}.py', f'--workdir=runs/{name}'])
  if files.read_sealed(path / 'config.json')['data']['dir']:  # which names a place on the machine of who ran it
    command += ' --config.data.dir=DIR'
  return Rerun(run, f'{name}.py', FILE.format(fields=fields), command)


def report_command(reruns: list[Rerun], base: str) -> str:
  """What makes this report of the new runs, which are compared with the run `base`."""
  runs = {rerun.run: f'runs/{rerun.name[:-3]}' for rerun in reruns}
  return shlex.join(['fedkd', 'report', *runs.values(), f'--reference={runs[base]}', '--out=report.html'])
