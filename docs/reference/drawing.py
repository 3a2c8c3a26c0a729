"""The messages of a round as a drawing: client 0 on the left, the server on the right, time runs down.

SVG inside the page, in the page's own colour and font, without names that two drawings could share.
"""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from reference import messages

WIDTH, LEFT, RIGHT = 360, 48, 312  # of the drawing, and where the lines of client and server are: a phone's pixels
TOP, STEP = 34, 36  # below the names, and from one arrow to the next
HEAD = 7  # of an arrow
WHOLE = ('params', 'batch_stats', 'net')  # say nothing beside a name above them
STYLE = 'width: 100%; max-width: 30rem; font-family: inherit'
FRAME = 'fill="currentColor" fill-opacity="0.07" stroke="currentColor" stroke-opacity="0.6"'


class Arrow(NamedTuple):
  """What one name of a message takes."""

  name: str
  bytes: str
  is_up: bool


def arrows(method: str) -> list[Arrow]:
  """Those of a round in their order: what is downloaded, then what is uploaded."""
  up, down = messages.of_client_0(method)
  return [*_of_message(down, False), *_of_message(up, True)]


def _of_message(message, is_up) -> Iterator[Arrow]:
  """One for each name of its first level."""
  named: dict = {}
  for part in messages.parts(message, ''):
    keys = re.findall(r"\['(\w+)'\]", part.where)
    named.setdefault((part.where.startswith('.own'), *keys[:1]), []).append((keys, part))
  for (is_own, *_), found in named.items():
    keys = _common([keys for keys, _ in found])
    yield Arrow(' '.join(['own'] * is_own + keys), messages.sizes([part for _, part in found])[0], is_up)


def _common(paths) -> list[str]:
  """The names that all entries have, without a last one that only says that it is a model's."""
  same = [name for name, *others in zip(*paths, strict=False) if {name} == set(others) | {name}]
  return same[:-1] if len(same) > 1 and same[-1] in WHOLE else same


def drawing(method: str) -> str:
  """HTML of the drawing."""
  found = arrows(method)
  turn = sum(not arrow.is_up for arrow in found)  # where the client trains
  heights = [TOP + STEP * (i + 1 + (i >= turn)) for i in range(len(found))]
  bottom = TOP + STEP * (len(found) + 1) + STEP // 2
  lines = [
    f'<svg viewBox="0 0 {WIDTH} {bottom + 2}" role="img" aria-label="{html.escape(_said(found))}" style="{STYLE}" '
    'font-size="13" text-anchor="middle" fill="currentColor" stroke-width="1.2">',
    *(_line(x, bottom) for x in (LEFT, RIGHT)),
    *(_box(x, 0, name) for x, name in ((LEFT, 'client 0'), (RIGHT, 'server'))),
    _box(LEFT, TOP + STEP * (turn + 1) - STEP // 2 - 6, 'trains'),
    *(_arrow(arrow, y) for arrow, y in zip(found, heights, strict=True)),
    '</svg>',
  ]
  return '\n'.join(['<figure>', *lines, '</figure>'])


def _said(found) -> str:
  """The drawing in words."""
  of = lambda is_up: ', '.join(f'{a.name} ({a.bytes} bytes)' for a in found if a.is_up is is_up) or 'nothing'
  return f'Client 0 receives {of(False)}, trains, and sends {of(True)}.'


def _line(x, bottom) -> str:
  return f'<path d="M{x} 30V{bottom}" stroke="currentColor" stroke-opacity="0.4" stroke-dasharray="3 4"/>'


def _box(x, y, text) -> str:
  frame = f'<rect x="{x - 42}" y="{y + 1}" width="84" height="28" rx="6" fill="var(--color-background-primary, none)"/>'
  return (
    f'{frame}<rect x="{x - 42}" y="{y + 1}" width="84" height="28" rx="6" {FRAME}/>'
    f'<text x="{x}" y="{y + 20}">{html.escape(text)}</text>'
  )


def _arrow(arrow, y) -> str:
  """A label, and below it a line with a head at the receiver's end."""
  start, end = (LEFT, RIGHT) if arrow.is_up else (RIGHT, LEFT)
  back = -HEAD if arrow.is_up else HEAD
  return (
    f'<text x="{WIDTH // 2}" y="{y - 6}">{html.escape(arrow.name)}: {arrow.bytes}\u00a0B</text>'
    f'<path d="M{start} {y}H{end + back}" stroke="currentColor"/>'
    f'<path d="M{end} {y}l{back} {-HEAD // 2}v{2 * (HEAD // 2 + 1)}z"/>'
  )
