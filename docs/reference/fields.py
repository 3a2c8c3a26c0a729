"""Fields of NamedTuples with the comments behind them in the source."""

import ast
import inspect
from typing import NamedTuple

from fedkd.config.meanings import comments


class Field(NamedTuple):
  """A field as its class declares it."""

  name: str
  type: str
  comment: str


def of_class(kind: type) -> list[Field]:
  """The fields of a NamedTuple, in order."""
  source = inspect.getsource(kind)
  said = comments(source)
  body = ast.parse(source).body[0].body
  fields = [node for node in body if isinstance(node, ast.AnnAssign)]
  return [Field(node.target.id, ast.unparse(node.annotation), said.get(node.end_lineno, '')) for node in fields]
