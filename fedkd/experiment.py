"""A run: `run` trains and writes the run directory, `load` brings a client's model back.

Between evaluations the device works in chunks of rounds, each one call of one compiled program. After a chunk the
losses are looked at, the state can be saved, and the run can be stopped. Chunking does not change a bit.
"""

import contextlib
import functools
import importlib.metadata as package_metadata
import json
import os
import pathlib
import platform
import signal
import subprocess
import time

import jax
import numpy as np
from ml_collections import ConfigDict

import fedkd
from fedkd import analysis, checkpoint, log, metrics
from fedkd import config as configs
from fedkd import plan as plans
from fedkd.build import Experiment, build
from fedkd.data import cache, partition
from fedkd.errors import ConfigError, DivergedError, StoppedError

CHUNK_SECONDS = 10  # of work between two looks at the signals and the clock
EVAL_BLOCK = 1000  # images per call of the evaluation program


def run(config, workdir, show=True) -> dict:
  """Runs an experiment, or continues it from its newest intact checkpoint.

  Args:
    config: ConfigDict (`fedkd.config.default` and a file of `configs/`).
    workdir: the run directory; made if missing.
    show: whether to report progress on the terminal.

  Returns:
    The run's summary, as in `summary.json`. A finished run returns it at once.

  Raises:
    ConfigError: before anything is written or trained, also if `workdir` holds a run of another config.
    DivergedError: at a loss that is not finite; the last checkpoint is kept.
    StoppedError: on SIGINT or SIGTERM, after the chunk was finished and saved.
  """
  workdir = pathlib.Path(workdir)
  before = _refuse_other_config(workdir, configs.plain(config))
  if before and before['rounds'] == config.rounds and (workdir / 'summary.json').exists():
    return json.loads((workdir / 'summary.json').read_text())
  use_compilation_cache()
  parts = build(config)
  _prepare(workdir, parts)
  with (
    checkpoint.manager(workdir / 'checkpoints') as saved,
    log.display(configs.label(config.method), config.rounds, show) as display,
    _signals() as stop,
  ):
    state, totals = _train(parts, workdir, saved, display, stop)
  return _finish(parts, workdir, state, totals)


def use_compilation_cache():
  """Keeps compiled programs in $FEDKD_CACHE (default ~/.cache/fedkd), unless JAX was told another place."""
  if jax.config.jax_compilation_cache_dir is None:
    jax.config.update('jax_compilation_cache_dir', str(cache.directory() / 'xla'))


def _refuse_other_config(workdir, config):
  """The plain config of the run in `workdir`, or None."""
  if not (workdir / 'config.json').exists():
    return None
  before = json.loads((workdir / 'config.json').read_text())
  changed = configs.differences(before, config)
  if changed:
    raise ConfigError(
      f'workdir={workdir} holds a run with another config ({"; ".join(changed)}); '
      'choose another workdir, or undo the change'
    )
  return before


def _prepare(workdir, parts):
  log.make(workdir)
  log.write_json(workdir / 'config.json', configs.plain(parts.config))
  lists = {}
  for seed, training, held_out in zip(parts.config.seeds, parts.parts, parts.held_out, strict=True):
    for name, rows in (('train', training), ('validation', held_out)):
      lists[f'seed{seed}_{name}'] = np.concatenate(rows) if rows else np.zeros(0, int)
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


def _train(parts, workdir, saved, display, stop):
  """The loop over chunks; returns the final (State, totals)."""
  config = parts.config
  like = jax.eval_shape(parts.init)
  found = checkpoint.restore(saved, like, log.warn)
  at, state, totals = found if found else (0, parts.init(), metrics.start(len(config.seeds)))
  log.cut(workdir / 'metrics.jsonl', at if found else -1)
  display.say(f'continuing from round {at}' if found else f'{configs.label(config.method)}: compiling')
  evaluate = functools.partial(_evaluate, parts, workdir, log.tensorboard(workdir, at))
  compiling = time.monotonic()
  state, _ = jax.block_until_ready(parts.rounds(state, at, 0))  # no round: compiles
  display.say(f'{configs.label(config.method)}: compiled in {time.monotonic() - compiling:.1f} s')
  if not found:
    display.update(0, 0, evaluate(0, state, totals))
  pace, safe, safe_at = 0.0, time.monotonic(), at
  while at < config.rounds:
    due = min(at + config.eval_every - at % config.eval_every, config.rounds)
    count = min(due - at, parts.length, max(1, int(CHUNK_SECONDS / pace)) if pace else 1)
    begun = time.monotonic()
    state, report = parts.rounds(state, at, count)
    report = jax.device_get(report)
    seconds = time.monotonic() - begun
    _refuse_bad_loss(parts, report, at, count, safe_at)
    examples, pace = np.sum(totals['examples']), seconds / count
    totals = metrics.add(totals, report, count, seconds)
    rate = (np.sum(totals['examples']) - examples) / seconds
    at += count
    row = evaluate(at, state, totals) if at == due else None
    totals = {**totals, 'info': {}, 'spoke': 0} if row else totals
    display.update(at, rate, row)
    if at == config.rounds or stop or _save_due(config, at, safe_at, safe):
      checkpoint.save(saved, at, state, totals)
      safe, safe_at = time.monotonic(), at
    if stop and at < config.rounds:
      raise StoppedError(stop[0], f'stopped by a signal after round {at}, which is saved; start again to continue')
  return state, totals


def _save_due(config, at, safe_at, safe) -> bool:
  if config.checkpoint_every:
    return at // config.checkpoint_every > safe_at // config.checkpoint_every
  return time.monotonic() - safe >= CHUNK_SECONDS


def _refuse_bad_loss(parts, report, at, count, safe_at):
  bad = metrics.first_bad_loss(report, count)
  if bad:
    seed, t, client, loss = bad
    raise DivergedError(
      f'the loss of client {client} became {loss} in round {at + t} (seed {parts.config.seeds[seed]}); '
      f'lower optimizer.learning_rate={parts.config.optimizer.learning_rate}; the checkpoint of round {safe_at} is kept'
    )


def _accuracies(parts, state, image, label) -> dict:
  """Accuracy fields on images [seeds, T, ...] (a leading 1 stands for all seeds)."""
  seeds, rows = len(parts.config.seeds), label.shape[1]
  hits = 0
  for start in range(0, rows, EVAL_BLOCK):
    x, y = image[:, start : start + EVAL_BLOCK], label[:, start : start + EVAL_BLOCK]
    pad = min(EVAL_BLOCK, rows) - x.shape[1]
    x = np.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2))
    y = np.pad(y, ((0, 0), (0, pad)), constant_values=-1)
    full = lambda a: np.broadcast_to(a, (seeds, *a.shape[1:]))
    hits = hits + np.asarray(parts.hits(state, full(x), full(y)))
  return metrics.accuracies(hits, rows, [int(np.isin(g.ids, parts.clients).sum()) for g in parts.groups])


def _subset(rows, limit) -> np.ndarray:
  """A fixed random choice of `limit` of so many rows; all of them for 0."""
  order = np.random.default_rng(0).permutation(rows)
  return order[:limit] if 0 < limit < rows else np.arange(rows)


def _evaluate(parts, workdir, writer, at, state, totals) -> dict:
  """Evaluates after `at` rounds and writes the row. The last round uses the whole test set."""
  config, source = parts.config, parts.source
  test = _subset(len(source.test_label), 0 if at == config.rounds else config.eval_rows)
  row = {
    'phase': 0,
    'method': configs.label(config.method),
    'round': at,
    'turns': [int(plans.turns(parts.plan)[:at].sum())] * len(config.seeds),
    'test_rows': len(test),
    **_accuracies(parts, state, source.test_image[test][None], source.test_label[test][None]),
  }
  held_out = [np.concatenate(rows) for rows in parts.held_out]
  count = min(len(rows) for rows in held_out)
  if count:
    pick = _subset(count, config.eval_rows)
    rows = np.stack([h[pick] for h in held_out])
    found = _accuracies(parts, state, source.train_image[rows], source.train_label[rows])
    row['validation_accuracy'] = found['accuracy']
  row.update(metrics.row(totals))
  log.append(workdir / 'metrics.jsonl', row)
  log.events(writer, row)
  return row


def _finish(parts, workdir, state, totals) -> dict:
  """Writes `summary.json` and the figures."""
  rows = log.read(workdir / 'metrics.jsonl')
  config = parts.config
  out = {
    'name': config.name,
    'method': configs.label(config.method),
    'rounds': config.rounds,
    'seeds': list(config.seeds),
    'groups': [{'name': g.name, 'clients': len(g.ids)} for g in parts.groups],
    **metrics.summary(rows),
    'ledger': {w: {kind: {'numbers': n, 'bytes': b} for kind, (n, b) in totals[w].items()} for w in ('up', 'down')},
    'turns': rows[-1]['turns'][0],
    'examples': totals['examples'],
    'seconds': totals['seconds'],
    **environment(),
    'state_sha256': checkpoint.digest((state.client, state.server)),
  }
  log.write_json(workdir / 'summary.json', out)
  counts = partition.overview(parts.parts[0], parts.source.train_label, parts.source.classes)
  analysis.figures(workdir, counts)
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
  """The config of a run directory.

  Raises:
    ConfigError: if there is none.
  """
  path = pathlib.Path(workdir) / 'config.json'
  if not path.exists():
    raise ConfigError(f'workdir={workdir} holds no run (no config.json); give the --workdir of a run')
  return ConfigDict(configs.tuples(json.loads(path.read_text())))


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
  parts: Experiment = build(config)
  with checkpoint.manager(pathlib.Path(workdir) / 'checkpoints') as saved:
    found = checkpoint.restore(saved, jax.eval_shape(parts.init), log.warn)
  if found is None:
    raise ConfigError(f'workdir={workdir} holds no intact checkpoint; run the experiment first')
  state = jax.tree.map(lambda a: a[config.seeds.index(seed)], found[1])
  g = next(i for i, group in enumerate(parts.groups) if client in group.ids)
  rows = parts.method.variables(state, g)
  row = list(parts.groups[g].ids).index(client) if jax.tree.leaves(rows)[0].shape[0] > 1 else 0
  return parts.groups[g].model, jax.tree.map(lambda a: a[row], rows)
