"""What fields mean: the comments behind them in the source, and the arguments in docstrings."""

import ast
import inspect
import io
import re
import textwrap
import tokenize

from fedkd.config import defaults

ITEM = re.compile(r'(\*?[\w.]+(?:, \*?[\w.]+)*): (.*)', re.DOTALL)


def of_fields() -> dict[str, str]:
  """{field: what it is, or ''} of every field of `defaults.default`, in order; a block's is that of its fields."""
  source = inspect.getsource(defaults.default)
  said, body = comments(source), ast.parse(source).body[0].body  # type: ignore[attr-defined]
  targets = ((ast.unparse(node.targets[0]), node) for node in body if hasattr(node, 'targets'))
  return {name.removeprefix('config.'): said.get(node.end_lineno, '') for name, node in targets if '.' in name}


def comments(source: str) -> dict[int, str]:
  """{line: comment}; a comment on lines of its own belongs to the line below."""
  found, above = {}, []
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type == tokenize.COMMENT:
      text = re.sub(r'^(type: \S+|noqa: \S+)(\s+#)?', '', token.string.lstrip('# ')).strip()
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


def paragraphs(doc: str | None) -> list[str]:
  """What blank lines separate."""
  return re.split(r'\n\s*\n', inspect.cleandoc(doc or ''))


def arguments(doc: str | None) -> dict[str, str]:
  """{name: what it is} of the section `Args:` of a docstring."""
  text = next((p for p in paragraphs(doc) if p.startswith('Args')), '').partition('\n')[2]
  matches = [ITEM.fullmatch(entry) for entry in re.split(r'\n(?=\S)', textwrap.dedent(text))]
  return {name: ' '.join(m[2].split()) for m in matches if m for name in m[1].split(', ')}
