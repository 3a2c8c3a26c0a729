"""A report as one page of HTML, which needs no other file and no network.

Everything that comes from runs, such as names and configs, is escaped by Jinja; the figures escape it themselves.
"""

import pathlib
import re
from typing import Any

import fedkd
from fedkd.analysis.figures.style import colours
from fedkd.errors import ConfigError
from fedkd.report import drawings, themes
from fedkd.report.content import Content
from fedkd.report.rerun import report_command

TEMPLATES = pathlib.Path(__file__).parent / 'templates'


def text(content: Content) -> str:
  """The page.

  Raises:
    ConfigError: if jinja2 is missing.
  """
  try:
    import jinja2
  except ImportError as error:
    raise ConfigError(
      "format='html' needs jinja2, which is not installed; pip install 'fedkd[report]', or choose format='md'"
    ) from error
  loader = jinja2.FileSystemLoader(TEMPLATES)
  environment = jinja2.Environment(
    loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
  )
  environment.filters['breakable'] = _breakable
  drawn = drawings.every(content.runs)
  of_run = {run: drawings.on_page(colour.lower()) for run, colour in colours(content.runs.frame).items()}
  used = drawings.variables(' '.join([*(drawing.svg for drawing in drawn), *of_run.values()]))
  return environment.get_template('page.html').render(
    content=content,
    drawings=drawn,
    shown=len(drawings.shown(content.runs)),
    colour_of=of_run,
    light={colour[1:]: colour for colour in used},
    dark={colour[1:]: themes.on_dark(colour) for colour in used},
    papers=(themes.LIGHT, themes.DARK),
    command=report_command(content.reruns, content.runs.base),
    version=fedkd.__version__,
  )


def _breakable(text: str) -> Any:
  """A dotted name, escaped, that may be broken between its words on a narrow page."""
  import markupsafe

  return markupsafe.Markup(re.sub(r'([._/])', r'\1<wbr>', str(markupsafe.escape(text))))
