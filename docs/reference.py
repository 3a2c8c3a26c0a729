"""Pages made from the code: one per method, with its rows of RESULTS.md, and one per public module.

A docstring here is plain text with code in backquotes, `Args:` and lists of `name: what it is`. That is nearly
Markdown, so it is written as such: reStructuredText, which autodoc expects, reads `*`, `|` and `_` as its own.
"""

import importlib
import inspect
import pathlib
import re
import textwrap

from fedkd import methods

MODULES = (
  *(
    'fedkd.federation',
    'fedkd.simulation',
    'fedkd.training',
    'fedkd.history',
    'fedkd.round',
    'fedkd.types',
    'fedkd.plan',
    'fedkd.parts',
    'fedkd.ledger',
    'fedkd.codecs',
  ),
  *('fedkd.local', 'fedkd.losses', 'fedkd.optimizers', 'fedkd.schedules', 'fedkd.examples', 'fedkd.inference'),
  *('fedkd.aggregate', 'fedkd.aggregate.rule', 'fedkd.servers', 'fedkd.methods', 'fedkd.models', 'fedkd.config'),
  *('fedkd.distillation', 'fedkd.methods.selectors', 'fedkd.experiment', 'fedkd.analysis', 'fedkd.data.sources'),
  *('fedkd.data.splits.partition', 'fedkd.data.splits.personal_splits', 'fedkd.data.splits.skews'),
  'fedkd.data.catalogue',
)
ALONE = {'private', 'ind', 'agg', 'pooled'}  # reference rows, shown with every method
TABLES = {'private': {'private', 'ind'}, 'agg': {'agg', 'pooled'}}  # names in RESULTS.md, where they differ
ITEM = re.compile(r'(\*?[\w.]+(?:, \*?[\w.]+)*): (.*)', re.DOTALL)
SECTION = re.compile(r'(Args|Returns|Raises|Yields)( \(.*\))?:$')


def write(docs: pathlib.Path) -> None:
  """Writes docs/methods/*.md and docs/api/*.md, and their indices."""
  results = _tables((docs.parent / 'RESULTS.md').read_text())
  pages = {name: _method(name, results) for name in methods.__all__}
  _folder(docs / 'methods', 'Methods', 'A page per method: what is learned, sent and averaged, its arguments, and what '
          'was measured. Scalar arguments may be traced, as in a sweep under `jax.vmap`.', pages)  # fmt: skip
  _folder(docs / 'api', 'API reference', 'The public modules, level by level; `fedkd` itself exports what a notebook '
          'types.', {name: _module(name) for name in MODULES})  # fmt: skip


def _folder(folder, title, text, pages):
  folder.mkdir(exist_ok=True)
  names = '\n'.join(pages)
  index = f'# {title}\n\n{text}\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n'
  for name, page in {'index': index, **pages}.items():
    path = folder / f'{name}.md'
    if not path.is_file() or path.read_text() != page:  # else every build would read all pages again
      path.write_text(page)


def markdown(doc: str | None) -> str:
  """A docstring as Markdown."""
  blocks = re.split(r'\n\s*\n', inspect.cleandoc(doc or ''))
  return '\n\n'.join(_block(block) for block in blocks)


def _block(block):
  first, _, rest = block.partition('\n')
  if match := SECTION.match(first.strip()):
    rest = textwrap.dedent(rest)
    found = _items(rest) if match[1] != 'Returns' else None
    return f'**{match[1]}{match[2] or ""}:**\n\n{found or _flow(rest)}'
  if block.startswith(' '):
    block = textwrap.dedent(block)
    return _items(block) or f'```text\n{block}\n```'
  return _items(block) or _flow(block)


def _flow(text):
  """A paragraph; whatever is not in backquotes is text."""
  parts = re.split(r'(`[^`]*`)', ' '.join(text.split()))
  return ''.join(part if part.startswith('`') else re.sub(r'([\[\]<>*_|])', r'\\\1', part) for part in parts)


def _items(text):
  """`name: what` and lines that belong to it as a list; None where the text is no such list."""
  entries = re.split(r'\n(?=\S)', text)
  matches = [ITEM.fullmatch(entry) for entry in entries]
  if not all(matches) or (len(entries) == 1 and '\n' not in text and len(text) > 100):
    return None
  return '\n'.join(f'* `{m[1]}`: {_flow(m[2])}' for m in matches)


def _signature(name, function):
  try:
    text = str(inspect.signature(function))
  except (TypeError, ValueError):
    return f'`{name}`'
  text = re.sub(r'Annotated\[(\w+), Range\([^)]*\)\]', r'\1', text.replace('typing.', ''))
  text = re.sub(r'\b(?:[a-z_]\w*\.)+(?=[A-Z])', '', text)  # modules of types
  text = re.sub(r'<function (\w+) at 0x[0-9a-f]+>', r'\1', text)
  text = re.sub(r'<[^<>]*? object at 0x[0-9a-f]+>|<PjitFunction of <function (\w+)[^>]*>>', '...', text)
  return f'```text\n{name}{text}\n```'


def _method(name, results):
  function = getattr(methods, name)
  module = inspect.getmodule(function)
  names = TABLES.get(name, {name})
  rows = [table for known, table in results if names & set(known)]
  shown = '\n\n'.join(_rows(table, names) for table in rows)
  return (
    f'# {name}\n\n{markdown(module.__doc__)}\n\n{_signature(f"fedkd.methods.{name}", function)}\n\n'
    f'{markdown(function.__doc__)}\n\n## Results\n\n{shown or "No table of RESULTS.md has a row of it yet."}\n\n'
    'How these were measured, and the other methods: [Results](../results.md).\n'
  )


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


def _rows(table, names):
  title, origin, header, rows = table
  kept = [row for row in rows if row.split('|')[1].strip() in ALONE | names]
  rule = '| ' + ' | '.join('---' for _ in header.split('|')[1:-1]) + ' |'
  return '\n'.join([f'**{title}**', '', origin, '', header, rule, *kept])


def _module(name):
  module = importlib.import_module(name)
  exported = getattr(module, '__all__', None) or [
    n for n, v in vars(module).items() if n[0] != '_' and getattr(v, '__module__', None) == name
  ]
  parts = [f'# {name}', markdown(module.__doc__)]
  for item in exported:
    value = getattr(module, item)
    if callable(value) and inspect.getdoc(value) and not inspect.ismodule(value):
      parts += [f'## {item}', _signature(item, value), markdown(value.__doc__)]
  return '\n\n'.join(parts) + '\n'
