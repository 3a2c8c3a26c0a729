"""A method's page, and those about all methods."""

import inspect
import re

from fedkd import methods
from fedkd.config.meanings import paragraphs
from reference import deviations as stated
from reference import drawing, example, messages, results
from reference.markdown import flow, markdown, table
from reference.notebooks import Notebook, links
from reference.signature import signature

# `Learned: ... Sent, averaged: ...`, as a docstring says it.
ABOUT = re.compile(r'(?:^|(?<=\. ))((?:[Ll]earned|[Ss]ent|[Aa]veraged)(?:(?:,| and) (?:learned|sent|averaged))*): ')
# A config that trains a method in seconds on embedded digits.
CONFIGS = {
  **dict.fromkeys(('private', 'agg', 'fedh2l'), 'quickstart:smoke'),
  'fedhe': 'fedhe_digits:smoke',
  **dict.fromkeys(sorted(example.PUBLIC), 'public_mnist:smoke'),
  **dict.fromkeys(('felo', 'velo', 'fedgkt', 'heterofl', 'fedrolex', 'federated_dropout'), 'felo:smoke'),
  **dict.fromkeys(example.ONE, 'personal_digits:smoke,zoo=homo'),
  **dict.fromkeys(('dense', 'coboosting'), 'one_shot_mnist:smoke'),
}
LEARNED_ON_PUBLIC = (
  "Every client trains on the labelled public rows: a phase that comes before others, as in FedMD's config, "
  '`fedkd run fedmd:smoke`.'
)
INDEX = (
  'What each method sends; its page says what is learned and averaged, shows its messages in bytes, its arguments and '
  'what was measured. Bytes are those of one client in one round, for the ten classes, 50 public rows and small '
  'networks that its page states; ≤ where only valid entries are sent. Scalar arguments may be traced, as in a sweep '
  'under `jax.vmap`. [Deviations](deviations.md) collects where papers, code and this library differ.'
)
DEVIATIONS = (
  "What the docstrings say about papers, about their authors' code and about other implementations, method by method: "
  'where they disagree, which of them the defaults follow, and what is different here. Where a paper was read '
  'differently, [a decision](../decisions/papers.md) gives the reason; '
  '[the results](../results.md) say what a choice changes, where that was measured.'
)


def about(name: str) -> dict[str, str]:
  """{'Learned': ..., 'Sent': ..., 'Averaged': ...} by the docstring."""
  text = next(
    ' '.join(p.split()) for p in paragraphs(getattr(methods, name).__doc__) if ABOUT.match(' '.join(p.split()))
  )
  pieces = ABOUT.split(text)[1:]
  told = {word.lower(): what for words, what in zip(pieces[::2], pieces[1::2], strict=True)
          for word in re.findall(r'\w+', words) if word != 'and'}  # fmt: skip
  return {word.capitalize(): told[word].strip() for word in ('learned', 'sent', 'averaged')}


def page(name: str, text_of_results: str, notebooks: list[Notebook]) -> str:
  """A method's page."""
  function = getattr(methods, name)
  summary, *rest = [p for p in paragraphs(function.__doc__) if not ABOUT.match(' '.join(p.split()))]
  points = '\n'.join(f'* **{word}**: {_linked(flow(what), name)}' for word, what in about(name).items())
  found = links(notebooks, rf'\bmethods\.{name}\b|method={name}\b')
  parts = [
    f'# {name}',
    markdown(summary),
    points,
    markdown(inspect.getmodule(function).__doc__),
    '## Messages',
    f'What client 0 sends and receives in a round, by the ledger. {example.described(name)} Where only valid entries '
    'are sent, such as classes that were seen, ≤ stands before the most.',
    *_drawn(name),
    messages.table(name),
    '## Arguments',
    signature(f'fedkd.methods.{name}', function),
    *(markdown(part) for part in rest),
    '## In a run',
    _run(name),
    *([f'Notebooks with it: {found}.'] if found else []),
    *_paper_and_code(name),
    '## Results',
    results.of_method(name, text_of_results),
    'How these were measured, and the other methods: [Results](../results.md).',
  ]
  return '\n\n'.join(parts) + '\n'


def _drawn(name) -> list[str]:
  """The drawing of a method that sends something."""
  found = drawing.arrows(name)
  legend = ['In the drawing, what is called own is made for this client alone.']
  return [
    *(legend if any(arrow.name.startswith('own') for arrow in found) else []),
    *([drawing.drawing(name)] * bool(found)),
  ]


def command(name: str) -> str:
  """A run of seconds that trains a method; '' for one that is only a phase."""
  return '' if name == 'public' else f'fedkd run {CONFIGS.get(name, "personal_digits:smoke")},method={name}'


def _run(name) -> str:
  if not command(name):
    return LEARNED_ON_PUBLIC
  told = 'Seconds on embedded digits, with the fields of [a config](../api/config_fields.md):'
  return f'{told}\n\n```bash\n{command(name)} --workdir=runs/{name}\n```'


def _paper_and_code(name) -> list[str]:
  """What its docstring says about them, and where more is said."""
  chosen = ', '.join(f'`{key}`' for key in stated.arguments(name))
  more = f'Arguments that speak of them: {chosen}; [with their defaults](deviations.md#{name}).' if chosen else ''
  told = [part for part in ('\n'.join(stated.sentences(name)), more) if part]
  return ['## Paper and code', *told] if told else []


def _linked(text, own) -> str:
  """Text in which the names of other methods are links."""
  known = lambda m: f'[`{m[1]}`]({m[1]}.md)' if m[1] in methods.__all__ and m[1] != own else m[0]
  return re.sub(r'`(\w+)`', known, text)


def index() -> str:
  """A table of all methods."""
  shown = lambda name: _linked(flow(about(name)['Sent']), '')
  rows = [(f'[{name}]({name}.md)', shown(name), *messages.totals(name)) for name in methods.__all__]
  names = '\n'.join(['deviations', *methods.__all__])
  tree = f'```{{toctree}}\n:hidden:\n\n{names}\n```'
  return '\n\n'.join(['# Methods', INDEX, table(('method', 'sent', 'bytes up', 'bytes down'), rows), tree]) + '\n'


def deviations() -> str:
  """What all methods say about papers and code."""
  told = [(name, text) for name in methods.__all__ if (text := stated.section(name))]
  return '\n\n'.join(['# Deviations', DEVIATIONS, *(f'## [{name}]({name}.md)\n\n{text}' for name, text in told)]) + '\n'
