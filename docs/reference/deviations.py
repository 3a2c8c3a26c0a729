"""Where a method's docstrings speak of its paper, of its authors' code or of other implementations."""

import inspect
import re

from fedkd import methods
from fedkd.config.meanings import arguments as described
from reference.markdown import SENTENCE, flow, table

# How a docstring refers to them.
SOURCES = re.compile(r"\b(papers?('s)?|authors?'?|codes?|HtFLlib('s)?|as printed|demonstration|published|here)\b")


def sentences(name: str) -> list[str]:
  """The sentences of a method's docstring, and of that of a module of its own, that do."""
  function = getattr(methods, name)
  module = inspect.getmodule(function)
  texts = [inspect.getdoc(module)] if module.__name__.endswith(f'.{name}') else []
  texts += [inspect.getdoc(function).partition('\nArgs')[0]]
  return [f'* {flow(sentence)}' for text in texts for sentence in _sentences(text)]


def arguments(name: str) -> dict[str, tuple[str, str]]:
  """{argument: (its default, what it is)} of those whose text does."""
  function = getattr(methods, name)
  parameters = inspect.signature(function).parameters
  told = described(function.__doc__).items()
  return {key: (_code(parameters[key].default), flow(re.sub('; or$', '.', what)))
          for key, what in told if key in parameters and SOURCES.search(what)}  # fmt: skip


def section(name: str) -> str:
  """Both, as Markdown; '' where there are none."""
  rows = [(f'`{key}`', *both) for key, both in arguments(name).items()]
  return '\n\n'.join(
    filter(None, ('\n'.join(sentences(name)), table(('argument', 'default', 'what it is'), rows) if rows else ''))
  )


def _sentences(text) -> list[str]:
  """Of a docstring, without its first, which is the reference to the paper or says what the method is."""
  sentences = [one for part in re.split(r'\n\s*\n', text)[1:] for one in SENTENCE.split(' '.join(part.split()))]
  return [sentence for sentence in sentences if SOURCES.search(sentence)]


def _code(default) -> str:
  """Of a number or word; '' of a function, or where there is none."""
  return '' if callable(default) else f'`{default!r}`'
