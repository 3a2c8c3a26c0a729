"""Names in figures as they are: a run or class may be called $5-$10, which Matplotlib would read as mathematics."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter, ScalarFormatter

Arguments = ParamSpec('Arguments')
Drawn = TypeVar('Drawn')


def plain(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
  """A function that draws, without mathematics in the texts that it writes."""

  @functools.wraps(draw)
  def drawing(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Drawn:
    given = [one for one in (*args, *kwargs.values()) if isinstance(one, Axes)]
    title, usual = given[0].get_title() if given else '', matplotlib.rcParams['text.parse_math']
    with matplotlib.rc_context({'text.parse_math': False}):  # heeded where a text is made, not where it is drawn
      drawn = draw(*args, **kwargs)
      if isinstance(drawn, Axes):
        _settle(drawn, drawn.get_title() != title, usual)
    return drawn

  return drawing


def _settle(axes, has_title, usual):
  """Makes the names that given axes have texts for plain; powers of ten and a caller's title stay as they are usually
  read."""
  axes.title.set_parse_math(usual and not has_title)
  for axis in (axes.xaxis, axes.yaxis):
    is_number = isinstance(axis.get_major_formatter(), LogFormatter | ScalarFormatter)
    for text in axis.findobj(Text):
      text.set_parse_math(usual and is_number)
    axis.label.set_parse_math(usual and '$' not in axis.label.get_text())
