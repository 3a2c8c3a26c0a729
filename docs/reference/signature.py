"""A function's signature, an argument a line."""

import inspect
import re
from collections.abc import Callable

from numpy.typing import ArrayLike

from fedkd.checks import ranges

# What is formatted a page long.
ARRAYS = {inspect.formatannotation(kind): name for kind, name in (
  (ArrayLike | None, 'ArrayLike | None'), (ArrayLike, 'ArrayLike'))}  # fmt: skip


def signature(name: str, function: Callable) -> str:
  """A fenced block, with the range of an argument behind it where its annotation has one."""
  try:
    found = inspect.signature(function)
  except (TypeError, ValueError):
    return f'```python\n{name}\n```'
  annotations = ranges.annotations_of(function)
  lines = [_argument(parameter, annotations.get(key)) for key, parameter in found.parameters.items()]
  lines = _with_markers(lines, found.parameters.values())
  returned = (
    '' if found.return_annotation in (inspect.Signature.empty, None) else f' -> {_type(found.return_annotation)}'
  )
  inside = ''.join(f'  {line}\n' for line in lines)
  return f'```python\n{name}(' + (f'\n{inside}' if inside else '') + f'){returned}\n```'


def _argument(parameter, annotation) -> str:
  stars = {parameter.VAR_POSITIONAL: '*', parameter.VAR_KEYWORD: '**'}.get(parameter.kind, '')
  typed = '' if parameter.annotation is parameter.empty else f': {_type(parameter.annotation)}'
  default = '' if parameter.default is parameter.empty else f' = {_default(parameter.default)}'
  return f'{stars}{parameter.name}{typed}{default},{_range(annotation)}'


def _with_markers(lines, parameters) -> list[str]:
  """The lines with `/` and `*` where arguments are by position or by name alone."""
  kinds = [parameter.kind for parameter in parameters]
  out = []
  for i, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
    if kind is inspect.Parameter.KEYWORD_ONLY and not {*kinds[:i]} & {kind, inspect.Parameter.VAR_POSITIONAL}:
      out.append('*,')
    out.append(line)
    if kind is inspect.Parameter.POSITIONAL_ONLY and kinds[i + 1 : i + 2] != [kind]:
      out.append('/,')
  return out


def _range(annotation) -> str:
  """A comment with the bounds of a number."""
  words = ranges.describe(annotation)
  bounds = re.match(r'a (?:whole )?number (?:of )?((?:at least|above|at most|below) .*?)(?:, or|$)', words)
  return f'  # {bounds[1]}' if bounds else ''


def _type(annotation) -> str:
  text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
  for long, name in ARRAYS.items():
    text = text.replace(long, name)
  text = re.sub(r'Annotated\[([^,\[\]]+), Range\([^)]*\)\]', r'\1', text.replace('typing.', ''))
  text = re.sub(r'\b(?:[a-z_]\w*\.)+(?=[A-Z])', '', text)  # modules of types
  text = re.sub(r'Optional\[([^\[\]]*)\]', r'\1 | None', text)
  return re.sub(r'Literal\[([^\]]*)\]', lambda m: m[1].replace(', ', ' | '), text)


def _default(value) -> str:
  if callable(value) and hasattr(value, '__name__'):
    return value.__name__
  text = re.sub(r'<[^<>]*? object at 0x[0-9a-f]+>|<PjitFunction of <function (\w+)[^>]*>>', '...', repr(value))
  return re.sub(r'\b(?:[a-z_]\w*\.)+(?=[A-Z])', '', text)
