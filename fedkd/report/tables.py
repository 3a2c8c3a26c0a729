"""The tables of a report, as text."""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedkd import analysis, files
from fedkd.analysis import compare, results
from fedkd.analysis.figures import notes, values
from fedkd.config.trees import flatten
from fedkd.report.chosen import Runs

MOST_CLIENTS = 200  # lines of the table per client
NONE = '-'


class Table(NamedTuple):
  """A frame of strings, and what is to be said of it."""

  title: str
  frame: pd.DataFrame
  note: str = ''
  differs: tuple[bool, ...] = ()  # by line: whether the runs differ in it


def accuracies(runs: Runs) -> Table:
  """What `fedkd compare` prints, and the columns of `analysis.summary` that it lacks."""
  frame = compare.table(runs.summaries, runs.frame, runs.base)
  if len(frame) == 1:
    frame = frame.drop(columns='difference')
  else:
    more = runs.table.drop(runs.base).reindex(frame['run'])
    text = lambda column, form: [NONE if np.isnan(value) else form(value) for value in column]
    after = list(frame).index('difference') + 1
    frame.insert(after, 'p', text(more['p'], lambda p: f'{p:.3f}' if p >= 0.001 else '< 0.001'))
    frame.insert(after + 1, 'clients worse off %', text(more['negative_share'], lambda share: f'{100 * share:.0f}'))
  frame['seeds'] = [str(len(summary['seeds'])) for summary in runs.summaries.values()]
  methods = [summary['method'] for summary in runs.summaries.values()]
  if methods != list(frame['run']):
    frame['method'] = methods
  return Table('Accuracy and cost', frame, _note(runs))


def _note(runs) -> str:
  spread = notes.note(runs.frame)
  of = f'with its {spread}' if spread else 'of a single seed'
  text = f'Test accuracy at the end, mean over clients, {of}. {compare.tested_on(runs.summaries)}'
  if len(runs.summaries) == 1:
    return text
  return (
    f'{text} Differences to {runs.base} in points, paired over the seeds that both have, of which two give a range in '
    'brackets; p of a paired t test, after Holm. Examples are those of all client updates and MB 10⁶ bytes, of all '
    'clients together; seconds are those of training, of all seeds.'
  )


def clients(runs: Runs) -> Table:
  """The accuracy of every client at the end; of very many, of those that are the least accurate with the reference."""
  last = values.final_of_clients(runs.frame, 'accuracy')
  mean = last[runs.base].mean(skipna=False).fillna(-np.inf)  # who has no value is shown
  shown = sorted(mean.nsmallest(MOST_CLIENTS).index)
  note = '' if len(shown) == len(mean) else f'The {len(shown)} of {len(mean)} clients least accurate with {runs.base}. '
  known = runs.frame[(runs.frame['run'] == runs.base) & (runs.frame['client'] >= 0)]
  of_client = known.groupby('client')[[c for c in ('architecture', 'domain') if c in known]].first().loc[shown]
  columns: dict[str, Any] = {'client': [str(client) for client in shown], **of_client.fillna(NONE).astype(str)}
  if 'examples' in known:  # may differ between seeds
    columns['examples'] = [f'{x:g}' for x in known.groupby('client')['examples'].mean().loc[shown].round(1)]
  columns |= {f'{run} %': _spreads(table[shown]) for run, table in last.items()}
  if (runs.frame['metric'] == 'accuracy_local').any():
    own = values.final_of_clients(runs.frame, 'accuracy_local')
    columns |= {f'{run}, {compare.OWN}': _spreads(table[shown]) for run, table in own.items()}
  note += f'Accuracy at the end; examples are private training rows. {compare.tested_on(runs.summaries)}'
  return Table('Per client', pd.DataFrame(columns), note + _others(runs))


def architectures(runs: Runs) -> Table:
  """The accuracy of the clients of each architecture at the end, mean over them."""
  last = values.final_of_clients(runs.frame, 'accuracy')
  names = values.architectures(runs.frame, runs.base).fillna(NONE).astype(str)
  counts = names.value_counts(sort=False)
  columns = {'architecture': list(counts.index), 'clients': [str(count) for count in counts]}
  for run, table in last.items():
    columns[f'{run} %'] = _spreads(values.means(table.T.groupby(names, sort=False)).T[counts.index])
  note = f'Accuracy at the end, mean over the clients of each, on {results.tested_on(runs.summaries[runs.base])}.'
  return Table('Per architecture', pd.DataFrame(columns), note + _others(runs))


def _others(runs) -> str:
  """A sentence for tables of architectures where runs differ in them."""
  others = ', '.join(values.unlike(runs.frame, runs.base))
  return f' Architectures are those of {runs.base}, and others in {others}.' if others else ''


def _spreads(table) -> list[str]:
  """Of each column of [seeds, columns]; none of one in which a seed has no value."""
  return [NONE if table[column].isna().any() else analysis.spread(100 * table[column]) for column in table]


def configs(runs: Runs) -> Table:
  """Every field of the configs, one column per run."""
  read = {run: stored_config(path) for run, path in runs.paths.items()}
  fields = {run: {name: _text(value) for name, value in flatten(config).items()} for run, config in read.items()}
  return _side_by_side('Configs', 'field', fields)


def stored_config(path: Any) -> dict:
  """The config of a run as JSON, without the directory of its data."""
  return results.comparable(files.read_sealed(path / 'config.json'))


def environment(runs: Runs) -> Table:
  """Which code, on which machine, with which final state: its checksum says whether a rerun ends in the same bits."""
  of = lambda summary: {
    'commit': _commit(summary),
    **{name: str(version) for name, version in summary.get('versions', {}).items()},
    'device': summary.get('device', NONE),
    'state_sha256': summary.get('state_sha256', NONE)[:16],
  }
  return _side_by_side('Environment', 'what', {run: of(summary) for run, summary in runs.summaries.items()})


def _commit(summary) -> str:
  commit = ' and '.join(results.commits(summary)) or 'none (an installed package)'
  return f'{commit}, with changes that are not committed' if summary.get('dirty') else commit


def ledger(runs: Runs) -> Table:
  """Megabytes by kind of message, mean over seeds."""
  sent = {
    run: {
      f'{way}: {kind}': compare.megabytes(np.mean(count['bytes']), 4)
      for way in ('up', 'down')
      for kind, count in summary['ledger'][way].items()
    }
    for run, summary in runs.summaries.items()
  }
  table = _side_by_side('What was sent', 'MB of all clients, by kind', sent)
  return table._replace(differs=(), note='Mean over seeds, in 10⁶ bytes: up from the clients, down to them.')


def _side_by_side(title: str, what: str, columns: dict[str, dict[str, str]]) -> Table:
  """One line per name, one column per run."""
  names = dict.fromkeys(name for column in columns.values() for name in column)
  frame = pd.DataFrame({run: [column.get(name, NONE) for name in names] for run, column in columns.items()})
  differs = tuple(len(set(line)) > 1 for line in frame.to_numpy().tolist())
  frame.insert(0, what, list(names), allow_duplicates=True)
  return Table(title, frame, differs=differs)


def _text(value) -> str:
  return value if isinstance(value, str) and value else json.dumps(value)


def every(runs: Runs, makers: Iterable[Callable[[Runs], Table]]) -> list[Table]:
  """The tables that have a line."""
  return [table for table in (make(runs) for make in makers) if len(table.frame)]
