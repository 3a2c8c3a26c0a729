"""What federations, simulations and states say of themselves: clients, models, examples, messages, bytes."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedkd import ledger
from fedkd.checks.kinds import what_is
from fedkd.round import of_client
from fedkd.types import Download, Group, Method, Pool, PyTree, State

GROUPS = 4  # that are listed
CLIENTS = 6  # of a group that are listed


def of_federation(groups: Sequence[Group], pool: Pool, tables: dict[str, Any]) -> str:
  """A federation in at most 12 lines. Rows are counted by the shapes of tables, which may be traced.

  Args:
    tables: 'shared', 'public', 'validation', 'domain' of a `Federation`, None for those that it has not.
  """
  clients = sum(len(g.ids) for g in groups)
  lines = [f'Federation of {_count(clients, "client")} in {_count(len(groups), "group")} of equal models']
  lines += [f'{g.name}: {_count(len(g.ids), "client")} ({_listed(g.ids)})' for g in groups[:GROUPS]]
  lines += [f'and {_count(len(groups) - GROUPS, "group")} more'] if len(groups) > GROUPS else []
  example = pool.example
  lines += [f'examples: {example.shape[0]} of {example.dtype}{list(example.shape[1:])}']
  lines += [f'seen by models: {" or ".join(sorted({_normalised(g.model) for g in groups}))}']
  rows = {name: tables[name] for name in ('public', 'validation') if tables[name] is not None}
  lines += [f'{name}: {_count(rows[name].index.shape[-1], "example")}' for name in rows]
  lines += ['shared: some examples of every client'] if tables['shared'] is not None else []
  lines += ['domains: one of every example'] if tables['domain'] is not None else []
  return '\n  '.join(lines)


def of_simulation(method: Method, federation: Any, state: Any) -> str:
  """A federation, and what a client of each group trains, sends and receives in a round, from shapes alone.

  Args:
    federation: a `Federation`.
    state: shapes of a `SimulationState`.
  """
  lines = [repr(federation), 'a round, for each client at most:']
  for g, group in enumerate(federation.groups[:GROUPS]):
    variables = jax.eval_shape(lambda state, g=g: method.variables(state, g), state.federated)['params']
    trained = sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(variables))
    up, down = (numbers_of(ledger.capacity(message)) for message in messages(method, federation, state.federated, g))
    lines += [f'  {group.name}: {trained:,} parameters; up {up}; down {down}']
  return '\n  '.join(lines).replace('Federation of', 'Simulation of', 1)


def of_state(state: Any) -> str:
  """A `SimulationState` in one line."""
  seeds = f'{state.round.shape[0]} seeds, ' if state.round.ndim else ''
  clients, server = (size_of(part) / 1e6 for part in (state.client, state.server))
  at = 'round' if isinstance(state.round, jax.core.Tracer) else f'round {np.max(state.round)}'
  return f'SimulationState: {at}, {seeds}{clients:,.3f} MB of clients, {server:,.3f} MB of the server'


def messages(method: Method, federation: Any, state: State, g: int) -> tuple[PyTree, Download]:
  """(up, down): shapes of what one client of group g sends and receives in a round.

  Args:
    federation, state: arrays or their shapes.
  """
  key, t = jax.eval_shape(jax.random.key, 0), jax.ShapeDtypeStruct((), np.int32)
  groups, ids = federation.groups, tuple(jax.ShapeDtypeStruct((1,), np.int32) for _ in federation.groups)
  send = lambda key, t, server, ids, data: method.server.send(key, t, groups, server, ids, data)
  down = jax.eval_shape(send, key, t, state.server, ids, federation.data())[g]

  def step(key, t, state, shared, own, data):
    client, own = jax.tree.map(lambda a: a[0], (state, own))
    return method.client.step(key, t, groups[g].model, client, Download(shared, own), of_client(data, 0))[1]

  up = jax.eval_shape(step, key, t, state.client[g], down.shared, down.own, federation.data()[g])
  return up, Download(down.shared, jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), down.own))


def numbers_of(counts: dict) -> str:
  """'110 knowledge (440 B)' of {kind: (numbers, bytes)}, joined by +."""
  parts = [f'{numbers:,} {kind} ({_bytes(size)})' for kind, (numbers, size) in counts.items()]
  return ' + '.join(parts) or 'nothing'


def _bytes(size) -> str:
  return f'{size} B' if size < 1000 else f'{size / 1e3:,.1f} kB'


def size_of(tree: PyTree) -> int:
  """Bytes."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _count(number, what) -> str:
  return f'{number} {what}{"s" if number != 1 else ""}'


def _listed(ids) -> str:
  return ', '.join(map(str, ids[:CLIENTS])) + (', ...' if len(ids) > CLIENTS else '')


def _normalised(model) -> str:
  """How a `models.base.Preprocessed` normalises."""
  mean, scale = getattr(model, 'mean', None), getattr(model, 'scale', None)
  return 'as they are' if mean is None else f'(x - mean) * scale; mean: {_span(mean)}, scale: {_span(scale)}'


def _span(numbers) -> str:
  """'1.5', or 'float32[28, 28, 1] from 0 to 255'."""
  array = np.asarray(numbers)
  least, most = f'{array.min():.4g}', f'{array.max():.4g}'
  return least if least == most else f'{what_is(array)} from {least} to {most}'
