"""A summary of what a config would run: the output of `--dry_run`."""

import os
import pathlib

import jax
import optax

from fedkd import ledger, summary
from fedkd.experiment.build.assembly import build, owned
from fedkd.experiment.programs import rows_of
from fedkd.experiment.storage import warm_start
from fedkd.federation import Federation


def messages(parts, g, phase=None):
  """`summary.messages` of a phase; None: the last one."""
  phase = phase or parts.phases[-1]
  of_seed = lambda tree: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), tree)
  federation = Federation(parts.groups, parts.federation.pool, *of_seed(rows_of(parts.federation)))
  return summary.messages(phase.method, federation, of_seed(phase.state), g)


def _on_disk(parts, phase) -> int:
  groups = zip(parts.groups, phase.state.client, strict=True)
  size = summary.size_of
  return sum(len(group.ids) * size(held) // jax.tree.leaves(held)[0].shape[1] for group, held in groups if size(held))


def text(config, workdir: str | os.PathLike | None = None) -> str:
  """Parameters, message sizes, memory and the plan's size of a config, by phase where it has several.

  Raises:
    ConfigError: as a run would; for a phase that `init_from` names but is not there only with the `workdir` of the run,
      beside which it is looked for.
  """
  parts = build(config, dry=True)
  if config.init_from and workdir:
    warm_start.find(config, pathlib.Path(workdir).parent, parts.source)
  own = owned(parts.splits[0])
  images = parts.source.train_image.nbytes
  path = ' then '.join(p.label for p in parts.phases)
  lines = [f'{config.name}: method {path} on {parts.source.name}, {len(config.seeds)} seed(s)']
  for g, group in enumerate(parts.groups):
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[2:], s.dtype), parts.variables[g])
    trained, all = optax.tree.size(one['params']), optax.tree.size(one)
    lines += [f'  group {g}: {len(group.ids)} x {group.name}: {trained:,} parameters, {all:,} with statistics']
  if config.init_from and not workdir:
    name, number = warm_start.named(config.init_from)
    lines += [f'  init_from: phase {number} of {name}, not looked for without the workdir of this run']
  for p, phase in enumerate(parts.phases):
    rhythm = config.plan.name if p == len(config.before) else 'synchronous'
    lines += [f'  {line}' for line in _of_phase(parts, phase, rhythm, bool(config.client_store))]
  lines += [
    f'  memory: training images {images / 1e6:,.1f} MB',
    f'  training examples per client: {min(map(len, own)):,} to {max(map(len, own)):,}',
  ]
  return '\n'.join(lines)


def _of_phase(parts, phase, rhythm, stored) -> list:
  updates = sum(int((w >= 0).sum()) for w in phase.plan.participants)
  slots = sum(w.shape[1] for w in phase.plan.participants)
  lines = [f'{phase.label}: plan {rhythm}: {phase.rounds:,} rounds, {updates:,} client updates, {slots} slots']
  alike: dict[str, list] = {}  # groups whose messages have the same sizes
  for g in range(len(parts.groups)):
    up, down = (summary.numbers_of(ledger.capacity(message)) for message in messages(parts, g, phase))
    alike.setdefault(f'up at most {up}; down at most {down}', []).append(str(g))
  for sizes, which in alike.items():
    of_group = f' of group{"s" * (len(which) > 1)} {", ".join(which)}' if len(alike) > 1 else ''
    lines += [f'  a client{of_group}: {sizes}']
  disk = f'; disk: clients {_on_disk(parts, phase) / 1e6:,.1f} MB once all have taken part' if stored else ''
  return [*lines, f'  memory: states {summary.size_of(phase.state) / 1e6:,.1f} MB{disk}']
