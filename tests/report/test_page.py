"""The page in headless Chromium: nothing complains, nothing scrolls sideways, tables are sorted."""

import chromium
import pytest

import fedkd

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not chromium.PROGRAM, reason='needs Chromium')]
TEXTS = """[...document.querySelector('table').tBodies[0].rows].map((row) => row.cells[%d].textContent.trim())"""


@pytest.fixture(scope='module')
def url(finished, tmp_path_factory):
  pytest.importorskip('jinja2')
  path = tmp_path_factory.mktemp('page') / 'report.html'
  fedkd.report(finished, path)
  return path.as_uri()


@pytest.fixture
def page(tmp_path):
  with chromium.opened(tmp_path / 'profile') as opened:
    yield opened


@pytest.mark.parametrize('dark', [False, True])
@pytest.mark.parametrize('width', [1280, 390])
def test_it_fits_and_nothing_complains(page, url, width, dark):
  page.show(url, width, dark)
  assert page.evaluate('document.documentElement.scrollWidth') <= width
  paper = page.evaluate('getComputedStyle(document.body).backgroundColor')
  assert paper == ('rgb(20, 23, 28)' if dark else 'rgb(255, 255, 255)')
  assert page.evaluate("document.querySelectorAll('svg text').length") > 30
  assert not page.complaints()
  assert page.requests() == [url]


def test_a_click_sorts_by_number(page, url):
  page.show(url, 1280)
  click = "document.querySelectorAll('table.sortable th button')[1].click()"
  page.evaluate(click)
  falling = [float(text.split()[0]) for text in page.evaluate(TEXTS % 1)]
  assert falling == sorted(falling, reverse=True)
  page.evaluate(click)
  assert [float(text.split()[0]) for text in page.evaluate(TEXTS % 1)] == falling[::-1]
  assert page.evaluate("document.querySelectorAll('[aria-sort]').length") == 1
  page.evaluate("document.querySelectorAll('table.sortable th button')[2].click()")
  assert page.evaluate(TEXTS % 2)[-1] == 'reference'  # which is no number
  assert not page.complaints()


def test_on_paper_it_is_light_and_unfolded(page, url, tmp_path):
  page.show(url, 800, dark=True, media='print')
  assert page.evaluate('getComputedStyle(document.body).color') == 'rgb(27, 31, 36)'
  page.pdf(tmp_path / 'report.pdf')
  assert (tmp_path / 'report.pdf').read_bytes().startswith(b'%PDF')
  assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
