"""The figures of a report, as SVG that takes the colours of the page around it."""

import functools
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes

from fedkd import analysis
from fedkd.analysis.figures.ends import MOST
from fedkd.analysis.figures.notes import wrapped
from fedkd.analysis.figures.panels import blank
from fedkd.analysis.figures.values import final_of_clients
from fedkd.report.chosen import Runs, levels

SIZE = (4.8, 3.9)  # inches: text stays legible where a phone shows it
MOST_POINTS = 1000  # of runs and clients in one figure: more cannot be told apart, and make the page heavy
LETTERS = 34, 52  # that fit beside a vertical axis, and in a line of the legend
MARK = 6  # letters, as wide as the mark before a name
# Text as text; a $ in a name is no mathematics; the same runs give the same bytes.
OPTIONS: dict[Any, Any] = {'svg.fonttype': 'none', 'text.parse_math': False, 'font.size': 11}
OPTIONS |= {'svg.hashsalt': 'fedkd'}
# Colours of the page; the others are its variables, which have another value where the page is dark.
OF_PAGE = {'#000000': 'currentColor', '#ffffff': 'var(--paper)'}
HIDDEN = re.compile(r'<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->', re.DOTALL)


class Drawing(NamedTuple):
  """A figure and what it shows."""

  title: str
  svg: str
  caption: str


def every(runs: Runs) -> list[Drawing]:
  """All figures that the runs allow: over rounds and megabytes, what clients gain, and the worst client."""
  with matplotlib.rc_context(OPTIONS), warnings.catch_warnings():
    warnings.simplefilter('ignore')  # of names that have no glyph: the browser has its own fonts
    return [Drawing(title, _svg(draw, f'f{i}', title), said) for i, (title, draw, said) in enumerate(_wanted(runs))]


def shown(runs: Runs) -> list[str]:
  """The runs in the figures: of more than a legend has room for, the reference and the best ones."""
  best = levels(runs).drop(runs.base).nlargest(MOST - 1).index
  return [run for run in runs.paths if run == runs.base or run in best]


def _wanted(runs) -> Iterator[tuple[str, Callable, str]]:
  """(title, function that draws in axes, caption)."""
  frame, colours = runs.frame[runs.frame['run'].isin(shown(runs))], analysis.colours(runs.frame)
  draw = functools.partial
  yield (
    'Accuracy over rounds',
    draw(analysis.curves, frame, colours=colours),
    'Mean over clients and seeds.',
  )
  if any(frame['metric'] == 'bytes_up'):
    yield (
      'Accuracy against megabytes',
      draw(analysis.pareto, frame, colours=colours),
      'At the end; all that clients sent and received.',
    )
  if len(runs.paths) > 1:
    clients = final_of_clients(frame, 'accuracy')[runs.base].shape[1]
    gain = draw(analysis.gain, frame, runs.base, colours=colours)
    if clients * len(shown(runs)) <= MOST_POINTS:
      yield 'Gain of each client', gain, f'Over {runs.base}, paired over seeds; above 0 a client is better off.'
    yield (
      'Gain of each architecture',
      draw(gain, by='architecture'),
      f'Over {runs.base}, mean over the clients of each architecture.',
    )
  yield 'Worst client', draw(analysis.worst, frame, colours=colours), 'At the end, beside the mean over clients.'


def _svg(draw: Callable, prefix: str, title: str) -> str:
  """SVG to be placed in a page: no size of its own, names that no other figure has, and the page's colours."""
  axes: Axes = blank(*SIZE)
  draw(axes=axes)
  _fit(axes)
  made, figure = io.StringIO(), axes.get_figure(root=True)
  figure.savefig(made, format='svg', transparent=True, metadata={'Date': None, 'Creator': None})  # type: ignore[union-attr]
  text = HIDDEN.sub('', made.getvalue())
  text = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{title}">', text)
  text = text[text.index('<svg') :].replace('xlink:href', 'href')
  text = re.sub(r'\b(id="|href="#|url\(#)', rf'\1{prefix}-', text)
  return re.sub(r'style="[^"]*"', lambda style: _of_page(style[0]), text)


def _fit(axes: Axes) -> None:
  """The legend above the axes, which have the whole width then, and a vertical label that is not cut off."""
  axes.set_ylabel(textwrap.fill(axes.get_ylabel(), LETTERS[0]))
  if axes.get_legend() is not None:
    handles, names = axes.get_legend_handles_labels()
    labels = [wrapped(name, LETTERS[1] - MARK) for name in names]
    axes.get_legend().remove()  # type: ignore[union-attr]
    columns = max(1, LETTERS[1] // (max(map(len, names)) + MARK))
    options: dict[str, Any] = {'loc': 'outside upper left', 'ncols': columns, 'frameon': False, 'fontsize': 'small'}
    axes.get_figure(root=True).legend(handles, labels, **options)  # type: ignore[union-attr]


def _of_page(style: str) -> str:
  """A style with the colours and the font of the page."""
  style = re.sub(r"(?<=px )'DejaVu Sans'[^;\"]*", 'var(--sans)', style)
  return re.sub('#[0-9a-f]{6}', lambda found: on_page(found[0]), style)


def on_page(colour: str) -> str:
  """A colour '#rrggbb' as the page has it, for a style."""
  return OF_PAGE.get(colour, f'var(--c{colour[1:]})')


def variables(text: str) -> list[str]:
  """The colours that a text has as variables, as '#RRGGBB'."""
  return [f'#{digits}' for digits in sorted(set(re.findall(r'var\(--c([0-9a-f]{6})\)', text)))]
