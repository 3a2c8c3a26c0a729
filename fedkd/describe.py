"""What a config would run, without running it: the text behind `--dry_run`."""

import jax
import numpy as np

from fedkd import config as configs
from fedkd import ledger
from fedkd.build import build
from fedkd.types import Data, Down, Pool, Rows


def _size(tree) -> int:
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _numbers(tree) -> int:
  return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _message(counts) -> str:
  parts = [f'{numbers:,} {kind} ({size / 1e3:,.1f} kB)' for kind, (numbers, size) in counts.items()]
  return ' + '.join(parts) or 'nothing'


def _data(parts) -> Data:
  """Shapes of what one client sees."""
  image, label = parts.source.train_image, parts.source.train_label
  shape = lambda count: jax.ShapeDtypeStruct((count,), np.int32)
  number = jax.ShapeDtypeStruct((), np.int32)
  rows = lambda count: Rows(shape(count), number, number)
  everyone = rows(sum(map(len, parts.parts[0])))
  pool = Pool(jax.ShapeDtypeStruct(image.shape, image.dtype), shape(len(label)))
  return Data(pool, rows(len(parts.parts[0][0])), everyone)


def messages(parts, g):
  """(up, down): shapes of what one client of group g sends and receives in a round."""
  group, data = parts.groups[g], _data(parts)
  state = jax.eval_shape(parts.init)
  row = lambda tree: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[2:], s.dtype), tree)  # without seeds, clients
  server = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), state.server)
  ids = tuple(jax.ShapeDtypeStruct((1,), np.int32) for _ in parts.groups)
  key, t = jax.eval_shape(jax.random.key, 0), jax.ShapeDtypeStruct((), np.int32)
  down = jax.eval_shape(parts.method.server.send, key, t, server, ids)[g]
  down = Down(down.shared, jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), down.own))
  step = lambda *args: parts.method.client.step(args[0], args[1], group.model, *args[2:])[1]
  return jax.eval_shape(step, key, t, row(state.client[g]), down, data), down


def text(config) -> str:
  """Parameters, message sizes, memory and the plan's size of a config."""
  parts = build(config)
  state = jax.eval_shape(parts.init)
  turns = sum(int((w >= 0).sum()) for w in parts.plan.who)
  lines = [f'{config.name}: method {configs.label(config.method)} on {parts.source.name}, {len(config.seeds)} seed(s)']
  for g, group in enumerate(parts.groups):
    trained, all = (_numbers(v) // len(config.seeds) for v in (parts.variables[g]['params'], parts.variables[g]))
    up, down = messages(parts, g)
    lines += [
      f'  group {g}: {len(group.ids)} x {group.name}: {trained:,} parameters, {all:,} with statistics',
      f'    up at most   {_message(ledger.capacity(up))}',
      f'    down at most {_message(ledger.capacity(down))}',
    ]
  lines += [
    f'  plan {config.plan.name}: {config.rounds:,} rounds, {turns:,} client turns, '
    f'{sum(w.shape[1] for w in parts.plan.who)} seats',
    f'  memory: states {_size(state) / 1e6:,.1f} MB, training images {parts.source.train_image.nbytes / 1e6:,.1f} MB',
    f'  training examples per client: {min(map(len, parts.parts[0])):,} to {max(map(len, parts.parts[0])):,}',
  ]
  return '\n'.join(lines)
