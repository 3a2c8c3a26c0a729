"""The notebooks as pages, and the gallery of their figures.

A notebook is rendered with the outputs that are stored in it; building the documentation runs none. Copies lie in
docs/notebooks while it is built.
"""

import base64
import json
import pathlib
import re
from typing import NamedTuple

from fedkd import analysis
from reference.markdown import first_sentence, flow, sentence

MOVED = {'](../docs/': '](../', '](../RESULTS.md': '](../results.md'}  # links, seen from the copy
CARD = '```{{grid-item-card}} {title}\n:link: {link}\n:link-type: {kind}\n{image}\n{text}\n```'
FIGURES = (
  'By functions of `fedkd.analysis`, of eight clients with two architectures and skewed labels that learn MNIST '
  'digits, drawn by `docs/figures.py`; and of runs. Each links to the image in full size.'
)
GRID = '````{{grid}} 1 2 2 3\n:gutter: 3\n\n{}\n````'


class Notebook(NamedTuple):
  """What other pages say about a notebook."""

  name: str
  title: str
  text: str  # its first two sentences
  thumbnail: str  # a file beside it, '' where no figure is stored
  code: str


def copied(source: pathlib.Path, target: pathlib.Path) -> list[Notebook]:
  """Copies all notebooks of a folder, and takes the first figure out of each."""
  target.mkdir(exist_ok=True)
  for old in target.glob('*.ipynb'):
    if not (source / old.name).exists():
      old.unlink()
  return [_copied(path, target) for path in sorted(source.glob('*.ipynb'))]


def _copied(path, target) -> Notebook:
  text = path.read_text()
  for link, moved in MOVED.items():
    text = text.replace(link, moved)
  _write(target / path.name, text.encode())
  cells = json.loads(text)['cells']
  prose = [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown']
  code = '\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code')
  title = next((line.lstrip('# ') for line in prose[0].splitlines() if line.startswith('# ')), path.stem)
  first = next((part for part in re.split(r'\n\s*\n', '\n\n'.join(prose)) if part[0] not in '#[!<`'), '')
  image = next((data for cell in cells for data in _images(cell)), '')
  if image:
    _write(target / f'{path.stem}.png', base64.b64decode(image))
  return Notebook(path.stem, title, sentence(first, 2), f'{path.stem}.png' if image else '', code)


def _images(cell):
  return [''.join(out['data']['image/png']) for out in cell.get('outputs', ()) if 'image/png' in out.get('data', ())]


def _write(path, content):
  if not path.is_file() or path.read_bytes() != content:
    path.write_bytes(content)


def links(notebooks: list[Notebook], pattern: str) -> str:
  """Links, from a neighbouring folder, to the notebooks whose code matches a pattern; '' if none does."""
  found = [f'[{one.title}](../notebooks/{one.name}.ipynb)' for one in notebooks if re.search(pattern, one.code)]
  return ', '.join(found)


def gallery(notebooks: list[Notebook], figures: pathlib.Path) -> str:
  """A page of cards: the notebooks, and the figures in a folder."""
  cards = [_card(one.title, one.name, 'doc', one.thumbnail, one.text) for one in notebooks]
  hidden = '\n'.join(one.name for one in notebooks)
  images = [*sorted(figures.glob('*.png')), *sorted(figures.parent.glob('*.png'))]
  shown = [_figure(path, figures.parent) for path in images]
  return (
    '# Notebooks and figures\n\nNotebooks are shown with the outputs of their last run.\n\n'
    f'```{{toctree}}\n:hidden:\n\n{hidden}\n```\n\n{GRID.format(chr(10).join(cards))}\n\n'
    f'## Figures\n\n{FIGURES}\n\n'
    f'{GRID.format(chr(10).join(shown))}\n'
  )


def _card(title, link, kind, image, text) -> str:
  text = ' '.join(text.split())
  return CARD.format(title=title, link=link, kind=kind, image=f':img-top: {image}\n' if image else '', text=text)


def _figure(path, docs) -> str:
  """A card of an image; one that is called like a function of `fedkd.analysis` says what it does."""
  image, whole = f'../{path.relative_to(docs)}', f'../_images/{path.name}'  # where Sphinx puts it
  if path.stem in analysis.__all__:
    return _card(path.stem, whole, 'url', image, first_sentence(getattr(analysis, path.stem).__doc__))
  return _card(flow(path.stem.replace('-', ' ').replace('_', ' ').capitalize()), whole, 'url', image, '')
