"""Fields of NamedTuples and of configs with the comments behind them in the source."""

import ast
import inspect
import io
import re
import tokenize
from typing import NamedTuple


class Field(NamedTuple):
  """A field as its class declares it."""

  name: str
  type: str
  comment: str


def comments(source: str) -> dict[int, str]:
  """{line: comment}; a comment on lines of its own belongs to the line below."""
  found, above = {}, []
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type == tokenize.COMMENT:
      text = re.sub(r'^type: \S+(\s+#)?', '', token.string.lstrip('# ')).strip()
      if token.line.strip().startswith('#'):
        above.append(text)
      elif text:
        found[token.start[0]] = ' '.join([*above, text])
        above = []
    elif token.type == tokenize.NEWLINE:
      if above:
        found[token.start[0]] = ' '.join(above)
      above = []
  return found


def of_class(kind: type) -> list[Field]:
  """The fields of a NamedTuple, in order."""
  source = inspect.getsource(kind)
  said = comments(source)
  body = ast.parse(source).body[0].body
  fields = [node for node in body if isinstance(node, ast.AnnAssign)]
  return [Field(node.target.id, ast.unparse(node.annotation), said.get(node.end_lineno, '')) for node in fields]
