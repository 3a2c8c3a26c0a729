"""Runs the rows of the papers' tables, each a run that ends as one JSON object."""

import importlib
import pathlib
from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

from fedkd import config as base
from fedkd import files
from fedkd.analysis import results
from fedkd.errors import ConfigError, is_it
from launch.studies import papers, stale


def experiment_of(name: str) -> papers.Experiment:
  """An entry of the registry.

  Raises:
    ConfigError: for an unknown id.
  """
  known = papers.registry()
  if name not in known:
    raise ConfigError(f'id={name!r} is unknown; choose one of {", ".join(known)}{is_it(name, known)}')
  return known[name]


def check_profile(name: str, profile: str) -> None:
  """Checks that an entry of the registry is run in a profile that it is for; `smoke` is judged nowhere.

  Raises:
    ConfigError: for another.
  """
  only = experiment_of(name).only
  if only and profile not in (only, 'smoke'):
    raise ConfigError(f'profile={profile!r} has other numbers of examples or other nets than {name} is for; use {only}')


def config_of(row: papers.Row, profile: str, seeds: Sequence[int] | None = None) -> ConfigDict:
  """The config of a row.

  Raises:
    ConfigError: for a profile that its config file does not have.
  """
  config = importlib.import_module(f'configs.{row.config}').get_config(f'{profile},{row.arg}'.rstrip(','))
  config.update_from_flattened_dict(dict(row.overrides))
  if seeds:
    config.seeds = tuple(seeds)
  return config


def finished(path: pathlib.Path, name: str, profile: str, row: papers.Row, config: ConfigDict) -> bool:
  """Whether there is a result at `path`.

  Raises:
    ConfigError: if it has another schema or config.
  """
  if not path.exists():
    return False
  found = results.read(path)
  if (found['id'], found['profile'], found['method']) != (name, profile, row.name):
    raise ConfigError(f'{path} is a result of {found["id"]}, {found["profile"]}, {found["method"]}; move it away')
  results.check_config(path, found, base.to_json(config), 'the row')
  return True


def same_run(
  name: str, profile: str, config: ConfigDict, seeds: Sequence[int] | None, out: str | pathlib.Path
) -> dict | None:
  """The result of a row of another table whose config differs in its name alone; FedGKT's, for example, does not depend
  on the zoo."""
  nameless = lambda config: {**results.comparable(base.to_json(config)), 'name': ''}
  wanted = nameless(config)
  if wanted['init_from']:  # from the run beside it
    return None
  for other, entry in papers.registry().items():
    for row in () if other == name else entry.rows:
      path = pathlib.Path(out) / other / profile / f'{row.name}.json'
      if path.exists() and nameless(config_of(row, profile, seeds)) == wanted:
        found = results.read(path)
        made = {**found['config'], 'name': ''}
        if not base.differences(made, wanted) and made['rounds'] == wanted['rounds']:
          return found
  return None


def run(
  name: str,
  profile: str,
  seeds: Sequence[int] | None,
  rows: Sequence[str] | None,
  workdir: str | pathlib.Path,
  out: str | pathlib.Path,
) -> None:
  """Runs the rows of an experiment that are not finished; a row of two tables is run once.

  Raises:
    ConfigError: for an unknown id or row, a profile that the id is not for, or a result that belongs to something else.
  """
  from fedkd import experiment

  chosen = experiment_of(name)
  check_profile(name, profile)
  if unknown := set(rows or ()) - {row.name for row in chosen.rows}:
    raise ConfigError(
      f'rows={sorted(unknown)[0]!r} is not a row of {name}; it has {", ".join(r.name for r in chosen.rows)}'
    )
  for row in chosen.rows:
    path = pathlib.Path(out) / name / profile / f'{row.name}.json'
    config = config_of(row, profile, seeds)
    if rows and row.name not in rows:
      continue
    if finished(path, name, profile, row, config):
      old = ', '.join(stale.changes(results.read(path)))
      again = f'; since then {old}: move it away to run the row again' if old else ''
      print(f'{name} {profile} {row.name}: done already, {path}{again}', flush=True)
      continue
    same = same_run(name, profile, config, seeds, out)
    print(f'{name} {profile} {row.name}' + (f': the run of {same["id"]}/{same["method"]}' if same else ''), flush=True)
    if same:
      result = results.shared(same, name, row.name, config.name)
    else:
      folder = pathlib.Path(workdir) / name / profile / row.name
      experiment.run(config, folder)
      result = results.of_run(folder, name, profile, row.name)
    files.make(path.parent)
    files.write_json(path, result)
  keep_features(chosen.features, pathlib.Path(workdir) / name / profile, pathlib.Path(out) / name / profile)


def keep_features(rows: Sequence[str], runs: pathlib.Path, out: pathlib.Path) -> None:
  """Writes features.json: two principal components of the first client's features of all test rows, first seed."""
  from fedkd import analysis, experiment
  from fedkd.experiment.build import assembly

  path = out / 'features.json'
  if not rows or path.exists() or not all((runs / row / 'summary.json').exists() for row in rows):
    return
  config = experiment.read_config(runs / rows[0])
  source = assembly.load_data(config)
  split = assembly.make_split(config, source, config.seeds[0])
  test = np.concatenate(split.test)
  points = {}
  for row in rows:
    model, variables = experiment.load(runs / row)
    features = model.apply(variables, source.train_image[test], False)[1]['features']
    points[row] = np.round(analysis.principal(np.asarray(features)), 3).tolist()
  label, domain = source.train_label[test].tolist(), source.origin[test].tolist()
  files.write_json(path, {'rows': points, 'label': label, 'domain': domain, 'domains': list(source.origins)})


def check(name: str, profile: str, seeds: Sequence[int] | None) -> None:
  """Builds every row and prints what a client sends; nothing is compiled."""
  from fedkd import ledger
  from fedkd.experiment import dry_run
  from fedkd.experiment.build import assembly

  check_profile(name, profile)
  for row in experiment_of(name).rows:
    config = config_of(row, profile, seeds)
    parts = assembly.build(config, dry=True)
    up, down = dry_run.messages(parts, 0)
    print(f'{name} {row.name}: up {ledger.capacity(up)}, down {ledger.capacity(down)}', flush=True)


def listing(out: str | pathlib.Path, profiles: Sequence[str] = papers.PROFILES[:-1]) -> None:
  """Prints ids, the finished rows with the minutes they took but for those of another table, and what `small` may
  cost."""
  for name, entry in papers.registry().items():
    done = []
    for profile in profiles:
      paths = [pathlib.Path(out) / name / profile / f'{row.name}.json' for row in entry.rows]
      there = [results.read(path) for path in paths if path.exists()]
      seconds = [found['seconds'] for found in there if 'same_run' not in found]
      done.append(f'{profile}: {len(there)}' + (f' in {sum(seconds) / 60:.0f} minutes' if seconds else ''))
    print(f'{name:25s} {len(entry.rows)} rows ({", ".join(done)} done)  {entry.title}; small: about {entry.cost}')
