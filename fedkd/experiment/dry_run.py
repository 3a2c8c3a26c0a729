"""A summary of what a config would run: the output of `--dry_run`."""

import jax
import numpy as np
import optax

from fedkd import ledger
from fedkd.experiment.build.assembly import build, owned
from fedkd.experiment.programs import rows_of
from fedkd.federation import Federation
from fedkd.round import of_client
from fedkd.types import Download


def _size(tree) -> int:
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _message(counts) -> str:
  parts = [f'{numbers:,} {kind} ({size / 1e3:,.1f} kB)' for kind, (numbers, size) in counts.items()]
  return ' + '.join(parts) or 'nothing'


def messages(parts, g):
  """(up, down): shapes of what one client of group g sends and receives in a round of the last phase."""
  phase, group, federation = parts.phases[-1], parts.groups[g], parts.federation
  of_seed = lambda tree: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), tree)
  state, key, t = of_seed(phase.state), jax.eval_shape(jax.random.key, 0), jax.ShapeDtypeStruct((), np.int32)
  ids = tuple(jax.ShapeDtypeStruct((1,), np.int32) for _ in parts.groups)
  every = Federation(parts.groups, federation.pool, *of_seed(rows_of(federation))).data()
  send = lambda key, t, server, ids, data: phase.method.server.send(key, t, parts.groups, server, ids, data)
  down = jax.eval_shape(send, key, t, state.server, ids, every)[g]

  def step(key, t, state, shared, own, data):
    client, own = jax.tree.map(lambda a: a[0], (state, own))
    return phase.method.client.step(key, t, group.model, client, Download(shared, own), of_client(data, 0))[1]

  up = jax.eval_shape(step, key, t, state.client[g], down.shared, down.own, every[g])
  return up, Download(down.shared, of_seed(down.own))


def _on_disk(parts) -> int:
  groups = zip(parts.groups, parts.phases[-1].state.client, strict=True)
  return sum(len(group.ids) * _size(held) // jax.tree.leaves(held)[0].shape[1] for group, held in groups if _size(held))


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
      f'    up at most   {_message(ledger.capacity(up))}',
      f'    down at most {_message(ledger.capacity(down))}',
    ]
  lines += [
    f'  plan {config.plan.name}: {config.rounds:,} rounds, {updates:,} client updates, '
    f'{sum(w.shape[1] for w in phase.plan.participants)} slots',
    f'  memory: states {_size(phase.state) / 1e6:,.1f} MB, training images {images / 1e6:,.1f} MB',
    *([f'  disk: clients {_on_disk(parts) / 1e6:,.1f} MB once all have taken part'] if config.client_store else []),
    f'  training examples per client: {min(map(len, own)):,} to {max(map(len, own)):,}',
  ]
  return '\n'.join(lines)
