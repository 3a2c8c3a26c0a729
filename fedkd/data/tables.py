"""Tables as arrays: a column to learn, columns to learn it from, a column that says who owns each row."""

import difflib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedkd.checks import numeric
from fedkd.checks.kinds import short
from fedkd.data import columns, table_files
from fedkd.data.limits import LIMIT, check_size
from fedkd.errors import ConfigError

DRAW = 0  # seed of the test rows: part of the data set, not of a run


class Roles(NamedTuple):
  """Which column of a table is what."""

  label: str = 'label'
  user: str = ''  # who owns each row; '': nobody in particular
  features: tuple[str, ...] = ()  # to learn from; (): all others
  split: str = ''  # 'train' or 'test', row by row; '': `test` of the rows of each class are test rows
  test: float = 0.2
  missing: str = 'refuse'  # values of features: 'refuse', or the 'mean' or 'median' of the training rows


def read(path: Any, roles: Roles, limit: float = LIMIT) -> tuple:
  """(arrays, class names or None, None) of a file, as `sources` wants them; arguments as of `arrays`.

  Raises:
    ConfigError: with the line and the column of what does not fit.
  """
  name = f'table:{path}'
  frame, place = table_files.read(path, name, limit)
  return arrays(frame, place, name, roles, limit)


def arrays(
  frame: Any, place: Callable, name: str, roles: Roles, limit: float = LIMIT, is_test: np.ndarray | None = None
) -> tuple:
  """(arrays, class names or None, None) of a frame.

  Columns of text become one number for each text of the training rows, 0 or 1; text of test rows alone is all zeros.

  Args:
    frame: of pandas, N rows.
    place: row -> where it is, for the messages.
    name: of the set, likewise.
    roles: of its columns.
    limit: bytes that the numbers may take.
    is_test: bool[N], the test rows; None: as the roles say.

  Returns:
    {'x_train' float32[N, d], 'y_train' int[N], 'x_test', 'y_test', and 'origin' of the training rows if there are
    users}; the class names, None where labels are integers; None for the names of origins.

  Raises:
    ConfigError: with the row and the column of what does not fit.
  """
  features = features_of(list(frame.columns), name, roles)
  where = lambda row, column: f'data.name={name}, {place(row)}, column {column!r}'
  rows = labelled(frame, roles, where, is_test)
  if not roles.features:
    _warn_of_row_numbers(frame[features], name)
  held = [columns.numbers(frame[column], ~rows.is_test, roles.missing, where) for column in features]
  check_size(name, 4 * len(frame) * sum(block.shape[1] for block in held), limit)
  return in_splits(np.concatenate(held, axis=1), rows), rows.names, None


def _warn_of_row_numbers(frame, name):
  """Warns of an index among the columns: where rows are sorted by class, it tells the class of training rows."""
  for column in frame if len(frame) > 2 else ():
    if frame[column].dtype.kind in 'iu' and (np.diff(frame[column].to_numpy(np.int64)) == 1).all():
      warnings.warn(
        f'data.name={name}: column {column!r} numbers the rows, and is learned from as the others are; name those to '
        'learn from in data.columns',
        stacklevel=2,
      )


class Rows(NamedTuple):
  """What a table says of its N rows beside their features."""

  label: np.ndarray  # int[N]
  names: list | None  # of the classes; None for the labels themselves
  owner: np.ndarray | None
  is_test: np.ndarray  # bool[N]


def labelled(frame: Any, roles: Roles, where: Callable, is_test: np.ndarray | None = None) -> Rows:
  """The labels, owners and test rows of a frame; arguments as of `arrays` and `columns`."""
  label, names = columns.labels(frame[roles.label], where)
  owner = columns.owners(frame[roles.user], where) if roles.user else None
  return Rows(label, names, owner, _test_rows(frame, label, roles, where) if is_test is None else is_test)


def in_splits(x: np.ndarray, rows: Rows) -> dict:
  """Examples [N, ...] and what is known of them, as `sources` wants them."""
  of = lambda split, inside: {f'x_{split}': x[inside], f'y_{split}': rows.label[inside]}
  return {
    **of('train', ~rows.is_test),
    **(of('test', rows.is_test) if rows.is_test.any() else {}),
    **({} if rows.owner is None else {'origin': rows.owner[~rows.is_test]}),
  }


def features_of(known: list, name: str, roles: Roles) -> list:
  """The names of the columns to learn from, after all roles have been looked for among the `known` ones.

  Raises:
    ConfigError: for a column that is not there, or has two roles.
  """
  special = {'data.label': roles.label, 'data.user': roles.user, 'data.split': roles.split}
  asked = [*special.items(), *(('data.columns', column) for column in roles.features)]
  for field, column in asked:
    if column and column not in known:
      near = difflib.get_close_matches(column, list(map(str, known)), 1)
      guess = f'is it {near[0]!r}? Else ' if near else ''
      raise ConfigError(f'data.name={name} has no column {column!r}; {guess}set {field} to one of {shorten(known)}')
  taken = {column: field for field, column in special.items() if column}
  if both := [column for column in roles.features if column in taken]:
    raise ConfigError(f'data.columns has {both[0]!r}, which is {taken[both[0]]}; leave it out of one of them')
  if len(taken) < len([column for column in special.values() if column]):
    raise ConfigError(f'data.label, data.user and data.split name one column twice, {taken}; give each its own')
  features = list(roles.features) or [column for column in known if column not in taken]
  if not features:
    raise ConfigError(f'data.name={name} has no column to learn {roles.label!r} from, only {shorten(known)}; add one')
  return features


def shorten(names: Sequence, most: int = 20) -> str:
  """Names in one line of a message."""
  more = f', ... ({len(names)} in all)' if len(names) > most else ''
  return ', '.join(short(str(one)).strip('\'"') for one in names[:most]) + more


def _test_rows(frame, label, roles, where) -> np.ndarray:
  """Which rows are test rows, bool[N]."""
  if roles.split:
    is_test = columns.is_test(frame[roles.split], where)
    if is_test.all():
      raise ConfigError(f'{where(0, roles.split)} and below: all rows are test; write train for those to learn from')
    return is_test
  random, drawn = np.random.default_rng(DRAW), np.zeros(len(label), bool)
  for one in np.unique(label):
    rows = random.permutation(np.flatnonzero(label == one))
    drawn[rows[: numeric.floor_of_share(roles.test, len(rows))]] = True
  return drawn
