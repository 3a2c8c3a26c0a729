"""A summary of what a config would run: the output of `--dry_run`."""

import jax
import optax

from fedkd import ledger, summary
from fedkd.experiment.build.assembly import build, owned
from fedkd.experiment.programs import rows_of
from fedkd.federation import Federation


def messages(parts, g):
  """`summary.messages` of the last phase."""
  of_seed = lambda tree: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), tree)
  federation = Federation(parts.groups, parts.federation.pool, *of_seed(rows_of(parts.federation)))
  return summary.messages(parts.phases[-1].method, federation, of_seed(parts.phases[-1].state), g)


def _on_disk(parts) -> int:
  groups = zip(parts.groups, parts.phases[-1].state.client, strict=True)
  size = summary.size_of
  return sum(len(group.ids) * size(held) // jax.tree.leaves(held)[0].shape[1] for group, held in groups if size(held))


def text(config) -> str:
  """Parameters, message sizes, memory and the plan's size of a config."""
  parts = build(config, dry=True)
  phase, own = parts.phases[-1], owned(parts.splits[0])
  images = parts.source.train_image.nbytes
  updates = sum(int((w >= 0).sum()) for w in phase.plan.participants)
  path = ' then '.join(p.label for p in parts.phases)
  lines = [f'{config.name}: method {path} on {parts.source.name}, {len(config.seeds)} seed(s)']
  for g, group in enumerate(parts.groups):
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[2:], s.dtype), parts.variables[g])
    trained, all = optax.tree.size(one['params']), optax.tree.size(one)
    up, down = messages(parts, g)
    lines += [
      f'  group {g}: {len(group.ids)} x {group.name}: {trained:,} parameters, {all:,} with statistics',
      f'    up at most   {summary.numbers_of(ledger.capacity(up))}',
      f'    down at most {summary.numbers_of(ledger.capacity(down))}',
    ]
  lines += [
    f'  plan {config.plan.name}: {config.rounds:,} rounds, {updates:,} client updates, '
    f'{sum(w.shape[1] for w in phase.plan.participants)} slots',
    f'  memory: states {summary.size_of(phase.state) / 1e6:,.1f} MB, training images {images / 1e6:,.1f} MB',
    *([f'  disk: clients {_on_disk(parts) / 1e6:,.1f} MB once all have taken part'] if config.client_store else []),
    f'  training examples per client: {min(map(len, own)):,} to {max(map(len, own)):,}',
  ]
  return '\n'.join(lines)
