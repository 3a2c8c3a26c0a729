"""Docstrings as Markdown.

A docstring here is plain text with code in backquotes, `Args:` and lists of `name: what it is`. That is nearly
Markdown, so it is written as such: reStructuredText, which autodoc expects, reads `*`, `|` and `_` as its own.
"""

import re
import textwrap

from fedkd.config.meanings import ITEM, paragraphs

SECTION = re.compile(r'(Args|Attributes|Returns|Raises|Yields)( \(.*\))?:$')
SENTENCE = re.compile(r'(?<=[.:])\s+(?=[A-Z`])')


def markdown(doc: str | None) -> str:
  """A docstring as Markdown."""
  return '\n\n'.join(block(text) for text in paragraphs(doc))


def first_sentence(doc: str | None) -> str:
  """Of a docstring, as text of Markdown."""
  return sentence(flow(paragraphs(doc)[0]))


def sentence(text: str, count: int = 1) -> str:
  """The first of a paragraph, or the first few."""
  return ' '.join(re.split(r"(?<=\.)\s(?=[A-Z'`])", ' '.join(text.split()))[:count])


def block(text: str) -> str:
  """A paragraph, a section such as `Args:`, a list or code."""
  first, _, rest = text.partition('\n')
  if match := SECTION.match(first.strip()):
    rest = textwrap.dedent(rest)
    found = items(rest) if match[1] != 'Returns' else None
    return f'**{match[1]}{match[2] or ""}:**\n\n{found or flow(rest)}'
  if text.startswith(' '):
    text = textwrap.dedent(text)
    return items(text) or f'```text\n{text}\n```'
  return items(text) or flow(text)


def flow(text: str) -> str:
  """A paragraph on one line; whatever is not in backquotes is text."""
  parts = re.split(r'(`[^`]*`)', ' '.join(text.split()))
  return ''.join(part if part.startswith('`') else re.sub(r'([\[\]<>*_|])', r'\\\1', part) for part in parts)


def items(text: str) -> str | None:
  """`name: what` and lines that belong to it as a list; None where the text is no such list."""
  entries = re.split(r'\n(?=\S)', text)
  matches = [ITEM.fullmatch(entry) for entry in entries]
  if not all(matches) or (len(entries) == 1 and '\n' not in text and len(text) > 100):
    return None
  return '\n'.join(f'* `{m[1]}`: {flow(m[2])}' for m in matches)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
  """A table of cells of Markdown."""
  lines = [header, ('---',) * len(header), *rows]
  return '\n'.join('| ' + ' | '.join(re.sub(r'(?<!\\)\|', r'\|', cell) for cell in line) + ' |' for line in lines)
