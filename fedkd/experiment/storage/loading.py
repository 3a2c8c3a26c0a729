"""Loads a run directory: its config and its clients' models."""

import bisect
import itertools
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from ml_collections import ConfigDict

from fedkd import config as configs
from fedkd import files
from fedkd.analysis import results
from fedkd.checks.arguments import like_those
from fedkd.checks.kinds import THREEFRY, check_number
from fedkd.data.sources import Source
from fedkd.errors import ConfigError
from fedkd.evaluation import logits_of_clients, model_of
from fedkd.experiment.build.assembly import build
from fedkd.experiment.hosts import hosts
from fedkd.experiment.storage import checkpoint, same_data
from fedkd.types import Method, apply_model


def read_config(workdir: str | pathlib.Path, trust: bool = False) -> ConfigDict:
  """The config of a run directory; fields added to fedkd after the run have their defaults.

  Args:
    workdir: of a run.
    trust: whether the config may name code outside fedkd (a method, rule or model of one's own), which is executed when
      the config is used. Without it such a config is refused: a stored config is data.

  Raises:
    ConfigError: if there is none, it is damaged, or it names code outside fedkd.
  """
  path = pathlib.Path(workdir) / 'config.json'
  if why := files.why_no_run(workdir):
    raise ConfigError(f'workdir={workdir} holds no run ({why}); give the --workdir of a run')
  default, saved = configs.default().to_dict(), configs.check_stored(files.read_sealed(path), workdir, trust)
  if not isinstance(saved.get('data'), dict):
    raise ConfigError(f'workdir={workdir}: config.json is damaged (it has no data); restore the file')
  saved['data'] = {**default['data'], **saved['data']}
  return configs.migrate(ConfigDict(configs.freeze({**default, **saved})))


def load(
  workdir: str | pathlib.Path, client: int = 0, seed: int | None = None, trust: bool = False
) -> tuple[nn.Module, dict]:
  """A trained client's model from a run's newest intact checkpoint.

  Args:
    workdir: of a run; its data set must be reachable and the same, because the model carries its normalisation.
    client: global number.
    seed: one of the run's seeds; None is the first.
    trust: as in `read_config`.

  Returns:
    (module, variables): `module.apply(variables, images, False)` gives (logits, {'features': ...}) for raw uint8
    images [B, H, W, channels]. What the client would deploy: of a network that is split, its half and the server's.
    Where a method predicts with more than one network or by prototypes, it is the client's own network, whose accuracy
    is another than that of the run.

  Raises:
    ConfigError: for a directory without a run or checkpoint, one whose config names code outside fedkd, an unknown
      client or seed, or a run whose data, or, if it is finished, whose files have changed since.
  """
  return loaded(workdir, client, seed, trust)[:2]


def loaded(
  workdir: str | pathlib.Path, client: int = 0, seed: int | None = None, trust: bool = False
) -> tuple[nn.Module, dict, Source, Method]:
  """As `load`, and the data set and the method."""
  config = read_config(workdir, trust)
  check_number('client', client, range(config.data.clients), 'the run', 'clients')
  with jax.default_prng_impl(THREEFRY):
    method, groups, state, source = _deployed(workdir, config, [client], seed)
  return *model_of(method, groups, state, client), source, method


def load_all(
  workdir: str | pathlib.Path, seed: int | None = None, trust: bool = False
) -> tuple[tuple[nn.Module, dict], ...]:
  """The models of all clients, in the order of their numbers, each as `load` gives it; the data are read once."""
  config = read_config(workdir, trust)
  with jax.default_prng_impl(THREEFRY):
    method, groups, state, _ = _deployed(workdir, config, range(config.data.clients), seed)
    return tuple(model_of(method, groups, state, client) for client in range(config.data.clients))


def logits(workdir: str | pathlib.Path, x: ArrayLike, seed: int | None = None, trust: bool = False) -> np.ndarray:
  """Logits float32[clients, N, C] of the models of all clients, as `load_all` gives them, on raw examples [N, ...].

  They are others than those by which a method predicts that uses more than these models (`load`).

  Raises:
    ConfigError: as `load`, and for examples of another shape or kind than those of the run.
  """
  config = read_config(workdir, trust)
  clients = np.arange(config.data.clients)
  with jax.default_prng_impl(THREEFRY):
    method, groups, state, source = _deployed(workdir, config, clients, seed)
    x = like_those('x', x, source.train_image)
    of = jax.jit(lambda state, x: logits_of_clients(method, groups, clients, state, x, apply_model))
    return np.asarray(of(state, jnp.asarray(x)))


def _deployed(workdir, config, clients, seed) -> tuple:
  """(method, groups, state, data set) of one seed in the newest intact checkpoint, ready to be evaluated."""
  seed = config.seeds[0] if seed is None else seed
  check_number('seed', seed, config.seeds, 'the run', 'seeds')
  summary = results.summary(workdir) if (pathlib.Path(workdir) / 'summary.json').exists() else None
  config.devices = 1  # a checkpoint serves any number
  parts = build(config, dry=not config.client_store, evaluate=np.array(clients))
  remedy = 'restore them, since a model normalises its examples by the data that it was trained on'
  same_data.check(pathlib.Path(workdir), parts.source, same_data.checksum(parts.source), remedy)
  with checkpoint.manager(pathlib.Path(workdir) / 'checkpoints', tidy=False) as saved:
    restored = restore(parts, saved, pathlib.Path(workdir), tidy=False)
  if restored is None:
    raise ConfigError(f'workdir={workdir} holds no intact checkpoint; run the experiment first')
  if summary and restored[0] < sum(phase.rounds for phase in parts.phases):
    raise ConfigError(
      f'workdir={workdir}: the checkpoint of the last round is damaged; delete summary.json and start the run again, '
      f'which trains from round {restored[0]}'
    )
  phase = parts.phases[phase_at(parts, restored[0])[0]]
  state = jax.tree.map(lambda a: a[config.seeds.index(seed)], phase.ready(restored[1]))
  return phase.method, parts.groups, state, parts.source


def phase_at(parts, step) -> tuple:
  """(number of the phase of a state saved after `step` rounds, rounds of the phases before it); a phase's last state is
  still its own."""
  ends = list(itertools.accumulate(phase.rounds for phase in parts.phases))
  number = bisect.bisect_left(ends, step)
  return number, ends[number] - parts.phases[number].rounds


def restore(parts, saved, workdir, tidy=True):
  """(step, state, totals) of the newest checkpoint that is intact and consistent with `metrics.jsonl`, or None;
  arguments as `checkpoint.restore`."""
  phase_of = lambda step: parts.phases[phase_at(parts, step)[0]]
  like, accept = (lambda step: phase_of(step).saved), (lambda *checkpoint: evaluated(parts, workdir, *checkpoint))
  found = []
  hosts.run_on_primary(lambda: found.append(checkpoint.restore(saved, like, files.warn, tidy, accept)))
  found = found[0] if found else None
  notes = hosts.broadcast_from_primary(found and (found[0], found[2]))
  if not notes:
    return None
  phase = phase_of(notes[0])
  return notes[0], phase.unpack(hosts.broadcast_arrays(found and found[1], phase.saved)), notes[1]


def evaluated(parts, workdir, step, totals) -> int:
  """How many evaluations of `metrics.jsonl` were made before the checkpoint of `step` with these totals.

  Raises:
    ConfigError: if they are not in the file.
  """
  found = files.evaluations(workdir / 'metrics.jsonl')
  sums = ['', *found.sums]
  if 'metrics' in totals:
    count = sums.index(totals['metrics']) if totals['metrics'] in sums else 0
  else:
    count = _evaluated_before(parts, step, found)
  if not count:
    damage = found.damage or ('evaluations are missing' if found.rows else 'it is empty or missing')
    raise ConfigError(f'workdir={workdir}: metrics.jsonl is damaged ({damage})')
  return count


def _evaluated_before(parts, step, found) -> int:
  """As `evaluated`, for a checkpoint of an older version: by the rounds of the evaluations; 0 if one is missing."""
  phase, start = phase_at(parts, step)
  rounds = [(row['phase'], row['round']) for row in found.rows]
  due = set()
  for number, one in enumerate(parts.phases[: phase + 1]):
    end = step - start if number == phase else one.rounds
    every = parts.config.eval_every if not parts.stops[number] else one.rounds  # it may have ended early
    due |= {(number, at) for at in (*range(0, end + 1, every), *([end] if end == one.rounds else []))}
  return 0 if due - set(rounds) else sum(at <= (phase, step - start) for at in rounds)
