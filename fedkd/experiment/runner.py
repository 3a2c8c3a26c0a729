"""`run`: trains, phase after phase, and writes the run directory."""

import contextlib
import io
import itertools
import os
import pathlib
import signal
import time
from concurrent import futures

import jax
import numpy as np
from ml_collections import ConfigDict

from fedkd import analysis, files
from fedkd import config as configs
from fedkd import totals as running
from fedkd.analysis import results
from fedkd.checks.kinds import THREEFRY
from fedkd.data import sources
from fedkd.data.splits import partition
from fedkd.data.splits.split import origins_of
from fedkd.errors import ConfigError, StoppedError, StoreError
from fedkd.experiment import loop, partition_files, progress, provenance, trackers
from fedkd.experiment.build import checks
from fedkd.experiment.build.assembly import build, owned
from fedkd.experiment.hosts import devices, hosts
from fedkd.experiment.storage import checkpoint, client_store, lock, same_data, warm_start
from fedkd.experiment.storage.loading import evaluated, phase_at, restore


def run(config: ConfigDict, workdir: str | os.PathLike, show: bool = True) -> dict:
  """Runs an experiment, or continues it from its newest intact checkpoint.

  Args:
    config: ConfigDict (`fedkd.config.default` and a file of `configs/`).
    workdir: the run directory; made if missing.
    show: whether to report progress on the terminal, or a `progress.Display` to report it to.

  Returns:
    The run's summary, as in `summary.json`. A finished run returns it at once. Of several hosts (`hosts.join`), all of
    which must call this, only the first reads and writes `workdir`.

  Raises:
    ConfigError: before anything is written or trained, also if `workdir` holds a run of another config, is damaged
      beyond repair, or is another process's at the moment.
    DivergedError: at a loss that is not finite; the last checkpoint is kept.
    HostError: if another host exits.
    StoreError: where `workdir` or `client_store` cannot be read or written; the last checkpoint is kept.
    StoppedError: on SIGINT or SIGTERM, after the segment was finished and saved, or after compiling; in the last
      segment after the run is finished.
  """
  checks.check_workdir(workdir)
  configs.check(configs.migrate(config))
  devices.request(config.devices)  # before the first collective operation
  with jax.default_prng_impl(THREEFRY), hosts.host_errors(), hosts.writing_to(workdir) as own_workdir:
    plain = configs.to_json(config)
    hosts.check_agreement(lambda: {**configs.flatten(plain), 'the code': hosts.source_checksum(plain)})
    return _run(config, own_workdir, pathlib.Path(workdir).parent, hosts.is_primary() and show)


def _run(config, workdir, beside, show) -> dict:
  if summary := hosts.run_on_primary(lambda: _finished(workdir, config, lambda text: None)):
    return summary
  hosts.run_on_primary(lambda: trackers.check(config.tracker))
  provenance.use_compilation_cache()
  provenance.code()  # before anything can be committed while this trains
  if config.client_store and hosts.count() > 1:
    raise ConfigError(f"client_store={config.client_store!r} is for one host; start one, or set it to ''")
  partition_files.check(config)
  parts = build(config, beside)
  source = parts.source
  hosts.check_agreement(
    lambda: {f'the data of {source.name}': checkpoint.checksum((source.train_image, source.train_label))[:12]}
  )
  if config.client_store:
    client_store.claim(config.client_store, configs.to_json(config), workdir)
  with contextlib.ExitStack() as stack:
    hosts.run_on_primary(lambda: _lock(workdir, stack))
    if summary := hosts.run_on_primary(lambda: _finished(workdir, config, files.warn)):  # meanwhile, by another process
      return summary
    hosts.run_on_primary(lambda: _prepare(workdir, parts))
    hosts.run_on_primary(lambda: partition_files.write(parts))
    if not hosts.is_primary():  # what follows reads it
      _prepare(workdir, parts)
    with _writing(workdir):
      return _train_and_finish(parts, workdir, show)


def _lock(workdir, stack):
  files.make(workdir)
  stack.enter_context(lock.held(workdir))


@contextlib.contextmanager
def _writing(workdir):
  """Turns what the file system refuses while training into a StoreError."""
  try:
    yield
  except OSError as error:
    where = f' ({error.filename})' if error.filename else ''
    raise StoreError(
      f'workdir={workdir}: {error.strerror or error}{where}; free space or repair it and start again: the last '
      'checkpoint is kept'
    ) from error


def _train_and_finish(parts, workdir, show) -> dict:
  largest = max(s.size * s.dtype.itemsize for s in jax.tree.leaves([phase.saved for phase in parts.phases]))
  label = configs.label(parts.config.method)
  with contextlib.ExitStack() as tracking:
    with (
      checkpoint.manager(workdir / 'checkpoints', largest=largest) as saved,
      progress.display(label, sum(p.rounds for p in parts.phases), show) as display,
      _signals() as stop,
    ):
      state, totals, tracker = _train(parts, workdir, saved, display, stop, tracking)
    summary = _finish(parts, workdir, state, totals, tracker)
  if stops := loop.signals(stop):  # else a program of several runs would go on with the next
    raise StoppedError(stops[0], 'stopped by a signal in the last rounds of a run, which is finished')
  return summary


def _finished(workdir, config, warn) -> dict | None:
  """The summary of a run that is finished; one of fewer rounds continues, and so does one with a damaged file, of which
  `warn` is told: that repairs it."""
  _check_same_config(workdir, configs.to_json(config))
  if not (workdir / 'summary.json').exists():
    return None
  try:
    summary = results.summary(workdir)
  except ConfigError as error:
    warn(f'{str(error).split(";")[0]}; continuing from the newest checkpoint')
    return None
  return summary if summary['rounds'] == config.rounds else None


def _check_same_config(workdir, config):
  if not (workdir / 'config.json').exists():
    if there := [name for name in ('metrics.jsonl', 'summary.json', 'checkpoints') if (workdir / name).exists()]:
      raise ConfigError(f'workdir={workdir} has a {there[0]} but no config.json; restore it, or choose another workdir')
    return
  if files.is_exported(workdir):
    raise ConfigError(f'workdir={workdir} holds an exported model; choose another workdir')
  changed = configs.differences(files.read_sealed(workdir / 'config.json'), config)
  if changed:
    raise ConfigError(
      f'workdir={workdir} holds a run with another config ({"; ".join(changed)}); '
      'choose another workdir, or undo the change'
    )


def _prepare(workdir, parts):
  """Writes what is known before training.

  Raises:
    ConfigError: if the directory cannot be written, or has a run on other data.
  """
  now = same_data.checksum(parts.source)
  same_data.check(workdir, parts.source, now)
  lists = {same_data.NAME: np.array(now)}
  for seed, split in zip(parts.config.seeds, parts.splits, strict=True):
    lists[f'seed{seed}_public'] = split.public
    for name in ('private', 'shared', 'validation', 'test'):
      rows = getattr(split, name)
      lists[f'seed{seed}_{name}'] = np.concatenate(rows)
      lists[f'seed{seed}_{name}_sizes'] = np.array([len(r) for r in rows])
  if domains := origins_of(parts.source, parts.splits[0].private):
    lists['domain'] = np.array(domains)
  packed = io.BytesIO()
  np.savez_compressed(packed, **lists)
  with files.writing(f'workdir={workdir}'):
    files.write_sealed(workdir / 'config.json', configs.to_json(parts.config))
    files.write(workdir / 'split.npz', packed.getvalue())


@contextlib.contextmanager
def _signals():
  """A list to which SIGINT and SIGTERM append their number, instead of ending the program."""
  got = []
  try:
    before = {s: signal.signal(s, lambda number, frame: got.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
  except ValueError:  # not the main thread, which alone may handle signals
    before = {}
  try:
    yield got
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


def _train(parts, workdir, saved, display, stop, tracking):
  """All phases; returns the final (State, totals) and the tracker, which `tracking` holds."""
  found = restore(parts, saved, workdir)
  step, state, totals = found or (0, None, running.start(len(parts.config.seeds)))
  first, start = phase_at(parts, step)
  (workdir / 'summary.json').unlink(missing_ok=True)  # of fewer rounds, or damaged
  kept = hosts.run_on_primary(lambda: evaluated(parts, workdir, step, totals) if found else 0)
  totals = {**totals, 'metrics': files.cut(workdir / 'metrics.jsonl', kept)}
  totals['code'] = _codes(parts, step, totals.get('code') if found else [])
  counts = sources.counts(parts.source)
  display.say(f'{parts.source.name}: ' + ', '.join(f'{count:,} {what}' for what, count in counts.items()))
  if found:
    display.say(f'continuing from round {step}')
  ended = step == start + parts.phases[first].rounds
  _compile(parts.phases[first + ended :], display, stop)
  tracker = tracking.enter_context(_tracker(parts, workdir, step))
  for number, phase in enumerate(parts.phases[first:], first):
    fresh = step == start
    if fresh:
      state = phase.init(_initial(parts, workdir, number, state))
    if step < start + phase.rounds:
      this = loop.Loop(parts, number, start, workdir, saved, display, tracker, stop)
      state, totals = loop.rounds(this, state, totals, step - start, fresh)
    start = step = start + phase.rounds
  return state, totals, tracker


def _codes(parts, step, before) -> list:
  """Which code has trained the run, and from `step` on will."""
  is_trained = step == sum(phase.rounds for phase in parts.phases)
  return provenance.continued(before, None if is_trained else hosts.broadcast_from_primary(provenance.code()))


def _tracker(parts, workdir, step):
  """The tracker of the run, on the primary host; as a context."""
  config = parts.config
  if config.tracker == 'tensorboard':
    id, kept = '', ()
  elif not hosts.is_primary():
    return contextlib.nullcontext(trackers.SILENT)
  else:
    id, kept = trackers.run_id(workdir), _evaluations(parts, workdir)
  told = trackers.Run(trackers.name_of(workdir), id, configs.to_json(config), workdir, step, parts.evaluated.tolist())
  return trackers.tracking(config.tracker, told, kept)


def _evaluations(parts, workdir) -> list[tuple[dict, int]]:
  """(row, rounds since the start of the run) of the evaluations so far."""
  starts = list(itertools.accumulate((phase.rounds for phase in parts.phases), initial=0))
  return [(row, starts[row['phase']] + row['round']) for row in files.evaluations(workdir / 'metrics.jsonl').rows]


def _compile(phases, display, stop):
  """Compiles the programs of the remaining phases in parallel, since XLA compiles one program mostly on one core.

  They are lowered in this thread, since JAX's contexts, such as `jax.default_matmul_precision`, are thread-local. A
  signal received meanwhile stops the run; after the last line on the terminal the run saves a round first.
  """
  if not phases:
    return
  label, begun = phases[-1].label, time.monotonic()
  display.say(f'{label}: compiling')
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    pool.submit(lambda: analysis.save_figures)  # importing pandas and Matplotlib takes seconds, too
    lowered = (phase.lower() for phase in reversed(phases))  # the last is usually the largest
    list(pool.map(lambda program: program.compile(), lowered))
  if stops := loop.signals(stop):
    raise StoppedError(stops[0], 'stopped by a signal while compiling; start again to continue')
  display.say(f'{label}: compiled in {time.monotonic() - begun:.1f} s')


def _initial(parts, workdir, number, state):
  """What a phase starts from: the initial variables, or those of the phase before, which are saved for other runs."""
  if number == 0:
    return parts.variables
  variables = parts.phases[number - 1].handover(state)
  sizes = [len(g.ids) for g in parts.groups]
  warm_start.write(workdir, number - 1, variables, sizes, configs.to_json(parts.config))
  return variables


def _finish(parts, workdir, state, totals, tracker) -> dict:
  """Writes `summary.json` and the figures, and tells the tracker."""
  rows = hosts.run_on_primary(lambda: _rows(parts, workdir, totals))
  config = parts.config
  out = {
    'name': config.name,
    'method': parts.phases[-1].label,
    'rounds': config.rounds,
    'seeds': list(config.seeds),
    'groups': [{'name': g.name, 'clients': len(g.ids), 'first': int(g.ids[0])} for g in parts.groups],
    **results.headline(rows),
    'ledger': {w: {kind: {'numbers': n, 'bytes': b} for kind, (n, b) in totals[w].items()} for w in ('up', 'down')},
    'turns': float(np.mean(totals['turns'])),  # of a seed
    'examples': totals['examples'],
    'images': sources.counts(parts.source),
    'seconds': totals['seconds'],
    **provenance.environment(),
    **provenance.made_by(totals['code']),
    'state_sha256': parts.phases[-1].checksum(state),
    'digests': {name: files.checksum(workdir / name) for name in results.DIGESTED},
  }
  if hosts.is_primary():
    counts = partition.overview(owned(parts.splits[0]), parts.source.train_label, parts.source.classes)
    analysis.save_figures(workdir, counts, out, parts.source.class_names)
    tracker.finish(out, sorted((workdir / 'figures').glob('*.png')))
    files.write_sealed(workdir / 'summary.json', out)  # last: it marks the run as finished
  return out


def _rows(parts, workdir, totals) -> list:
  """The evaluations, which are those that the state has seen."""
  found = files.evaluations(workdir / 'metrics.jsonl')
  if found.damage or found.sums[-1:] != [totals['metrics']]:
    raise ConfigError(f'workdir={workdir}: metrics.jsonl was changed while the run trained; start again, to repair it')
  return found.rows
