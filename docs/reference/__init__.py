"""Pages that are made from the code, docs/results/ and the notebooks, each time the documentation is built."""

import pathlib

from fedkd import methods
from reference import api, cheat_sheet, config_fields, method, notebooks


def write(docs: pathlib.Path) -> None:
  """Writes docs/methods/, docs/api/ and docs/notebooks/, which are not committed."""
  results = '\n'.join(path.read_text() for path in sorted((docs / 'results').glob('*.md')))
  shown = notebooks.copied(docs.parent / 'notebooks', docs / 'notebooks')
  _folder(docs / 'methods', {name: method.page(name, results, shown) for name in methods.__all__} | {
    'index': method.index(), 'deviations': method.deviations()})  # fmt: skip
  _folder(docs / 'api', api.pages() | {'cheat_sheet': cheat_sheet.page(), 'config_fields': config_fields.page()})
  _folder(docs / 'notebooks', {'index': notebooks.gallery(shown, docs / 'gallery')})


def _folder(folder, pages):
  folder.mkdir(exist_ok=True)
  for name, page in pages.items():
    path = folder / f'{name}.md'
    if not path.is_file() or path.read_text() != page:  # else every build would read all pages again
      path.write_text(page)
