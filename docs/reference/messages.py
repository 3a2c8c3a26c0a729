"""What one client sends and receives in a round, read off a method's own messages by `fedkd.ledger`.

Shapes suffice: nothing is compiled or trained.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np

from fedkd import ledger
from fedkd.models.initial import group_variables
from fedkd.round import of_client
from fedkd.states import initial_state
from fedkd.types import Download, Known, PeerMessages, PyTree, is_partial
from reference import example, markdown

WHOLE = ('params', 'batch_stats')  # all arrays of a model are one row


class Part(NamedTuple):
  """A row of a table: an array of a message, or all arrays of a model."""

  where: str
  what: str
  kind: str
  numbers: int
  bytes: int
  at_most: bool  # only valid entries are sent


@functools.cache
def of_client_0(name: str) -> tuple[PyTree, Download]:
  """(upload, download) of client 0 of a method's example, as shapes."""
  method, federation = example.method(name), example.federation(name)
  groups, data = federation.groups, federation.data()

  def messages(key, t):
    variables = tuple(group_variables(key, group, federation.pool.example[0], 'equal') for group in groups)
    state = initial_state(key, method, federation, variables)
    down = method.server.send(key, t, groups, state.server, tuple(np.asarray(group.ids) for group in groups), data)[0]
    client, own = jax.tree.map(lambda leaf: leaf[0], (state.client[0], down.own))
    down = Download(down.shared, own)
    return method.client.step(key, t, groups[0].model, client, down, of_client(data[0], 0))[1], down

  return jax.eval_shape(messages, jax.random.key(0), np.int32(0))


def parts(message: PyTree, root: str) -> list[Part]:
  """The rows of a message that is called `root`."""
  rows: dict[str, Part] = {}
  for path, leaf in jax.tree_util.tree_flatten_with_path(message, is_leaf=_is_leaf)[0]:
    names = [str(getattr(entry, 'key', getattr(entry, 'name', entry))) for entry in path]
    model = next((i for i, name in enumerate(names) if name in WHOLE), len(names))
    where = root + jax.tree_util.keystr(path[: model + 1])
    for kind, (numbers, size) in ledger.capacity(_nested(names, leaf)).items():
      part = Part(where, _what(leaf), kind, numbers, size, is_partial(leaf))
      rows[where] = _together(rows[where], part) if where in rows else part
  return list(rows.values())


_is_leaf = lambda node: is_partial(node) or isinstance(node, Known)


def _nested(names, leaf):
  """A message of one leaf, by whose names the ledger calls it."""
  for name in reversed(names):
    leaf = {name: leaf}
  return leaf


def _together(one: Part, other: Part) -> Part:
  numbers, size = one.numbers + other.numbers, one.bytes + other.bytes
  return Part(one.where, 'all arrays', one.kind, numbers, size, one.at_most or other.at_most)


def _what(leaf) -> str:
  array = leaf.value if is_partial(leaf) else leaf
  text = f'`{array.dtype}{list(array.shape) or ""}`'
  return f'{text}, without its own row' if isinstance(leaf, PeerMessages) else text


def table(name: str) -> str:
  """The messages of a method as Markdown."""
  rows = []
  for message, root in zip(of_client_0(name), ('upload', 'download'), strict=True):
    entries = parts(message, root)
    rows += [(f'`{one.where}`', *sizes([one]), one.what, one.kind) for one in entries]
    rows += [(f'all of the {root}', *sizes(entries), '', '')] if len(entries) > 1 else []
  return markdown.table(('entry', 'bytes', 'numbers', 'array', 'kind'), rows) if rows else 'Nothing is sent.'


def totals(name: str) -> tuple[str, ...]:
  """Bytes of the upload and of the download."""
  return tuple(sizes(parts(message, ''))[0] for message in of_client_0(name))


def sizes(entries: list[Part]) -> tuple[str, str]:
  """Bytes and numbers, with a space that does not break behind the sign."""
  most = '≤\u00a0' if any(one.at_most for one in entries) else ''
  return f'{most}{sum(one.bytes for one in entries):,}', f'{most}{sum(one.numbers for one in entries):,}'
