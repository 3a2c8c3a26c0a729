"""What a federation says of itself: clients, groups, examples, and how models see them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkd.checks.kinds import what_is
from fedkd.types import Group, Pool

GROUPS = 4  # that are listed
CLIENTS = 6  # of a group that are listed


def summary(groups: Sequence[Group], pool: Pool, tables: dict[str, Any]) -> str:
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
