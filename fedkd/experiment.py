"""A run: `run` trains, phase after phase, and writes the run directory; `load` brings a client's model back."""

import bisect
import contextlib
import importlib.metadata as package_metadata
import itertools
import json
import os
import pathlib
import platform
import signal
import subprocess
import time
from concurrent import futures

import jax
import numpy as np
from ml_collections import ConfigDict

import fedkd
from fedkd import analysis, checkpoint, client_store, devices, handed_over, hosts, log, loop, metrics
from fedkd import config as configs
from fedkd.build import build, owned
from fedkd.data import cache, partition, sources
from fedkd.errors import ConfigError, StoppedError
from fedkd.types import apply_model


def run(config, workdir, show=True) -> dict:
  """Runs an experiment, or continues it from its newest intact checkpoint.

  Args:
    config: ConfigDict (`fedkd.config.default` and a file of `configs/`).
    workdir: the run directory; made if missing.
    show: whether to report progress on the terminal.

  Returns:
    The run's summary, as in `summary.json`. A finished run returns it at once. Of several hosts (`hosts.join`), all of
    which must call this, only the first reads and writes `workdir`.

  Raises:
    ConfigError: before anything is written or trained, also if `workdir` holds a run of another config.
    DivergedError: at a loss that is not finite; the last checkpoint is kept.
    HostError: where another host ends.
    StoreError: where `client_store` cannot be read or written; the last checkpoint is kept.
    StoppedError: on SIGINT or SIGTERM, after the chunk was finished and saved, or after compiling.
  """
  devices.ask_for(config.devices)  # before the hosts speak
  with hosts.together(), hosts.writing_to(workdir) as mine:
    plain = configs.plain(config)
    hosts.refuse_disagreement(lambda: {**configs.flat(plain), 'the code': hosts.code(plain)})
    return _run(config, mine, pathlib.Path(workdir).parent, show and hosts.first())


def _run(config, workdir, beside, show) -> dict:
  if summary := hosts.agreed(lambda: _finished(workdir, config)):
    return summary
  use_compilation_cache()
  if config.client_store and hosts.count() > 1:
    raise ConfigError(f"client_store={config.client_store!r} is for one host; start one, or set it to ''")
  parts = build(config, beside)
  source = parts.source
  hosts.refuse_disagreement(
    lambda: {f'the data of {source.name}': checkpoint.digest((source.train_image, source.train_label))[:12]}
  )
  if config.client_store:
    client_store.claim(config.client_store, configs.plain(config), workdir)
  hosts.agreed(lambda: _prepare(workdir, parts))
  if not hosts.first():  # what follows reads it
    _prepare(workdir, parts)
  largest = max(s.size * s.dtype.itemsize for s in jax.tree.leaves([phase.saved for phase in parts.phases]))
  with (
    checkpoint.manager(workdir / 'checkpoints', largest=largest) as saved,
    log.display(configs.label(config.method), sum(p.rounds for p in parts.phases), show) as display,
    _signals() as stop,
  ):
    state, totals = _train(parts, workdir, saved, display, stop)
  return _finish(parts, workdir, state, totals)


def _finished(workdir, config) -> dict | None:
  """The summary of a run that is finished; one of fewer rounds goes on."""
  _refuse_other_config(workdir, configs.plain(config))
  path = workdir / 'summary.json'
  summary = _json(path) if path.exists() else {'rounds': -1}
  return summary if summary['rounds'] == config.rounds else None


def use_compilation_cache():
  """Keeps compiled programs in $FEDKD_CACHE (default ~/.cache/fedkd), unless JAX was told another place."""
  if jax.config.jax_compilation_cache_dir is None:
    jax.config.update('jax_compilation_cache_dir', str(cache.directory() / 'xla'))


def _refuse_other_config(workdir, config):
  if not (workdir / 'config.json').exists():
    return
  changed = configs.differences(_json(workdir / 'config.json'), config)
  if changed:
    raise ConfigError(
      f'workdir={workdir} holds a run with another config ({"; ".join(changed)}); '
      'choose another workdir, or undo the change'
    )


def _json(path):
  try:
    return json.loads(path.read_text())
  except ValueError as error:
    raise ConfigError(f'workdir={path.parent}: {path.name} is damaged ({error}); choose another workdir') from error


def _prepare(workdir, parts):
  """Writes what is known before training.

  Raises:
    ConfigError: if the directory cannot be written.
  """
  log.make(workdir)
  try:
    _write_start(workdir, parts)
  except OSError as error:
    raise ConfigError(f'workdir={workdir} cannot be written ({error.strerror}); choose another') from error


def _write_start(workdir, parts):
  log.write_json(workdir / 'config.json', configs.plain(parts.config))
  lists = {}
  for seed, split in zip(parts.config.seeds, parts.splits, strict=True):
    lists[f'seed{seed}_public'] = split.public
    for name in ('private', 'shared', 'validation', 'test'):
      rows = getattr(split, name)
      lists[f'seed{seed}_{name}'] = np.concatenate(rows)
      lists[f'seed{seed}_{name}_sizes'] = np.array([len(r) for r in rows])
  np.savez_compressed(workdir / 'split.npz', **lists)


@contextlib.contextmanager
def _signals():
  """A list that receives the number of a SIGINT or SIGTERM instead of the program's death."""
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


def _phase_at(parts, step) -> tuple:
  """(number of the phase of a state saved after `step` rounds, rounds of the phases before it); a phase's last state is
  still its own."""
  ends = list(itertools.accumulate(phase.rounds for phase in parts.phases))
  number = bisect.bisect_left(ends, step)
  return number, ends[number] - parts.phases[number].rounds


def _restore(parts, saved, tidy=True):
  """(step, state, totals) of the newest intact checkpoint, or None; arguments as `checkpoint.restore`."""
  phase_at = lambda step: parts.phases[_phase_at(parts, step)[0]]
  found = []
  look = lambda: found.append(checkpoint.restore(saved, lambda step: phase_at(step).saved, log.warn, tidy))
  hosts.agreed(look)
  found = found[0] if found else None
  notes = hosts.tell(found and (found[0], found[2]))
  if not notes:
    return None
  phase = phase_at(notes[0])
  return notes[0], phase.unpack(hosts.tell_arrays(found and found[1], phase.saved)), notes[1]


def _train(parts, workdir, saved, display, stop):
  """All phases; returns the final (State, totals)."""
  found = _restore(parts, saved)
  step, state, totals = found or (0, None, metrics.start(len(parts.config.seeds)))
  first, start = _phase_at(parts, step)
  log.cut(workdir / 'metrics.jsonl', first, step - start if found else -1)
  counts = sources.counts(parts.source)
  display.say(f'{parts.source.name}: ' + ', '.join(f'{count:,} {what}' for what, count in counts.items()))
  if found:
    display.say(f'continuing from round {step}')
  ended = step == start + parts.phases[first].rounds
  _compile(parts.phases[first + ended :], display, stop)
  writer = log.tensorboard(workdir, step)
  for number, phase in enumerate(parts.phases[first:], first):
    fresh = step == start
    if fresh:
      state = phase.init(_handed(parts, workdir, number, state))
    if step < start + phase.rounds:
      this = loop.Loop(parts, number, start, workdir, saved, display, writer, stop)
      state, totals = loop.rounds(this, state, totals, step - start, fresh)
    start = step = start + phase.rounds
  return state, totals


def _compile(phases, display, stop):
  """The programs of all phases to come, side by side, since XLA compiles one program mostly on one core.

  They are lowered here, since JAX's contexts, such as `jax.default_matmul_precision`, are a thread's own. A signal that
  came by the end stops the run; one that comes after the last line on the terminal lets it save a round first.
  """
  if not phases:
    return
  label, begun = phases[-1].label, time.monotonic()
  display.say(f'{label}: compiling')
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    lowered = (phase.lower() for phase in reversed(phases))  # the last is usually the largest
    list(pool.map(lambda program: program.compile(), lowered))
  if stops := loop.signals(stop):
    raise StoppedError(stops[0], 'stopped by a signal while compiling; start again to continue')
  display.say(f'{label}: compiled in {time.monotonic() - begun:.1f} s')


def _handed(parts, workdir, number, state):
  """What a phase starts from: the initial variables, or what the phase before left, which is kept for other runs."""
  if number == 0:
    return parts.variables
  variables = parts.phases[number - 1].handover(state)
  handed_over.write(workdir, number - 1, variables, [len(g.ids) for g in parts.groups])
  return variables


def _finish(parts, workdir, state, totals) -> dict:
  """Writes `summary.json` and the figures."""
  rows = log.read(workdir / 'metrics.jsonl')
  config = parts.config
  out = {
    'name': config.name,
    'method': parts.phases[-1].label,
    'rounds': config.rounds,
    'seeds': list(config.seeds),
    'groups': [{'name': g.name, 'clients': len(g.ids), 'first': int(g.ids[0])} for g in parts.groups],
    **metrics.summary(rows),
    'ledger': {w: {kind: {'numbers': n, 'bytes': b} for kind, (n, b) in totals[w].items()} for w in ('up', 'down')},
    'turns': rows[-1]['turns'][0],
    'examples': totals['examples'],
    'images': sources.counts(parts.source),
    'seconds': totals['seconds'],
    **environment(),
    'state_sha256': parts.phases[-1].digest(state),
  }
  counts = partition.overview(owned(parts.splits[0]), parts.source.train_label, parts.source.classes)
  analysis.figures(workdir, counts, out)
  log.write_json(workdir / 'summary.json', out)  # last, because it says that the run is finished
  return out


def environment() -> dict:
  """Versions, device and commit, for every result that is written."""
  here = pathlib.Path(__file__).parent
  git = lambda *words: subprocess.run(['git', *words], cwd=here, capture_output=True, text=True).stdout.strip()
  versions = {package: package_metadata.version(package) for package in ('jax', 'jaxlib', 'flax', 'optax', 'numpy')}
  return {
    'versions': {'python': platform.python_version(), 'fedkd': fedkd.__version__, **versions},
    'device': f'{len(jax.devices())}x {jax.devices()[0].device_kind}, {os.cpu_count()} cores',
    'commit': git('rev-parse', '--short', 'HEAD'),
    'dirty': bool(git('status', '--porcelain', '--untracked-files=no')),
  }


def read_config(workdir) -> ConfigDict:
  """The config of a run directory; a field that is younger than the run has its default.

  Raises:
    ConfigError: if there is none.
  """
  path = pathlib.Path(workdir) / 'config.json'
  if not path.exists():
    raise ConfigError(f'workdir={workdir} holds no run (no config.json); give the --workdir of a run')
  default, found = configs.default().to_dict(), _json(path)
  found['data'] = {**default['data'], **found['data']}
  return ConfigDict(configs.tuples({**default, **found}))


def load(workdir, client=0, seed=None):
  """A trained client's model from a run's newest intact checkpoint.

  Args:
    workdir: of a run; its data set must be reachable, because the model carries its normalisation.
    client: global number.
    seed: one of the run's seeds; None is the first.

  Returns:
    (model, variables): `model.apply(variables, images, False)` gives (logits, {'features': ...}) for raw uint8
    images [B, H, W, channels].

  Raises:
    ConfigError: for a directory without a run or checkpoint, or an unknown client or seed.
  """
  config = read_config(workdir)
  seed = config.seeds[0] if seed is None else seed
  if not 0 <= client < config.data.clients:
    raise ConfigError(f'client={client} is unknown; the run has clients 0 to {config.data.clients - 1}')
  if seed not in config.seeds:
    raise ConfigError(f'seed={seed} is unknown; the run has seeds {", ".join(map(str, config.seeds))}')
  config.devices = 1  # a checkpoint serves any number
  parts = build(config, dry=not config.client_store, evaluate=np.array([client]))
  with checkpoint.manager(pathlib.Path(workdir) / 'checkpoints', tidy=False) as saved:
    found = _restore(parts, saved, tidy=False)
  if found is None:
    raise ConfigError(f'workdir={workdir} holds no intact checkpoint; run the experiment first')
  phase = parts.phases[_phase_at(parts, found[0])[0]]
  state = jax.tree.map(lambda a: a[config.seeds.index(seed)], phase.ready(found[1]))
  g = next(i for i, group in enumerate(parts.groups) if client in group.ids)
  if phase.method.predict is not apply_model:
    log.warn(
      f"{phase.label} is evaluated with its server's part too, which `load` leaves out: this is the client's own"
    )
  rows = phase.method.variables(state, g)
  row = list(parts.groups[g].ids).index(client) if jax.tree.leaves(rows)[0].shape[0] > 1 else 0
  return parts.groups[g].model, jax.tree.map(lambda a: a[row], rows)
