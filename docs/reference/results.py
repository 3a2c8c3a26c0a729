"""The rows of docs/results/ that belong to a method."""

import re

ALONE = {'private', 'ind', 'agg', 'pooled'}  # reference rows, shown with every method
NAMES = {'private': {'private', 'ind'}, 'agg': {'agg', 'pooled'}}  # in the results, where they differ


def of_method(name: str, text: str) -> str:
  """What the results, whose text is given, say about a method: its rows of all tables, and their units."""
  names = NAMES.get(name, {name})
  found = [_rows(table, names) for known, table in _tables(text) if names & set(known)]
  if not found:
    return 'No table of [the results](../results.md) has a row of it yet.'
  return '\n\n'.join([*_units(text), *found])


def _units(text) -> list[str]:
  """What the results say about its numbers and profiles, and about the columns of its tables."""
  paragraphs = text.split('\n\n')
  start = next(i for i, paragraph in enumerate(paragraphs) if 'Accuracies are percent' in paragraph)
  columns = paragraphs[paragraphs.index('## Tables') + 1]
  numbers = paragraphs[start][paragraphs[start].index('Accuracies are percent') :]
  return [numbers, paragraphs[start + 1], columns]


def _tables(text):
  """[(names of its rows, (title, line of its origin, header, rows))] of the first table of every section."""
  out = []
  for section in re.split(r'^### ', text, flags=re.MULTILINE)[1:]:
    lines = section.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith('| method |')), None)
    if at is not None:
      body = lines[at + 2 :]
      end = next((i for i, line in enumerate(body) if not line.startswith('|')), len(body))
      out.append(([line.split('|')[1].strip() for line in body[:end]], (lines[0], lines[2], lines[at], body[:end])))
  return out


def _rows(table, names) -> str:
  title, origin, header, rows = table
  kept = [row for row in rows if row.split('|')[1].strip() in ALONE | names]
  rule = '| ' + ' | '.join('---' for _ in header.split('|')[1:-1]) + ' |'
  return '\n'.join([f'**{title}**', '', origin, '', header, rule, *kept])
