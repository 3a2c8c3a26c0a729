"""Checks that every link of the built site leads somewhere: `python docs/links.py [--external]`.

Links to other sites are counted, or listed; they are not opened.
"""

import html.parser
import pathlib
import sys
import urllib.parse

SITE = pathlib.Path(__file__).parent / '_build'


class Page(html.parser.HTMLParser):
  """The links and the anchors of a page."""

  def __init__(self, text):
    super().__init__()
    self.links, self.anchors = set(), set()
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    """Collects them."""
    found = dict(attrs)
    self.anchors |= {found[key] for key in ('id', 'name') if found.get(key)}
    self.links |= {found[key] for key in ('href', 'src') if found.get(key)}


def broken(pages: dict[pathlib.Path, Page]) -> list[str]:
  """Links inside the site without a file, or without the anchor in it."""
  out = []
  for path, page in pages.items():
    for link in sorted(page.links):
      parts = urllib.parse.urlsplit(link)
      if parts.scheme or parts.netloc:
        continue
      target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
      anchor = urllib.parse.unquote(parts.fragment)
      if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
        out.append(f'{path.relative_to(SITE)}: {link}')
  return out


if __name__ == '__main__':
  found = {path.resolve(): Page(path.read_text()) for path in sorted(SITE.rglob('*.html'))}
  external = sorted({link for page in found.values() for link in page.links if link.startswith('http')})
  if '--external' in sys.argv:
    print('\n'.join(external))
  wrong = broken(found)
  print('\n'.join(wrong) or f'{len(found)} pages, every link leads somewhere; {len(external)} links to other sites')
  sys.exit(bool(wrong))
