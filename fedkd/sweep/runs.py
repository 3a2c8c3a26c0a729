"""The run directories of a sweep: `DIR/points/POINT/seedN`, each as `fedkd run` would have made it."""

import copy
import json
import pathlib
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fedkd import config as configs
from fedkd import files
from fedkd.analysis import results
from fedkd.errors import ConfigError
from fedkd.experiment.storage import same_data


class Run(NamedTuple):
  """One seed of one point, as an executor takes it."""

  label: str  # for progress and failures
  workdir: pathlib.Path
  rounds: int  # to train, 0: those of the config

  def order(self, code: str) -> dict[str, Any]:
    """What a worker is told; `code`: the fingerprint of the package."""
    return {'run': str(self.workdir.absolute()), 'rounds': self.rounds, 'code': code}


def prepare(config: ConfigDict, out: pathlib.Path, point: str, seed: int) -> Run:
  """The run of one seed of a point; its config is written, where it is not yet there.

  Raises:
    ConfigError: if the directory holds a run of another config.
  """
  config = copy.deepcopy(config).unlock()
  config.seeds = (seed,)
  plain, workdir = configs.to_json(config), out / 'points' / point / f'seed{seed}'
  if (workdir / 'config.json').exists():
    old = files.read_sealed(workdir / 'config.json')
    if changed := configs.differences({**old, 'rounds': 0}, {**plain, 'rounds': 0}):  # halving prolongs runs
      raise ConfigError(f'out={out}: {workdir} holds a run with another config ({"; ".join(changed)}); choose another')
  else:
    files.make(workdir, 'out')
    files.write_sealed(workdir / 'config.json', plain)
  return Run(f'{point}, seed {seed}', workdir, config.rounds)


def outcome(run: Run) -> dict[str, Any] | None:
  """{'validation', 'test', 'worst'} of a run that has trained its rounds: accuracies as fractions, the first two means
  over clients; None of one that has not.

  Raises:
    ConfigError: if it was not evaluated on held-out rows, or, having trained further rounds, not on all of them.
  """
  if not _has_trained(run):
    return None
  last = _at_end(run)
  if 'validation_accuracy' not in last:
    raise ConfigError(f'{run.workdir} was not evaluated on held-out rows; set data.validation above 0')
  return {
    'validation': float(last['validation_accuracy'][0]),
    'test': float(last['accuracy'][0]),
    'worst': float(last['accuracy_worst'][0]),
  }


def check_data(run: Run, known: dict[str, tuple[Run, str]]) -> None:
  """Checks that a run was of the same data as others whose configs name the same.

  Args:
    known: {`data` of a config: (its first run, the checksum of its data)}, to which it is added.

  Raises:
    ConfigError: if a file has changed in between.
  """
  checksum, named = same_data.of(run.workdir), json.dumps(files.read_sealed(run.workdir / 'config.json')['data'])
  first, before = known.setdefault(named, (run, checksum)) if checksum else (run, '')
  if before != checksum:
    raise ConfigError(
      f'{run.workdir} was trained on other data than {first.workdir}, under the same name: restore them and remove the '
      'runs on the other ones, or choose another directory'
    )


def _at_end(run) -> dict:
  """The evaluation after the rounds of a run, which is of all rows: those in its middle are of `eval_rows`."""
  rows = files.read(run.workdir / 'metrics.jsonl')
  always = not files.read_sealed(run.workdir / 'config.json')['eval_rows']
  there = [row for row in rows if row['phase'] == rows[-1]['phase'] and row['round'] == run.rounds]
  of_all = [row for row in there if always or 'accuracy_train' in row]
  if not of_all:
    raise ConfigError(
      f'{run.workdir} has trained past round {run.rounds} without an evaluation on all rows there, by which '
      'search=halving compares; remove it, so that it is trained again, or choose another directory'
    )
  return of_all[-1]


def _has_trained(run) -> bool:
  """Whether a run was finished after its rounds; it may be training further ones, of successive halving."""
  try:
    begun = files.read_sealed(run.workdir / 'config.json')['rounds']
    return begun > run.rounds or results.summary(run.workdir)['rounds'] == run.rounds
  except ConfigError:  # not finished, or damaged, which the run repairs
    return False
