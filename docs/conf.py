"""Sphinx: `./launch/docs.sh`. Pages of methods, modules and fields are made by `docs/reference/`."""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import fedkd  # noqa: E402
import reference  # noqa: E402

project = 'fedkd'
version = release = fedkd.__version__
extensions = ['myst_nb', 'sphinx_copybutton', 'sphinx_design']
exclude_patterns = ['_build', 'jupyter_execute']  # what myst-nb leaves beside the first
html_theme = 'furo'
html_title = 'fedkd'
html_static_path = ['static']
html_css_files = ['site.css']
myst_heading_anchors = 3
nb_execution_mode = 'off'  # notebooks are shown with the outputs that are stored in them
nb_merge_streams = True
html_show_copyright = False
smartquotes = False  # 'own' is a value to be typed

reference.write(DOCS)


def setup(app):
  """Papers' pages link to RESULTS.md, which readers of the repository see; the site includes it in results.md."""
  moved = lambda text: text.replace('](../../RESULTS.md', '](../results.md')
  app.connect('source-read', lambda app, name, source: source.__setitem__(0, moved(source[0])))
