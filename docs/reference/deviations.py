"""Where a method's docstrings speak of its paper, of its authors' code or of other implementations."""

import inspect
import re

from fedkd import methods
from reference.markdown import ITEM, SENTENCE, flow, table

# How a docstring refers to them.
SOURCES = re.compile(r"\b(papers?('s)?|authors?'?|codes?|HtFLlib('s)?|as printed|Eq\. \d+|demonstration|published)\b")


def of_method(name: str) -> str:
  """The sentences and the arguments that do, with the arguments' defaults; '' where there are none."""
  function = getattr(methods, name)
  body, _, arguments = inspect.getdoc(function).partition('\nArgs')
  sentences = [f'* {flow(sentence)}' for text in (inspect.getdoc(inspect.getmodule(function)), body)
               for sentence in _sentences(text)]  # fmt: skip
  rows = _arguments(arguments, inspect.signature(function).parameters)
  shown = ['\n'.join(dict.fromkeys(sentences))] if sentences else []
  shown += [table(('argument', 'default', 'what it chooses'), rows)] if rows else []
  return '\n\n'.join(shown)


def _sentences(text) -> list[str]:
  """Of a docstring, without its first, which is the reference to the paper or says what the method is."""
  sentences = [one for part in re.split(r'\n\s*\n', text)[1:] for one in SENTENCE.split(' '.join(part.split()))]
  return [sentence for sentence in sentences if SOURCES.search(sentence)]


def _arguments(text, parameters) -> list[tuple[str, str, str]]:
  entries = [ITEM.fullmatch(entry.strip()) for entry in re.split(r'\n(?=  \S)', text.partition('\nRaises')[0])]
  told = [(names, what) for entry in entries if entry for names, what in [entry.groups()] if SOURCES.search(what)]
  return [
    (
      _code(names),
      _code(', '.join(repr(parameters[name].default) for name in names.split(', ') if name in parameters)),
      flow(what),
    )
    for names, what in told
  ]


_code = lambda text: f'`{text}`' if text and '<' not in text else ''
