"""A finished run as one self-contained JSON object, to be committed and compared."""

import hashlib
import json
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from fedkd import files
from fedkd.config import differences
from fedkd.errors import ConfigError, in_a_sentence

DIGESTED = ('config.json', 'metrics.jsonl', 'split.npz')  # files whose checksums are in a summary
SUMMARY = ('method', 'rounds', 'seeds', 'final', 'worst_client', 'ledger', 'seconds')  # fields that every run has had
FIELDS: tuple[str, ...] = ('id', 'profile', 'method', 'config', 'config_sha256', 'seeds', 'per_seed', 'curve', 'turns')
FIELDS += ('ledger', 'seconds', 'device', 'versions', 'commit', 'dirty', 'images')
YOUNGER = ('curve', 'images')  # fields that the first results lack
PER_SEED = (
  'start',
  'final',
  'worst_client',
  'second_half_mean',
  'last_quarter_mean',
  'best_',
  'examples',
  'state_sha256',
)
CURVE: tuple[str, ...] = (
  'phase',
  'method',
  'round',
  'accuracy',
  'accuracy_local',
  'accuracy_others',
  'validation_accuracy',
  'loss',
)
CURVE += ('accuracy_per_group', 'kl', 'ce', 'violated', 'dual', 'cosine', 'global_phases')  # FedH2L's
CURVE += ('knowledge_age', 'accuracy_public_per_client', 'accuracy_train')
# Where features differ in width also 'feature_age_512', and so on.
BY_WIDTH = ('feature_age', 'cvae_reconstruction', 'cvae_kl', 'cvae_active')
PER_CLIENT = 60  # evaluations of the last phase at most, for a curve of every client


def summary(workdir: str | os.PathLike) -> dict:
  """A finished run's summary.

  Raises:
    ConfigError: if there is none, it is damaged, or a file of the run has changed since.
  """
  workdir = pathlib.Path(workdir)
  if files.is_exported(workdir):
    raise ConfigError(f'{workdir} holds no run ({files.why_no_run(workdir)}); give the directory of a run')
  if not (workdir / 'summary.json').exists():
    failed, why = _failure(workdir), 'run it to its end first'
    why = f'it failed ({failed}); mend that, and run it to its end' if failed else why
    raise ConfigError(f'{workdir} holds no finished run (no summary.json); {why}')
  found = files.read_sealed(workdir / 'summary.json')
  if name := files.changed(workdir, found.get('digests', {})):  # runs of older versions have none
    if name == 'config.json' and files.read_sealed(workdir / name):  # whole, as of a run that was given more rounds
      raise ConfigError(f'{workdir}: {name} has changed since the run was finished; start the run again')
    raise ConfigError(f'{workdir}: {name} is damaged or has changed since the run was finished; {files.remedy(name)}')
  if missing := [name for name in SUMMARY if name not in found]:
    raise ConfigError(f'{workdir}: summary.json is damaged (it has no {missing[0]}); start the run again')
  return found


def _failure(workdir) -> str:
  """Why a run ended early, as its `lock` says; '' if it was stopped, or the lock says nothing."""
  try:
    with open(workdir / 'lock', 'rb') as file:
      ending = file.read(2000).decode(errors='replace').partition('\n')[2]
  except OSError:
    return ''
  kind, _, why = ' '.join(ending.split()).partition(': ')
  return why if kind == 'failed' else ''


def sent(result: dict, unit: str) -> dict:
  """{'up', 'down'}: the 'numbers' or 'bytes' of all kinds and clients that a result or summary counts, float[seeds]."""
  zeros = np.zeros(len(result['seeds']))
  total = lambda kinds: sum((np.asarray(kind[unit]) for kind in kinds.values()), zeros)
  return {way: total(result['ledger'][way]) for way in ('up', 'down')}


def tested_on(result: dict) -> str:
  """On which rows every client is tested for the accuracies of a summary, in words, but those of `final_local`, which
  are on its own."""
  return 'the test rows of all clients together' if 'final_local' in result else 'the shared test set'


def commits(result: dict) -> list[str]:
  """The commits whose code made a result or summary, in the order of the starts of its run; [] outside a checkout."""
  return result.get('commits') or [result['commit']] * bool(result.get('commit'))


def comparable(config: dict) -> dict:
  """A config as JSON without the directory of its data, which does not affect the result."""
  return {**config, 'data': {**config['data'], 'dir': ''}}


def check_config(path: str | os.PathLike, result: dict, config: dict, what: str) -> None:
  """Checks that a stored result is of a config, as JSON; `what` would be run again.

  Raises:
    ConfigError: that names the fields in which they differ.
  """
  wanted = comparable(config)
  changed = differences(result['config'], wanted)
  if result['config']['rounds'] < wanted['rounds']:  # a run may grow; a result is finished
    changed = [f'rounds: {result["config"]["rounds"]} -> {wanted["rounds"]}', *changed]
  if changed:
    raise ConfigError(f'{path} was made with another config ({"; ".join(changed)}); move it away to run {what} again')


def _checksum(config) -> str:
  return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def shared(result: dict, id: str, name: str, called: str) -> dict:
  """A result as that of another row, whose config differs only in its name, `called`."""
  config = {**result['config'], 'name': called}
  same = result.get('same_run', f'{result["id"]}/{result["method"]}')
  return {**result, 'id': id, 'method': name, 'config': config, 'config_sha256': _checksum(config), 'same_run': same}


def of_run(workdir: str | os.PathLike, id: str, profile: str, name: str | None = None) -> dict:
  """The result of a finished run: config and its checksum, per-seed numbers, curve, ledger, versions, commit; all
  `commits` where a run was continued by another's code.

  Args:
    workdir: the run.
    id: the experiment it belongs to.
    profile: of its config.
    name: of its row in the table; None is its method.

  Raises:
    ConfigError: as in `summary`.
  """
  run = summary(workdir)
  config = comparable(files.read_sealed(pathlib.Path(workdir) / 'config.json'))
  result = {
    'id': id,
    'profile': profile,
    'method': name or run['method'],
    'config': config,
    'config_sha256': _checksum(config),
    'per_seed': {key: value for key, value in run.items() if key.startswith(PER_SEED)} | _test_rows(workdir, run),
    'curve': _curve(workdir),
    'images': run.get('images'),  # not of the first runs
  }
  several = {'commits': run['commits']} if 'commits' in run else {}
  return {field: result[field] if field in result else run[field] for field in FIELDS} | several


def _test_rows(workdir, run) -> dict:
  """How many test rows each client has, [seeds, K], where they have test rows of their own."""
  with np.load(pathlib.Path(workdir) / 'split.npz') as split:
    sizes = [split[f'seed{seed}_test_sizes'].tolist() for seed in run['seeds']]
  return {'test_rows_per_client': sizes} if any(map(any, sizes)) else {}


def evaluations(workdir: str | os.PathLike) -> list[dict]:
  """The evaluations of a run.

  Raises:
    ConfigError: if there are none, or one is damaged.
  """
  if rows := files.read(pathlib.Path(workdir) / 'metrics.jsonl'):
    return rows
  raise ConfigError(f'{workdir} holds no evaluations (no metrics.jsonl, or an empty one); restore it, or give a run')


def _curve(workdir) -> list:
  """Every evaluation, accuracies to four digits."""
  rows = evaluations(workdir)
  last = sum(row['phase'] == rows[-1]['phase'] for row in rows)
  kept = CURVE + ('accuracy_per_client',) * (last <= PER_CLIENT)

  def short(value):
    if isinstance(value, list):
      return [short(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value

  kept += tuple(_predictions(rows[-1]))
  return [{name: short(row[name]) for name in row if name in kept or name.startswith(BY_WIDTH)} for row in rows]


def _predictions(row) -> list[str]:
  """The accuracy fields of an evaluation, one for each of the method's predictions."""
  worst = '_worst'
  return [name.removesuffix(worst) for name in row if name.startswith('accuracy_') and name.endswith(worst)]


def read(path: str | os.PathLike) -> dict:
  """A result from its file.

  Raises:
    ConfigError: if it is not JSON of this schema.
  """
  other = lambda error: f'{path} is not a result of this program ({error}); move it away'
  with in_a_sentence(other, through=(OSError,)):
    result = json.loads(pathlib.Path(path).read_text())
    missing = [field for field in FIELDS if field not in result and field not in YOUNGER]
  if missing:
    raise ConfigError(f'{path} has no {", ".join(missing)}, so it has another schema; move it away')
  return result


def headline(rows: Sequence[dict]) -> dict:
  """Headline accuracies per seed of the last phase: at its start and end, means over its second half and last quarter,
  at the best validation accuracy of each client; with test rows per client also their `local` and `others` parts. Of a
  method with several predictions also, under their names, the end and the worst client of each, and its accuracy where
  the first one's validation accuracy is best.

  Ties in validation go to the earlier round. `best` fields are missing without a validation split, and NaN for a client
  whose validation accuracy is NaN in every evaluation.
  """
  rows = [row for row in rows if row['phase'] == rows[-1]['phase']]
  seeds = range(len(rows[-1]['accuracy']))
  after = lambda share: [r for r in rows if r['round'] > share * rows[-1]['round']] or rows[-1:]
  half = after(1 / 2)
  out = {
    'start': rows[0]['accuracy'],
    'start_per_client': rows[0]['accuracy_per_client'],
    'worst_client': rows[-1]['accuracy_worst'],
    'second_half_mean': [float(np.mean([r['accuracy'][s] for r in half])) for s in seeds],
    'last_quarter_mean': np.mean([r['accuracy'] for r in after(3 / 4)], 0).tolist(),
    'second_half_mean_per_client': np.mean([r['accuracy_per_client'] for r in half], 0).tolist(),
  }
  named = [name for name in _predictions(rows[-1]) if name != 'accuracy']
  out |= {name.replace('accuracy', 'worst_client'): rows[-1][f'{name}_worst'] for name in named}
  kinds = [k for name in ('accuracy', *named) for k in (name, f'{name}_local', f'{name}_others') if k in rows[-1]]
  for kind in kinds:
    name = kind.replace('accuracy', 'final')
    out |= {name: rows[-1][kind], f'{name}_per_client': rows[-1][f'{kind}_per_client']}
  if 'validation_accuracy' in rows[-1]:
    score = np.array([r['validation_accuracy_per_client'] for r in rows], float)  # [evaluations, seeds, K]
    known = ~np.isnan(score)
    best = np.where(known, score, -np.inf).argmax(0)
    rounds = np.array([r['round'] for r in rows], object)[best]
    rounds[~known.any(0)] = None
    out['best_round'] = rounds.tolist()
    for kind in kinds:
      accuracy = np.take_along_axis(np.array([r[f'{kind}_per_client'] for r in rows], float), best[None], 0)[0]
      accuracy = np.where(known.any(0), accuracy, np.nan)
      name = kind.replace('accuracy', 'best_on_validation')
      out |= {name: accuracy.mean(1).tolist(), f'{name}_per_client': accuracy.tolist()}
  return out
