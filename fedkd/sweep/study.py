"""A sweep from its config and grid to its table: the only place that knows all of its parts."""

import contextlib
import copy
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from ml_collections import ConfigDict

from fedkd import config as configs
from fedkd import files
from fedkd.checks.kinds import check_is
from fedkd.config.checks import GIVE
from fedkd.config.lookup import path_of
from fedkd.config.trees import at, put
from fedkd.errors import ConfigError, is_it
from fedkd.experiment.build.from_config import TRACED
from fedkd.experiment.hosts.hosts import source_checksum
from fedkd.experiment.storage import lock
from fedkd.sweep import grid as grids
from fedkd.sweep import points as named
from fedkd.sweep import runs, searches, table
from fedkd.sweep.local import Here, Local
from fedkd.sweep.progress import Progress

LAUNCHERS = ('local', 'here', 'slurm', 'debug')
BATCH = 4  # points that TPE proposes at once, whatever the cores, so that they change no result


class Sweep(NamedTuple):
  """What a sweep found."""

  table: pd.DataFrame  # one row a point, best validation accuracy first; a point that failed says why
  best: dict[str, Any] | None  # {'point', 'seeds', 'test': accuracy of each test seed or None}, None if all failed
  failed: dict[str, str]  # why, by run


class _Parts(NamedTuple):
  config: ConfigDict
  out: pathlib.Path
  seeds: tuple
  executor: Any
  code: str
  progress: Progress
  failed: dict
  data: dict  # of `runs.check_data`


SEVERAL = 'several, such as range(3) or (0, 1, 2)'


def sweep(
  config: ConfigDict,
  grid: str | Mapping[str, Any],
  out: str | os.PathLike,
  seeds: Sequence[int] = (0, 1, 2),
  test_seeds: Sequence[int] | None = None,
  search: str = 'grid',
  points: int | None = None,
  jobs: int = 0,
  launcher: str = 'local',
  traced: bool = True,
  slurm: Mapping[str, Any] | None = None,
  show: bool = True,
) -> Sweep:
  """Runs a config at many points, ranks them by validation accuracy and tests the best with seeds of its own.

  Every seed of every point is a run directory, `out/points/POINT/seedN`; what is finished there is not run again, so
  that a sweep which was killed, or is asked for more points or seeds, goes on from there. `out` also receives
  table.csv, table.md, best.json and figures.

  Args:
    config: of the runs; `seeds` in it do not count.
    grid: as text (`'method.alpha=0.1,1;optimizer.learning_rate=log:1e-4:1e-2'`), or {field: values or interval}.
    out: the directory of the sweep; made if missing.
    seeds: of every point, by which it is chosen.
    test_seeds: other ones, by which the best is reported; None: as many as `seeds`, after the last of them; () is none.
    search: 'grid', or, with Optuna, 'random', 'tpe' or 'halving'.
    points: how many, where Optuna proposes them.
    jobs: runs at once; 0: one a core, on an accelerator one.
    launcher: 'local', 'here' (this process), 'slurm' through submitit, or 'debug', submitit without a cluster.
    traced: whether points that differ in numbers of method, optimizer and schedule share a compiled program, where
      these can be traced; not on a cluster.
    slurm: parameters of submitit's executor, such as {'timeout_min': 60}.
    show: whether to print progress.

  Raises:
    ConfigError: before anything starts, for a grid or seeds that cannot be, or a directory of another sweep.
  """
  check_is('config', config, ConfigDict, GIVE)
  check_is('out', out, str | os.PathLike, 'the name of a directory, such as runs/sweep')
  check_is('seeds', seeds, Sequence, SEVERAL)
  check_is('test_seeds', test_seeds, Sequence | None, f'{SEVERAL}, or None')
  out = pathlib.Path(out)
  config = configs.migrate(copy.deepcopy(config).unlock())
  for field, value in configs.flatten(config.to_dict()).items():
    path_of(value, field)  # runs are read from their files
  axes = grids.typed(grids.parse(grid), config)
  numbers, test_seeds = _check(config, seeds, axes, search), _test_seeds(seeds, test_seeds)
  searches.check(search, points)
  executor = _executor(launcher, jobs, out, slurm or {})
  files.make(out, 'out')
  with lock.held(out):
    _check_same(out, config, axes, search)
    proposals = searches.make(search, axes, points, config.rounds, BATCH, out)
    with executor:
      config.traced = _traceable(out, named.with_values(config, _first(axes)), numbers if traced else (), executor)
      code = f'{source_checksum(configs.to_json(config)):08x}'
      parts = _Parts(config, out, tuple(seeds), executor, code, Progress(show), {}, {})
      found, best = _searched(parts, proposals)
      best = _tested(parts, found, best, test_seeds)
  frame = _write(out, found, best, axes)
  return Sweep(frame, best, parts.failed)


def _test_seeds(seeds, test_seeds) -> tuple:
  if test_seeds is None:
    return tuple(max(seeds) + 1 + i for i in range(len(seeds)))
  if both := set(seeds) & set(test_seeds):
    raise ConfigError(f'test_seeds={tuple(test_seeds)} has {min(both)}, which is among seeds; choose other ones')
  return tuple(test_seeds)


def _first(axes) -> dict:
  return {axis.field: axis.values[0] for axis in axes}


def _check(config, seeds, axes, search) -> tuple:
  """Every field at every one of its values, the others being those of the config or the first of theirs; returns the
  fields whose values programs may take as arguments."""
  config, numbers = copy.deepcopy(config), []
  config.seeds = tuple(seeds)
  for axis in axes:
    made = [named.with_values(config, {**_first(axes), axis.field: value}) for value in axis.values]
    if not all(one.data.validation for one in made):
      raise ConfigError('data.validation=0 holds no rows out, by which points are ranked; set it above 0, as to 0.1')
    if axis.field == 'optimizer.learning_rate' and made[0].groups and all('learning_rate' in g for g in made[0].groups):
      raise ConfigError(f'grid has {axis.field}, but every entry of groups has its own; take these out of the groups')
    if search == 'halving':
      _check_halving(axis, made)
    if axis.field.partition('.')[0] in TRACED and all(isinstance(at(one, axis.field), float) for one in made):
      numbers.append(axis.field)
  return () if any(map(named.names_a_block, _first(axes))) else tuple(numbers)


def _check_halving(axis, made):
  """A run that halving prolongs has to be what it would be if it had had all its rounds from the start."""
  if axis.field == 'rounds':
    raise ConfigError('grid has rounds, which search=halving chooses itself; leave them out')
  if any(at(one, 'schedule.rounds') == 0 for one in made):
    raise ConfigError(
      'schedule.rounds=0 stretches the schedule over all rounds, of which search=halving begins with a part; set it to '
      f'rounds={made[0].rounds}, or choose search=random or tpe'
    )


def _traceable(out, config, fields, executor) -> tuple:
  """Those of the fields that can be traced: all of them, or each that can be alone; decided once for a directory."""
  path = out / 'traced.json'
  if path.exists():
    return tuple(files.read_sealed(path)['fields'])

  def fits(*some):
    with tempfile.TemporaryDirectory() as folder:
      files.write_sealed(pathlib.Path(folder, 'config.json'), {**configs.to_json(config), 'traced': some})
      return not executor.check(pathlib.Path(folder))

  found = fields if not fields or fits(*fields) else tuple(field for field in fields if fits(field))
  files.write_sealed(path, {'fields': found})
  return found


def _check_same(out, config, axes, search):
  """Checks that a directory holds this sweep, or none.

  Raises:
    ConfigError: that names what differs.
  """
  path, now = out / 'sweep.json', {'config': {**configs.to_json(config), 'seeds': [0]}, 'search': search}
  for axis in axes:
    put(now['config'], axis.field, None)
  now['fields'] = [[a.field, *([] if search == 'grid' else [a.low, a.high, list(map(str, a.values))])] for a in axes]
  if not path.exists():
    if any(out.glob('points/*')) or (out / 'config.json').exists():
      raise ConfigError(f'out={out} has runs but no sweep.json; choose another directory')
    files.write_sealed(path, now)
    return
  old = files.read_sealed(path, 'out')
  changed = configs.differences({**old['config'], 'rounds': 0}, {**now['config'], 'rounds': 0})
  if old['config']['rounds'] != now['config']['rounds']:
    changed.append(f'rounds: {old["config"]["rounds"]} -> {now["config"]["rounds"]}')
  for what in ('search', 'fields'):
    if old[what] != now[what]:
      changed.append(f'{what}: {_told(old[what])} -> {_told(now[what])}')
  if changed:
    raise ConfigError(f'out={out} holds a sweep with another config ({"; ".join(changed)}); choose another directory')


def _told(value) -> str:
  values = lambda part: f' ({", ".join(part[3])})' if len(part) > 1 else ''
  return value if isinstance(value, str) else ', '.join(f'{part[0]}{values(part)}' for part in value)


def _executor(launcher, jobs, out, slurm):
  if launcher not in LAUNCHERS:
    known, near = ', '.join(LAUNCHERS), is_it(launcher, LAUNCHERS)
    raise ConfigError(f'launcher={launcher!r} is unknown; choose one of {known}{near}')
  if launcher == 'local':
    return Local(jobs)
  if launcher == 'here':
    return Here()
  from fedkd.sweep.cluster import Cluster

  return Cluster(launcher, jobs, out / 'submitit', slurm)


def _searched(parts, proposals) -> tuple:
  """({number: Tried}, the number of the best or None), after all rungs of a search."""
  found: dict[int, table.Tried] = {}
  scores = None
  with contextlib.suppress(StopIteration):
    while True:
      ran = _run_points(parts, *proposals.send(scores))
      found |= ran
      scores = {n: table.score(one) for n, one in ran.items()}
  return found, table.best(found)


def _run_points(parts, proposed, rounds) -> dict:
  """{number: Tried} of points that are run, with all seeds."""
  made: dict[int, list] = {}
  reasons: dict[int, str] = {}
  for n, point in proposed.items():
    try:
      config = named.with_values(parts.config, point)
    except ConfigError as error:
      made[n], reasons[n] = [], str(error)
      parts.failed[named.name_of(point)] = str(error)
      continue
    config.rounds = rounds or config.rounds  # below: what cannot be compared ends the sweep, and its table stays
    made[n] = [runs.prepare(config, parts.out, named.name_of(point), seed) for seed in parts.seeds]
  told = _run_all(parts, [run for each in made.values() for run in each])
  out = {}
  for n, point in proposed.items():
    reason = reasons.get(n) or next((f'{r.workdir.name}: {told[r]}' for r in made[n] if r in told), '')
    done = [one for run in made[n] if run not in told and (one := runs.outcome(run))]
    out[n] = table.Tried(point, done, reason, rounds or parts.config.rounds)
  return out


def _run_all(parts, wanted) -> dict:
  """{run: reason} of those that failed."""
  waiting = [run for run in dict.fromkeys(wanted) if runs.outcome(run) is None]
  parts.progress.begin(len(wanted), len(waiting))
  told: dict[runs.Run, str] = {}

  def done(run, said):
    if 'reason' in said:
      told[run] = parts.failed[run.label] = said['reason']
    parts.progress.done(run, said, None if 'reason' in said else runs.outcome(run))

  if waiting:
    reason = parts.executor.check(waiting[0].workdir)
    if reason and len(waiting) == len(wanted):
      raise ConfigError(f'{waiting[0].label}: {reason}')
    parts.executor.run(waiting, parts.code, done)
  for run in wanted:
    if run not in told:
      runs.check_data(run, parts.data)
  return told


def _tested(parts, found, best, test_seeds) -> dict | None:
  """The best point with seeds that did not choose it."""
  if best is None:
    return None
  point = found[best].point
  said = {'point': named.name_of(point), 'values': configs.to_json(dict(point)), 'seeds': list(parts.seeds)}
  said['validation'] = table.score(found[best])
  if not test_seeds:
    return said
  others = f'seed{"s" * (len(test_seeds) > 1)} {", ".join(map(str, test_seeds))}'
  parts.progress.say(f'best by validation: {named.name_of(point)}; testing it with {others}')
  config = named.with_values(parts.config, point)
  wanted = [runs.prepare(config, parts.out, named.name_of(point), seed) for seed in test_seeds]
  told = _run_all(parts, wanted)
  outcomes = [None if run in told else runs.outcome(run) for run in wanted]
  return {**said, 'test_seeds': list(test_seeds), 'test': [one and one['test'] for one in outcomes]}


def _write(out, found, best, axes) -> pd.DataFrame:
  from fedkd import analysis
  from fedkd.analysis.figures import of_sweep

  frame = table.of(found)
  files.write(out / 'table.csv', frame.to_csv(index=False).encode())
  shown = frame.drop(columns=['point', 'number']).astype(object)
  files.write(out / 'table.md', (analysis.markdown(shown.where(shown.notna(), '')) + '\n').encode())
  files.write_json(out / 'best.json', best)
  of_sweep.save_all(frame, [axis.field for axis in axes], out)
  return frame
